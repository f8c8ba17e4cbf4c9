"""The rows that a collection plays through servers.

The one idea: a row is read and checked once, and then kept by its place in the file; it is read again when it is
played. So a file of any size is collected in the room of a few numbers a row.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from polygym.data.files import kind_of, lines_of, read_lines
from polygym.environments.names import environment_of_agent
from polygym.environments.wire_rows import AGENTS, TASK_INDEX, check_row, row_id
from polygym.errors import UsageError
from polygym.rollout import TaskId
from polygym.rows import Row, RowError, TaskIndex, agents_of, dump_row, numbered_lines, parse_row


class InputRows:
    """Rows, checked and numbered. Equal rows of an agent are one task.

    Attributes:
        name: what they are called in messages and settings.
        path: the file that they are read from; None for rows in memory.
        agents: who plays them, in the order of first sight.
        environments: of each agent.
        digest: SHA-256 of the rows.
        task_ids: of each row.

    Raises:
        UsageError: for the first row that cannot be played, with its line; for rows that name no agent, together; for
            an id that names two tasks; where there is no row.
    """

    def __init__(
        self,
        name: str,
        rows: Iterable[tuple[int, bytes, Row]],
        stored: Callable[[int], Row],
        default_agent: str | None,
    ) -> None:
        self.name = name
        self.path: Path | None = None
        self.agents: list[str] = []
        self.environments: list[str] = []
        self.task_ids: list[TaskId] = []
        self._stored = stored
        self._lines, self._agent_of, self._task_of, self._before = array("Q"), array("L"), array("L"), array("L")
        digest = hashlib.sha256()
        self._number(rows, default_agent, digest.update)
        self.digest = digest.hexdigest()

    @classmethod
    def of(
        cls,
        rows: Sequence[Row],
        *,
        lines: Sequence[int] | None = None,
        agent: str | None = None,
        limit: int | None = None,
        name: str = "rows",
    ) -> InputRows:
        """Rows in memory; `lines` numbers them in messages, `agent` plays those that name none, `limit` are taken."""
        taken = rows[: _checked_limit(limit)]
        numbered = zip(lines or range(1, len(taken) + 1), taken, strict=False)
        return cls(name, ((line, dump_row(row).rstrip(), row) for line, row in numbered), rows.__getitem__, agent)

    @classmethod
    def read(cls, path: str | Path, *, agent: str | None = None, limit: int | None = None) -> InputRows:
        """The rows of a file: JSONL, the same under gzip, or Parquet. It is held open, or a copy of it unpacked."""
        _checked_limit(limit)
        file: BinaryIO
        if kind_of(path):
            file = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the rows are
            last = 0
            for line, raw in read_lines(path):
                file.write(b"\n" * (line - last - 1) + raw + b"\n")
                last = line
            file.seek(0)
        else:
            file = open(path, "rb", buffering=1 << 20)  # noqa: SIM115 - as long as the rows are
        starts, sizes, lines, stamp = array("Q"), array("Q"), array("Q"), os.fstat(file.fileno())

        def rows() -> Iterator[tuple[int, bytes, Row]]:
            end = 0
            for line, raw in enumerate(lines_of(file, path), start=1):
                start, end = end, end + len(raw)
                for _, content in numbered_lines([raw] if line == 1 else [b"", raw]):
                    if limit is not None and len(starts) >= limit:
                        return
                    row = parse_row(content, line, str(path))
                    starts.append(start)
                    sizes.append(end - start)
                    lines.append(line)
                    yield line, content, row

        def stored(position: int) -> Row:
            raw = os.pread(file.fileno(), sizes[position], starts[position])
            if not _same(stamp, os.fstat(file.fileno())):
                raise UsageError(f"{path} was changed while its rows were played; run it again with --resume --changed")
            row: Row = json.loads(raw.removeprefix(b"\xef\xbb\xbf").decode())  # checked when it was read first
            return row

        found = cls(str(path), rows(), stored, agent)
        found.path = Path(path)
        return found

    def __len__(self) -> int:
        return len(self._agent_of)

    def environment(self, position: int) -> str:
        """The environment of a row."""
        return self.environments[self._agent_of[position]]

    def agent(self, position: int) -> str:
        """The agent of a row."""
        return self.agents[self._agent_of[position]]

    def line(self, position: int) -> int:
        """The line of a row, for messages."""
        return self._lines[position]

    def rows_before(self, position: int) -> int:
        """How many rows of the same task stand before it."""
        return self._before[position]

    def counts_E(self) -> dict[str, int]:
        """Rows of each environment."""
        counts = Counter(self._agent_of)
        return {name: counts[number] for number, name in enumerate(self.environments)}

    def tasks_E(self) -> dict[str, int]:
        """Tasks of each environment."""
        firsts = Counter(number for number, before in zip(self._agent_of, self._before, strict=True) if not before)
        return {name: firsts[number] for number, name in enumerate(self.environments)}

    def positions(self, environment: str) -> Iterator[int]:
        """Where the rows of an environment stand."""
        wanted = self.environments.index(environment)
        return (position for position, number in enumerate(self._agent_of) if number == wanted)

    def row(self, position: int) -> Row:
        """A row as it is played, with its agent and the number of its task."""
        reference = {"type": AGENTS, "name": self.agent(position)}
        return {**self._stored(position), "agent_ref": reference, TASK_INDEX: self._task_of[position]}

    def check_agents(self, known: Iterable[str]) -> None:
        """Check that all agents are there.

        Raises:
            RowError: `unknown_agent`, with the first line that names it.
        """
        names = list(known)
        for number, agent in enumerate(self.agents):
            line = self._lines[self._agent_of.index(number)]
            agents_of([{"agent_ref": {"name": agent}}], None, names, lines=[line])

    def _number(
        self, rows: Iterable[tuple[int, bytes, Row]], default: str | None, digest: Callable[[bytes], None]
    ) -> None:
        index = TaskIndex()
        known: dict[str, int] = {}
        first: dict[tuple[int, TaskId], int] = {}
        played: Counter[int] = Counter()
        nameless: list[int] = []
        for line, raw, row in rows:
            _check(row, line)
            digest(raw + b"\n")
            agent = _agent_in(row, line) or default
            if agent is None:
                nameless.append(line)
                continue
            number = known.setdefault(agent, len(known))
            if number == len(self.agents):
                self.agents.append(agent)
                self.environments.append(self._environment_of(agent))
            task = index.number({**row, "agent_ref": {"name": agent}})
            task_id = row_id({**row, TASK_INDEX: task})
            here = len(self._agent_of)
            other = first.setdefault((number, task_id), here)
            if other != here and self._task_of[other] != task:
                raise UsageError(
                    f"rows {self._lines[other]} and {line} of agent {agent!r} have the id {task_id!r} and are "
                    "different; an id names one task: rename one, or leave the ids out"
                )
            self._lines.append(line)
            self._agent_of.append(number)
            self._task_of.append(task)
            self._before.append(played[task])
            self.task_ids.append(task_id)
            played[task] += 1
        if nameless:
            agents_of([{}] * len(nameless), None, (), lines=nameless)
        if not self._agent_of:
            raise RowError(f"{self.name} has no rows", "empty_dataset")

    def _environment_of(self, agent: str) -> str:
        for name in (environment_of_agent(agent) or agent, agent):
            if name not in self.environments:
                return name
        other = self.agents[self.environments.index(agent)]
        raise UsageError(f"agents {other!r} and {agent!r} would both be environment {agent!r} in results; rename one")


def _check(row: Row, line: int) -> None:
    try:
        check_row({key: value for key, value in row.items() if key != "agent_ref"})
    except (UsageError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise UsageError(f"row {line}: {reason}") from error


def _agent_in(row: Mapping[str, Any], line: int) -> str | None:
    reference = row.get("agent_ref")
    name = reference.get("name") if isinstance(reference, Mapping) else None
    if reference is None or (isinstance(reference, Mapping) and name in (None, "")):
        return None
    if not isinstance(name, str):
        agents_of([row], None, (), lines=[line])  # says what is wrong with it
    return str(name)


def _checked_limit(limit: int | None) -> int | None:
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise UsageError(f"limit={limit!r} must be an integer of at least 1")
    return limit


def _same(before: os.stat_result, now: os.stat_result) -> bool:
    return (before.st_size, before.st_mtime_ns) == (now.st_size, now.st_mtime_ns)
