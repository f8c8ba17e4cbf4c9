"""One episode: order, ends, failures, times."""

from __future__ import annotations

import asyncio
import math
from contextlib import contextmanager
from typing import Any

import pytest

from environments.worlds import Countdown, Script, exact, rows, run, single, texts
from polygym.environments import MultiTurnEnv, SingleTurnEnv, State, cleanup, play, stop
from polygym.errors import PolicyError, UsageError
from polygym.messages import Message, ToolSpec
from polygym.policies.base import Sampling
from polygym.rewards.rubric import BadRewardError, Rubric
from polygym.rollout import Cause, Task, Turn, Usage
from polygym.seeds import derive_seed


def test_a_single_turn_is_asked_answered_and_judged() -> None:
    env = single(system_prompt="Count.")
    task = env.tasks()[0]
    turn = Turn(Message("assistant", task.answer), usage=Usage(5, 1), policy_version=7)
    rollout = run(env, Script(turn), seed=3, group_id="g", rollout_index=2, step=4)
    assert [(message.role, message.content) for message in rollout.messages] == [
        ("system", "Count."),
        ("user", f"{task.answer}?"),
        ("assistant", task.answer),
    ]
    row = rollout.to_row()
    assert {key: row[key] for key in ("environment", "task_id", "group_id", "rollout_index", "step", "seed")} == {
        "environment": "single_turn", "task_id": task.id, "group_id": "g", "rollout_index": 2, "step": 4, "seed": 3,
    }  # fmt: skip
    assert (row["reward"], row["rewards"], row["scored"], row["cause"]) == (1.0, {"exact": 1.0}, True, None)
    assert (row["stop_reason"], row["truncated"], row["turns"], row["policy_version"]) == ("answered", False, 1, 7)
    assert row["usage"] == {"prompt_tokens": 5, "completion_tokens": 1}
    assert run(env, Script("wrong")).reward == 0.0


def test_turns_alternate_until_a_stop_hook_gives_the_reason() -> None:
    rollout = run(Countdown(rows(2)), Script("go", "stay", "go", "go"))
    assert texts(rollout, "assistant") == ["go", "stay", "go", "go"]
    assert texts(rollout, "user")[1:] == ["2 left", "2 left", "1 left", "0 left"]
    assert (rollout.stop_reason, rollout.reward, len(rollout.turns)) == ("landed", 1.0, 4)


def test_a_win_on_the_last_turn_counts() -> None:
    env = Countdown(rows(2), max_turns=3)
    won, lost = run(env, Script("go")), run(env, Script("go", "stay", "go"))
    assert (won.stop_reason, won.reward, texts(won, "user")[-1]) == ("landed", 1.0, "0 left")
    assert (lost.stop_reason, lost.reward, texts(lost, "user")[-1]) == ("max_turns", 0.0, "1 left")
    assert run(env, Script("go"), max_turns=2).stop_reason == "max_turns"
    assert len(run(env, Script("stay"), max_turns=5).turns) == 5


def test_hooks_may_be_async_and_return_the_state() -> None:
    class Async(MultiTurnEnv):
        async def setup_state(self, state: State) -> State:
            await asyncio.sleep(0)
            return {"n": 0}

        async def env_response(self, messages: list[Message], state: State) -> Any:
            fresh = {**state, "n": state["n"] + 1}
            return [{"role": "user", "content": f"{fresh['n']}"}], fresh

        @stop
        async def enough(self, state: State) -> bool:
            return bool(state["n"] == 2)

        async def reward(self, state: State, messages: list[Message]) -> float:
            return state["n"] + len(messages) / 100 + state["turn"] / 1000

    rollout = run(Async(rows(2)), Script("x"))
    assert texts(rollout, "user")[1:] == ["1", "2"]
    assert rollout.reward == pytest.approx(2 + 0.05 + 0.002)


@pytest.mark.parametrize(
    ("reply", "added"),
    [
        ("text", [("user", "text")]),
        (Message("user", "one"), [("user", "one")]),
        ({"role": "system", "content": "one"}, [("system", "one")]),
        ([Message("user", "a"), {"role": "user", "content": "b"}], [("user", "a"), ("user", "b")]),
        ((Message("user", "a"), Message("user", "b")), [("user", "a"), ("user", "b")]),
        (("text", {"seen": 1}), [("user", "text")]),
        (([Message("user", "a")], {"seen": 1}), [("user", "a")]),
        (None, []),
        ("", []),
        ([], []),
        (("", {"seen": 1}), []),
    ],
)
def test_an_environment_replies_in_whatever_form(reply: Any, added: list[tuple[str, str]]) -> None:
    class Says(MultiTurnEnv):
        def env_response(self, messages: list[Message], state: State) -> Any:
            return reply

        def reward(self, state: State) -> float:
            return float(state.get("seen", 0))

    rollout = run(Says(rows(2)), Script("x"), max_turns=1)
    assert [(message.role, message.content) for message in rollout.messages[2:]] == added
    assert rollout.stop_reason == ("max_turns" if added else "answered")
    assert rollout.reward == float(isinstance(reply, tuple) and isinstance(reply[1], dict))
    assert rollout.cause is None


