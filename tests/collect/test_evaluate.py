from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from collect_toys import Scripted, toy
from polygym.collect.evaluate import evaluate, evaluate_async
from polygym.environments import EnvGroup
from polygym.errors import PolicyError, UsageError
from polygym.policies.base import Request, Sampling
from polygym.rewards.rubric import BadRewardError
from polygym.rows import scan_lines


def right(request: Request) -> str:
    return "right"


def by_seed(request: Request) -> str:
    return "right" if request.seed % 2 else "wrong"


def key(rollout: Any) -> tuple[Any, ...]:
    return rollout.environment, rollout.task_id, rollout.rollout_index, rollout.seed, rollout.reward


def test_an_evaluation_plays_held_out_tasks_and_repeats() -> None:
    group = EnvGroup([toy("a", held_out=10), toy("b", held_out=10)], weights=[3, 1])
    found = evaluate(group, Scripted(by_seed), num_examples=5, rollouts_per_example=3)
    assert (found.model, found.shares, found.complete) == ("scripted", {"a": 0.75, "b": 0.25}, True)
    assert {name: (e.n, e.rollouts) for name, e in found.environments.items()} == {"a": (5, 15), "b": (5, 15)}
    held_out = {(leaf.name, task.id) for leaf in group.leaves().values() for task in leaf.tasks("held_out")}
    assert {(r.environment, r.task_id) for r in found.rollouts} <= held_out
    assert list(found.environments["a"].pass_at_k) == [1, 2]
    again = evaluate(group, Scripted(by_seed), num_examples=5, rollouts_per_example=3, concurrency=1)
    assert [key(r) for r in again.rollouts] == [key(r) for r in found.rollouts]
    other = evaluate(group, Scripted(by_seed), num_examples=5, rollouts_per_example=3, seed=1)
    assert {r.seed for r in other.rollouts}.isdisjoint(r.seed for r in found.rollouts)


def test_environments_take_turns_so_that_all_progress() -> None:
    group = EnvGroup([toy("a", held_out=3), toy("b", held_out=3)])
    found = evaluate(group, Scripted(right), rollouts_per_example=1)
    assert [r.environment for r in found.rollouts] == ["a", "b"] * 3


def test_it_works_inside_a_running_loop_too() -> None:
    async def notebook() -> tuple[Any, Any]:
        environment = toy("a")
        return evaluate(environment, Scripted(right)), await evaluate_async(environment, Scripted(right))

    sync, awaited = asyncio.run(notebook())
    assert sync.mean_reward == awaited.mean_reward == 1.0


def test_an_error_inside_a_running_loop_reaches_the_caller() -> None:
    async def notebook() -> None:
        evaluate(toy("a"), Scripted(right), num_examples=99)

    with pytest.raises(UsageError, match="the maximum is 4"):
        asyncio.run(notebook())


def test_files_hold_every_rollout_the_failures_and_the_metrics(tmp_path: Path) -> None:
    def answer(request: Request) -> Any:
        return PolicyError("down") if "question 5" in request.messages[0].content else "right"

    found = evaluate(toy("a"), Scripted(answer), rollouts_per_example=2, output=tmp_path / "out")
    rows = scan_lines(tmp_path / "out.jsonl")
    assert len(rows) == 8
    assert rows[0]["schema"] == 1
    failures = scan_lines(tmp_path / "out_failures.jsonl")
    assert [(row["rollout_index"], row["class"], row["attempts"]) for row in failures] == [
        (0, "endpoint", 1),
        (1, "endpoint", 1),
    ]
    assert all("down" in row["last_error"] for row in failures)
    metrics = json.loads((tmp_path / "out_metrics.json").read_text())
    assert metrics == json.loads(json.dumps(found.to_dict()))
    assert metrics["environments"]["a"]["unscored"] == 2
    assert metrics["environments"]["a"]["mean_reward"] == 1.0
    assert metrics["settings"]["sampling"]["a"]["max_tokens"] == 512


def test_a_reward_that_is_no_number_stops_the_run_and_keeps_what_was_collected(tmp_path: Path) -> None:
    calls = 0

    def text_at_last(completion: str) -> Any:
        nonlocal calls
        calls += 1
        return ["high"] if calls == 4 else 1.0

    with pytest.raises(BadRewardError, match="text_at_last"):
        evaluate(toy("a", reward=text_at_last), Scripted(right), rollouts_per_example=2, output=tmp_path / "out")
    assert len(scan_lines(tmp_path / "out.jsonl")) == 3
    metrics = json.loads((tmp_path / "out_metrics.json").read_text())
    assert (metrics["complete"], metrics["environments"]["a"]["rollouts"]) == (False, 3)


