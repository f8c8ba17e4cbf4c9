"""Rows made ready: every row is checked, the good ones are written, each bad one is told.

The one idea: two passes. The first reads and checks and keeps some bytes a row: whether it is good, and what names its
task; the second copies the good rows as they stand. So memory does not grow with the size of rows, and where no row is
good nothing is written.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polygym.data.checks import RowChecker, agent_in
from polygym.data.files import check_unchanged, read_lines, refuse_own_input, row_writer, stamps_of
from polygym.errors import UsageError
from polygym.rows import Row, RowError, parse_row, task_digest


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used, and why; line 0 is the whole file."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        where = f"{self.path}, line {self.line}" if self.line else str(self.path)
        return f"{where}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """How many rows were written and how many left out; `unchecked` agents' rows were checked for their shape only."""

    rows: int
    bad: int
    unchecked: tuple[str, ...]


def prepare(
    inputs: Sequence[Path],
    output: Path,
    report: Callable[[BadRow], None],
    *,
    environment: str | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Prepared:
    """Write the good rows of all inputs to `output`, in their order.

    Args:
        report: is told each bad row.
        environment: id of the environment of rows that name no agent.
        arguments: of its loader.

    Raises:
        UsageError: when a file cannot be read or written, or no row is good.
    """
    refuse_own_input(output, inputs)
    stamps = stamps_of(inputs)
    with RowChecker(environment, arguments) as checker:
        checked = _Checked(checker, report)
        for path in inputs:
            checked.read(path)
        checked.compare()
        if not any(checked.good):
            raise UsageError(f"no row of {', '.join(map(str, inputs))} is good; nothing was written")
        with row_writer(output) as writer:
            for raw in checked.good_rows():
                writer.write(raw)
            check_unchanged(stamps)
    return Prepared(sum(checked.good), checked.bad, tuple(sorted(checker.unchecked)))


class _Checked:
    """What is kept of the rows that were read: some 25 bytes of each."""

    def __init__(self, checker: RowChecker, report: Callable[[BadRow], None]) -> None:
        self._checker = checker
        self._report = report
        self._starts: dict[Path, int] = {}  # number of each file's first row
        self._lines = array("Q")
        self._tasks = array("Q")  # digest of (agent, id), which names a task
        self._contents = array("Q")  # and of everything in the row
        self.good = bytearray()
        self.bad = 0

    def read(self, path: Path) -> None:
        """Check the rows of a file."""
        if path in self._starts:
            raise UsageError(f"{path} is given twice; give each file once")
        self._starts[path] = len(self.good)
        try:
            for line, raw in read_lines(path):
                self._lines.append(line)
                self.good.append(self._check(path, line, raw))
        except RowError as error:  # the rest of the file cannot be read
            self._tell(path, error.line, error)
        if len(self.good) == self._starts[path] and not self.bad:
            self._tell(path, 0, UsageError("the file has no rows"))

    def compare(self) -> None:
        """Take out rows whose id another row of the same agent has, with other content; equal rows are rollouts.

        They are told in the order in which they were read.
        """
        if not self.good:
            return
        order = np.argsort(np.frombuffer(self._tasks, np.uint64), kind="stable")
        tasks, contents = (np.frombuffer(values, np.uint64)[order] for values in (self._tasks, self._contents))
        first = np.maximum.accumulate(np.where(np.r_[True, tasks[1:] != tasks[:-1]], np.arange(len(tasks)), 0))
        differ = np.flatnonzero(contents != contents[first])
        for place in differ[np.argsort(order[differ])]:
            row, twin = int(order[place]), int(order[first[place]])
            if self.good[row] and self.good[twin]:
                self.good[row] = 0
                (path, line), (other, twin_line) = self._place(row), self._place(twin)
                reason = f"its id is that of {other}, line {twin_line}, which is another row; an id names one task"
                self._tell(path, line, UsageError(reason))

    def good_rows(self) -> Iterator[bytes]:
        """The good rows, read again."""
        ends = [*self._starts.values(), len(self.good)][1:]
        for (path, start), end in zip(self._starts.items(), ends, strict=True):
            # `zip` asks for a flag first: what lies behind the last row that could be read stays unread.
            flagged = zip(self.good[start:end], read_lines(path), strict=False)
            yield from (raw for good, (_, raw) in flagged if good)

    def _check(self, path: Path, line: int, raw: bytes) -> bool:
        task = content = len(self.good)  # of a row that is no row: unlike all others
        try:
            row = parse_row(raw, line, str(path))
            self._checker.check(row)
            content = _eight(task_digest(row))
            task = _eight(_name(row)) if row.get("id") is not None else content
        except UsageError as error:
            self._tell(path, line, error)
            return False
        finally:
            self._tasks.append(task)
            self._contents.append(content)
        return True

    def _tell(self, path: Path, line: int, error: UsageError) -> None:
        self.bad += 1
        self._report(BadRow(path, line, str(error).removeprefix(f"{path}, line {line}: ")))

    def _place(self, row: int) -> tuple[Path, int]:
        path = max((start, path) for path, start in self._starts.items() if start <= row)[1]
        return path, self._lines[row]


def _name(row: Row) -> bytes:
    """What names a row's task: its agent and its id, of which 1 and "1" are two."""
    return hashlib.blake2b(f"{agent_in(row)}/{row['id']!r}".encode(), digest_size=8).digest()


def _eight(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big")
