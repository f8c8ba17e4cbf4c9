"""Rows as tasks: ids, repeated rows, splits, and several agents in a file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from polygym.environments.row_tasks import RowFile, split_rows
from polygym.errors import UsageError
from polygym.rollout import Task


def row(text: str, agent: str | None = None, **keys: Any) -> dict[str, Any]:
    found = {"responses_create_params": {"input": text}, **keys}
    return found if agent is None else {**found, "agent_ref": {"name": agent}}


def file(folder: Path, *rows: Any, name: str = "rows.jsonl") -> RowFile:
    path = folder / name
    path.write_text("".join(f"{json.dumps(one)}\n" for one in rows), encoding="utf-8")
    return RowFile.read(path)


def texts(tasks: Iterable[Task]) -> list[str]:
    return [task.prompt[0].content for task in tasks]


def test_a_row_that_stands_twice_is_one_task_and_asked_twice_an_epoch(tmp_path: Path) -> None:
    rows = [row("a", id=1), row("b", id="x", answer=3), row("a", id=1), row("c")]
    tasks = split_rows(file(tmp_path, *rows), name="far", held_out=0)
    assert texts(tasks["train"]) == ["a", "b", "a", "c"]
    assert tasks["train"][0] == tasks["train"][2]
    assert [task.id for task in tasks["train"][:3]] == [1, "x", 1]
    assert tasks["train"][1].info == rows[1]
    assert (tasks["train"][1].environment, tasks["train"][1].answer) == ("far", 3)
    assert (len(tasks["held_out"]), texts(tasks["train"][1:3]), texts(tasks["train"].named("other"))[0]) == (
        0, ["b", "a"], "a",
    )  # fmt: skip
    assert {task.environment for task in tasks["train"].named("other")} == {"other"}


def test_a_part_is_held_out_by_task_in_every_order_and_each_is_held_out_once(tmp_path: Path) -> None:
    rows = [row(f"{number}", id=number) for number in range(20)] * 3
    tasks = split_rows(file(tmp_path, *rows), name="far")
    again = split_rows(file(tmp_path, *reversed(rows)), name="far")
    assert (len(tasks["train"]), len(tasks["held_out"])) == (48, 4)
    assert set(texts(tasks["held_out"])) == set(texts(again["held_out"]))
    assert not set(texts(tasks["held_out"])) & set(texts(tasks["train"]))


def test_rows_of_one_prompt_are_held_out_together_unless_their_parts_are_given(tmp_path: Path) -> None:
    rows = [row("the same", id=f"{number}", expected=number) for number in range(10)]
    tasks = split_rows(file(tmp_path, row("another"), *rows), name="far")
    assert {len(tasks["train"]), len(tasks["held_out"])} == {1, 10}
    tasks = split_rows(file(tmp_path, *rows[:8]), file(tmp_path, *rows[8:], name="eval.jsonl"), name="far")
    assert (len(tasks["train"]), len(tasks["held_out"])) == (8, 2)


def test_held_out_rows_that_are_only_numbered_go_on_after_the_others(tmp_path: Path) -> None:
    train = file(tmp_path, row("a", id=0), row("b", id=1))
    held_out = file(tmp_path, row("c", id=0), row("d", id=1), row("c", id=0), name="eval.jsonl")
    tasks = split_rows(train, held_out, name="far")
    assert [(task.id, task.prompt[0].content) for task in tasks["held_out"]] == [(2, "c"), (3, "d")]


@pytest.mark.parametrize(
    ("train", "held_out", "message"),
    [
        (
            [row("a", id=1), row("b", id=1)],
            None,
            r"lines 1 and 2 have the id 1 and are different; an id names one",
        ),
        ([row("a", id=7)], [row("a", id=8)], r"task 8 of eval_rows is also in rows \(task 7\)"),
        ([row("a", id=7)], [row("b", id=7)], r"id 7 is in rows and in eval_rows"),
        ([row("a"), {"input": "b"}], None, r"rows.jsonl, line 2: the row has no responses_create_params"),
    ],
)
def test_rows_that_are_no_tasks_are_told_with_their_lines(
    tmp_path: Path, train: list[Any], held_out: list[Any] | None, message: str
) -> None:
    others = None if held_out is None else file(tmp_path, *held_out, name="eval.jsonl")
    with pytest.raises(UsageError, match=message):
        split_rows(file(tmp_path, *train), others, name="far")


def test_a_blend_is_parted_by_agent_and_an_unknown_one_is_told_with_its_line(tmp_path: Path) -> None:
    blend = file(tmp_path, row("a", "x"), row("b", "y"), row("c", "x"))
    parts = blend.by_agent(["x", "y", "z"])
    assert {agent: [row.line for row in part.rows] for agent, part in parts.items()} == {"x": [1, 3], "y": [2]}
    assert texts(split_rows(parts["x"], name="x", held_out=0)["train"]) == ["a", "c"]
    with pytest.raises(UsageError, match=r"rows.jsonl: row 2: agent 'y' is unknown"):
        blend.by_agent(["x"])
    with pytest.raises(UsageError, match=r"rows.jsonl: 1 row\(s\) name no agent and there is no default \(rows 2\)"):
        file(tmp_path, row("a", "x"), row("b")).by_agent(["x"])
