"""Files of rows: every format gives back what was written, and a file is there as a whole or not at all."""

from __future__ import annotations

import datetime
import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import case_rows
from data_toys import read, write
from polygym.data import files
from polygym.data.files import read_lines, row_writer
from polygym.errors import UsageError
from polygym.rows import RowError, parse_row

FORMATS = ["rows.jsonl", "rows.jsonl.gz", "rows.parquet"]
OF_DATASETS = ("bad_id", "duplicate_id", "empty_dataset")  # what is said of rows together, not of one
OF_LINES = [case for case in case_rows.rows("jsonl_load") if case["expected"].get("error") not in OF_DATASETS]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in OF_LINES])
@pytest.mark.parametrize("packed", [False, True])
def test_case_jsonl_load_line_by_line(case: dict[str, Any], packed: bool, tmp_path: Path) -> None:
    given, expected = case["input"], case["expected"]
    data = bytes.fromhex(given["hex"]) if "hex" in given else given["text"].encode("utf-8", "surrogatepass")
    path = tmp_path / "rows"
    path.write_bytes(gzip.compress(data) if packed else data)
    if "error" in expected:
        with pytest.raises(RowError) as caught:
            [parse_row(raw, line, "rows") for line, raw in read_lines(path)]
        assert {"error": caught.value.code, "line": caught.value.line} == expected
    else:
        rows = [parse_row(raw, line, "rows") for line, raw in read_lines(path)]
        assert [row.get("id", place) for place, row in enumerate(rows)] == expected["ids"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_back_what_was_written(name: str, tmp_path: Path) -> None:
    rows = [
        {"id": 1, "text": "é \u2028 \u2029 \x00", "half": 1.5, "yes": True, "deep": {"a": [1, None, {"b": 2.0}]}},
        {"id": 2, "mixed": 1, "large": 2**70, "nothing": None},
        {"id": 3, "mixed": "one", "half": 2.0, "deep": []},
    ]
    path = write(tmp_path / name, rows)
    text = [json.dumps(row, sort_keys=True) for row in rows]
    assert [json.dumps(row, sort_keys=True) for row in read(path)] == text  # where 1.0 is not 1
    assert [line for line, _ in read_lines(path)] == [1, 2, 3]
    assert list(tmp_path.iterdir()) == [path]
    if name.endswith(".gz"):
        assert path.read_bytes()[3:8] == bytes(5)  # no name, no time: equal rows make equal files


def test_rows_of_a_foreign_table_lack_the_keys_that_it_fills_with_nulls(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    day = datetime.date(2026, 11, 1)
    rows = [
        {"id": 1, "responses_create_params": {"input": [{"role": "user", "content": "x"}], "tools": None}, "day": day},
        {"id": 2, "responses_create_params": {"input": [{"role": "user", "content": "y"}]}, "tags": ["a"]},
    ]
    schema = pa.schema(
        {
            "id": pa.int64(),
            "responses_create_params": pa.struct(
                {
                    "input": pa.list_(pa.struct({"role": pa.string(), "content": pa.string(), "name": pa.string()})),
                    "tools": pa.list_(pa.string()),
                }
            ),
            "day": pa.date32(),
            "tags": pa.list_(pa.string()),
        }
    )
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / "a")
    assert read(tmp_path / "a") == [
        {"id": 1, "responses_create_params": {"input": [{"role": "user", "content": "x"}]}, "day": "2026-11-01"},
        {"id": 2, "responses_create_params": {"input": [{"role": "user", "content": "y"}]}, "tags": ["a"]},
    ]
    pq.write_table(pa.table({"agent_ref": ['{"name": "a"}'], "note": ['{"name": "a"}']}), tmp_path / "b")
    assert read(tmp_path / "b") == [{"agent_ref": {"name": "a"}, "note": '{"name": "a"}'}]
    pq.write_table(pa.table({"picture": [{"bytes": b"x"}]}), tmp_path / "c")
    with pytest.raises(UsageError, match="column 'bytes' holds bytes"):
        read(tmp_path / "c")


@pytest.mark.parametrize("name", FORMATS[1:])
def test_what_stands_before_a_cut_is_read_and_the_cut_is_told(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, ({"id": number, "text": f"{number:x}" * 99} for number in range(5_000)))
    path.write_bytes(path.read_bytes()[:-2_000])
    lines = []
    with pytest.raises(RowError, match=f"{name}, line ") as caught:
        for line, raw in read_lines(path):
            lines.append(line)
            assert parse_row(raw, line, name)["id"] == line - 1
    assert caught.value.code == "damaged_file"
    assert caught.value.line == len(lines)
    if name.endswith(".gz"):  # Parquet keeps what it is at its end
        assert len(lines) > 3_000


def test_a_file_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    for name in FORMATS:
        path = write(tmp_path / name, [{"id": "old"}])
        with pytest.raises(KeyboardInterrupt), row_writer(path) as writer:
            writer.write(b'{"id": "new"}')
            raise KeyboardInterrupt
        assert read(path) == [{"id": "old"}]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FORMATS)


def test_paths_that_cannot_be_read_or_written_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"), row_writer(tmp_path / "file" / "rows.jsonl"):
        pass
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(UsageError, match="cannot read"):
            read(path)


def test_memory_follows_the_longest_line_not_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with open(path, "wb") as file:
        for number in range(60):
            file.write(b'{"id": %d, "t": "%s"}\r\n' % (number, b"x" * (10_000_000 if number == 30 else 1_000_000)))
    tracemalloc.start()
    sizes = [len(raw) for _, raw in read_lines(path)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(sizes), max(sizes)) == (60, 10_000_019)
    assert peak < 35_000_000


def test_what_has_no_newline_is_no_file_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST_LINE", 1_000)
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"id": 1}\n' + b"x" * 999 + b"\n" + b"[1, " * 1_000)
    with pytest.raises(RowError, match="line 3: more than") as caught:
        list(read_lines(path))
    assert (caught.value.code, caught.value.line) == ("long_line", 3)
