"""The oracle plays demonstrations."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from environments.worlds import Countdown, call, rows, run
from polygym.environments import EnvGroup, OraclePolicy, SingleTurnEnv
from polygym.environments.oracle import demonstration
from polygym.errors import PolicyError, UsageError
from polygym.messages import Message
from polygym.policies.base import Request, Sampling
from polygym.rollout import Cause, Task


class Shown(SingleTurnEnv):
    shown: Any = None

    def demonstrate(self, task: Task) -> Any:
        return self.shown

    def reward(self, completion: str) -> bool:
        return completion == "yes"


class Landing(Countdown):
    turns = 3

    def demonstrate(self, task: Task) -> list[Message]:
        return [Message("assistant", "go"), Message("user", "...")] * self.turns


def shown(value: Any) -> Shown:
    env = Shown(rows(2), few_shot=[("q", "a")])
    env.shown = value
    return env


@pytest.mark.parametrize(
    "value",
    [
        "yes",
        [Message("assistant", "yes")],
        [{"role": "assistant", "content": "yes"}, {"role": "user", "content": "well done"}],
        Message("assistant", "yes"),
    ],
)
def test_a_demonstration_is_text_or_messages(value: Any) -> None:
    env = shown(value)
    assert run(env, OraclePolicy(env)).reward == 1.0


def test_the_oracle_plays_turn_by_turn() -> None:
    env = Landing(rows(2))
    group = EnvGroup([env, shown("yes")])
    rollout = run(group, OraclePolicy(group))
    assert (rollout.reward, rollout.stop_reason, len(rollout.turns)) == (1.0, "landed", 3)
    assert rollout.turns[0].message == Message("assistant", "go")


def test_a_demonstration_that_is_too_short_or_missing_is_a_cause() -> None:
    env = Landing(rows(2))
    env.turns = 2
    task = env.tasks()[0]
    assert run(env, OraclePolicy(env)).cause == Cause(
        "oracle", f"turn 2: the demonstration of task {task.id!r} of 'landing' has 2 turns, and turn 2 was asked for"
    )
    rollout = run(shown(None), OraclePolicy(shown(None)))
    assert rollout.cause is not None
    assert rollout.cause.kind == "oracle"
    assert "of 'shown' has no demonstration; define demonstrate(task)" in rollout.cause.message


def test_a_demonstration_without_an_answer_is_a_mistake() -> None:
    env = shown([Message("user", "yes")])
    with pytest.raises(UsageError, match="has no message with role 'assistant'"):
        demonstration(env, env.tasks()[0])
    assert demonstration(shown(None), env.tasks()[0]) is None
    assert demonstration(shown([call("f")]), env.tasks()[0]) == [call("f")]


def test_the_oracle_needs_the_task() -> None:
    request = Request([], (), Sampling(), 0)
    with pytest.raises(PolicyError, match="without a task"):
        asyncio.run(OraclePolicy(shown("yes")).complete(request))
