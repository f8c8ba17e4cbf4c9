"""EnvGroup: names, routes, shares."""

from __future__ import annotations

import math
from typing import Any

import pytest

from environments.worlds import Countdown, Script, rows, run, single
from polygym.environments import EnvGroup, OraclePolicy, SingleTurnEnv
from polygym.errors import UsageError
from polygym.rollout import Task


class Shown(SingleTurnEnv):
    def demonstrate(self, task: Task) -> str:
        return str(task.answer)

    def reward(self, completion: str, answer: str) -> bool:
        return completion == answer


def test_a_group_of_groups_is_a_group_with_routes() -> None:
    reasoning = EnvGroup([single(name="math"), single(name="logic")], weights=[3, 1])
    group = EnvGroup([reasoning, Countdown(rows(4))], env_names=["reasoning", "game"])
    assert list(group.leaves()) == ["reasoning/math", "reasoning/logic", "game"]
    assert group.shares() == {"reasoning/math": 0.375, "reasoning/logic": 0.125, "game": 0.5}
    deep = EnvGroup([group, single(name="x")], env_names=["all_of_it", "x"])
    assert list(deep.leaves()) == ["all_of_it/reasoning/math", "all_of_it/reasoning/logic", "all_of_it/game", "x"]
    assert math.fsum(deep.shares().values()) == 1.0


def test_equal_questions_in_two_environments_go_to_their_own() -> None:
    plain, shown = single(name="plain"), Shown(rows(10), name="shown")
    group = EnvGroup([plain, shown])
    tasks = group.tasks("held_out")
    assert [(task.environment, task.id) for task in tasks] == [
        (name, task.id) for name in ("plain", "shown") for task in plain.tasks("held_out")
    ]
    assert [group.demonstrate(task) for task in tasks] == [None, None, tasks[2].answer, tasks[3].answer]
    rollout = run(group, OraclePolicy(group), task=tasks[3])
    assert (rollout.environment, rollout.reward, rollout.rewards) == ("shown", 1.0, {"reward": 1.0})
    assert run(group, Script("no"), task=tasks[0]).environment == "plain"


def test_one_environment_may_stand_under_two_names() -> None:
    env = single(name="math")
    group = EnvGroup([env, env], ["easy", "hard"])
    assert [task.environment for task in group.tasks("held_out")] == ["easy", "easy", "hard", "hard"]
    assert env.name == "math"
    assert {task.environment for task in env.tasks()} == {"math"}


def test_weights_are_equal_whatever_the_sizes() -> None:
    assert EnvGroup([single(100, name="a"), single(4, name="b")]).shares() == {"a": 0.5, "b": 0.5}


def test_a_weight_of_0_switches_an_environment_off() -> None:
    group = EnvGroup([single(name="a"), single(name="b")], weights=[0, 2])
    assert (list(group.leaves()), group.shares()) == (["b"], {"b": 1.0})
    assert {task.environment for task in group.tasks()} == {"b"}
    with pytest.raises(UsageError, match=r"task 0 belongs to 'a'; .*Allowed: b"):
        group.leaf_of(Task("a", 0, ()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"envs": []}, "no environments were given"),
        ({"env_names": ["math", "math"]}, r"'math' is used twice \(positions 0 and 1\)"),
        ({"env_names": ["Math", "math"]}, "both become 'math'"),
        ({"env_names": ["all", "b"]}, "reserved word 'all'"),
        ({"env_names": ["a"]}, "1 env_names were given for 2 environments"),
        ({"weights": [1, -1]}, "weight -1"),
        ({"weights": [0, 0]}, "all 0"),
        ({"weights": [1, float("nan")]}, "weight nan"),
        ({"weights": ["1", 1]}, "weight '1'"),
        ({"weights": [1]}, "1 weights were given for 2 environments"),
        ({"wieghts": [1, 1]}, "EnvGroup has no argument 'wieghts'; did you mean 'weights'"),
        ({"envs": None}, "envs=None must be a list"),
        ({"env_names": "ab"}, "env_names='ab' must be a list"),
        ({"envs": ["math_rl"]}, r"envs\[0\] is a str, not an Environment"),
    ],
)
def test_a_group_that_cannot_work_is_refused(arguments: dict[str, Any], message: str) -> None:
    arguments = {"envs": [single(name="a"), single(name="b")], **arguments}
    with pytest.raises(UsageError, match=message):
        EnvGroup(**arguments)


def test_routes_collide_across_levels() -> None:
    inner = EnvGroup([single(name="math")])
    with pytest.raises(UsageError, match=r"'a/math'.* is used twice"):
        EnvGroup([inner, single()], env_names=["a", "a/math"])
    with pytest.raises(UsageError, match="both become 'a_math'"):
        EnvGroup([inner, single()], env_names=["a", "a_math"])


def test_a_group_can_be_put_under_another_name() -> None:
    group = EnvGroup([single(name="a"), single(name="b")])
    other = group.renamed("other")
    assert (group.name, other.name, list(other.leaves())) == ("group", "other", ["a", "b"])
