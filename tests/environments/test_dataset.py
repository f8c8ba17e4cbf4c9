"""Datasets, ids, splits and examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from environments.worlds import exact, rows, single
from polygym.environments import SingleTurnEnv
from polygym.environments.dataset import content_key
from polygym.errors import UsageError
from polygym.messages import Message
from polygym.rewards.rubric import Rubric
from polygym.rows import RowError


class Table:
    """What a Hugging Face dataset looks like from outside: columns, length, rows as dicts with None where empty."""

    def __init__(self, data: list[dict[str, Any]]) -> None:
        self.column_names = sorted({key for row in data for key in row})
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Any:
        return iter({name: row.get(name) for name in self.column_names} for row in self.data)


def build(dataset: Any, **arguments: Any) -> SingleTurnEnv:
    return SingleTurnEnv(dataset, rubric=Rubric([exact]), **arguments)


def ids(env: SingleTurnEnv, split: Any = "train") -> list[Any]:
    return [task.id for task in env.tasks(split)]


def test_every_source_gives_the_same_tasks(tmp_path: Path) -> None:
    data = [{"id": "a", "question": "1?", "answer": "1"}, {"question": "2?", "answer": "2", "info": {"hard": True}}]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in data))
    expected = build(data, held_out=0).tasks()
    assert [(task.id, task.answer, task.info) for task in expected] == [("a", "1", {}), (1, "2", {"hard": True})]
    assert expected[0].prompt == (Message("user", "1?"),)
    for source in (str(path), path, Table(data), lambda: data, lambda: path, tuple(data), iter(data)):
        assert build(source, held_out=0).tasks() == expected


def test_a_prompt_may_be_text_or_messages() -> None:
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1?"}]
    tasks = build([{"prompt": "1?"}, {"prompt": prompt}], held_out=0).tasks()
    assert tasks[0].prompt == (Message("user", "1?"),)
    assert tasks[1].prompt == (Message("system", "Be brief."), Message("user", "1?"))


@pytest.mark.parametrize("source", [[], (), list, Table([])])
def test_an_empty_dataset_is_an_error(source: Any) -> None:
    with pytest.raises(RowError, match="dataset has no rows") as caught:
        build(source)
    assert caught.value.code == "empty_dataset"
    with pytest.raises(RowError, match="eval_dataset has no rows"):
        build(rows(2), eval_dataset=source)


def test_an_empty_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(RowError, match=r"empty\.jsonl has no rows"):
        build(tmp_path / "empty.jsonl")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (None, "has no dataset; give dataset="),
        (7, "dataset is a int; give a list of dicts"),
        (b"{}", "dataset is a bytes; give a list of dicts"),
        ({"train": [], "test": []}, "dataset is a mapping with keys 'train', 'test', not rows"),
        (["1?"], "row 0 of dataset must be a dict, got str: '1\\?'"),
        ([{"question": "1?"}, {"qestion": "2?"}], "row 1 .*: key 'qestion' is unknown; .*did you mean 'question'"),
        ([{"question": "1?", "level": 3}], "key 'level' is unknown; put extra things under 'info'"),
        ([{"answer": "1"}], "row 0 .* must have exactly one of 'question'"),
        ([{"question": "1?", "prompt": "1?"}], "must have exactly one of"),
        ([{"question": 1}], "question must be text, got int: 1"),
        ([{"question": ""}], "the question is empty"),
        ([{"prompt": []}], "the prompt is empty"),
        ([{"prompt": [{"role": "boss", "content": ""}]}], "row 0 .*: message role 'boss' is unknown"),
        ([{"prompt": 3}], "expected text or messages, got int"),
        ([{"question": "1?", "info": "x"}], "info must be a dict, got str"),
        ([{"question": "1?", "id": True}], "id True must be an integer or a text"),
        ([{"question": "1?", "id": 1.0}], "id 1.0 must be an integer or a text"),
        ([{"question": "1?", "id": 1}, {"question": "2?", "id": 1}], "id 1 is already used"),
        ([{"question": "1?", "id": 1}, {"question": "2?"}], "id 1 is already used"),
        ("no_such_file.jsonl", "cannot read 'no_such_file.jsonl'"),
    ],
)
def test_what_is_wrong_with_a_dataset_is_said_at_construction(source: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(source)


def test_a_fifth_is_held_out_whatever_the_order_and_the_process() -> None:
    env = single(50)
    assert (len(env.tasks("train")), len(env.tasks("held_out"))) == (40, 10)
    shuffled = build(rows(50)[::-1])
    assert {task.answer for task in shuffled.tasks("held_out")} == {task.answer for task in env.tasks("held_out")}
    # Pinned: a hash of the content, so that it is the same in every process and on every machine.
    assert ids(env, "held_out") == HELD_OUT_OF_50
    assert ids(single(50, seed=1), "held_out") != HELD_OUT_OF_50


HELD_OUT_OF_50 = [1, 2, 3, 6, 23, 28, 36, 37, 42, 48]


@pytest.mark.parametrize(
    ("count", "held_out", "sizes"), [(2, 0.2, (1, 1)), (2, 0.99, (1, 1)), (1, 0.2, (1, 0)), (9, 0, (9, 0))]
)
def test_each_split_has_a_task_where_there_are_two(count: int, held_out: float, sizes: tuple[int, int]) -> None:
    env = single(count, held_out=held_out)
    assert (len(env.tasks("train")), len(env.tasks("held_out"))) == sizes


def test_equal_tasks_stay_on_one_side() -> None:
    env = build([*rows(10), *rows(10)])
    sides = [{content_key(task) for task in env.tasks(split)} for split in ("train", "held_out")]
    assert [len(env.tasks("train")), len(env.tasks("held_out"))] == [16, 4]
    assert not sides[0] & sides[1]
    same = build([{"question": "1?", "answer": "1"}] * 3)
    assert (len(same.tasks("train")), len(same.tasks("held_out"))) == (3, 0)


@pytest.mark.parametrize("held_out", [1, 1.0, -0.1, float("nan"), "0.2", True, None])
def test_the_held_out_fraction_is_checked(held_out: Any) -> None:
    with pytest.raises(UsageError, match=r"held_out=.* is outside \[0, 1\)"):
        single(held_out=held_out)


def test_a_given_eval_dataset_is_the_held_out_split(tmp_path: Path) -> None:
    env = build(rows(3), eval_dataset=rows(2, start=3))
    assert (ids(env), ids(env, "held_out")) == ([0, 1, 2], [3, 4])
    path = tmp_path / "eval.jsonl"
    path.write_text('{"question": "9?"}\n{"question": "8?"}\n')
    assert ids(build(rows(3), eval_dataset=path), "held_out") == [3, 4]
    named = build([{"id": 7, "question": "7?"}], eval_dataset=[{"id": "x", "question": "x?"}])
    assert (ids(named), ids(named, "held_out")) == ([7], ["x"])


def test_splits_that_share_a_task_are_refused() -> None:
    with pytest.raises(UsageError, match="task 3 of eval_dataset is also in dataset \\(task 1\\)"):
        build(rows(3), eval_dataset=rows(2, start=1)[::1])
    with pytest.raises(UsageError, match="id 'a' is in dataset and in eval_dataset"):
        build([{"id": "a", "question": "1?"}], eval_dataset=[{"id": "a", "question": "2?"}])


def test_worked_examples_stand_between_the_system_prompt_and_the_task() -> None:
    env = single(
        system_prompt="Answer.",
        few_shot=[("a?", "A"), {"role": "user", "content": "b?"}, Message("assistant", "B")],
    )
    task = env.tasks()[0]
    assert [(message.role, message.content) for message in env.prompt(task)] == [
        ("system", "Answer."),
        ("user", "a?"),
        ("assistant", "A"),
        ("user", "b?"),
        ("assistant", "B"),
        ("user", task.prompt[0].content),
    ]


@pytest.mark.parametrize("few_shot", ["a?", {"a?": "A"}, [("a?",)], [("a?", 1)], ["ab"], [3], 3])
def test_bad_examples_are_refused(few_shot: Any) -> None:
    with pytest.raises(UsageError, match=r"few_shot|message"):
        single(few_shot=few_shot)


def test_two_system_messages_are_refused() -> None:
    data = [{"prompt": [{"role": "system", "content": "x"}, {"role": "user", "content": "1?"}]}]
    with pytest.raises(UsageError, match="brings a system message and system_prompt is given too"):
        build(data, system_prompt="y")


def test_a_hugging_face_dataset_is_read_as_it_is() -> None:
    datasets = pytest.importorskip("datasets")
    data = [{"id": i, "question": f"{i}?", "answer": str(i), "info": {"level": i}} for i in range(5)]
    env = build(datasets.Dataset.from_list(data))
    assert env.tasks() == build(data).tasks()
    with pytest.raises(UsageError, match="dataset is a mapping with keys 'train', not rows; pass one of its splits"):
        build(datasets.DatasetDict({"train": datasets.Dataset.from_list(data)}))
