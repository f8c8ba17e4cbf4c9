from __future__ import annotations

import asyncio
from typing import Any

import pytest

from collect_toys import Scripted, toy
from polygym.collect.collector import Assignment, Collector, assign_group
from polygym.collect.progress import Progress
from polygym.environments import SingleTurnEnv
from polygym.errors import PolicyError, UsageError
from polygym.policies.base import Request, Sampling
from polygym.rewards.rubric import BadRewardError, Rubric
from polygym.rollout import Rollout


def assign(*environments: Any, rollouts: int = 2, timeout_seconds: float | None = None) -> list[Assignment]:
    return [
        assignment
        for environment in environments
        for task in environment.tasks("train")
        for assignment in assign_group(
            environment, task, rollouts, seed=0, sampling=Sampling(), timeout_seconds=timeout_seconds
        )
    ]


class Watch(Progress):
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def start(self, total_by_environment: Any) -> None:
        self.calls.append(dict(total_by_environment))

    def rollout(self, rollout: Rollout) -> None:
        self.calls.append(rollout.environment)

    def finish(self) -> None:
        self.calls.append("finish")


def test_rollouts_come_in_the_order_of_their_assignments_however_they_end() -> None:
    async def slow_first(request: Request) -> str:
        await asyncio.sleep(0.02 if "question 0" in request.messages[0].content else 0)
        return "right"

    ended: list[Rollout] = []
    watch = Watch()
    collector = Collector(Scripted(slow_first), concurrency=3, progress=watch, on_rollout=ended.append)
    rollouts = asyncio.run(collector.collect(assign(toy("a", tasks=3), toy("b", tasks=1))))
    assert [(r.environment, r.task_id, r.rollout_index) for r in rollouts] == [
        ("a", 0, 0), ("a", 0, 1), ("a", 1, 0), ("a", 1, 1), ("a", 2, 0), ("a", 2, 1), ("b", 0, 0), ("b", 0, 1)
    ]  # fmt: skip
    assert [r.reward for r in rollouts] == [1.0] * 8
    assert sorted(map(id, ended)) == sorted(map(id, rollouts))
    assert ended[0] is not rollouts[0]
    assert watch.calls[0] == {"a": 6, "b": 2}
    assert sorted(watch.calls[1:-1]) == ["a"] * 6 + ["b"] * 2
    assert watch.calls[-1] == "finish"


def test_no_more_episodes_are_under_way_than_allowed() -> None:
    under_way = most = 0

    async def count(request: Request) -> str:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1
        return "right"

    asyncio.run(Collector(Scripted(count), concurrency=3).collect(assign(toy("a", tasks=10))))
    assert most == 3


def test_seeds_are_named_by_task_and_rollout() -> None:
    first, second = assign(toy("a")), assign(toy("b"), toy("a"))
    assert [x.seed for x in first] == [x.seed for x in second if x.task.environment == "a"]
    assert len({x.seed for x in second}) == 16
    assert len({x.group_id for x in second}) == 8


def test_the_ids_one_and_text_one_are_different_groups() -> None:
    environment = SingleTurnEnv(
        [{"id": 1, "question": "a"}, {"id": "1", "question": "b"}, {"id": 2, "question": "c"}],
        rubric=Rubric([lambda: 1.0]),
        held_out=0.34,
    )
    tasks = [*environment.tasks("train"), *environment.tasks("held_out")]
    groups = [assign_group(environment, task, 1, seed=0, sampling=Sampling()) for task in tasks]
    assert len({group[0].group_id for group in groups}) == len({group[0].seed for group in groups}) == 3


def test_an_environment_that_fails_does_not_stop_another() -> None:
    def answer(request: Request) -> Any:
        return PolicyError("endpoint down", "endpoint") if "bad" in request.messages[0].content else "right"

    rollouts = asyncio.run(Collector(Scripted(answer)).collect(assign(toy("bad"), toy("good"))))
    assert [r.reward for r in rollouts] == [None] * 8 + [1.0] * 8
    assert {r.cause.kind for r in rollouts if r.cause} == {"endpoint"}


