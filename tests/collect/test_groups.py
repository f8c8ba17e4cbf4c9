from __future__ import annotations

import asyncio

import pytest

from collect_toys import Scripted, toy
from polygym.collect.collector import Collector, assign_group
from polygym.collect.groups import collect_groups
from polygym.errors import PolicyError
from polygym.policies.base import Request, Sampling


@pytest.mark.parametrize(
    ("rollouts", "failures_first", "failures_then", "kept", "retried"),
    [
        (4, 0, 0, True, False),
        (4, 2, 9, True, False),  # two of four are scored: enough
        (4, 3, 0, True, True),
        (4, 3, 3, False, True),
        (8, 5, 4, True, True),  # three of eight, then one of the five replayed ones is scored: four
        (8, 5, 5, False, True),
        (2, 1, 0, True, True),
        (2, 1, 1, False, True),
    ],
)
def test_a_group_with_too_few_scored_rollouts_is_retried_once_then_dropped(
    rollouts: int, failures_first: int, failures_then: int, kept: bool, retried: bool
) -> None:
    asked = 0

    def answer(request: Request) -> str | PolicyError:
        nonlocal asked
        asked += 1
        failing = asked <= failures_first or rollouts < asked <= rollouts + failures_then
        return PolicyError("down") if failing else "right"

    environment = toy("a", tasks=1)
    policy = Scripted(answer)
    group = assign_group(environment, environment.tasks()[0], rollouts, seed=0, sampling=Sampling())
    found = asyncio.run(collect_groups(Collector(policy, concurrency=1), [group]))
    assert (len(found.groups), len(found.dropped)) == ((1, 0) if kept else (0, 1))
    assert found.retried_E == ({"a": 1} if retried else {})
    assert [group.environment for group in found.dropped] == ([] if kept else ["a"])
    assert asked == rollouts + (failures_first if retried else 0)
    assert len({request.seed for request in policy.asked}) == asked
    whole = (found.groups or found.dropped)[0]
    assert [r.rollout_index for r in whole.rollouts] == list(range(rollouts))
    assert sum(r.scored for r in whole.rollouts) == rollouts - (failures_then if retried else failures_first)


def test_groups_keep_their_order_and_their_own_size() -> None:
    environments = [toy("a", tasks=1), toy("b", tasks=2)]
    wanted = [
        assign_group(environment, task, 2 if environment.name == "a" else 3, seed=0, sampling=Sampling())
        for environment in environments
        for task in environment.tasks()
    ]
    found = asyncio.run(collect_groups(Collector(Scripted(lambda request: "right")), wanted))
    assert [(g.environment, g.task_id, g.rewards_K) for g in found.groups] == [
        ("a", 0, [1.0, 1.0]),
        ("b", 0, [1.0, 1.0, 1.0]),
        ("b", 1, [1.0, 1.0, 1.0]),
    ]
    assert found.dropped == []