@pytest.mark.parametrize("broken", [None, float("nan"), float("inf"), ZeroDivisionError("x")])
def test_a_reward_that_fails_is_unscored_and_does_not_touch_the_others(broken: Any) -> None:
    def fails(completion: str) -> Any:
        if isinstance(broken, Exception):
            raise broken
        return broken

    found = evaluate(EnvGroup([toy("bad", reward=fails), toy("good")]), Scripted(right), rollouts_per_example=1)
    assert (found.environments["bad"].unscored, found.environments["bad"].mean_reward) == (4, None)
    assert found.environments["bad"].causes == {"reward": 4}
    assert found.environments["good"].mean_reward == 1.0
    assert found.mean_reward is None


def test_settings_can_be_given_by_environment() -> None:
    async def hang(request: Request) -> str:
        await asyncio.sleep(30 if "slow" in request.messages[0].content else 0)
        return "right"

    policy = Scripted(hang)
    group = EnvGroup([toy("slow"), toy("quick")])
    found = evaluate(
        group, policy, num_examples=1, rollouts_per_example=1,
        timeout={"slow": 0.01}, sampling={"quick": Sampling(max_tokens=5)},
    )  # fmt: skip
    assert found.environments["slow"].causes == {"timeout": 1}
    assert found.environments["quick"].mean_reward == 1.0
    assert {r.messages[0].content.split()[0]: r.sampling.max_tokens for r in policy.asked} == {"slow": 512, "quick": 5}
    assert found.settings["timeout"] == {"slow": 0.01, "quick": 1800.0}
    with pytest.raises(UsageError, match=r"timeout is given for environment 'slwo'.*did you mean 'slow'"):
        evaluate(group, policy, timeout={"slwo": 1.0})


def test_the_policy_says_how_many_episodes_it_takes_unless_told() -> None:
    most = under_way = 0

    async def count(request: Request) -> str:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1
        return "right"

    policy = Scripted(count)
    policy.concurrency = 2  # type: ignore[attr-defined]
    evaluate(toy("a"), policy)
    assert most == 2
    evaluate(toy("a"), policy, concurrency=5)
    assert most == 5
    assert not policy.closed  # whoever makes a policy closes it


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rollouts_per_example": 0}, "rollouts_per_example=0"),
        ({"seed": -1}, "seed=-1"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"timeout": 0.0}, "timeout=0"),
        ({"max_turns": 0}, "max_turns=0"),
        ({"sampling": 0.7}, "sampling must be a Sampling, got 0.7"),
        ({"model": 3}, "model must be a name or a Policy"),
    ],
)
def test_a_bad_argument_is_refused_before_anything_is_played(arguments: dict[str, Any], message: str) -> None:
    policy = Scripted(right)
    with pytest.raises(UsageError, match=message):
        evaluate(toy("a"), **{"model": policy, **arguments})
    assert policy.asked == []


def test_something_that_is_no_environment_is_refused() -> None:
    with pytest.raises(UsageError, match="env must be an Environment, got str"):
        evaluate("math_rl", Scripted(right))  # type: ignore[arg-type]


@pytest.mark.parametrize("inside_a_loop", [False, True])
def test_ctrl_c_keeps_what_was_collected(tmp_path: Path, inside_a_loop: bool) -> None:
    script = tmp_path / "evaluate.py"
    script.write_text(
        "import asyncio, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent.parent)!r})\n"
        "from collect_toys import Scripted, toy\n"
        "from polygym.collect.evaluate import evaluate\n"
        "async def answer(request):\n"
        "    await asyncio.sleep(0 if 'question 4' in request.messages[0].content else 60)\n"
        "    return 'right'\n"
        f"def run(): evaluate(toy('a'), Scripted(answer), output={str(tmp_path / 'out')!r})\n"
        "async def notebook(): run()\n" + ("asyncio.run(notebook())\n" if inside_a_loop else "run()\n")
    )
    process = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 60
        while len(scan_lines(tmp_path / "out.jsonl")) < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    finally:
        process.kill()
    assert b"KeyboardInterrupt" in error
    assert process.returncode == -signal.SIGINT
    assert [row["reward"] for row in scan_lines(tmp_path / "out.jsonl")] == [1.0] * 4
    metrics = json.loads((tmp_path / "out_metrics.json").read_text())
    assert (metrics["complete"], metrics["combined"]["rollouts"]) == (False, 4)
