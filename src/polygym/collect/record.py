"""A collection with a record: every rollout is on disk as it ends, and their sum where it stopped.

The one idea: what was collected is never lost to what came after it, an error and Ctrl-C included.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import Any, Protocol

from polygym.collect.results import Results
from polygym.collect.store import EvaluationFiles
from polygym.rollout import Rollout


class Keep(Protocol):
    """Takes a rollout that has ended, with what else its line is to hold."""

    def __call__(self, rollout: Rollout, own: Mapping[str, Any] | None = None) -> None: ...


async def recorded(
    collect: Callable[[Keep], Awaitable[list[Rollout]]],
    sum_up: Callable[[list[Rollout], bool], Results],
    files: EvaluationFiles | None,
) -> Results:
    """Collect, and sum up what came of it.

    Args:
        collect: plays everything, hands each rollout to `keep` as it ends, and returns all in order.
        sum_up: makes results of rollouts; the second argument says whether they are complete.
        files: where the record is kept; None keeps none.
    """
    ended: list[Rollout] = []
    with files or nullcontext():

        def keep(rollout: Rollout, own: Mapping[str, Any] | None = None) -> None:
            ended.append(rollout)
            if files:
                files.write(rollout, own)

        try:
            rollouts = await collect(keep)
        except BaseException:  # Ctrl-C too: what has ended is summed up, then the error goes on
            if files:
                files.write_metrics(sum_up(ended, False).to_dict())
            raise
        results = sum_up(rollouts, True)
        if files:
            files.write_metrics(results.to_dict())
        return results
