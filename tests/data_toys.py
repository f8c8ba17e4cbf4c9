"""Files of rows for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from polygym.data.files import read_lines, row_writer

Row = dict[str, Any]


def wire_row(id: int | str, text: str = "", agent: str | None = None, **more: Any) -> Row:
    """A row that asks `text`, or its id."""
    row: Row = {"id": id, "responses_create_params": {"input": text or f"question {id}"}, **more}
    return row if agent is None else {**row, "agent_ref": {"type": "responses_api_agents", "name": agent}}


def write(path: Path, rows: Iterable[Row]) -> Path:
    """A file of rows in the format of its name."""
    with row_writer(path) as writer:
        for row in rows:
            writer.write(json.dumps(row, ensure_ascii=False).encode())
    return path


def read(path: Path) -> list[Row]:
    """All rows of a file."""
    return [json.loads(raw) for _, raw in read_lines(path)]
