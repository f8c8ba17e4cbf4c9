"""Rows of a file: checked once, kept by their place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from agent_toys import FAST, OTHER, row
from polygym.collect.inputs import InputRows
from polygym.data.files import row_writer
from polygym.errors import UsageError
from polygym.rows import Row, dump_row

ROWS = [row(0), row("x", agent=OTHER), row(2), row(2), row("x", agent=OTHER, note="\u2028")]


def written(path: Path, rows: list[Row]) -> Path:
    with row_writer(path) as writer:
        for item in rows:
            writer.write(dump_row(item).rstrip())
    return path


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz", "rows.parquet"])
def test_rows_are_read_again_from_their_place_in_any_format(name: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows = ROWS[:4]
    found = InputRows.read(written(tmp_path / name, rows))
    assert (found.agents, found.environments) == ([FAST, OTHER], ["fast", "other"])
    assert [found.row(place)["id"] for place in (3, 1, 0)] == [2, "x", 0]
    assert found.row(1) == {**rows[1], "_ng_task_index": 1}
    assert [found.rows_before(place) for place in range(4)] == [0, 0, 0, 1]
    assert (found.counts_E(), found.task_ids) == ({"fast": 3, "other": 1}, [0, "x", 2, 2])


def test_a_file_with_a_mark_blank_lines_and_windows_newlines_keeps_its_line_numbers(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + dump_row(ROWS[0]).replace(b"\n", b"\r\n") + b"\r\n" + dump_row(ROWS[4]).rstrip())
    found = InputRows.read(path)
    assert [found.line(place) for place in (0, 1)] == [1, 3]
    assert found.row(0)["id"] == 0
    assert found.row(1)["note"] == "\u2028"


def test_a_limit_takes_the_first_rows_and_looks_at_no_other(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(map(dump_row, ROWS[:2])) + b"broken\n")
    assert len(InputRows.read(path, limit=2)) == 2
    with pytest.raises(UsageError, match=r"rows\.jsonl, line 3: not JSON"):
        InputRows.read(path)
    with pytest.raises(UsageError, match="limit=0 must be"):
        InputRows.read(path, limit=0)


def test_the_digest_is_that_of_the_rows_however_they_are_kept(tmp_path: Path) -> None:
    plain = InputRows.read(written(tmp_path / "a.jsonl", ROWS[:3]))
    packed = tmp_path / "b.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    assert plain.digest == InputRows.read(packed).digest == InputRows.of(ROWS[:3]).digest
    assert plain.digest != InputRows.of(ROWS[:2]).digest


def test_a_file_that_changes_while_its_rows_are_played_is_told(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", ROWS[:2])
    found = InputRows.read(path)
    with open(path, "ab") as file:
        file.write(dump_row(row(9)))
    with pytest.raises(UsageError, match=r"rows\.jsonl was changed while its rows were played"):
        found.row(0)


def test_agents_whose_environments_would_have_one_name_are_kept_apart() -> None:
    assert InputRows.of([row(0, agent="fast"), row(1)]).environments == ["fast", FAST]
    with pytest.raises(UsageError, match="agents 'fast_simple_agent' and 'fast' would both be environment 'fast'"):
        InputRows.of([row(0), row(1, agent="fast")])


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row(0), {"agent_ref": {"name": FAST}}], "row 2: the row has no responses_create_params"),
        ([row(0), row(1, agent=None), row(2, agent=None)], r"2 row\(s\) name no agent .*\(rows 2, 3\)"),
        ([row(0), row(0, note="other")], "rows 1 and 2 of agent 'fast_simple_agent' have the id 0 and are different"),
        ([row(0, agent_ref=7)], "row 1: agent_ref must be an object"),
        ([row(0, agent_ref={"name": 7})], "row 1: agent_ref.name must be a text"),
        ([], "has no rows"),
    ],
)
def test_rows_that_cannot_be_played_are_told_with_their_line(rows: list[Row], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        InputRows.of(rows)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(item)}\n" for item in rows))
    with pytest.raises(UsageError, match=said):
        InputRows.read(path)
