from __future__ import annotations

import math
import os
import stat
from pathlib import Path
from typing import Any

import pytest

import case_rows
from polygym import rows
from polygym.errors import UsageError


@case_rows.parametrize("jsonl_load")
def test_case_jsonl_load(case: dict[str, Any]) -> None:
    given, expected = case["input"], case["expected"]
    data = bytes.fromhex(given["hex"]) if "hex" in given else given["text"].encode("utf-8", "surrogatepass")
    if "ids" in expected:
        ids = [row["id"] for row in rows.read_rows(data, limit=given.get("limit"))]
        assert [(type(row_id), row_id) for row_id in ids] == [(type(row_id), row_id) for row_id in expected["ids"]]
        return
    with pytest.raises(rows.RowError) as caught:
        rows.read_rows(data, limit=given.get("limit"))
    assert {"error": caught.value.code, "line": caught.value.line} == expected


@case_rows.parametrize("task_index")
def test_case_task_index(case: dict[str, Any]) -> None:
    lines = [line for line in case["input"]["text"].split("\n") if line.strip()]
    assert rows.task_index(map(rows.json.loads, lines)) == case["expected"]


@case_rows.parametrize("jsonl_resume")
def test_case_jsonl_resume(case: dict[str, Any]) -> None:
    given, expected = case["input"], case["expected"]

    output = bytes.fromhex(given["hex"]) if "hex" in given else given["output"].encode("utf-8", "surrogatepass")

    def scan() -> rows.ResumeScan:
        return rows.scan_output(output, given["planned"], lambda row: (row["task"], row["rollout"]))

    if "error" in expected:
        with pytest.raises(rows.RowError) as caught:
            scan()
        assert {"error": caught.value.code, "line": caught.value.line} == expected
    else:
        found = scan()
        assert [list(key) for key in found.done] == expected["done"]
        assert [list(key) for key in found.todo] == expected["todo"]
        assert found.keep_bytes == expected["keep_bytes"]


@case_rows.parametrize("agent_routing")
def test_case_agent_routing(case: dict[str, Any]) -> None:
    given, expected = case["input"], case["expected"]
    default = given.get("default")
    if "agent" in expected:
        assert rows.agent_of(given["row"], default, given["known"]) == expected["agent"]
        return
    with pytest.raises(rows.RowError) as caught:
        rows.agent_of(given["row"], default, given["known"])
    assert caught.value.code == expected["error"]


def test_a_path_is_read_and_named_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"question": "a"}\r\n{"question": "b"}\r\n')
    assert rows.read_rows(path) == [{"id": 0, "question": "a"}, {"id": 1, "question": "b"}]
    path.write_bytes(b'{"a": {"b": 1, "b": 2}}\n')
    with pytest.raises(rows.RowError, match=r"data\.jsonl, line 1: key 'b' stands twice"):
        rows.read_rows(str(path))
    with pytest.raises(UsageError, match="cannot read"):
        rows.read_rows(tmp_path / "none.jsonl")


def test_a_limit_stops_before_later_faults_and_a_negative_one_is_refused() -> None:
    assert rows.read_rows(b'{"id": 5}\nbroken\n', limit=1) == [{"id": 5}]
    for limit in (-1, True, 1.5):
        with pytest.raises(rows.RowError, match="limit=") as caught:
            rows.read_rows(b'{"id": 5}\n', limit=limit)  # type: ignore[arg-type]
        assert (caught.value.code, caught.value.line) == ("bad_limit", 0)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"id": null}', "bad_id"),
        ('{"id": 1.0}', "bad_id"),
        ('{"id": [1]}', "bad_id"),
        ('{"a": -Infinity}', "non_finite"),
        ('{"a": [{"b": -1e999}]}', "non_finite"),
        ('{"a": {"b": 1, "b": 1}}', "duplicate_key"),
        ('{"\\uDfff": 1}', "invalid_unicode"),
        ('{"a": 1} {"a": 2}', "invalid_json"),
        ("[" * 100_000, "invalid_json"),
        ('{"a": "\x00"}', "invalid_json"),
        ('"text"', "not_object"),
    ],
)
def test_each_fault_of_a_dataset_row_has_a_code_and_a_line(text: str, code: str) -> None:
    with pytest.raises(rows.RowError) as caught:
        rows.read_rows(f'{{"id": "first"}}\n\n{text}\n'.encode())
    assert (caught.value.code, caught.value.line) == (code, 3)


def test_rows_nest_so_deep_and_no_deeper() -> None:
    for opening, closing in ("[]", ('{"a":', "}")):
        text = '{"b":[{}],"a":' + opening * 199 + "1" + closing * 199 + "}"
        assert rows.dump_row(rows.read_rows(text.encode(), limit=1)[0])
        deeper = '{"a":' + opening * 200 + "1" + closing * 200 + "}"
        with pytest.raises(rows.RowError, match="nested more than 200 levels deep") as caught:
            rows.read_rows(deeper.encode())
        assert (caught.value.code, caught.value.line) == ("invalid_json", 1)
    assert len(rows.read_rows(('{"a":[' + "[]," * 999 + "1]}").encode())[0]["a"]) == 1_000


