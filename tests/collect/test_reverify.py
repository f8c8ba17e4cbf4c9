from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collect_toys import Scripted, toy
from polygym.collect.evaluate import evaluate
from polygym.collect.reverify import reverify
from polygym.environments import EnvGroup, Environment, MultiTurnEnv, ToolEnv
from polygym.errors import UsageError
from polygym.messages import Message
from polygym.policies.base import Request
from polygym.rewards.rubric import Rubric
from polygym.rollout import Turn
from polygym.rows import Row, scan_lines


def half(completion: str, answer: str) -> float:
    """A reward that was mended."""
    return 0.5 * (completion == answer)


def answering(request: Request) -> str:
    return "right" if request.seed % 2 else "wrong"


def played(
    environment: Environment, folder: Path, answer: Callable[[Request], Any] = answering, **options: Any
) -> Path:
    evaluate(environment, Scripted(answer), rollouts_per_example=4, output=folder / "old", **options)
    return folder / "old.jsonl"


def pairs(folder: Path) -> list[tuple[Row, Row]]:
    """Each rollout before and after."""
    old = {(row["environment"], row["task_id"], row["rollout_index"]): row for row in scan_lines(folder / "old.jsonl")}
    new = scan_lines(folder / "new.jsonl")
    assert len(new) == len(old)
    return [(old[row["environment"], row["task_id"], row["rollout_index"]], row) for row in new]


def test_a_mended_reward_is_paid_to_what_was_said(tmp_path: Path) -> None:
    group = EnvGroup([toy("a"), toy("b")])
    path = played(group, tmp_path)
    right = sum(row["reward"] for row in scan_lines(path) if row["environment"] == "a")
    assert 0 < right < 16
    found = reverify(path, {"a": toy("a", reward=half), "b": toy("b")}, tmp_path / "new")
    for old, new in pairs(tmp_path):
        name = "half" if new["environment"] == "a" else "exact"
        paid = old["reward"] * (0.5 if name == "half" else 1)
        assert new == old | {"reward": paid, "rewards": {name: paid}}
    assert found.changed_E == {"a": right, "b": 0}
    assert found.lines() == [f"a: {right:g} of 16 rewards changed", "b: 0 of 16 rewards changed"]
    before = json.loads((tmp_path / "old_metrics.json").read_bytes())
    after = json.loads((tmp_path / "new_metrics.json").read_bytes())
    assert (after["model"], after["settings"]["settings"]) == ("scripted", before["settings"])
    assert after["combined"]["shares"] == before["combined"]["shares"]
    assert after["environments"]["b"] == before["environments"]["b"]
    assert after["environments"]["a"]["mean_reward"] == before["environments"]["a"]["mean_reward"] / 2


def test_an_unchanged_environment_of_many_turns_and_state_gives_the_same_rewards(tmp_path: Path) -> None:
    from polygym.environments import load_environment

    def environment() -> Environment:
        return load_environment("multi_env")

    evaluate(environment(), "oracle", num_examples=6, rollouts_per_example=2, output=tmp_path / "old")
    found = reverify(tmp_path / "old.jsonl", environment().leaves(), tmp_path / "new")
    for old, new in pairs(tmp_path):
        assert new == old
    assert set(found.changed_E.values()) == {0}


def test_tools_run_again_and_what_they_leave_is_judged(tmp_path: Path) -> None:
    def add(a: int, b: int) -> int:
        """The sum."""
        return a + b

    def calls(state: dict[str, Any]) -> float:
        return state["metrics"]["tool_calls"]

    rows = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(4)]

    def environment(tool: Any = add) -> ToolEnv:
        return ToolEnv(rows[:2], eval_dataset=rows[2:], tools=[tool], rubric=Rubric([calls]), name="tools")

    def answer(request: Request) -> Turn | str:
        return "done"

    class Calling(Scripted):
        async def complete(self, request: Request) -> Turn:
            from polygym.messages import ToolCall

            if request.previous is not None:
                return Turn(Message("assistant", "done"))
            return Turn(Message("assistant", "", (ToolCall("add", {"a": 1, "b": 2}, id="c1"),)))

    evaluate(environment(), Calling(answer), rollouts_per_example=2, output=tmp_path / "old")
    reverify(tmp_path / "old.jsonl", {"tools": environment()}, tmp_path / "new")
    assert all(new == old and new["reward"] == 1.0 for old, new in pairs(tmp_path))

    def wrong(a: int, b: int) -> int:
        """The sum."""
        return a + b + 1

    wrong.__name__ = "add"
    found = reverify(tmp_path / "old.jsonl", {"tools": environment(wrong)}, tmp_path / "new", overwrite=True)
    for _, new in pairs(tmp_path):
        assert (new["reward"], new["scored"], new["cause"]["class"]) == (None, False, "diverged")
        assert new["cause"]["message"] == "turn 1: the environment says something else than it did"
    assert found.results.environments["tools"].causes == {"diverged": 4}
    assert len(scan_lines(tmp_path / "new_failures.jsonl")) == 4


