"""A collection with a record: every rollout is on disk as it ends, and their sum where it stopped.

The one idea: what was collected is never lost to what came after it, an error and Ctrl-C included; and of a rollout
that has been written no more is kept than its numbers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from polygym.collect.progress import Progress
from polygym.collect.results import Results, read_results
from polygym.collect.resume import (
    CHANGED,
    Earlier,
    Resume,
    changed_settings,
    earlier_changes,
    read_earlier,
    refuse_changes,
)
from polygym.collect.rollout_rows import RolloutKey
from polygym.collect.store import EvaluationFiles
from polygym.collect.summary_builder import SummaryBuilder
from polygym.errors import PolygymError
from polygym.rollout import Rollout
from polygym.rows import Row


@dataclass(slots=True)
class Heading:
    """What is collected: the model, what was asked, and the weight of each environment in the combined mean."""

    model: str
    settings: dict[str, Any]
    shares: dict[str, float]
    seed: int


class Record:
    """Takes rollouts as they end.

    Args:
        heading: what is collected.
        files: where the record is kept; None keeps none.
        resume: whether to go on with what the files hold, and whether also where settings have changed.
        keep_rollouts: whether results hold the rollouts themselves.
    """

    def __init__(
        self, heading: Heading, files: EvaluationFiles | None, *, resume: Resume = False, keep_rollouts: bool = True
    ) -> None:
        self.heading = heading
        self.files = files
        self.earlier = Earlier()
        self._resume = resume
        self._keep_rollouts = keep_rollouts
        self._rollouts: list[tuple[tuple[int, ...], Rollout]] = []
        self._strangers: set[RolloutKey] = set()
        self._builders = {name: SummaryBuilder(name) for name in heading.shares}

    async def collect(
        self,
        play_all: Callable[[], Awaitable[None]],
        planned: Callable[[RolloutKey, Callable[[], Row] | None], bool],
        progress: Progress,
    ) -> Results:
        """Collect, and sum up what came of it.

        Args:
            play_all: plays everything but what is `done`, and hands each rollout to `keep` as it ends.
            planned: whether a rollout of an earlier collection is one of this. The second argument reads its row where
                it has to be compared.
            progress: who is told what is there already.
        """
        with self.files or nullcontext():
            if self.files:
                self._begin(self.files, planned, progress)
            try:
                await play_all()
            except BaseException:  # Ctrl-C too: what has ended is summed up, then the error goes on
                with suppress(PolygymError):  # a full disk, which is what the error says too
                    self._results(False)
                raise
            return self._results(True)

    def is_done(self, key: RolloutKey) -> bool:
        """Whether a rollout is there already, and not to be played again."""
        return key in self.earlier.done

    def keep(
        self,
        rollout: Rollout,
        own: Mapping[str, Any] | None = None,
        *,
        played: bool = True,
        place: tuple[int, ...] = (),
    ) -> None:
        """Take a rollout that has ended.

        Args:
            own: what else its line is to hold.
            played: whether it was begun.
            place: orders the rollouts of the results.
        """
        if self.files:
            key = (rollout.environment, rollout.task_id, rollout.rollout_index)
            self._strangers.discard(key)
            self.files.write(rollout, own, self.earlier.failed.get(key, 0) + played)
        if not (self.files and self.files.has_earlier):  # else all are read again at the end, each key once
            self._builders[rollout.environment].add(rollout, (own or {}).get("extracted_answer"))
        if self._keep_rollouts:
            self._rollouts.append((place, rollout))

    def _begin(
        self,
        files: EvaluationFiles,
        planned: Callable[[RolloutKey, Callable[[], Row] | None], bool],
        progress: Progress,
    ) -> None:
        """Read what is there, and write down what is collected before the first rollout is."""
        heading = self.heading
        if not files.has_earlier:
            files.write_metrics(self._sum(False).to_dict())
            return
        changed = changed_settings(files.metrics, heading.model, heading.settings)
        if self._resume != CHANGED:
            refuse_changes(str(files.output), changed)
        before = earlier_changes(files.metrics)
        for key, value in changed.items():
            before[key] = [*before.get(key, []), value]
        if before:
            heading.settings[CHANGED] = before

        def is_planned(key: RolloutKey, read: Callable[[], Row]) -> bool:
            known = planned(key, read if changed else None)
            if not known:
                self._strangers.add(key)
            return known

        self.earlier = read_earlier(files.rollouts, is_planned)
        self.earlier.changed = list(changed)
        progress.message(self.earlier.line())
        files.write_metrics(
            read_results(files.metrics) | {"model": heading.model, "settings": heading.settings, "complete": False}
        )

    def _results(self, complete: bool) -> Results:
        """The results so far; with files, these are brought in order and the results written."""
        files = self.files
        if files and files.has_earlier:
            files.settle(self._take_row)
        results = self._sum(complete)
        if self._keep_rollouts:
            results.rollouts = [rollout for _, rollout in sorted(self._rollouts, key=lambda placed: placed[0])]
        if files:
            files.write_metrics(results.to_dict())
        return results

    def _take_row(self, row: Row) -> None:
        if (row["environment"], row["task_id"], row["rollout_index"]) not in self._strangers:
            self._builders[row["environment"]].add_row(row)

    def _sum(self, complete: bool) -> Results:
        heading = self.heading
        return Results.of_builders(
            self._builders,
            model=heading.model,
            settings=heading.settings,
            shares=heading.shares,
            complete=complete,
            seed=heading.seed,
        )
