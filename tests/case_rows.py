"""Rows of tests/cases/*.jsonl.

The one idea: a case file is read on "\\n" only (some rows hold other line separators) and with the standard library's
json (some rows hold numbers that other readers round).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).parent / "cases"


def rows(name: str) -> list[dict[str, Any]]:
    """All rows of one case file: dictionaries with id, input, expected and more."""
    return [json.loads(line) for line in (CASES / f"{name}.jsonl").read_text("utf-8").split("\n") if line.strip()]


def parametrize(name: str) -> pytest.MarkDecorator:
    """Run a test once for each row, as its argument `case`, with the row's id in the test's name."""
    return pytest.mark.parametrize("case", [pytest.param(row, id=row["id"]) for row in rows(name)])
