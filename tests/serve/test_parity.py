"""A rollout through a server is the rollout in process: messages, rewards, metrics, ends and causes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from environments.worlds import Countdown, Script, call, exact, rows
from polygym.environments import (
    Environment,
    MultiTurnEnv,
    OraclePolicy,
    RemoteEnvironment,
    SingleTurnEnv,
    State,
    ToolEnv,
    cleanup,
    load_environment,
    play,
    stop,
)
from polygym.environments.remote import remote_task
from polygym.environments.wire_rows import row_of
from polygym.errors import PolicyError
from polygym.messages import Message, ToolCall
from polygym.policies.base import Policy, Request, Sampling
from polygym.rewards.rubric import BadRewardError, Rubric
from polygym.rollout import Rollout, Task, Turn, Usage
from polygym.serve.environment_server import EnvironmentServer
from serve.serving import served


class Shown(Policy):
    """Answers as `demonstrate` does, whatever task it is told."""

    name = "shown"

    def __init__(self, environment: Environment, task: Task) -> None:
        self.oracle = OraclePolicy(environment)
        self.task = task

    async def complete(self, request: Request) -> Turn:
        request.task = self.task
        return await self.oracle.complete(request)


def both(environment: Environment, tasks: list[Task], policy: Any, **options: Any) -> list[tuple[Rollout, Rollout]]:
    """Each task played in process and through a server; `policy` is one, or a function that makes one for a task."""

    async def main(url: str) -> list[tuple[Rollout, Rollout]]:
        remote = RemoteEnvironment(url, name=environment.name)
        pairs = []
        for task in tasks:
            there = remote_task(row_of(environment, task), environment.name)
            arguments = {"sampling": Sampling(), "seed": 11, **options}
            pairs.append(
                (
                    await play(environment, task, policy(task) if callable(policy) else policy, **arguments),
                    await play(remote, there, policy(task) if callable(policy) else policy, **arguments),
                )
            )
        return pairs

    with served(EnvironmentServer(environment).app()) as url:
        return asyncio.run(main(url))


def assert_same(here: Rollout, there: Rollout) -> None:
    left, right = here.to_row(), there.to_row()
    del left["seconds"], right["seconds"]
    assert left == right
    assert list(here.seconds) == list(there.seconds)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("tool_use", {"few_shot": 2}),
        ("tool_use", {}),
        ("word_game", {"openings": 2}),
        ("math_rl", {}),
        ("document_search", {}),
    ],
)
def test_the_oracle_plays_recipes_through_a_server_as_in_process(name: str, arguments: dict[str, Any]) -> None:
    environment = load_environment(name, **arguments)
    tasks = list(environment.tasks("held_out")[:6])
    for here, there in both(environment, tasks, lambda task: Shown(environment, task)):
        assert_same(here, there)
        assert there.reward is not None
        assert there.reward > 0


def test_a_policy_that_fails_at_everything_is_judged_alike() -> None:
    word, math, tools = (load_environment(name, num_examples=5) for name in ("word_game", "math_rl", "tool_use"))
    said = Script("<guess>crane</guess>", "no guess", "<guess>zzzzz</guess>", "<guess>slate</guess>")
    for here, there in both(word, list(word.tasks()[:3]), said):
        assert_same(here, there)
        assert (there.reward, there.metrics["solved"]) == (0.0, 0.0)
    for here, there in both(math, list(math.tasks()[:3]), Script("The answer is \\boxed{x+1}.")):
        assert_same(here, there)
    wrong = Script(
        call("calculate", "c1", left="x"),
        Message("assistant", "", (ToolCall("calculate", {}, "c2", "invalid_json", '{"left": 1'),)),
        call("no_such_tool", "c3", a=1),
        "17",
    )
    for here, there in both(tools, list(tools.tasks()[:3]), wrong):
        assert_same(here, there)
        assert there.metrics == {"tool_calls": 3, "tool_errors": 3}


def test_stop_hooks_and_the_turn_limit_end_it_alike() -> None:
    environment = Countdown(rows(2), max_turns=5)
    for script, reason, reward in (
        (Script("go"), "landed", 1.0),
        (Script("go", "stay"), "max_turns", 0.0),
        (Script("go", Turn(Message("assistant", "go"), finish_reason="length")), "truncated", 0.0),
        (Script(Turn(Message("assistant", "go"), usage=Usage(3, 40))), "token_budget", 0.0),
    ):
        [(here, there)] = both(environment, [environment.tasks()[0]], script, max_total_tokens=60)
        assert_same(here, there)
        assert (there.stop_reason, there.reward) == (reason, reward)
    for max_turns, reason in ((2, "max_turns"), (None, "landed")):
        [(here, there)] = both(environment, [environment.tasks()[0]], Script("go"), max_turns=max_turns)
        assert_same(here, there)
        assert there.stop_reason == reason

    class Over(Countdown):
        n = 0

    environment = Over(rows(2))
    [(here, there)] = both(environment, [environment.tasks()[0]], Script("go"))
    assert_same(here, there)
    assert (there.stop_reason, there.turns) == ("landed", [])


class Elaborate(MultiTurnEnv):
    """Async hooks, a prompt of its own, the state handed back, several messages a reply."""

    async def setup_state(self, state: State) -> State:
        await asyncio.sleep(0)
        prompt = [*state["prompt"], Message("user", f"seed {state['seed']}, topic {state['info']['topic']}")]
        return {"n": 0, "prompt": prompt}

    async def env_response(self, messages: list[Message], state: State) -> Any:
        if "bye" in messages[-1].content:
            return None
        fresh = {**state, "n": state["n"] + 1}
        fresh["metrics"]["asked"] = fresh["n"]
        return [{"role": "user", "content": f"{fresh['n']}: {len(messages)}"}, Message("user", "and?")], fresh

    @stop
    async def enough(self, state: State) -> bool:
        return bool(state["n"] >= 3)

    @cleanup
    async def leave(self, state: State) -> None:
        state["task"].info.get("left", []).append(1)

    async def reward(self, state: State, messages: list[Message], completion: str, answer: str, task: Task) -> float:
        assert task.info["topic"] == state["info"]["topic"]
        return state["n"] + len(messages) / 100 + state["turn"] / 1000 + len(completion) / 1e6 + (answer in completion)


def test_async_hooks_that_change_prompt_and_state_are_played_alike() -> None:
    data = [
        {"question": f"{i}?", "answer": str(i), "info": {"topic": f"t{i}", "deep": {"a": [1, None]}}} for i in range(4)
    ]
    environment = Elaborate(data, system_prompt="Talk.", few_shot=[("a?", "b")], max_turns=4)
    told = Turn(Message("assistant", "1", reasoning="I think"), usage=Usage(9, 4))
    for script in (Script("0", "1", "2"), Script("0", "bye"), Script(told, "", "é\u2028 ß", "3")):
        for here, there in both(environment, list(environment.tasks()), script):
            assert_same(here, there)
            assert there.cause is None


class Counter(ToolEnv):
    """Tools with state, some of which fail."""

    def setup_state(self, state: State) -> None:
        state["count"] = 0

    def reward(self, state: State, messages: list[Message]) -> float:
        return state["count"] + state["turn"] / 10 + sum(message.role == "tool" for message in messages) / 1000


def add(amount: int, state: State) -> int:
    """Add."""
    state["count"] += amount
    return int(state["count"])


async def fail(state: State) -> str:
    """Fail."""
    state["count"] += 100
    raise ValueError("no luck")


def big(size: int) -> str:
    """Much text."""
    return "é" * size


async def slow(name: str) -> dict[str, Any]:
    """Takes a while."""
    await asyncio.sleep(0.02 if name == "a" else 0.0)
    return {"name": name, "values": [1, 2.5, None], "n": 123456789012345678901234567890}


@pytest.mark.parametrize("parallel", [False, True])
def test_tools_with_state_and_failures_are_played_alike(parallel: bool) -> None:
    environment = Counter(rows(2), tools=[add, fail, big, slow], parallel_tool_calls=parallel)
    many = Message("assistant", "both", (ToolCall("slow", {"name": "a"}, "x"), ToolCall("slow", {"name": "b"}, "y")))
    script = Script(
        call("add", "1", amount=2),
        call("fail", "2"),
        many,
        call("add", "3", amount="4"),  # the text is read as an integer
        call("big", "", size=30_000),
        call("verify", "5"),
        call("add", "6", amount=10**25),
        "done",
    )
    [(here, there)] = both(environment, [environment.tasks()[0]], script)
    assert_same(here, there)
    results = [message.content for message in there.messages if message.role == "tool"]
    assert results[:2] == ["2", "Error: fail raised ValueError: no luck"]
    assert [result[:12] for result in results[2:4]] == ['{"name": "a"', '{"name": "b"']
    assert results[4] == "106"  # the failing tool's session went on
    assert results[5].endswith("[cut: the first 20000 of 30000 characters]")
    assert len(results[5]) == 20_043
    assert results[6].startswith("Error: unknown tool 'verify'")
    assert results[7] == str(106 + 10**25)
    assert there.metrics == {"tool_calls": 8, "tool_errors": 2}
    assert there.stop_reason == "answered"


class Overridden(Counter):
    """A ToolEnv that says more than its results, so that it is asked as a whole."""

    async def env_response(self, messages: list[Message], state: State) -> Any:
        results = await super().env_response(messages, state)
        return [*results, Message("user", "go on")] if results else results

    @stop
    def full(self, state: State) -> bool:
        return bool(state["count"] >= 6)


def test_a_tool_environment_with_stop_hooks_or_its_own_replies_is_played_alike() -> None:
    environment = Overridden(rows(2), tools=[add, fail])
    malformed = Message("assistant", "", (ToolCall("add", {}, "2", "invalid_json", '{"amount": '),))
    for script, reason in (
        (Script(call("add", "1", amount=2), malformed, call("none", "3"), call("add", "4", amount=5)), "full"),
        (Script(call("add", "1", amount=2), "that is it"), "answered"),
    ):
        [(here, there)] = both(environment, [environment.tasks()[0]], script)
        assert_same(here, there)
        assert (there.stop_reason, there.cause) == (reason, None)


class Broken(MultiTurnEnv):
    """Raises in the hook named by the task's answer."""

    def _maybe(self, hook: str, state: State) -> None:
        if state["answer"] == hook:
            raise ValueError("broken")

    def setup_state(self, state: State) -> None:
        self._maybe("setup_state", state)

    def env_response(self, messages: list[Message], state: State) -> str:
        self._maybe("env_response", state)
        state["metrics"]["said"] = "words" if state["answer"] == "metrics" else 1
        return "next"

    @stop
    def never(self, state: State) -> bool:
        self._maybe("never", state)
        return False

    @cleanup
    def tidy(self, state: State) -> None:
        self._maybe("tidy", state)

    def reward(self, state: State) -> float | None:
        self._maybe("reward", state)
        return None if state["answer"] == "nothing" else 1.0


