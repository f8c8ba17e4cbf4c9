"""Exported rows: tasks that a server can give back to the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polygym.data.export import EXAMPLES, example_rows, generated_rows
from polygym.environments import Environment, load_environment
from polygym.environments.wire_rows import task_of
from polygym.errors import UsageError
from polygym.rows import read_wire_rows

PARTED = """
from polygym import Rubric, SingleTurnEnv


def any_number(num_examples=20):
    rows = [{"question": f"What is {number}?", "answer": str(number)} for number in range(num_examples)]
    return SingleTurnEnv(rows, rubric=Rubric([lambda answer: 1.0]), name="parted")


def twenty():
    return any_number()
"""
SHIPPED = ["example_single_tool_call", "example_multi_step", "example_session_state"]


@pytest.mark.parametrize("id", SHIPPED)
def test_the_example_rows_that_are_shipped_are_those_that_the_generator_makes(id: str) -> None:
    assert len(example_rows(id)) == EXAMPLES
    assert example_rows(id) == generated_rows(id, EXAMPLES)


@pytest.mark.parametrize("id", [*SHIPPED, "math_rl", "tool_use", "word_game", "document_search"])
def test_a_row_is_its_task(id: str) -> None:
    environment = load_environment(id, num_examples=EXAMPLES)
    assert isinstance(environment, Environment)
    for task, row in zip(environment.tasks(), generated_rows(id, EXAMPLES), strict=True):
        back = task_of(json.loads(json.dumps(row)), environment)
        assert (back.id, back.prompt, back.answer) == (task.id, task.prompt, task.answer)
        assert dict(back.info) == json.loads(json.dumps(dict(task.info)))


def test_rows_of_the_multi_step_example_have_the_published_keys() -> None:
    for row in example_rows("example_multi_step"):
        assert set(row) == {
            "id",
            "responses_create_params",
            "expected_synonyms",
            "expected_synonym_values",
            "minefield_label",
            "minefield_label_value",
        }
        tools = {tool["name"]: tool for tool in row["responses_create_params"]["tools"]}
        assert tools["extract_synonym_values"]["parameters"]["properties"]["synonym_values"]["items"] == {
            "type": "integer"
        }
        assert all(tool["type"] == "function" and tool["strict"] is True for tool in tools.values())


def test_an_environment_of_ones_own_is_exported_by_its_path(tmp_path: Path) -> None:
    from polygym.environments.scaffold import create

    create("my_env", tmp_path)
    folder = str(tmp_path / "my_env")
    assert len(example_rows(folder)) == EXAMPLES
    (tmp_path / "my_env" / "data").mkdir()
    shipped = '{"id": "x", "responses_create_params": {"input": "Say x."}}\n'
    (tmp_path / "my_env" / "data" / "example.jsonl").write_text(shipped, "utf-8")
    assert example_rows(folder) == [json.loads(shipped)]


def test_more_rows_than_there_are_tasks_are_refused() -> None:
    with pytest.raises(UsageError, match="the maximum is"):
        generated_rows("word_game", 100_000)
    with pytest.raises(UsageError, match="no argument 'sede'"):
        generated_rows("word_game", 5, arguments={"sede": 3})


def test_an_environment_that_holds_out_a_part_of_its_tasks_gives_as_many_as_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parted_toys.py").write_text(PARTED, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for number in (1, 2, 3, 7, 12, 100, 999):
        rows = generated_rows("parted_toys:any_number", number)
        assert len({row["id"] for row in rows}) == number
    with pytest.raises(UsageError, match="has 16 training tasks, 17 were asked for; give -n 16 at most"):
        generated_rows("parted_toys:twenty", 17)
    assert len(generated_rows("parted_toys:twenty", 16)) == 16
    with pytest.raises(UsageError, match="give -n 8 at most"):
        generated_rows("parted_toys:any_number", 12, arguments={"num_examples": 10})


def test_rows_for_servers_keep_their_ids_and_their_lines() -> None:
    data = b'\n{"id": 1, "a": 2}\n\n{"id": 1}\n{"b": 3}\n'
    assert read_wire_rows(data) == ([{"id": 1, "a": 2}, {"id": 1}, {"b": 3}], [2, 4, 5])
