"""Merging the files of several collections into one, without servers and without playing anything.

The one idea: the result depends on what the files hold, not on the order in which they are given. A rollout that stands
in several of them is taken once: a scored row before one that is not, then that of the file whose path sorts last. Rows
that differ in more than times are told as a conflict, because the files of one collection have none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polygym.collect.results import Results
from polygym.collect.rewrite import disk_told, metrics_beside, shares_of, write_whole
from polygym.collect.rollout_rows import RolloutKey, RolloutRows, in_order
from polygym.collect.store import EvaluationFiles
from polygym.environments.wire_rows import TASK_INDEX
from polygym.errors import UsageError
from polygym.rollout import TaskId
from polygym.rows import Row

CONFLICTS_SHOWN = 5
_RESULT = ("messages", "reward", "rewards", "metrics", "answer", "seed", "stop_reason")
"""What two rows of one rollout have in common, if they are of the same episode; times and addresses may differ."""


@dataclass(slots=True)
class Merged:
    """Results of several files, and what was found between them."""

    results: Results
    repeated: int = 0
    """Rows that stand for a rollout of which another row was taken."""
    conflicts: list[str] = field(default_factory=list)
    """Rollouts whose rows differ, each in words."""
    torn: list[str] = field(default_factory=list)
    """Files that end in a torn line."""
    unfinished: list[str] = field(default_factory=list)
    """Files of collections that were stopped before their end."""

    def lines(self) -> list[str]:
        """What a person is told."""
        lines = [f"{path} ends in a torn line, which was left out" for path in self.torn]
        lines += [f"{path} is of a collection that was stopped before its end" for path in self.unfinished]
        if self.repeated:
            lines.append(f"{self.repeated} rows are of rollouts that stand there more than once; one of each was taken")
        lines += [f"conflict: {text}" for text in self.conflicts[:CONFLICTS_SHOWN]]
        if len(self.conflicts) > CONFLICTS_SHOWN:
            lines.append(f"and {len(self.conflicts) - CONFLICTS_SHOWN} more conflicts")
        return lines


def aggregate(paths: Sequence[str | Path], output: str | Path, *, overwrite: bool = False, seed: int = 0) -> Merged:
    """Merge files of rollouts into OUT.jsonl, OUT_failures.jsonl and OUT_metrics.json.

    Args:
        paths: each the OUT.jsonl of a collection; what its OUT_metrics.json says of model and shares is kept.
        output: OUT.
        overwrite: whether an earlier evaluation of that name is replaced.
        seed: of the bootstrap.

    Shares are those of the files where all say the same, else by the tasks or rows that each file says it is of, added
    up; by the tasks that were found where a file says nothing, or where one task stands in several.

    Raises:
        UsageError: for a file that cannot be read, one given twice or written to, and files of different models.
        PolygymError: when the disk is full.
    """
    files = EvaluationFiles(output, overwrite=overwrite)
    ordered = sorted(map(Path, paths), key=str)
    resolved = [path.resolve() for path in ordered]
    for position, path in enumerate(resolved):
        if path in resolved[:position]:
            raise UsageError(f"{str(ordered[position])!r} is given twice; give each file once")
        if path == files.rollouts.resolve():
            raise UsageError(f"output {str(path)!r} is one of the files to merge; give another one (-o)")
    told = [metrics_beside(path) for path in ordered]
    model = _model(ordered, told)
    with ExitStack() as stack:
        shards = [stack.enter_context(RolloutRows(path)) for path in ordered]
        repeated = sum(shard.replaced for shard in shards)
        conflicts = [_conflict(key, rewards) for shard in shards for key, rewards in shard.conflicts.items()]
        holders: dict[RolloutKey, list[RolloutRows]] = {}
        for shard in shards:
            for key in shard.names():
                holders.setdefault(key, []).append(shard)
        tasks = {(environment, task) for environment, task, _ in holders}
        disjoint = len(tasks) == sum(len({key[:2] for key in shard.names()}) for shard in shards)
        found_E = dict(sorted(Counter(environment for environment, _ in tasks).items()))
        counts_E = (_told_counts(told, found_E) if disjoint else None) or found_E

        def winners() -> Iterator[Row]:
            numbers: dict[tuple[str, TaskId], int] = {}
            for key in sorted(holders, key=in_order):
                row, differ = _winner(key, holders[key])
                if differ:
                    conflicts.append(_conflict(key, differ))
                yield _numbered(row, numbers.setdefault(key[:2], len(numbers)))

        repeated += sum(len(found) - 1 for found in holders.values())
        builders = write_whole(files, winners(), counts_E)
    unfinished = [str(path) for path, found in zip(ordered, told, strict=True) if not found.get("complete", True)]
    results = Results.of_builders(
        builders,
        model=model,
        settings={
            "num_examples": counts_E,
            "shards": [
                {"path": str(path), "rollouts": len(shard), "settings": found.get("settings", {})}
                for path, shard, found in zip(ordered, shards, told, strict=True)
            ],
            "repeated": repeated,
            "conflicts": conflicts,
        },
        shares=shares_of(told, counts_E),
        complete=not unfinished,
        seed=seed,
    )
    with disk_told(files):
        results.save(files.metrics)
    return Merged(results, repeated, conflicts, [str(shard.path) for shard in shards if shard.torn], unfinished)


def _told_counts(told: Sequence[Mapping[str, Any]], environments: Iterable[str]) -> dict[str, int] | None:
    """Tasks or rows of each environment, as the settings of all files say, added up; None where they do not say."""
    counts_E = dict.fromkeys(environments, 0)
    for found in told:
        own_E = (found.get("settings") or {}).get("num_examples")
        if not isinstance(own_E, Mapping):
            return None
        for name in counts_E:
            count = own_E.get(name, 0)
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                return None
            counts_E[name] += count
    return counts_E if all(counts_E.values()) else None


def _winner(key: RolloutKey, shards: Sequence[RolloutRows]) -> tuple[Row, list[float]]:
    """The row of a rollout that is taken, and the rewards of its rows where these are of different episodes."""
    if len(shards) == 1:
        return shards[0].row(key), []
    rows = [shard.row(key) for shard in shards if shard.scored(key)] or [shard.row(key) for shard in shards]
    last = rows[-1]
    if last["reward"] is not None and any(row.get(key) != last.get(key) for row in rows for key in _RESULT):
        return last, [row["reward"] for row in rows]
    return last, []


def _numbered(row: Row, task: int) -> Row:
    """The row with the number of its task among all that are merged; each collection has counted from 0."""
    if TASK_INDEX not in row:
        return row
    own = {} if row.get("id") is not None else {"id": row["task_id"]}  # the number had named its task
    return row | own | {TASK_INDEX: task}


def _conflict(key: RolloutKey, rewards: Sequence[float]) -> str:
    environment, task, index = key
    shown = ", ".join(f"{reward:g}" for reward in rewards)
    return f"rollout {index} of task {task!r:.80} of {environment} stands there with the rewards {shown}"


def _model(paths: Sequence[Path], told: Sequence[Mapping[str, Any]]) -> str:
    models: dict[str, str] = {}
    for path, found in zip(paths, told, strict=True):
        if "model" in found:
            models.setdefault(str(found["model"]), path.name)
    if len(models) > 1:
        raise UsageError(
            f"the files are of different models: {', '.join(f'{name} ({path})' for name, path in models.items())}; "
            "merge those of one model, and compare models with polygym eval compare"
        )
    return next(iter(models), "unknown")
