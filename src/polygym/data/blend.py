"""Several environments' rows as one file, so that a collection meets all of them all the time.

The one idea: rows are dealt by the schedule that deals groups in training. After any number of rows each environment
differs from its share by less than one row, so any part of the file is a fair sample of the mix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from polygym.data.export import example_rows
from polygym.environments.names import agent_name, served_name
from polygym.environments.wire_rows import AGENTS, check_row
from polygym.errors import UsageError
from polygym.mixture.schedule import GroupSchedule
from polygym.rows import Row, read_wire_rows

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Source:
    """What `--add` names: an environment, with its weight or the file of its rows where they are given."""

    environment: str
    weight: float | None = None
    path: Path | None = None

    @property
    def name(self) -> str:
        """Name of the environment's servers."""
        return served_name(self.environment)

    @property
    def agent(self) -> str:
        """Who plays its rows."""
        return agent_name(self.name)

    def rows(self) -> list[Row]:
        """The rows, each with its agent; one that names an agent keeps it."""
        rows = example_rows(self.environment) if self.path is None else _read(self.path)
        return [{**row, "agent_ref": row.get("agent_ref") or {"type": AGENTS, "name": self.agent}} for row in rows]


def read_source(text: str) -> Source:
    """The source that `NAME`, `NAME=WEIGHT` or `NAME=PATH` means.

    >>> read_source("math_rl=0.5").weight
    0.5

    Raises:
        UsageError: for a weight that is none, or nothing after the sign.
    """
    environment, sign, value = text.partition("=")
    if not sign:
        return Source(environment)
    if not value:
        raise UsageError(f"--add {text!r} has nothing after '='; write NAME, NAME=WEIGHT or NAME=PATH")
    try:
        weight = float(value)
    except ValueError:
        return Source(environment, path=Path(value))
    if not 0 < weight < math.inf:
        raise UsageError(f"--add {text!r}: a weight must be more than 0 and finite")
    return Source(environment, weight)


def blend(sources: Sequence[Source]) -> list[Row]:
    """The rows of all sources, dealt by their shares.

    Without weights every row is there, and shares follow from how many each source has. With weights there are as many
    rows as the shares allow without using one twice.

    Raises:
        UsageError: when nothing or one environment twice is added, or weights are given for some only.
    """
    rows_S = {source.name: source.rows() for source in _checked(sources)}
    weights_S = {source.name: source.weight for source in sources if source.weight is not None}
    counts_S = _counts(rows_S, weights_S) if weights_S else {name: len(rows) for name, rows in rows_S.items()}
    total = sum(counts_S.values())
    schedule = GroupSchedule({name: count / total for name, count in counts_S.items()}, 1)
    waiting_S = {name: iter(rows_S[name][:count]) for name, count in counts_S.items()}
    return [next(waiting_S[name]) for _ in range(total) for name, count in schedule.next().items() if count]


def _read(path: Path) -> list[Row]:
    rows, lines = read_wire_rows(path)
    for row, line in zip(rows, lines, strict=True):
        try:
            check_row(row)
        except UsageError as error:
            raise UsageError(f"{path}, line {line}: {error}") from error
    return rows


def _counts(rows_S: Mapping[str, list[Row]], weights_S: Mapping[str, float]) -> dict[str, int]:
    """Rows of each source when the one that runs out first has given all its rows."""
    scale = min(len(rows) / weights_S[name] for name, rows in rows_S.items())
    counts_S = {name: math.floor(weights_S[name] * scale + ROUNDING) for name in rows_S}
    for name, count in counts_S.items():
        if not count:
            least = math.ceil(1 / weights_S[name] * max(weights_S.values()))
            raise UsageError(
                f"weights {dict(weights_S)} leave no row for {name!r}: with these rows the others run out first; "
                f"give them {least} rows or more, or {name!r} a larger weight"
            )
    return counts_S


def _checked(sources: Sequence[Source]) -> Sequence[Source]:
    if not sources:
        raise UsageError("nothing to blend; give --add NAME once for each environment")
    names = [source.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--add names {name!r} twice; an environment is added once: join its rows in one file")
    bare = [source.name for source in sources if source.weight is None]
    if bare and len(bare) < len(sources):
        raise UsageError(f"weights are given, but not for {', '.join(bare)}; give one for each --add, or for none")
    return sources