def test_whatever_an_environment_raises_outside_its_hooks_becomes_the_cause_of_its_rollouts() -> None:
    broken = toy("broken", tasks=1)
    broken.prompt = lambda task: 1 / 0  # type: ignore[method-assign,assignment]
    rollouts = asyncio.run(Collector(Scripted(lambda request: "right")).collect(assign(broken, toy("good", tasks=1))))
    assert [r.reward for r in rollouts] == [None, None, 1.0, 1.0]
    assert rollouts[0].cause is not None
    assert "division by zero" in rollouts[0].cause.message


def test_a_rollout_that_takes_too_long_is_unscored_with_cause_timeout() -> None:
    async def hang(request: Request) -> str:
        await asyncio.sleep(30 if "slow" in request.messages[0].content else 0)
        return "right"

    collector = Collector(Scripted(hang), timeout_seconds=10)
    assignments = assign(toy("slow", tasks=1), rollouts=1, timeout_seconds=0.02) + assign(toy("quick", tasks=1))
    slow, *quick = asyncio.run(collector.collect(assignments))
    assert (slow.reward, slow.scored, slow.stop_reason, slow.answer) == (None, False, "error", "right")
    assert slow.cause is not None
    assert (slow.cause.kind, slow.cause.message) == ("timeout", "the rollout took longer than 0.02 s")
    assert [message.role for message in slow.messages] == ["user"]  # what was said by then is kept
    assert 0.02 <= slow.seconds["total"] < 5
    assert [r.reward for r in quick] == [1.0, 1.0]


def test_a_reward_that_is_no_number_stops_the_collection_and_keeps_what_has_ended() -> None:
    calls = 0

    def text_at_third(completion: str) -> Any:
        nonlocal calls
        calls += 1
        return "high" if calls == 3 else 1.0

    ended: list[Rollout] = []
    watch = Watch()
    collector = Collector(Scripted(lambda request: "right"), progress=watch, on_rollout=ended.append)
    with pytest.raises(BadRewardError, match="text_at_third"):
        asyncio.run(collector.collect(assign(toy("a", reward=text_at_third))))
    assert [r.reward for r in ended] == [1.0, 1.0]
    assert calls == 3
    assert watch.calls[-1] == "finish"


def test_cancelling_keeps_what_has_ended_and_leaves_no_task_behind() -> None:
    ended: list[Rollout] = []

    async def answer(request: Request) -> str:
        if "question 0" not in request.messages[0].content:
            await asyncio.sleep(30)
        return "right"

    async def main() -> int:
        collecting = asyncio.create_task(Collector(Scripted(answer), on_rollout=ended.append).collect(assign(toy("a"))))
        await asyncio.sleep(0.01)
        collecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await collecting
        return len(asyncio.all_tasks())

    assert asyncio.run(main()) == 1
    assert [(r.task_id, r.reward) for r in ended] == [(0, 1.0), (0, 1.0)]


def test_an_instant_policy_leaves_turns_to_the_event_loop() -> None:
    ended: list[Rollout] = []

    async def main() -> int:
        collector = Collector(Scripted(lambda request: "right"), concurrency=1, on_rollout=ended.append)
        collecting = asyncio.create_task(collector.collect(assign(toy("a", tasks=100))))
        while not ended:
            await asyncio.sleep(0)
        seen = len(ended)
        await collecting
        return seen

    assert asyncio.run(main()) == 16


@pytest.mark.parametrize("concurrency", [0, -1, True, 2.5])
def test_concurrency_is_a_positive_integer(concurrency: Any) -> None:
    with pytest.raises(UsageError, match="concurrency="):
        Collector(Scripted(lambda request: ""), concurrency=concurrency)


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan")])
def test_a_timeout_is_more_than_zero(timeout: float) -> None:
    with pytest.raises(UsageError, match="timeout="):
        Collector(Scripted(lambda request: ""), timeout_seconds=timeout)
