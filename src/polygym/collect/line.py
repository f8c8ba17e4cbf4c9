"""Work in line: a fixed number of workers, each takes what is next.

The one idea: rollouts under way are what environments share. Whoever is free begins a rollout of the environment that
has the fewest under way, so each has its part of the workers while it has work, all of them once the others have none,
and one that takes fifty times as long neither holds the others up nor waits for them.

What is played and where does not matter here. A play that fails is a rollout with a cause; only what must stop
everything leaves as an error, and then nobody begins another one.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

from polygym.collect.progress import Progress
from polygym.errors import UsageError
from polygym.rollout import Rollout

DEFAULT_CONCURRENCY = 128
LOOK_AGAIN_SECONDS = 0.5  # whether an environment that is held back may be played

# A policy that answers at once never gives the event loop a turn: each worker does, after so many rollouts, for timers
# and Ctrl-C. After every rollout would be too often: a batching policy would then see the episodes start out of step.
_ROLLOUTS_BETWEEN_YIELDS = 16

Work = TypeVar("Work")


def check_concurrency(concurrency: object) -> int:
    """The number of workers, if it is an integer of at least 1."""
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise UsageError(f"concurrency={concurrency!r} must be an integer of at least 1")
    return concurrency


class Line(Generic[Work]):
    """What waits to be played, a queue an environment. Taken from once, by the workers of `work_off`.

    Args:
        work_E: the work of each environment; an iterator is read as far as it is played.
        totals_E: how much there is of each.
        limits_E: rollouts of an environment under way at a time, where it has a limit.
        held: says of an environment that it is not to be begun now, because of trouble that may pass. It is begun all
            the same once no other has anything left to do.
    """

    def __init__(
        self,
        work_E: Mapping[str, Iterable[Work]],
        totals_E: Mapping[str, int],
        *,
        limits_E: Mapping[str, int] | None = None,
        held: Callable[[str], bool] = lambda environment: False,
    ) -> None:
        limits = limits_E or {}
        self._queues = {
            name: _Queue(iter(work), max(1, totals_E[name]), limits.get(name, math.inf))
            for name, work in work_E.items()
        }
        self._held = held
        self.total = sum(totals_E.values())

    async def take(self) -> tuple[str, Work] | None:
        """The next to play and its environment; None for a worker that is not needed any more."""
        while True:
            ready = [(name, queue) for name, queue in self._queues.items() if queue.under_way < queue.limit]
            ready = [(name, queue) for name, queue in ready if queue.waits()]
            free = [(name, queue) for name, queue in ready if not self._held(name)]
            if ready and not free and not any(self.others_have_work(name) for name, _ in ready):
                free = ready
            if free:
                name, queue = min(free, key=lambda named: named[1].rank)
                return name, queue.take()
            if not ready:  # whoever plays the last one that a limit allows also takes the next
                return None
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    def ended(self, name: str) -> None:
        """A rollout that was taken has ended."""
        self._queues[name].under_way -= 1

    def put_back(self, name: str, work: Work) -> None:
        """A rollout that was taken could not be played; it comes behind all others of its environment."""
        queue = self._queues[name]
        queue.under_way -= 1
        queue.back.append(work)

    def others_have_work(self, name: str) -> bool:
        """Whether an environment beside this one, and not held back itself, waits or is under way."""
        return any(
            (queue.under_way or queue.waits()) and not self._held(other)
            for other, queue in self._queues.items()
            if other != name
        )

    def stop(self) -> None:
        """Nobody is to begin another one."""
        for queue in self._queues.values():
            queue.drop()


@dataclass(slots=True)
class _Queue(Generic[Work]):
    """The work of one environment: what was not begun yet, then what was put back."""

    rest: Iterator[Work]
    total: int
    limit: float
    under_way: int = 0
    begun: int = 0
    back: deque[Work] = field(default_factory=deque)
    next: list[Work] = field(default_factory=list)  # the first of the rest, where it was looked at

    def waits(self) -> bool:
        if not self.next:
            self.next.extend(islice(self.rest, 1))
        return bool(self.next or self.back)

    def take(self) -> Work:
        self.under_way += 1
        self.begun += 1
        return self.next.pop() if self.next else self.back.popleft()

    @property
    def rank(self) -> tuple[int, float]:
        """The least comes next: with few under way, else with the smaller part of its work begun."""
        return self.under_way, self.begun / self.total

    def drop(self) -> None:
        self.rest = iter(())
        self.next.clear()
        self.back.clear()


async def work_off(
    line: Line[Work],
    play: Callable[[Work], Awaitable[Rollout | None]],
    *,
    concurrency: int,
    progress: Progress,
) -> None:
    """Play everything in a line.

    Args:
        play: plays one, and saves it; None puts it back. What it raises stops all: episodes under way are cancelled.
        concurrency: workers.
        progress: who is told that a rollout has ended.
    """

    async def work() -> None:
        played = 0
        try:
            while (taken := await line.take()) is not None:
                name, item = taken
                rollout = await play(item)
                if rollout is None:
                    line.put_back(name, item)
                    continue
                line.ended(name)
                progress.rollout(rollout)
                played += 1
                if played % _ROLLOUTS_BETWEEN_YIELDS == 0:
                    await asyncio.sleep(0)
        except BaseException:
            line.stop()
            raise

    workers = [asyncio.create_task(work()) for _ in range(min(concurrency, line.total))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        progress.finish()