class Counting(MultiTurnEnv):
    """Goes on for `turns` turns."""

    def __init__(self, turns: int, **options: Any) -> None:
        super().__init__([{"question": "?"}], eval_dataset=[{"question": "!"}], name="counting", max_turns=9, **options)
        self.turns = turns

    def env_response(self, messages: list[Message], state: dict[str, Any]) -> str:
        return "more" if state["turn"] < self.turns else ""

    def reward(self, state: dict[str, Any]) -> float:
        return state["turn"] / 10


@pytest.mark.parametrize(
    ("turns", "words"), [(2, "ends earlier than it did"), (4, "goes on where the episode had ended")]
)
def test_an_episode_of_another_length_is_another_episode(tmp_path: Path, turns: int, words: str) -> None:
    path = played(Counting(3), tmp_path)
    reverify(path, {"counting": Counting(turns)}, tmp_path / "new")
    for old, new in pairs(tmp_path):
        assert (old["reward"], new["reward"], new["cause"]["class"]) == (0.3, None, "diverged")
        assert words in new["cause"]["message"]


def test_a_limit_that_ended_the_episode_ends_it_again(tmp_path: Path) -> None:
    path = played(Counting(9), tmp_path, max_turns=3)
    reverify(path, {"counting": Counting(9)}, tmp_path / "new")
    assert all(new == old and new["stop_reason"] == "max_turns" for old, new in pairs(tmp_path))


@pytest.mark.parametrize("finish_reason", ["length", "context"])
def test_a_policy_that_was_cut_is_cut_again(tmp_path: Path, finish_reason: str) -> None:
    class Cut(Scripted):
        async def complete(self, request: Request) -> Turn:
            return Turn(Message("assistant", "right"), finish_reason if request.previous else "stop")

    evaluate(Counting(9), Cut(answering), rollouts_per_example=2, output=tmp_path / "old")
    reverify(tmp_path / "old.jsonl", {"counting": Counting(9)}, tmp_path / "new")
    for old, new in pairs(tmp_path):
        assert new == old
        assert (new["truncated"], new["reward"]) == (True, 0.2 if finish_reason == "length" else 0.1)


def test_hooks_that_draw_draw_the_same_again(tmp_path: Path) -> None:
    class Drawing(Counting):
        def setup_state(self, state: dict[str, Any]) -> None:
            state["prompt"] = [Message("user", f"secret {state['seed']}")]

    path = played(Drawing(1), tmp_path)
    reverify(path, {"counting": Drawing(1)}, tmp_path / "new")
    assert len({row["messages"][0]["content"] for row in scan_lines(path)}) == 4
    assert all(new == old and new["reward"] == 0.1 for old, new in pairs(tmp_path))


def test_what_had_failed_stays_and_what_could_not_be_graded_is_graded(tmp_path: Path) -> None:
    def sometimes(request: Request) -> Any:
        return RuntimeError("down") if request.seed % 3 == 0 else "right"

    def broken(completion: str) -> float:
        raise KeyError("gold")

    path = played(toy("a", reward=broken, held_out=8), tmp_path, sometimes)
    found = reverify(path, {"a": toy("a", held_out=8)}, tmp_path / "new")
    classes = set()
    for old, new in pairs(tmp_path):
        classes.add(old["cause"]["class"])
        if old["cause"]["class"] == "policy":
            assert new == old
        else:
            del old["attempts"]
            assert new == old | {"reward": 1.0, "rewards": {"exact": 1.0}, "scored": True, "cause": None}
    assert classes == {"policy", "reward"}
    kept = sum(found.kept_E.values())
    assert found.lines() == [f"a: {32 - kept} of 32 rewards changed, {kept} rollouts that had failed left as they are"]
    assert len(scan_lines(tmp_path / "new_failures.jsonl")) == kept


def test_a_task_that_is_gone_leaves_its_rollouts_unscored(tmp_path: Path) -> None:
    path = played(toy("a", held_out=5), tmp_path)
    reverify(path, {"a": toy("a", held_out=4)}, tmp_path / "new")
    gone = [new["cause"] for _, new in pairs(tmp_path) if new["reward"] is None]
    assert gone == [{"class": "no_task", "message": "environment 'a' has no task 8 any more"}] * 4


def test_a_reward_that_is_no_number_leaves_no_file(tmp_path: Path) -> None:
    path = played(toy("a"), tmp_path)
    with pytest.raises(UsageError, match="returned 'good'"):
        reverify(path, {"a": toy("a", reward=lambda_of("good"))}, tmp_path / "new")
    assert [found.name for found in tmp_path.iterdir() if "new" in found.name] == []


def lambda_of(value: Any) -> Callable[..., Any]:
    def judged(completion: str) -> Any:
        return value

    return judged


def test_what_cannot_be_scored_is_told_before_anything_is_written(tmp_path: Path) -> None:
    path = played(EnvGroup([toy("a"), toy("b")]), tmp_path)
    with pytest.raises(UsageError, match=r"rollouts of environment 'b', which is not given; .*Allowed: a"):
        reverify(path, {"a": toy("a")}, tmp_path / "new")
    with pytest.raises(UsageError, match="is the file that is scored again"):
        reverify(path, {"a": toy("a"), "b": toy("b")}, path, overwrite=True)
    with pytest.raises(UsageError, match="holds an evaluation already"):
        reverify(path, {"a": toy("a"), "b": toy("b")}, tmp_path / "old")
    assert not (tmp_path / "new.jsonl").exists()
