"""Counting rows by environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_toys import wire_row, write
from polygym.data.export import example_rows
from polygym.data.stats import RowStats, Spread, stats
from polygym.errors import UsageError


def test_rows_are_counted_by_environment(tmp_path: Path) -> None:
    rows = [
        wire_row(0, "one two  three", "a_simple_agent"),
        wire_row(0, "one two  three", "a_simple_agent", _ng_rollout_index=1),
        wire_row(1, "one", "a_simple_agent"),
        wire_row(1, "one", "agent of mine"),
        wire_row(2),
    ]
    said = [{"role": "user", "content": "x y"}, {"role": "assistant", "content": "z"}, {"role": "user", "content": "w"}]
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    rows[2]["responses_create_params"] = {"input": said, "tools": [tool], "instructions": "Be brief."}
    found = stats(write(tmp_path / "rows.jsonl.gz", rows))
    assert list(found) == ["a", "agent of mine", "(no agent)"]
    words = 6 + 9  # those of the messages and the instructions, those of the tool's JSON
    assert found["a"] == RowStats(
        rows=3,
        tasks=2,
        duplicates=1,
        tokens=Spread((3 + 3 + words) / 3, words),
        tools=Spread(1 / 3, 1),
        tool_names=("look",),
        turns=Spread(4 / 3, 2),
        held_out=None,
    )
    assert (found["(no agent)"].rows, found["(no agent)"].tokens) == (1, Spread(2.0, 2))


def test_tasks_that_are_held_out_too_are_counted_by_prompt_and_answer(tmp_path: Path) -> None:
    train = [wire_row(n, f"q{n % 5}", "a_simple_agent", answer=str(n % 5), source=n) for n in range(10)]
    train.append(wire_row(0, "q0", "b_simple_agent", answer="0"))
    held_out = [
        wire_row("other id", "q3", "a_simple_agent", answer="3"),
        wire_row("again", "q3", "a_simple_agent", answer="3"),
        wire_row("other answer", "q4", "a_simple_agent", answer="5"),
        {**wire_row(1, "", "a_simple_agent", answer="2"), "responses_create_params": {
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "q2"}]}]}},
    ]  # fmt: skip
    found = stats(write(tmp_path / "train.jsonl", train), write(tmp_path / "held_out.jsonl", held_out))
    assert (found["a"].held_out, found["b"].held_out) == (2, 0)
    assert (found["a"].rows, found["a"].duplicates) == (10, 0)


def test_tokens_are_those_of_the_named_model(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from polygym.environments import Environment, load_environment
    from polygym.policies.chat import ChatRenderer
    from polygym.policies.load import load_outline

    path = write(tmp_path / "rows.jsonl", example_rows("example_single_tool_call"))
    environment = load_environment("example_single_tool_call", num_examples=5)
    assert isinstance(environment, Environment)
    renderer = ChatRenderer(load_outline("nano")[1])
    lengths = [len(renderer.render(environment.prompt(task), environment.tools)) for task in environment.tasks()]
    assert stats(path, tokenizer="nano")["(no agent)"].tokens == Spread(sum(lengths) / 5, max(lengths))
    with pytest.raises(UsageError, match="nan"):
        stats(path, tokenizer="nan")


def test_a_row_that_is_none_is_told_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [wire_row(1), {"question": "x"}])
    with pytest.raises(UsageError, match=r"rows\.jsonl, line 2: the row has no responses_create_params"):
        stats(path)
    path.write_text("\n", "utf-8")
    with pytest.raises(UsageError, match="has no rows"):
        stats(path)