def test_an_assigned_id_never_collides_with_a_given_one() -> None:
    with pytest.raises(rows.RowError) as caught:
        rows.assign_ids([{"id": 1}, {"question": "x"}])
    assert caught.value.code == "duplicate_id"
    assert rows.assign_ids([{"question": "x"}]) == [{"id": 0, "question": "x"}]


def test_large_integers_survive_reading_and_writing() -> None:
    row = rows.read_rows(b'{"id": 1, "n": 123456789012345678901234567890}')[0]
    assert rows.dump_row(row) == b'{"id":1,"n":123456789012345678901234567890}\n'


def test_task_numbers_depend_on_the_agent_but_not_on_ng_keys() -> None:
    math_row = {"q": "a", "agent_ref": {"type": "responses_api_agents", "name": "math"}}
    same = {"agent_ref": {"name": "math"}, "q": "a", "_ng_rollout_index": 3}
    other = {"q": "a", "agent_ref": {"name": "word"}}
    assert rows.task_index([math_row, same, other]) == [0, 0, 1]
    assert rows.task_index([{"q": "a"}, {"q": "a", "agent_ref": None}, {"q": "a", "agent_ref": {}}]) == [0, 0, 0]


def test_rows_without_an_agent_are_reported_together() -> None:
    with pytest.raises(rows.RowError, match=r"2 row\(s\) name no agent .*\(rows 1, 3\)") as caught:
        rows.agents_of([{}, {"agent_ref": {"name": "math"}}, {"agent_ref": None}], None, ["math"])
    assert caught.value.line == 1


def test_the_last_row_of_a_key_decides_whether_it_is_done() -> None:
    output = b'{"t": 0, "reward": null}\n{"t": 1, "reward": 1}\n{"t": 0, "reward": 0.5}\n{"t": 1, "reward": null}\n'
    found = rows.scan_output(output, [[0], [1], ["0"]], lambda row: (row["t"],))
    assert (found.done, found.todo) == ([(0,)], [(1,), ("0",)])


def test_a_whole_row_without_its_key_is_damage() -> None:
    with pytest.raises(rows.RowError) as caught:
        rows.scan_output(b'{"reward": 1}\n', [[0]], lambda row: (row["t"],))
    assert (caught.value.code, caught.value.line) == ("corrupt_line", 1)


def test_a_torn_tail_is_cut_even_inside_a_character(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    whole = '{"a":"é"}\n'.encode()
    path.write_bytes(whole + '{"a":"é'.encode()[:-1])
    assert rows.scan_lines(path) == [{"a": "é"}]
    assert rows.cut_torn_tail(path) == 7
    assert path.read_bytes() == whole
    assert rows.cut_torn_tail(path) == rows.cut_torn_tail(tmp_path / "none") == 0


def test_a_whole_last_line_without_newline_is_kept_and_ended(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"a":1}')
    assert rows.cut_torn_tail(path) == 0
    rows.append(path, {"a": 2}, {"a": 3})
    assert path.read_bytes() == b'{"a":1}\n{"a":2}\n{"a":3}\n'


def test_what_is_written_can_always_be_read_again() -> None:
    class Foreign:
        def __str__(self) -> str:
            return "foreign"

    row = {"nan": math.nan, "inf": [math.inf], 1: Foreign(), "half": "a\ud800b", "set": {2}, "nothing": None}
    assert rows.orjson.loads(rows.dump_row(row)) == {
        "nan": None,
        "inf": [None],
        "1": "foreign",
        "half": "a\ufffd\ufffd\ufffdb",
        "set": [2],
        "nothing": None,
    }
    assert rows.dump_row({"reward": math.nan}) == b'{"reward":null}\n'


def test_a_link_is_written_through_and_what_is_no_file_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/target")
    for content in (b"old", b"new"):  # where it leads to nothing yet, and to a file
        rows.write_aside(tmp_path / "link", content)
        assert (tmp_path / "folder" / "target").read_bytes() == content
    assert os.readlink(tmp_path / "link") == "folder/target"

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to_pipe").symlink_to("pipe")
    for name in ("pipe", "to_pipe", "folder"):
        with pytest.raises(UsageError, match=f"cannot write '{tmp_path / name}': it is there and is no file"):
            rows.write_aside(tmp_path / name, b"")
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match="Too many levels"):
        rows.write_aside(tmp_path / "round", b"")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["folder", "link", "pipe", "round", "target", "to_pipe"]


def test_a_file_written_aside_is_replaced_whole_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state.json"
    rows.write_aside(path, b"old")
    rows.write_aside(path, b"new")
    assert path.read_bytes() == b"new"
    with pytest.raises(TypeError):
        rows.write_aside(path, "text")  # type: ignore[arg-type]
    assert [(file.name, file.read_bytes()) for file in path.parent.iterdir()] == [("state.json", b"new")]