def test_a_stop_hook_is_asked_before_the_first_turn() -> None:
    class Over(Countdown):
        n = 0

    rollout = run(Over(rows(2)), Script("go"))
    assert (rollout.stop_reason, rollout.reward, rollout.turns, rollout.policy_version) == ("landed", 1.0, [], 0)


def test_setup_may_write_the_prompt_and_sees_the_seed() -> None:
    class Drawn(SingleTurnEnv):
        def setup_state(self, state: State) -> None:
            state["prompt"] = [Message("user", f"{state['seed']} {state['info']['n']}")]
            state["info"]["n"] = "changed"

        def reward(self, info: dict[str, Any]) -> bool:
            return info["n"] == "changed"

    env = Drawn([{"question": "x", "info": {"n": 1}}])
    assert texts(run(env, Script("x"), seed=5), "user") == ["5 1"]
    assert run(env, Script("x"), seed=6).reward == 1.0
    assert texts(run(env, Script("x"), seed=6), "user") == ["6 1"]


def test_the_policy_is_given_all_it_may_know() -> None:
    env = Countdown(rows(2))
    policy, sampling = Script("go"), Sampling(max_tokens=7)
    rollout = run(env, policy, sampling=sampling, seed=9)
    assert [len(request.messages) for request in policy.requests] == [1, 3, 5]
    assert [request.seed for request in policy.requests] == [derive_seed(9, turn) for turn in range(3)]
    assert [request.previous for request in policy.requests] == [None, *rollout.turns[:2]]
    assert [request.sampling for request in policy.requests] == [sampling] * 3
    assert [request.task for request in policy.requests] == [None] * 3
    knowing = Script("go")
    knowing.wants_task = True
    run(env, knowing)
    assert knowing.requests[0].task is env.tasks()[0]


def test_an_episode_of_the_policy_ends_before_grading() -> None:
    log = []

    class Batching(Script):
        @contextmanager
        def episode(self) -> Any:
            log.append("in")
            try:
                yield
            finally:
                log.append("out")

    class Logs(SingleTurnEnv):
        def setup_state(self, state: State) -> None:
            log.append("setup")

        def reward(self) -> float:
            log.append("reward")
            return 1.0

        @cleanup
        async def tidy(self, state: State) -> None:
            log.append("cleanup")

    run(Logs(rows(2)), Batching("x"))
    assert log == ["in", "setup", "out", "reward", "cleanup"]


def test_an_answer_cut_by_a_limit_ends_the_episode_and_is_judged() -> None:
    cut = Turn(Message("assistant", "go"), finish_reason="length")
    rollout = run(Countdown(rows(2)), Script("go", cut))
    assert (rollout.stop_reason, rollout.truncated, rollout.reward, len(rollout.turns)) == ("truncated", True, 0.0, 2)
    assert texts(rollout, "user")[-1] == "1 left"
    won = run(Countdown(rows(2)), Script("go", "go", cut))
    assert (won.stop_reason, won.truncated, won.reward) == ("truncated", True, 1.0)


def test_a_context_filled_by_the_policy_is_judged_and_a_prompt_that_never_fitted_is_not() -> None:
    full = Turn(Message("assistant", ""), finish_reason="context")
    rollout = run(Countdown(rows(2)), Script("go", full))
    assert (rollout.stop_reason, rollout.truncated, rollout.reward, len(rollout.turns)) == ("context", True, 0.0, 1)
    assert texts(rollout, "assistant") == ["go"]
    never = run(Countdown(rows(2)), Script(full))
    assert (never.reward, never.truncated, never.stop_reason) == (None, True, "error")
    assert never.cause == Cause(
        "context", "the prompt does not fit the policy's context; shorten it or raise the limit"
    )


