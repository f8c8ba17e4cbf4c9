"""Tasks as rows on the wire, and the way back."""

from __future__ import annotations

from typing import Any

import pytest

import polygym as pg
from polygym.environments.wire_rows import check_row, row_id, row_of, task_of
from polygym.errors import UsageError
from polygym.messages import Message
from polygym.rewards.rubric import Rubric


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def always(completion: str) -> float:
    return 1.0


def calculator(**changes: Any) -> pg.Environment:
    rows = [
        {"id": "x", "question": "1 + 2?", "answer": 3, "info": {"level": 1, "hints": ["carry"]}},
        {"id": "y", "question": "2 + 2?"},
    ]
    arguments: dict[str, Any] = {"dataset": rows, "eval_dataset": rows[1:], "rubric": Rubric([always]), **changes}
    arguments["dataset"] = rows[:1]
    return pg.ToolEnv(tools=[add], name="calculator", **arguments)


def test_a_task_is_a_flat_row() -> None:
    environment = calculator(system_prompt="Be brief.")
    [task] = environment.tasks()
    assert row_of(environment, task, agent="calculator_simple_agent") == {
        "id": "x",
        "responses_create_params": {
            "input": [
                {"type": "message", "role": "system", "content": "Be brief."},
                {"type": "message", "role": "user", "content": "1 + 2?"},
            ],
            "tools": [
                {
                    "type": "function",
                    "name": "add",
                    "description": "Add two numbers.",
                    "parameters": {
                        "type": "object",
                        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                        "required": ["a", "b"],
                        "additionalProperties": False,
                    },
                    "strict": True,
                }
            ],
        },
        "answer": 3,
        "level": 1,
        "hints": ["carry"],
        "agent_ref": {"type": "responses_api_agents", "name": "calculator_simple_agent"},
    }


def test_what_a_task_lacks_its_row_lacks_too() -> None:
    environment = pg.SingleTurnEnv([{"question": "2 + 2?"}, {"question": "3 + 3?"}], rubric=Rubric([always]))
    task = environment.tasks()[0]
    assert row_of(environment, task).keys() == {"id", "responses_create_params"}
    assert row_of(environment, task)["responses_create_params"].keys() == {"input"}


@pytest.mark.parametrize(
    "before",
    [
        {},
        {"system_prompt": "Be brief."},
        {"few_shot": [("1 + 1?", "2"), ("2 + 2?", "4")]},
        {"system_prompt": "Be brief.", "few_shot": [("1 + 1?", "2")]},
    ],
)
def test_a_row_is_the_task_again(before: dict[str, Any]) -> None:
    environment = calculator(**before)
    for task in (*environment.tasks("train"), *environment.tasks("held_out")):
        back = task_of(row_of(environment, task, agent="a"), environment)
        assert back == task
        assert environment.prompt(back) == environment.prompt(task)


def test_without_the_environment_the_whole_prompt_is_the_tasks() -> None:
    environment = calculator(system_prompt="Be brief.")
    [task] = environment.tasks()
    back = task_of(row_of(environment, task), "calculator")
    assert back.prompt == (Message("system", "Be brief."), Message("user", "1 + 2?"))


def test_a_row_that_is_nothing_but_the_preamble_keeps_its_prompt() -> None:
    environment = calculator(system_prompt="Be brief.")
    row = {"responses_create_params": {"input": [{"role": "system", "content": "Be brief."}]}}
    assert task_of(row, environment).prompt == (Message("system", "Be brief."),)


def test_a_row_of_a_group_is_that_of_its_leaf() -> None:
    group = pg.EnvGroup([calculator(), calculator()], env_names=["a", "b"])
    task = group.tasks()[0]
    row = row_of(group, task)
    assert "tools" in row["responses_create_params"]
    assert task_of(row, group.leaf_of(task)) == task


def test_a_row_of_another_maker_is_a_task() -> None:
    row = {
        "responses_create_params": {"input": "hello", "temperature": 0.5},
        "expected": [1],
        "agent_ref": {"type": "responses_api_agents", "name": "a"},
        "_ng_task_index": 4,
        "_ng_rollout_index": 1,
        "_ng_seed": 9,
        "response": {"output": []},
        "reward": 1.0,
    }
    task = task_of(row, "calculator")
    assert (task.environment, task.id, task.prompt, task.answer, task.info) == (
        "calculator",
        4,
        (Message("user", "hello"),),
        None,
        {"expected": [1]},
    )


def test_a_row_without_an_id_is_named_after_its_content() -> None:
    row = {"responses_create_params": {"input": "hello"}, "answer": "1", "level": 2}
    name = row_id(row)
    assert isinstance(name, str) and name.startswith("row_")
    passed_on = {"response": {}, "reward": 0.5, "agent_ref": {"name": "a"}, "_ng_rollout_index": 3}
    assert row_id({**dict(reversed(row.items())), **passed_on}) == name
    assert len({name, row_id({**row, "answer": "2"}), row_id({**row, "level": 3})}) == 3
    assert row_id({**row, "_ng_task_index": 0}) == 0
    assert row_id({**row, "_ng_task_index": 0, "id": ""}) == ""


@pytest.mark.parametrize("key", ["id", "answer", "response", "reward", "agent_ref", "_ng_task_index", "_ng_mine"])
def test_info_whose_key_means_something_else_is_refused(key: str) -> None:
    rows = [{"question": "a", "info": {key: 1}}, {"question": "b"}]
    environment = pg.SingleTurnEnv(rows, eval_dataset=[{"question": "c"}], rubric=Rubric([always]), name="e")
    with pytest.raises(UsageError) as error:
        row_of(environment, environment.tasks()[0])
    assert f"task 0 of environment 'e' has the info key {key!r}, which means something else in a row" in str(
        error.value
    )


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([], "a row must be a JSON object, got list: []"),
        ({"question": "a"}, "the row has no responses_create_params; its keys are: question"),
        ({"responses_create_params": None}, "responses_create_params must be an object with input, got NoneType"),
        ({"responses_create_params": {}}, "responses_create_params.input must be a text or a list of items, got None"),
        ({"responses_create_params": {"input": "a"}, "id": True}, "id True must be an integer or a text"),
        ({"responses_create_params": {"input": "a"}, "id": 1.0}, "id 1.0 must be an integer or a text"),
        ({"responses_create_params": {"input": "a"}, "_ng_task_index": -1}, "_ng_task_index is -1; it must be an"),
        ({"responses_create_params": {"input": "a"}, "_ng_seed": "7"}, "_ng_seed is '7'; it must be an integer"),
        ({"responses_create_params": {"input": "a"}, "agent_ref": "a"}, "agent_ref is 'a'; write {"),
        ({"responses_create_params": {"input": "a"}, "agent_ref": {}}, "agent_ref is {}; write {"),
    ],
)
def test_a_row_that_cannot_be_played_is_refused(row: Any, words: str) -> None:
    with pytest.raises(UsageError) as error:
        check_row(row)
    assert words in str(error.value)
    with pytest.raises(UsageError):
        task_of(row, "e")


def test_a_good_row_passes_the_check() -> None:
    environment = calculator()
    check_row({**row_of(environment, environment.tasks()[0], agent="a"), "_ng_task_index": 0})
