"""Blending: every row once, dealt by the shares."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from polygym.data.blend import Source, blend, read_source
from polygym.errors import UsageError

TWO = [Source("example_single_tool_call"), Source("example_multi_step")]


def written(path: Path, count: int, **more: Any) -> Path:
    rows = [{"id": n, "responses_create_params": {"input": str(n)}, **more} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["agent_ref"]["name"].removesuffix("_simple_agent") for row in rows]


def test_the_example_rows_of_two_environments_take_turns() -> None:
    rows = blend(TWO)
    assert names(rows) == ["example_single_tool_call", "example_multi_step"] * 5
    assert rows[0]["agent_ref"] == {"type": "responses_api_agents", "name": "example_single_tool_call_simple_agent"}
    assert len({row["id"] for row in rows}) == 10


def test_every_row_is_there_once_and_any_part_is_a_fair_sample(tmp_path: Path) -> None:
    counts = {"a": 60, "b": 25, "c": 7}
    rows = blend([Source(name, path=written(tmp_path / name, count)) for name, count in counts.items()])
    assert Counter(names(rows)) == counts
    for name, count in counts.items():
        assert [row["id"] for row in rows if row["agent_ref"]["name"].startswith(name)] == list(range(count))
        for end in range(1, len(rows) + 1):
            assert abs(names(rows[:end]).count(name) - end * count / len(rows)) < 1


def test_with_weights_the_source_that_runs_out_first_decides() -> None:
    rows = blend([Source("example_single_tool_call", 2.0), Source("example_multi_step", 1.0)])
    assert Counter(names(rows)) == {"example_single_tool_call": 5, "example_multi_step": 2}
    assert Counter(names(blend([Source("math_rl", 0.1), Source("tool_use", 0.1)]))) == {"math_rl": 5, "tool_use": 5}
    with pytest.raises(UsageError, match="leave no row for 'example_multi_step'"):
        blend([Source("example_single_tool_call", 9.0), Source("example_multi_step", 1.0)])


def test_rows_of_a_file_keep_the_agent_that_they_name(tmp_path: Path) -> None:
    own = {"type": "responses_api_agents", "name": "mine"}
    path = written(tmp_path / "rows.jsonl", 2, agent_ref=own)
    assert [row["agent_ref"] for row in blend([Source("a", path=path)])] == [own, own]


def test_a_row_that_is_none_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('\n{"responses_create_params": {"input": "x"}}\n{"question": "x"}\n', "utf-8")
    with pytest.raises(UsageError, match=r"rows\.jsonl, line 3: the row has no responses_create_params"):
        blend([Source("a", path=path)])


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ([], "nothing to blend"),
        (["math_rl", "math_rl=rows.jsonl"], "names 'math_rl' twice"),
        (["math_rl", "tool_use=0.5"], "not for math_rl"),
        (["math_rl=0"], "more than 0"),
        (["math_rl=-1"], "more than 0"),
        (["math_rl=nan"], "more than 0"),
        (["math_rl="], "nothing after '='"),
        (["math_rl=no_such_file.jsonl"], "cannot read 'no_such_file.jsonl'"),
        (["multi_env"], "is a group of math, tools, word"),
        (["example_multi_stp"], "did you mean 'example_multi_step'"),
    ],
)
def test_what_cannot_be_blended_is_refused(sources: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        blend([read_source(text) for text in sources])