@pytest.mark.parametrize("hook", ["setup_state", "env_response", "never", "reward", "tidy", "metrics", "nothing", "-"])
def test_what_goes_wrong_in_an_environment_has_the_same_cause_at_a_distance(hook: str) -> None:
    environment = Broken([{"question": "x", "answer": hook}], max_turns=2)
    [(here, there)] = both(environment, [environment.tasks()[0]], Script("x"))
    assert (there.cause is None) == (hook == "-")
    assert (there.reward is None) == (hook != "-")
    if hook == "never":
        here.messages.clear()  # asked before the first turn: a server that fails so early has not told its prompt
    assert_same(here, there)


def test_a_policy_that_fails_leaves_the_same_rollout() -> None:
    environment = Countdown(rows(2))
    [(here, there)] = both(environment, [environment.tasks()[0]], Script("go", PolicyError("down", kind="timeout")))
    assert_same(here, there)
    assert (there.cause and there.cause.kind, there.reward) == ("timeout", None)


def test_a_reward_that_is_no_number_stops_the_run_at_a_distance_too() -> None:
    class Words(SingleTurnEnv):
        def reward(self) -> Any:
            return "good"

    environment = Words(rows(2))

    async def main(url: str) -> None:
        remote = RemoteEnvironment(url, name=environment.name)
        task = remote_task(row_of(environment, environment.tasks()[0]), environment.name)
        with pytest.raises(BadRewardError, match="reward function 'reward' returned 'good'"):
            await play(remote, task, Script("x"), sampling=Sampling(), seed=0)

    with served(EnvironmentServer(environment).app()) as url:
        asyncio.run(main(url))


def test_several_reward_functions_and_metrics_keep_their_names() -> None:
    def long(completion: str) -> float:
        return len(completion)

    rubric = Rubric([exact, long], [1.0, 0.5])
    rubric.add_metric(_size)
    environment = SingleTurnEnv(rows(4), rubric=rubric)
    for here, there in both(environment, list(environment.tasks()), Script("1")):
        assert_same(here, there)
        assert (there.rewards["long"], there.metrics) == (1.0, {"_size": 1.0})


def _size(answer: str) -> int:
    return len(answer)