class Broken(MultiTurnEnv):
    """Raises in the hook named by the task's answer."""

    def _maybe(self, hook: str, state: State) -> None:
        if state["answer"] == hook:
            raise ValueError("broken")

    def setup_state(self, state: State) -> None:
        self._maybe("setup_state", state)

    def env_response(self, messages: list[Message], state: State) -> str:
        self._maybe("env_response", state)
        return "next"

    @stop
    def never(self, state: State) -> bool:
        self._maybe("never", state)
        return False

    @cleanup
    def tidy(self, state: State) -> None:
        self._maybe("tidy", state)
        state["task"].info["tidied"].append(state["answer"])

    def reward(self, state: State) -> float:
        self._maybe("reward", state)
        return 1.0


@pytest.mark.parametrize(
    ("hook", "kind", "message", "turns"),
    [
        ("setup_state", "environment", "setup_state raised ValueError: broken", 0),
        ("env_response", "environment", "env_response raised ValueError: broken", 1),
        ("never", "environment", "never raised ValueError: broken", 0),
        ("reward", "reward", "reward function 'reward' raised ValueError: broken", 2),
        ("tidy", "environment", "tidy raised ValueError: broken", 2),
    ],
)
def test_a_hook_that_raises_leaves_the_rollout_unscored_with_its_cause(
    hook: str, kind: str, message: str, turns: int
) -> None:
    tidied: list[str] = []
    env = Broken([{"question": "x", "answer": hook, "info": {"tidied": tidied}}], max_turns=2)
    rollout = run(env, Script("x"))
    assert (rollout.reward, rollout.scored, rollout.cause) == (None, False, Cause(kind, message))
    assert len(rollout.turns) == turns
    assert rollout.stop_reason == ("max_turns" if hook == "reward" else "error")
    assert tidied == ([] if hook == "tidy" else [hook])
    assert rollout.seconds["total"] > 0


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (PolicyError("429", kind="rate_limited"), "rate_limited", "turn 1: 429"),
        (PolicyError("refused"), "endpoint", "turn 1: refused"),
        (RuntimeError("bug"), "policy", "turn 1: the policy raised RuntimeError: bug"),
    ],
)
def test_a_policy_that_fails_leaves_what_was_said_and_no_reward(error: Exception, kind: str, message: str) -> None:
    rollout = run(Countdown(rows(2)), Script("go", error))
    assert (rollout.reward, rollout.cause, rollout.stop_reason) == (None, Cause(kind, message), "error")
    assert texts(rollout, "assistant") == ["go"]


def test_a_reply_that_is_no_message_is_the_environments_fault() -> None:
    class Odd(MultiTurnEnv):
        def env_response(self, messages: list[Message], state: State) -> Any:
            return state["info"]["reply"]

        def reward(self) -> float:
            return 1.0

    for reply in (3, ["text"], {"content": "x"}, [{"role": "boss"}], ("a", "b", "c"), ("text", 3)):
        rollout = run(Odd([{"question": "x", "info": {"reply": reply}}]), Script("x"))
        assert rollout.cause is not None
        assert (rollout.reward, rollout.cause.kind) == (None, "environment"), reply
        assert rollout.cause.message.startswith("env_response ")


def test_a_reward_that_is_no_number_stops_the_run_after_cleaning_up() -> None:
    class Words(Countdown):
        def reward(self, state: State) -> Any:
            self.last_state = state
            return "good"

    env = Words(rows(2))
    with pytest.raises(BadRewardError, match="reward function 'reward' returned 'good'"):
        run(env, Script("go"))
    assert env.last_state["cleaned"] == 1


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_a_reward_of_nothing_or_nan_is_unscored_and_not_0(value: Any) -> None:
    class Empty(SingleTurnEnv):
        def reward(self) -> Any:
            return value

    rollout = run(Empty(rows(2), rubric=Rubric([exact])), Script("x"))
    assert (rollout.reward, rollout.rewards) == (None, {"exact": 0.0, "reward": None})
    assert rollout.cause == Cause("reward", f"reward function 'reward' returned {value}")
    assert rollout.to_row()["scored"] is False


