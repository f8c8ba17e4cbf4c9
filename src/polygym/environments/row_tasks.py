"""Wire rows as an environment's tasks, in two splits.

The one idea: what holds for datasets holds for rows. An id names one task, the two splits share no task, and a part is
held out by prompt and answer, the same in every process; but a row that stands in a file several times is asked several
times an epoch. Rows with one prompt and one answer may still be two tasks, for what else grading reads: whoever gives
held-out rows may part them.

Rows are kept as they stand in their file, and each is read again when it is asked: a file of a hundred thousand rows
takes little more memory than its size.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from polygym.environments.base import Split
from polygym.environments.dataset import check_parts, content_key, held_out_keys, ids_after
from polygym.environments.remote import remote_task
from polygym.environments.wire_rows import is_reserved
from polygym.errors import UsageError
from polygym.rollout import Task, TaskId
from polygym.rows import RowError, agents_of, numbered_lines, parse_row, task_digest

HELD_OUT = 0.2
"""The part of rows that is held out where there are no rows for it."""


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row as it stands in its file. `content` is what is held out together, `key` what makes it the same task."""

    line: int
    raw: bytes
    id: TaskId
    agent: str | None
    content: str
    key: bytes


class RowTasks(Sequence[Task]):
    """The tasks of rows, each made when it is asked.

    Args:
        raws: the rows as they stand in their file, which have been checked.
        ids: of their tasks.
        name: of the environment.
    """

    def __init__(self, raws: Sequence[bytes], ids: Sequence[TaskId], name: str) -> None:
        self._raws, self._ids, self._name = raws, ids, name

    def __len__(self) -> int:
        return len(self._raws)

    @overload
    def __getitem__(self, index: int) -> Task: ...

    @overload
    def __getitem__(self, index: slice) -> list[Task]: ...

    def __getitem__(self, index: int | slice) -> Task | list[Task]:
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        task = remote_task(parse_row(self._raws[index], index + 1, self._name), self._name)
        return Task(self._name, self._ids[index], task.prompt, task.answer, task.info)

    def named(self, name: str) -> RowTasks:
        """The tasks under another environment's name."""
        return RowTasks(self._raws, self._ids, name)


class RowFile:
    """The rows of a file. `path` names it in messages."""

    def __init__(self, path: str, rows: list[StoredRow]) -> None:
        self.path = path
        self.rows = rows

    @classmethod
    def read(cls, path: str | Path, lines: Iterable[tuple[int, bytes]] | None = None) -> RowFile:
        """Read a file and check every row.

        Args:
            lines: the lines of the file, where they are not those of JSONL as it stands on the disk.

        Raises:
            UsageError: for the first line that is no row, and for a file that cannot be read or has none.
        """
        try:
            if lines is None:
                with open(path, "rb") as file:
                    rows = [_stored(str(path), line, raw) for line, raw in numbered_lines(file)]
            else:
                rows = [_stored(str(path), line, raw) for line, raw in lines]
        except OSError as error:
            reason = error.strerror or error
            raise UsageError(f"cannot read {str(path)!r}: {reason}; give the path of a file of rows") from error
        if not rows:
            raise RowError(f"{path} has no rows", "empty_dataset")
        return cls(str(path), rows)

    @property
    def agents(self) -> list[str]:
        """Agents that rows name, in the order in which they are first named."""
        return [agent for agent in dict.fromkeys(row.agent for row in self.rows) if agent is not None]

    def by_agent(self, known: Sequence[str]) -> dict[str, RowFile]:
        """The rows of each agent, the agents in the order in which they are first named.

        Raises:
            UsageError: for rows that name no agent, or one that is not `known`.
        """
        references = [{} if row.agent is None else {"agent_ref": {"name": row.agent}} for row in self.rows]
        try:
            agents_of(references, None, known, lines=[row.line for row in self.rows])
        except RowError as error:
            raise UsageError(f"{self.path}: {error}") from error
        rows_A: dict[str, list[StoredRow]] = {agent: [] for agent in self.agents}
        for row in self.rows:
            rows_A[str(row.agent)].append(row)
        return {agent: RowFile(self.path, rows) for agent, rows in rows_A.items()}

    def check_ids(self) -> None:
        """Check that no id names two tasks.

        Raises:
            UsageError: tells the lines of the first that does.
        """
        known: dict[TaskId, StoredRow] = {}
        for row in self.rows:
            first = known.setdefault(row.id, row)
            if first.key != row.key:
                raise UsageError(
                    f"{self.path}: lines {first.line} and {row.line} have the id {row.id!r} and are different; an id "
                    "names one task: rename one, or leave the ids out"
                )


def split_rows(
    rows: RowFile | None,
    eval_rows: RowFile | None = None,
    *,
    name: str,
    held_out: float = HELD_OUT,
    seed: int = 0,
) -> dict[Split, RowTasks]:
    """Tasks of both splits.

    Args:
        rows: what is trained on, in the order of the file; a row that stands there twice is there twice.
        eval_rows: what is held out, each task once. Where None, the part `held_out` of `rows` is, by task.
        name: of the environment.
        held_out, seed: as an environment's.

    Raises:
        UsageError: for an id that names two tasks, or a task in both splits.
    """
    for file in (rows, eval_rows):
        if file is not None:
            file.check_ids()
    train = rows.rows if rows is not None else []
    if eval_rows is None:
        chosen = held_out_keys((row.content for row in train), held_out, seed)
        kept = _once([row for row in train if row.content in chosen])
        train = [row for row in train if row.content not in chosen]
        ids = [row.id for row in kept]
    else:
        kept = _once(eval_rows.rows)
        ids = ids_after([row.id for row in kept], [row.id for row in train])
        ours = [(row.id, row.key.hex()) for row in train]
        theirs = [(id, row.key.hex()) for id, row in zip(ids, kept, strict=True)]
        check_parts(ours, theirs, name, ("rows", "eval_rows"))
    return {
        "train": RowTasks([row.raw for row in train], [row.id for row in train], name),
        "held_out": RowTasks([row.raw for row in kept], ids, name),
    }


def _once(rows: Iterable[StoredRow]) -> list[StoredRow]:
    """Each task once, in the order of the rows."""
    first: dict[TaskId, StoredRow] = {}
    for row in rows:
        first.setdefault(row.id, row)
    return list(first.values())


def _stored(path: str, line: int, raw: bytes) -> StoredRow:
    """A row that has been checked."""
    row = parse_row(raw, line, path)
    try:
        task = remote_task(row)
    except UsageError as error:
        raise UsageError(f"{path}, line {line}: {error}") from error
    kept = ("answer", "responses_create_params")
    own = {key: value for key, value in row.items() if not is_reserved(key) or key in kept}
    reference = row.get("agent_ref")
    agent = sys.intern(reference["name"]) if reference is not None else None
    return StoredRow(line, raw, task.id, agent, content_key(task), task_digest(own))
