"""Sources of a blend: an environment's example rows, or a file of rows.

The one idea: a source is read and checked once from its beginning to its end; what is kept of a row is the number of
its agent and, where rows are shuffled, the place where it stands. Rows are then copied from the file as they are, in
any order, as often as needed.
"""

from __future__ import annotations

import math
import os
import random
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from operator import sub
from pathlib import Path

from polygym.data.checks import agent_in
from polygym.data.export import example_rows
from polygym.data.files import is_rows_file, kind_of, lines_of, read_lines
from polygym.data.wire_tasks import bad_row
from polygym.environments.names import agent_name, served_name
from polygym.environments.wire_rows import AGENTS, check_row
from polygym.errors import UsageError
from polygym.rows import dump_row, numbered_lines, parse_row
from polygym.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class Source:
    """What `--add` names: an environment, a file of its rows, or a file whose rows name their agents; and a weight."""

    environment: str | None = None
    weight: float | None = None
    path: Path | None = None

    @property
    def name(self) -> str:
        """Name of the environment's servers, or of the file."""
        return str(self.path) if self.environment is None else served_name(self.environment)

    @property
    def agent(self) -> str | None:
        """Who plays the rows that name no agent."""
        return None if self.environment is None else agent_name(self.name)


def read_source(text: str) -> Source:
    """The source that `NAME`, `FILE` or `NAME=FILE` means, each with `=WEIGHT` where it has one.

    >>> read_source("math_rl=0.5").weight, read_source("math_rl=rows.jsonl=2").path
    (0.5, PosixPath('rows.jsonl'))

    Raises:
        UsageError: for a weight that is none, or nothing after the sign.
    """
    if text.endswith("="):
        raise UsageError(f"--add {text!r} has nothing after '='; write NAME, FILE or NAME=FILE, and =WEIGHT")
    what, sign, last = text.rpartition("=")
    weight = None
    if sign:
        try:
            weight = float(last)
        except ValueError:
            what = text
    else:
        what = text
    if weight is not None and not 0 < weight < math.inf:
        raise UsageError(f"--add {text!r}: a weight must be more than 0 and finite")
    if is_rows_file(what.partition("=")[0]):
        return Source(None, weight, Path(what))
    environment, _, path = what.partition("=")
    return Source(environment, weight, Path(path) if path else None)


SPLICED, REWRITTEN = 0, 1  # a row gets its source's agent: at its end, or in place of an agent_ref that names none


class StoredRows:
    """The rows of a source, checked, in a plain file that is held open.

    Args:
        source: whose rows these are.
        folder: for a copy of rows that do not stand in a plain file.
        shuffled: whether they will be asked for out of order.

    Raises:
        UsageError: for the first row that cannot be used, with its line, or where there is none.
    """

    def __init__(self, source: Source, folder: Path, *, shuffled: bool) -> None:
        self.source = source
        self._name = str(source.path or source.name)
        self._agents: list[str | None] = [source.agent, source.agent]
        self._agent_of = array("L")  # place of each row's agent in `agents`
        self._starts = array("Q") if shuffled else None
        path = source.path
        if path is None or kind_of(path):
            path = _unpacked(source, folder)
        self._file = open(path, "rb", buffering=2**20)  # noqa: SIM115
        self._read()

    def __len__(self) -> int:
        return len(self._agent_of)

    def close(self) -> None:
        """Let the file go."""
        self._file.close()

    def rows(self, count: int, seed: int | None) -> Iterator[tuple[str, bytes]]:
        """`count` rows with their agents, each row once before any comes again; by `seed` each time in a new order."""
        for epoch, done in enumerate(range(0, count, len(self))):
            number = min(count - done, len(self))
            read = 0
            for place, raw in self._in_order(number) if seed is None else self._shuffled(number, epoch, seed):
                agent = self._agents[self._agent_of[place]]
                assert agent is not None
                yield agent, self._with_agent(place, raw, agent)
                read += 1
            if read < number:
                raise UsageError(f"{self._name} was changed while it was read; nothing was written: run it again")

    def _read(self) -> None:
        known: dict[str, int] = {}
        name = self._name
        for line, raw in numbered_lines(self._started()):
            try:
                row = parse_row(raw, line, name)
                check_row(row)
            except UsageError as error:
                raise bad_row(name, line, error) from error
            agent = agent_in(row)
            if agent is not None:
                number = known.setdefault(agent, len(self._agents))
                if number == len(self._agents):
                    self._agents.append(agent)
            elif self.source.agent is None:
                raise UsageError(f"{name}, line {line}: the row names no agent; write --add NAME={name}")
            else:
                number = REWRITTEN if "agent_ref" in row else SPLICED
            self._agent_of.append(number)
            if self._starts is not None:
                self._starts.append(self._start)
        if not self._agent_of:
            raise UsageError(f"{name} has no rows; a source has at least one")

    def _started(self) -> Iterator[bytes]:
        """The lines of the file; `_start` is where the last one begins."""
        self._start = end = 0
        for raw in lines_of(self._file, self._name):
            self._start, end = end, end + len(raw)
            yield raw

    def _in_order(self, number: int) -> Iterator[tuple[int, bytes]]:
        self._file.seek(0)
        lines = numbered_lines(lines_of(self._file, self._name))
        return ((place, raw) for place, (_, raw) in enumerate(islice(lines, number)))

    def _shuffled(self, number: int, epoch: int, seed: int) -> Iterator[tuple[int, bytes]]:
        assert self._starts is not None
        name = self.source.name if self.source.path is None or self.source.environment else self.source.path.name
        order = array("L", range(len(self)))
        random.Random(derive_seed(seed, name, "rows", epoch)).shuffle(order)
        ends = chain(islice(self._starts, 1, None), [os.fstat(self._file.fileno()).st_size])
        lengths = array("L", map(sub, ends, self._starts))
        for place in islice(order, number):
            raw = os.pread(self._file.fileno(), lengths[place], self._starts[place])
            yield from ((place, content) for _, content in numbered_lines([raw]))

    def _with_agent(self, place: int, raw: bytes, agent: str) -> bytes:
        number = self._agent_of[place]
        if number == SPLICED:
            return raw[:-1].rstrip() + b',"agent_ref":' + _reference(agent) + b"}"
        if number == REWRITTEN:
            row = parse_row(raw, 0, self.source.name)
            return dump_row({**row, "agent_ref": {"type": AGENTS, "name": agent}}).rstrip()
        return raw


@cache
def _reference(agent: str) -> bytes:
    return dump_row({"type": AGENTS, "name": agent}).rstrip()


def _unpacked(source: Source, folder: Path) -> Path:
    """A plain file with the rows of a source, on the lines where they stand in its own file."""
    handle, path = tempfile.mkstemp(dir=folder)
    with open(handle, "wb") as file:
        if source.path is None:
            assert source.environment is not None
            file.writelines(map(dump_row, example_rows(source.environment)))
        else:
            last = 0
            for line, raw in read_lines(source.path):
                file.write(b"\n" * (line - last - 1) + raw + b"\n")
                last = line
    return Path(path)
