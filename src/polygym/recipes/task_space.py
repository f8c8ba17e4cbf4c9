"""Drawing tasks from large spaces: lazily, without repeats, and with splits that are a property of the task.

The one idea: whether a task is held out is a hash of the task itself, never of a seed or a position. Whatever arguments
two environments were made with, what is a training task in one is no held-out task in the other.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from polygym.errors import UsageError
from polygym.seeds import derive_seed

HELD_OUT_IN = 5  # one task in five is held out

T = TypeVar("T")


def is_held_out(*key: int | str) -> bool:
    """Whether the task named by `key` belongs to the held-out split."""
    return derive_seed("held_out", *key) % HELD_OUT_IN == 0


def shuffled_range(size: int, seed: int) -> Iterator[int]:
    """The integers below `size` in random order, each once, with memory for those drawn only (Fisher and Yates).

    >>> sorted(shuffled_range(5, seed=0))
    [0, 1, 2, 3, 4]
    """
    generator = random.Random(seed)
    moved: dict[int, int] = {}
    for position in range(size):
        other = generator.randrange(position, size)
        value = moved.get(other, other)
        moved[other] = moved.pop(position, position)
        yield value


def interleave(streams: Sequence[Iterable[T]]) -> Iterator[T]:
    """One item of each stream in turn; a stream that ends drops out.

    >>> list(interleave(["ab", "c"]))
    ['a', 'c', 'b']
    """
    live = [iter(stream) for stream in streams]
    while live:
        still_live = []
        for stream in live:
            for item in stream:
                yield item
                still_live.append(stream)
                break
        live = still_live


def take(stream: Iterable[T], count: int, *, environment: str, argument: str) -> list[T]:
    """The first `count` items.

    Raises:
        UsageError: when `count` is no positive integer, or fewer items exist; it names the maximum.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"{environment}: {argument}={count!r} must be an integer of at least 1")
    items = list(islice(stream, count))
    if len(items) < count:
        raise UsageError(
            f"{environment}: {argument}={count} is more than exist: the maximum is {len(items)} with these arguments;"
            " ask for fewer or widen the ranges"
        )
    return items


def take_up_to(stream: Iterable[T], count: int) -> list[T]:
    """The first `count` items, or all there are."""
    return list(islice(stream, count))


def check_range(value: object, *, environment: str, argument: str, minimum: int) -> tuple[int, int]:
    """`value` as the inclusive range (low, high).

    Raises:
        UsageError: when it is no pair of integers with minimum <= low <= high.
    """
    ends = list(value) if isinstance(value, (list, tuple)) else []
    whole = [end for end in ends if isinstance(end, int) and not isinstance(end, bool)]
    if len(ends) != 2 or len(whole) != 2 or not minimum <= whole[0] <= whole[1]:
        raise UsageError(
            f"{environment}: {argument}={value!r} must be [low, high], two integers with {minimum} <= low <= high"
        )
    return whole[0], whole[1]


def check_few_shot(few_shot: object, *, environment: str) -> int:
    """The number of worked examples, if it is an integer of at least 0."""
    if isinstance(few_shot, bool) or not isinstance(few_shot, int) or few_shot < 0:
        raise UsageError(
            f"{environment}: few_shot={few_shot!r} must be an integer of at least 0: the number of worked examples"
        )
    return few_shot