def test_cancellation_passes_through_and_the_cleanup_runs() -> None:
    class Waits(Countdown):
        async def env_response(self, messages: list[Message], state: State) -> Any:
            self.last_state = state
            await asyncio.sleep(60)

    env = Waits(rows(2))

    async def main() -> None:
        await asyncio.wait_for(play(env, env.tasks()[0], Script("go"), sampling=Sampling(), seed=0), 0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert env.last_state["cleaned"] == 1


def test_a_cleanup_that_raises_does_not_hide_a_cancellation() -> None:
    class Bad(Countdown):
        @cleanup
        def tidy(self, state: State) -> None:
            raise ValueError("broken")

    env = Bad(rows(2))
    with pytest.raises(asyncio.CancelledError):
        run(env, Script(asyncio.CancelledError()))


def test_times_are_told_apart() -> None:
    class Slow(MultiTurnEnv):
        async def env_response(self, messages: list[Message], state: State) -> None:
            await asyncio.sleep(0.02)

        async def reward(self) -> float:
            await asyncio.sleep(0.03)
            return 1.0

    seconds = run(Slow(rows(2)), Script("x")).seconds
    assert list(seconds) == ["policy", "environment", "grading", "total"]
    assert seconds["environment"] >= 0.02
    assert seconds["grading"] >= 0.03
    assert seconds["policy"] > 0
    assert seconds["policy"] + seconds["environment"] + seconds["grading"] <= seconds["total"]


def test_numbers_in_the_state_go_to_the_record() -> None:
    def hints() -> float:
        return 1.0

    class Counts(SingleTurnEnv):
        def setup_state(self, state: State) -> None:
            state["metrics"]["hints"] = state["info"]["hints"]

    env = Counts([{"question": "x", "answer": "x", "info": {"hints": 2}}], rubric=Rubric([exact]))
    assert run(env, Script("x")).metrics == {"hints": 2}
    twice = Rubric([exact])
    twice.add_metric(hints)
    assert run(Counts([{"question": "x", "info": {"hints": 2}}], rubric=twice), Script("x")).cause == Cause(
        "environment", "metric 'hints' is both in state['metrics'] and a function of the rubric"
    )
    bad = Counts([{"question": "x", "answer": "x", "info": {"hints": "two"}}], rubric=Rubric([exact]))
    cause = run(bad, Script("x")).cause
    assert cause == Cause("environment", "state['metrics']['hints'] must be a number, got 'two'")


def test_a_prompt_that_raises_is_the_environments_fault() -> None:
    class Bad(SingleTurnEnv):
        def prompt(self, task: Task) -> list[Message]:
            raise KeyError("template")

    assert run(Bad(rows(2), rubric=Rubric([exact])), Script("x")).cause == Cause(
        "environment", "prompt raised KeyError: 'template'"
    )


def test_the_first_cause_is_kept_when_the_cleanup_fails_too() -> None:
    class Bad(Countdown):
        @cleanup
        def tidy(self, state: State) -> None:
            raise ValueError("second")

    assert run(Bad(rows(2)), Script(PolicyError("first"))).cause == Cause("endpoint", "turn 0: first")


def test_the_tokens_of_a_rollout_are_bounded_over_all_its_turns() -> None:
    def said(tokens: int, finish_reason: str = "stop") -> Turn:
        return Turn(Message("assistant", "stay"), finish_reason, Usage(5, tokens))

    env, sampling = Countdown(rows(2)), Sampling(max_tokens=40)
    policy = Script(said(30), said(30), said(40))
    rollout = run(env, policy, sampling=sampling, max_total_tokens=100)
    assert (rollout.stop_reason, rollout.truncated, rollout.usage.completion_tokens) == ("token_budget", True, 100)
    assert [request.sampling.max_tokens for request in policy.requests] == [40, 40, 40]
    policy = Script(said(30), said(40), said(30, "length"))
    rollout = run(env, policy, sampling=sampling, max_total_tokens=100)
    assert [request.sampling.max_tokens for request in policy.requests] == [40, 40, 30]
    assert (rollout.stop_reason, rollout.truncated, rollout.reward) == ("token_budget", True, 0.0)
    cut = run(env, Script(said(10, "length")), sampling=sampling, max_total_tokens=100)
    assert (cut.stop_reason, cut.truncated) == ("truncated", True)
    won = run(env, Script("go", "go", Turn(Message("assistant", "go"), usage=Usage(5, 100))), max_total_tokens=100)
    assert (won.stop_reason, won.truncated, won.reward) == ("landed", False, 1.0)
    counted = Turn(Message("assistant", "stay"), token_ids=[1, 2, 3], logprobs=[0.0, 0.0, 0.0])
    assert len(run(env, Script(counted), max_total_tokens=6).turns) == 2
    with pytest.raises(UsageError, match="max_total_tokens=0 must be at least 1"):
        run(env, Script("go"), max_total_tokens=0)


def test_a_task_may_have_tools_of_its_own() -> None:
    class Own(SingleTurnEnv):
        def tools_of(self, task: Task) -> list[ToolSpec]:
            return [ToolSpec(f"tool_{task.answer}", "", {})]

    env = Own(rows(4), rubric=Rubric([exact]))
    for task in env.tasks():
        policy = Script("x")
        run(env, policy, task=task)
        assert [tool.name for tool in policy.requests[0].tools] == [f"tool_{task.answer}"]
