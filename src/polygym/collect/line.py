"""Work in line: a fixed number of workers, each takes what is next.

The one idea: what is played and where does not matter here. A play that fails is a rollout with a cause; only what must
stop everything leaves as an error, and then nobody begins another one.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from polygym.collect.progress import Progress
from polygym.errors import UsageError
from polygym.rollout import Rollout

DEFAULT_CONCURRENCY = 128

# A policy that answers at once never gives the event loop a turn: each worker does, after so many rollouts, for timers
# and Ctrl-C. After every rollout would be too often: a batching policy would then see the episodes start out of step.
_ROLLOUTS_BETWEEN_YIELDS = 16

Work = TypeVar("Work")


def check_concurrency(concurrency: object) -> int:
    """The number of workers, if it is an integer of at least 1."""
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise UsageError(f"concurrency={concurrency!r} must be an integer of at least 1")
    return concurrency


async def work_off(
    waiting: Sequence[Work],
    play: Callable[[Work], Awaitable[Rollout]],
    *,
    environment_of: Callable[[Work], str],
    concurrency: int,
    progress: Progress,
) -> list[Rollout]:
    """The rollouts of `waiting`, in their order.

    Args:
        play: plays one, and saves it; what it raises stops all, and episodes under way are cancelled.
        environment_of: the environment that one counts for.
        concurrency: workers.
        progress: who is told that a rollout has ended.
    """
    rollouts: list[Rollout | None] = [None] * len(waiting)
    progress.start(Counter(map(environment_of, waiting)))
    line = deque(enumerate(waiting))

    async def work() -> None:
        played = 0
        try:
            while line:
                position, item = line.popleft()
                rollouts[position] = rollout = await play(item)
                progress.rollout(rollout)
                played += 1
                if played % _ROLLOUTS_BETWEEN_YIELDS == 0:
                    await asyncio.sleep(0)
        except BaseException:
            line.clear()  # nobody begins another one
            raise

    workers = [asyncio.create_task(work()) for _ in range(min(concurrency, len(waiting)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        progress.finish()
    return [rollout for rollout in rollouts if rollout is not None]
