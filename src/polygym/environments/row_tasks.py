"""Wire rows as an environment's tasks, in two splits.

The one idea: what holds for datasets holds for rows. An id names one task, the two splits share no task, and a part is
held out by prompt and answer, the same in every process; but a row that stands in a file several times is asked several
times an epoch. Rows with one prompt and one answer may still be two tasks, for what else grading reads: whoever gives the
held-out rows himself may part them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from polygym.environments.base import Split
from polygym.environments.dataset import check_disjoint, number_after, split_tasks
from polygym.environments.remote import remote_task
from polygym.environments.wire_rows import is_reserved
from polygym.errors import UsageError
from polygym.rollout import Task, TaskId
from polygym.rows import Row, agents_of, read_wire_rows, task_digest

HELD_OUT = 0.2
"""The part of rows that is held out where there are no rows for it."""


@dataclass(frozen=True, slots=True)
class RowFile:
    """Rows of a file, each with its physical line."""

    path: str
    rows: list[Row]
    lines: list[int]

    @classmethod
    def read(cls, path: str | Path) -> RowFile:
        """Read a JSONL file.

        Raises:
            RowError: for the first line that is no row.
        """
        rows, lines = read_wire_rows(path)
        return cls(str(path), rows, lines)

    def by_agent(self, known: Sequence[str]) -> dict[str, RowFile]:
        """The rows of each agent, the agents in the order in which they are first named.

        Raises:
            RowError: for rows that name no agent, or one that is not `known`.
        """
        try:
            names = agents_of(self.rows, None, known, lines=self.lines)
        except UsageError as error:
            raise UsageError(f"{self.path}: {error}") from error
        files = {name: RowFile(self.path, [], []) for name in dict.fromkeys(names)}
        for row, line, name in zip(self.rows, self.lines, names, strict=True):
            files[name].rows.append(row)
            files[name].lines.append(line)
        return files

    def tasks(self, name: str) -> list[Task]:
        """A task for each row; equal rows share one.

        Raises:
            UsageError: for what is no row, and for an id that names two tasks.
        """
        tasks: list[Task] = []
        known: dict[TaskId, tuple[Task, str, int]] = {}
        for row, line in zip(self.rows, self.lines, strict=True):
            try:
                task = remote_task(row, name)
            except UsageError as error:
                raise UsageError(f"{self.path}, line {line}: {error}") from error
            key = row_key(task)
            first, first_key, first_line = known.setdefault(task.id, (task, key, line))
            if first_key != key:
                raise UsageError(
                    f"{self.path}: lines {first_line} and {line} have the id {task.id!r} and are different; an id "
                    "names one task: rename one, or leave the ids out"
                )
            tasks.append(first)
        return tasks


def split_rows(
    rows: RowFile | None,
    eval_rows: RowFile | None = None,
    *,
    name: str,
    held_out: float = HELD_OUT,
    seed: int = 0,
) -> dict[Split, list[Task]]:
    """Tasks of both splits.

    Args:
        rows: what is trained on, in the order of the file; a row that stands there twice is there twice.
        eval_rows: what is held out, each task once. Where None, the part `held_out` of `rows` is, by task.
        name: of the environment.
        held_out, seed: as an environment's.

    Raises:
        UsageError: for what is no row, an id that names two tasks, or a task in both splits.
    """
    train = rows.tasks(name) if rows is not None else []
    if eval_rows is None:
        train, kept = split_tasks(train, held_out, seed)
        return {"train": train, "held_out": list({task.id: task for task in kept}.values())}
    kept = list({task.id: task for task in eval_rows.tasks(name)}.values())
    kept = number_after(kept, train)
    check_disjoint(train, kept, name, key=row_key, called=("rows", "eval_rows"))
    return {"train": train, "held_out": kept}


def row_key(task: Task) -> str:
    """What makes two rows the same task under different ids: all that is the task's own."""
    row = task.info
    own = {
        key: value for key, value in row.items() if not is_reserved(key) or key in ("answer", "responses_create_params")
    }
    return task_digest(own).hex()
