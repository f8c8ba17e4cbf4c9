"""Checking rows before they are played.

The one idea: a file is read to its end, and each problem is told once, with the lines that have it.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from polygym.environments.wire_rows import check_row
from polygym.errors import UsageError, nearest
from polygym.rows import RowError, numbered_lines, parse_row

SHOWN_LINES = 10


def check_rows(path: str | Path, agents: Collection[str] | None) -> list[str]:
    """What is wrong with a JSONL file of rows for agents of these names (None: whichever); nothing where all is well.

    Raises:
        UsageError: when the file cannot be read at all.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    lines_of: dict[str, list[int]] = {}  # problem: the lines that have it
    number = 0
    for number, line in numbered_lines(content.split(b"\n")):
        for problem in _problems(line, agents):
            lines_of.setdefault(problem, []).append(number)
    if not number:
        return [f"{path} has no rows"]
    return [f"{path}, {_named(lines)}: {problem}" for problem, lines in lines_of.items()]


def _problems(line: bytes, agents: Collection[str] | None) -> list[str]:
    try:
        row = parse_row(line, 0, "")
    except RowError as error:
        return [str(error).partition(": ")[2]]  # without the place
    found = []
    try:
        check_row(row)
    except UsageError as error:
        found.append(str(error))
    reference = row.get("agent_ref")
    name = reference.get("name") if isinstance(reference, dict) else None
    if reference is None:
        found.append('the row names no agent; add "agent_ref": {"name": ...}')
    elif isinstance(name, str) and agents is not None and name not in agents:
        found.append(f"agent {name!r} is unknown; {nearest(name, agents)}")
    return found


def _named(lines: list[int]) -> str:
    """The lines of a problem in words.

    >>> _named([3]), _named([3, 5, 8])
    ('line 3', 'lines 3, 5, 8')
    """
    shown = ", ".join(map(str, lines[:SHOWN_LINES])) + (", ..." if len(lines) > SHOWN_LINES else "")
    return f"line{'s' * (len(lines) > 1)} {shown}"
