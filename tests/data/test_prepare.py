"""Preparing: good rows are written as they stand, each bad one is told with its place and reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_toys import read, wire_row, write
from polygym.data.export import generated_rows
from polygym.data.prepare import BadRow, Prepared, prepare
from polygym.errors import UsageError


def prepared(inputs: list[Path], output: Path, environment: str | None = None) -> tuple[Prepared, list[str]]:
    told: list[BadRow] = []
    done = prepare(inputs, output, told.append, environment=environment)
    return done, [str(bad).replace(f"{inputs[0].parent}/", "") for bad in told]


def test_good_rows_stay_as_they_are_and_bad_ones_are_told_with_file_line_and_reason(tmp_path: Path) -> None:
    good = [
        b'{"id": 1, "responses_create_params": {"input": "a"}, "n": 1.10, "big": 123456789012345678901234567890}',
        '{"id": 2, "responses_create_params": {"input": "\u2028é"}}'.encode(),
        b'{"responses_create_params": {"input": "no id"}}',
    ]
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl.gz"
    bad = [b"{broken", b'{"question": "x"}', b'{"id": 3, "']
    one.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join([good[0], b"", bad[0], good[1], bad[1], bad[2]]))
    write(two, [wire_row(9), {**wire_row(8), "responses_create_params": {"input": 5}}])
    output = tmp_path / "out" / "rows.jsonl"
    done, told = prepared([one, two], output)
    assert (done.rows, done.bad) == (3, 4)
    assert output.read_bytes().split(b"\n")[:2] == good[:2]
    assert [bad.split(": ")[0] for bad in told] == [
        "one.jsonl, line 3",
        "one.jsonl, line 5",
        "one.jsonl, line 6",
        "two.jsonl.gz, line 2",
    ]
    assert "not JSON" in told[0]
    assert "no responses_create_params" in told[1]
    assert "responses_create_params.input" in told[3]


def test_an_id_names_one_task_of_an_agent_and_equal_rows_are_its_rollouts(tmp_path: Path) -> None:
    rows = [
        wire_row(1),
        wire_row(1, agent="other"),
        wire_row("1"),
        wire_row(1),
        wire_row(1, "another question"),
        {"responses_create_params": {"input": "no id"}},
        {"responses_create_params": {"input": "no id"}},
        wire_row(1, agent="other", more=2),
    ]
    path = write(tmp_path / "rows.jsonl", rows)
    done, told = prepared([path, write(tmp_path / "more.jsonl", [wire_row("1", "x")])], tmp_path / "out.jsonl")
    assert read(tmp_path / "out.jsonl") == [*rows[:4], *rows[5:7]]
    assert (done.bad, done.unchecked) == (3, ("other",))
    assert [bad.split(", which is")[0] for bad in told] == [
        "rows.jsonl, line 5: its id is that of rows.jsonl, line 1",
        "rows.jsonl, line 8: its id is that of rows.jsonl, line 2",
        "more.jsonl, line 1: its id is that of rows.jsonl, line 3",
    ]


@pytest.mark.parametrize(
    ("environment", "change", "said"),
    [
        ("math_rl", {"answer": None}, "a mathematical answer must be text or a number"),
        ("word_game", {"openings": None}, "KeyError: 'openings'"),
        ("example_multi_step", {"expected_synonym_values": None}, "KeyError: 'expected_synonym_values'"),
    ],
)
def test_a_row_that_its_environment_cannot_begin_or_score_is_bad(
    environment: str, change: dict[str, None], said: str, tmp_path: Path
) -> None:
    rows = generated_rows(environment, 3)
    broken = {key: value for key, value in rows[1].items() if key not in change}
    named = {**broken, "id": "named", "agent_ref": {"name": f"{environment}_simple_agent"}}
    path = write(tmp_path / "rows.jsonl", [rows[0], broken, rows[2], named])
    done, told = prepared([path], tmp_path / "out.jsonl", environment)
    assert (done.rows, done.bad, done.unchecked) == (2, 2, ())
    assert [bad.split(": ")[0] for bad in told] == ["rows.jsonl, line 2", "rows.jsonl, line 4"]
    assert all(f"environment '{environment}' cannot play it" in bad and said in bad for bad in told)
    assert prepared([path], tmp_path / "shape.jsonl")[0].bad == 1  # only the row that names its agent


def test_a_tool_that_the_environment_does_not_have_is_told_with_the_nearest(tmp_path: Path) -> None:
    row = generated_rows("example_single_tool_call", 1)[0]
    row["responses_create_params"]["tools"][0]["name"] = "get_wether"
    path = write(tmp_path / "rows.jsonl", [row, {**generated_rows("example_single_tool_call", 1)[0], "id": "good"}])
    _, told = prepared([path], tmp_path / "out.jsonl", "example_single_tool_call")
    assert len(told) == 1
    assert "has no tool 'get_wether'; did you mean 'get_weather'" in told[0]


def test_a_cut_file_gives_the_rows_before_the_cut(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl.gz", (wire_row(number, f"{number:x}" * 99) for number in range(2_000)))
    path.write_bytes(path.read_bytes()[:-500])
    done, told = prepared([path], tmp_path / "out.jsonl")
    assert done.bad == len(told) == 1
    assert "cut or damaged" in told[0]
    assert 0 < done.rows < 2_000
    assert [row["id"] for row in read(tmp_path / "out.jsonl")] == list(range(done.rows))


def test_nothing_is_written_where_nothing_can_be_trusted(tmp_path: Path) -> None:
    path, output = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    path.write_text("{}\n", "utf-8")
    with pytest.raises(UsageError, match="is good; nothing was written"):
        prepared([path], output)
    write(path, [wire_row(1), {}])
    with pytest.raises(UsageError, match="is read too"):
        prepared([path], path)
    with pytest.raises(UsageError, match="is given twice"):
        prepared([path, path], output)
    with pytest.raises(UsageError, match="is a group of"):
        prepared([path], output, "multi_env")
    with pytest.raises(UsageError, match="was changed while it was read"):
        prepare([path], output, lambda bad: path.write_text("{}\n\n\n", "utf-8") and None)
    with pytest.raises(UsageError, match="cannot read"):
        prepared([tmp_path / "none.jsonl"], output)
    assert [found.name for found in tmp_path.iterdir()] == ["rows.jsonl"]


def test_an_empty_file_among_others_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n \n", "utf-8")
    done, told = prepared(
        [write(tmp_path / "rows.jsonl", [wire_row(1)]), tmp_path / "empty.jsonl"], tmp_path / "o.parquet"
    )
    assert (done.rows, done.bad, told) == (1, 1, ["empty.jsonl: the file has no rows"])
