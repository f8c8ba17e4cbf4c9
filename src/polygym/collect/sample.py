"""Which tasks an evaluation asks.

The one idea: a seeded random sample of the held-out split, never its first rows; a larger sample holds the smaller one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from polygym.environments.base import Environment
from polygym.errors import UsageError
from polygym.rollout import Task
from polygym.seeds import derive_seed


def sample_tasks(
    environment: Environment,
    *,
    num_examples: int | Mapping[str, int] | None = None,
    total: int | None = None,
    seed: int = 0,
) -> dict[str, list[Task]]:
    """Held-out tasks of each leaf environment, by route.

    Args:
        environment: an environment or a group.
        num_examples: tasks of each leaf; None with no `total` takes all that exist. A mapping gives it by route, where
            0 leaves a leaf out.
        total: tasks altogether, split by the shares.
        seed: names the sample.

    Raises:
        UsageError: when more are asked than exist, with the largest number that do.
    """
    if num_examples is not None and total is not None:
        raise UsageError(f"num_examples={num_examples} and total={total} exclude each other; give one of them")
    held_out = {route: leaf.tasks("held_out") for route, leaf in environment.leaves().items()}
    if isinstance(num_examples, Mapping):
        held_out = {route: tasks for route, tasks in held_out.items() if num_examples.get(route) != 0}
    for route, tasks in held_out.items():
        if not tasks:
            raise UsageError(f"environment {route!r} has no held-out tasks; give it an eval_dataset, or held_out > 0")
    if total is not None:
        counts = _split_total(total, environment.shares(), held_out)
    elif isinstance(num_examples, Mapping):
        counts = {route: num_examples.get(route, len(tasks)) for route, tasks in held_out.items()}
        _check_examples(counts, held_out)
    elif num_examples is not None:
        counts = dict.fromkeys(held_out, num_examples)
        _check_examples(counts, held_out)
    else:
        counts = {route: len(tasks) for route, tasks in held_out.items()}
    return {route: _sample(held_out[route], count, route, seed) for route, count in counts.items() if count}


def split_by_shares(total: int, shares: Mapping[str, float]) -> dict[str, int]:
    """`total` split by `shares`: whole parts first, what is left to the largest remainders, the earlier name on a tie.

    >>> split_by_shares(10, {"a": 0.5, "b": 0.25, "c": 0.25})
    {'a': 5, 'b': 3, 'c': 2}
    """
    weight = math.fsum(shares.values())
    # Rounded, so that a share of a third that adds up to 0.9999... does not lose the tie that it has on paper.
    exact = {name: round(total * share / weight, 9) for name, share in shares.items()}
    counts = {name: int(quota) for name, quota in exact.items()}
    by_remainder = sorted(exact, key=lambda name: counts[name] - exact[name])
    for name in by_remainder[: total - sum(counts.values())]:
        counts[name] += 1
    return counts


def _split_total(total: int, shares: Mapping[str, float], held_out: Mapping[str, Sequence[Task]]) -> dict[str, int]:
    _check_count("total", total)
    counts = split_by_shares(total, shares)
    short = [route for route, count in counts.items() if count > len(held_out[route])]
    if short:
        largest = sum(map(len, held_out.values()))
        while any(count > len(held_out[route]) for route, count in split_by_shares(largest, shares).items()):
            largest -= 1
        route = short[0]
        raise UsageError(
            f"total={total} asks for {counts[route]} tasks of {route!r}, which holds out {len(held_out[route])}; "
            f"with these shares the maximum is {largest}"
        )
    return counts


def _check_examples(counts: Mapping[str, int], held_out: Mapping[str, Sequence[Task]]) -> None:
    """The environment with the fewest tasks is told first, so that its maximum holds for all."""
    for route in sorted(counts, key=lambda route: len(held_out[route])):
        count, largest = counts[route], len(held_out[route])
        _check_count("num_examples", count)
        if count > largest:
            raise UsageError(
                f"num_examples={count} is more than the {largest} held-out tasks of environment {route!r}; the maximum "
                f"is {largest}"
            )


def _check_count(name: str, count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"{name}={count!r} must be an integer of at least 1")


def _sample(tasks: Sequence[Task], count: int, route: str, seed: int) -> list[Task]:
    order = list(range(len(tasks)))
    random.Random(derive_seed(seed, "evaluate", route)).shuffle(order)
    return [tasks[index] for index in order[:count]]
