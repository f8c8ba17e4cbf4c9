"""Rows are checked to their end."""

from __future__ import annotations

import json
from pathlib import Path

from polygym.serve.row_checks import check_rows

AGENTS = ("math_rl_simple_agent", "word_game_simple_agent")


def row(agent: str | None, **keys: object) -> str:
    reference = {} if agent is None else {"agent_ref": {"type": "responses_api_agents", "name": agent}}
    return json.dumps({"responses_create_params": {"input": "hi"}, **reference, **keys})


def test_every_problem_of_a_file_is_told_with_all_its_lines(tmp_path: Path):
    file = tmp_path / "rows.jsonl"
    lines = [
        row("math_rl_simple_agent"),
        row("math_simple_agent"),
        "{not json",
        "",
        row(None),
        row("math_simple_agent"),
        json.dumps({"agent_ref": {"name": "word_game_simple_agent"}, "question": "?"}),
        row("word_game_simple_agent", _ng_task_index=-1),
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    told = check_rows(file, AGENTS)
    assert told[0] == (
        f"{file}, lines 2, 6: agent 'math_simple_agent' is unknown; did you mean 'math_rl_simple_agent'? Allowed: "
        "math_rl_simple_agent, word_game_simple_agent"
    )
    assert told[1].startswith(f"{file}, line 3: not JSON")
    assert told[2] == f'{file}, line 5: the row names no agent; add "agent_ref": {{"name": ...}}'
    assert told[3].startswith(f"{file}, line 7: the row has no responses_create_params")
    assert told[4].startswith(f"{file}, line 8: _ng_task_index is -1")
    assert len(told) == 5


def test_a_file_without_problems_or_rows(tmp_path: Path):
    file = tmp_path / "rows.jsonl"
    file.write_text(row("math_rl_simple_agent") + "\n" + row("math_rl_simple_agent") + "\n", encoding="utf-8")
    assert check_rows(file, AGENTS) == []
    file.write_text("\n", encoding="utf-8")
    assert check_rows(file, AGENTS) == [f"{file} has no rows"]
