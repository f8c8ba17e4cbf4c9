from __future__ import annotations

from typing import Any

import pytest

from collect_toys import toy
from polygym.collect.sample import sample_tasks, split_by_shares
from polygym.environments import EnvGroup
from polygym.errors import UsageError


def ids(environment: Any, **arguments: Any) -> dict[str, list[Any]]:
    return {route: [task.id for task in tasks] for route, tasks in sample_tasks(environment, **arguments).items()}


def test_the_sample_is_random_repeatable_and_held_out() -> None:
    environment = toy("a", tasks=10, held_out=100)
    held_out = [task.id for task in environment.tasks("held_out")]
    some = ids(environment, num_examples=30)["a"]
    assert ids(environment, num_examples=30)["a"] == some
    assert ids(environment, num_examples=30, seed=1)["a"] != some
    assert len(set(some)) == 30
    assert set(some) < set(held_out)
    assert set(some) != set(held_out[:30])
    assert ids(environment, num_examples=60)["a"][:30] == some


def test_without_a_number_every_held_out_task_is_asked() -> None:
    group = EnvGroup([toy("a", held_out=3), toy("b", held_out=5)])
    assert {route: len(tasks) for route, tasks in ids(group).items()} == {"a": 3, "b": 5}


def test_a_number_counts_for_each_leaf_of_nested_groups() -> None:
    inner = EnvGroup([toy("math", held_out=9), toy("logic", held_out=9)], name="reasoning")
    found = sample_tasks(EnvGroup([inner, toy("word", held_out=9)]), num_examples=4)
    assert {route: len(tasks) for route, tasks in found.items()} == {
        "reasoning/math": 4,
        "reasoning/logic": 4,
        "word": 4,
    }
    assert {task.environment for task in found["reasoning/math"]} == {"reasoning/math"}


def test_a_number_may_be_given_by_environment_and_0_leaves_one_out() -> None:
    group = EnvGroup([toy("a", held_out=3), toy("b", held_out=5), toy("c", held_out=4)])
    found = ids(group, num_examples={"a": 2, "b": 0})
    assert {route: len(tasks) for route, tasks in found.items()} == {"a": 2, "c": 4}
    with pytest.raises(UsageError, match="num_examples=6 is more than the 5 held-out tasks of environment 'b'"):
        sample_tasks(group, num_examples={"b": 6})
    with pytest.raises(UsageError, match="num_examples=-1 must be an integer"):
        sample_tasks(group, num_examples={"a": -1})


def test_more_than_exist_names_the_maximum() -> None:
    group = EnvGroup([toy("a", held_out=30), toy("b", held_out=5)])
    with pytest.raises(
        UsageError, match="num_examples=6 is more than the 5 held-out tasks of environment 'b'; the maximum is 5"
    ):
        sample_tasks(group, num_examples=6)


def test_a_total_is_split_by_the_shares() -> None:
    group = EnvGroup([toy("a", held_out=30), toy("b", held_out=30), toy("c", held_out=30)], weights=[2, 1, 1])
    assert {route: len(tasks) for route, tasks in ids(group, total=10).items()} == {"a": 5, "b": 3, "c": 2}
    assert ids(group, total=1).keys() == {"a"}


def test_a_total_that_one_environment_cannot_give_names_the_largest_that_can() -> None:
    group = EnvGroup([toy("a", held_out=30), toy("b", held_out=5)], weights=[1, 1])
    with pytest.raises(UsageError, match=r"total=20 asks for 10 tasks of 'b', which holds out 5; .*the maximum is 11"):
        sample_tasks(group, total=20)
    assert {route: len(tasks) for route, tasks in ids(group, total=11).items()} == {"a": 6, "b": 5}


@pytest.mark.parametrize("arguments", [{"num_examples": 0}, {"num_examples": True}, {"total": 0}, {"total": 2.0}])
def test_counts_are_positive_integers(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="must be an integer of at least 1"):
        sample_tasks(toy("a"), **arguments)


def test_a_number_and_a_total_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        sample_tasks(toy("a"), num_examples=1, total=1)


def test_equal_thirds_and_rounding_noise_split_without_loss() -> None:
    for total in range(1, 50):
        counts = split_by_shares(total, {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3})
        assert sum(counts.values()) == total
        assert max(counts.values()) - min(counts.values()) <= 1
        assert list(counts.values()) == sorted(counts.values(), reverse=True)
    assert split_by_shares(5, {"b": 0.3, "a": 0.1 + 0.2, "c": 0.4}) == {"b": 2, "a": 1, "c": 2}
    assert split_by_shares(3, {"a": 0.7, "b": 0.2, "c": 0.1}) == {"a": 2, "b": 1, "c": 0}
