"""ToolEnv: every call has an answer, and the rollout goes on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from environments.worlds import Script, call, exact, rows, run, texts
from polygym.environments import State, ToolEnv, play
from polygym.environments.workers import Overrun, Workers
from polygym.errors import UsageError
from polygym.messages import Message, ToolCall
from polygym.policies.base import Sampling
from polygym.rewards.rubric import Rubric

log: list[str] = []


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    log.append(f"{a}+{b}")
    return a + b


def table(rows: int) -> list[dict[str, Any]]:
    """Rows of a table."""
    return [{"é": None} for _ in range(rows)]


def fail(text: str) -> str:
    """Raise."""
    raise KeyError(text)


def leave() -> str:
    """End the program."""
    sys.exit(3)


def half() -> str:
    """Half a surrogate pair, which no file can hold."""
    return "\ud800"


def repeat(text: str, times: int) -> str:
    """Repeat a text."""
    return text * times


def sleep(seconds: float) -> str:
    """Sleep."""
    time.sleep(seconds)
    return "slept"


def spin() -> str:
    """Never return."""
    while True:
        pass


async def fetch(seconds: float) -> str:
    """Wait for something."""
    await asyncio.sleep(seconds)
    return "fetched"


async def fetch_timeout() -> str:
    """Raise the tool's own timeout."""
    raise TimeoutError("server too slow")


async def cancelled() -> str:
    """Wait for something that was cancelled."""
    inner = asyncio.ensure_future(asyncio.sleep(9))
    inner.cancel()
    await inner
    return "never"


def cancelled_here() -> str:
    """Raise what ends a task, in a thread."""
    raise asyncio.CancelledError("inner")


async def interrupt() -> str:
    """Raise what Ctrl-C raises."""
    raise KeyboardInterrupt


def interrupt_here() -> str:
    """Raise what Ctrl-C raises, in a thread."""
    raise KeyboardInterrupt


def remember(word: str, state: State) -> str:
    """Keep a word."""
    state.setdefault("words", []).append(word)
    return f"{len(state['words'])} kept"


TOOLS = [add, table, fail, leave, half, repeat, sleep, spin, fetch, fetch_timeout, remember]
ENDINGS = [cancelled, cancelled_here, interrupt, interrupt_here]


def env(**arguments: Any) -> ToolEnv:
    return ToolEnv(rows(2), **{"tools": TOOLS, "rubric": Rubric([exact]), **arguments})


def answer_to(message: Message, **arguments: Any) -> list[str]:
    """What the policy reads after a message with calls."""
    rollout = run(env(**arguments), Script(message, "done"))
    assert (rollout.stop_reason, rollout.cause, rollout.reward) == ("answered", None, 0.0)
    assert texts(rollout, "assistant")[-1] == "done"
    return texts(rollout, "tool")


def test_the_policy_is_told_of_the_tools_and_calls_until_it_answers() -> None:
    policy = Script(call("add", "c1", a=1, b=2), call("add", "c2", a=3), "4")
    rollout = run(env(), policy)
    assert [tool.name for tool in policy.requests[0].tools] == [tool.__name__ for tool in TOOLS]
    assert [(m.role, m.content, m.tool_call_id) for m in rollout.messages[1:]] == [
        ("assistant", "", None),
        ("tool", "3", "c1"),
        ("assistant", "", None),
        ("tool", "4", "c2"),
        ("assistant", "4", None),
    ]
    assert rollout.metrics == {"tool_calls": 2, "tool_errors": 0}


def test_several_calls_of_one_turn_run_in_order_and_a_bad_one_stops_none() -> None:
    log.clear()
    calls = (
        ToolCall("add", {"a": 1}, "1"),
        ToolCall("fail", {"text": "x"}, "2"),
        ToolCall("add", {}, "3", error="invalid_json", raw='{"a": '),
        ToolCall("add", {"a": 2}, "4"),
    )
    rollout = run(env(), Script(Message("assistant", tool_calls=calls), "done"))
    tools = [message for message in rollout.messages if message.role == "tool"]
    assert [(message.tool_call_id, message.content) for message in tools] == [
        ("1", "2"),
        ("2", "Error: fail raised KeyError: 'x'"),
        ("3", "Error: this call was not run: invalid_json"),
        ("4", "3"),
    ]
    assert log == ["1+1", "2+1"]
    assert rollout.metrics == {"tool_calls": 4, "tool_errors": 2}


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (call("ad", a=1), "Error: unknown tool 'ad'; did you mean 'add'? Allowed: add, fail,"),
        (
            Message("assistant", tool_calls=(ToolCall("ad", error="unknown_tool"),)),
            "Error: unknown tool 'ad'; did you mean",
        ),
        (
            Message("assistant", tool_calls=(ToolCall("", error="invalid_json"),)),
            "Error: this call was not run: invalid",
        ),
        (call("add"), "Error: add: argument 'a' is missing"),
        (call("add", a="x"), "Error: add: a must be of type integer, got 'x'"),
        (call("add", a=1, c=2), "Error: add: unexpected argument 'c'"),
        (call("remember", word="x", state={}), "Error: remember: unexpected argument 'state'"),
        (call("leave"), "Error: leave raised SystemExit: 3"),
        (call("fetch_timeout"), "Error: fetch_timeout raised TimeoutError: server too slow"),
        (call("add", a="34", b=None), "35"),
        (call("table", rows=1), '[{"é": null}]'),
        (call("repeat", text="\ud800", times=1), "Error: repeat: arguments are not valid JSON: a lone surrogate"),
        (call("half"), "?"),
        (call("fetch", seconds=0), "fetched"),
    ],
)
def test_whatever_a_call_does_the_policy_reads_it_as_text(message: Message, text: str) -> None:
    (got,) = answer_to(message)
    assert got.startswith(text)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("tool", ENDINGS)
def test_a_tool_that_raises_what_ends_a_task_is_told_to_the_policy(tool: Any, parallel: bool) -> None:
    calls = (ToolCall(tool.__name__, {}, "1"), ToolCall("add", {"a": 2}, "2"))
    first, second = answer_to(
        Message("assistant", tool_calls=calls), tools=[*TOOLS, *ENDINGS], parallel_tool_calls=parallel
    )
    assert first.startswith(f"Error: {tool.__name__} raised ")
    assert second == "3"


@pytest.mark.parametrize("parallel", [False, True])
def test_a_rollout_that_is_cancelled_in_a_tool_ends(parallel: bool) -> None:
    async def main() -> None:
        environment = env(parallel_tool_calls=parallel)
        calls = (ToolCall("fetch", {"seconds": 9}, "1"), ToolCall("sleep", {"seconds": 0.3}, "2"))
        policy = Script(Message("assistant", tool_calls=calls), "done")
        playing = asyncio.ensure_future(play(environment, environment.tasks()[0], policy, sampling=Sampling(), seed=1))
        await asyncio.sleep(0.1)
        playing.cancel()
        await playing

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())


def test_long_results_are_cut_at_the_stated_limit() -> None:
    (got,) = answer_to(call("repeat", text="ab", times=20_000))
    assert got == "ab" * 10_000 + "\n[cut: the first 20000 of 40000 characters]"
    assert answer_to(call("repeat", text="ab", times=2), tool_output_characters=4) == ["abab"]
    assert answer_to(call("repeat", text="ab", times=2), tool_output_characters=3) == [
        "aba\n[cut: the first 3 of 4 characters]"
    ]


def test_a_tool_may_use_the_state() -> None:
    message = Message(
        "assistant", tool_calls=(ToolCall("remember", {"word": "a"}), ToolCall("remember", {"word": "b"}))
    )
    assert answer_to(message) == ["1 kept", "2 kept"]


@pytest.mark.parametrize("message", [call("spin"), call("sleep", seconds=30), call("fetch", seconds=30)])
def test_a_tool_that_never_returns_is_given_up_and_the_rollout_goes_on(message: Message) -> None:
    started = time.perf_counter()
    (got,) = answer_to(message, tool_timeout_seconds=0.05)
    assert got == f"Error: {message.tool_calls[0].name} did not return within 0.05 seconds and was given up"
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize("name", ["spin", "wait"])
def test_a_tool_that_uses_up_the_time_of_the_rollout_says_so_and_the_rollout_is_judged(name: str) -> None:
    async def wait() -> None:
        """Never return."""
        await asyncio.sleep(60)

    calls = tuple(ToolCall(name, id=str(number)) for number in range(3))
    policy = Script(Message("assistant", "0", tool_calls=calls), "done")
    world = env(tools=[*TOOLS, wait], tool_timeout_seconds=0.4)
    rollout = run(world, policy, timeout_seconds=1.0)
    assert (rollout.cause, rollout.reward) == (None, 1.0)
    given_up = f"Error: {name} did not return within 0.4 seconds and was given up"
    assert (rollout.stop_reason, rollout.truncated, len(policy.requests)) == ("time_budget", True, 1)
    told = texts(rollout, "tool")
    assert told[:2] == [given_up] * 2
    assert told[2].startswith(f"Error: {name} did not return within 0.")
    assert told[2].endswith(" seconds and was given up; the time of the rollout is used up")
    assert rollout.metrics == {"tool_calls": 3, "tool_errors": 3}


def test_calls_that_run_together_use_up_the_time_of_the_rollout_together() -> None:
    calls = tuple(ToolCall("fetch", {"seconds": 60}, str(number)) for number in range(3))
    policy = Script(Message("assistant", "0", tool_calls=calls), "done")
    rollout = run(env(parallel_tool_calls=True), policy, timeout_seconds=1.0)
    assert (rollout.stop_reason, rollout.reward) == ("time_budget", 1.0)
    assert all(text.endswith("; the time of the rollout is used up") for text in texts(rollout, "tool"))


def test_a_call_after_the_time_of_the_rollout_is_not_run() -> None:
    log.clear()
    calls = (ToolCall("spin", id="1"), ToolCall("add", {"a": 1}, "2"))
    rollout = run(env(), Script(Message("assistant", "0", tool_calls=calls)), timeout_seconds=1.0)
    assert (rollout.stop_reason, rollout.reward, log) == ("time_budget", 1.0, [])
    assert texts(rollout, "tool")[1] == "Error: add was not run: the time of the rollout is used up"


def test_a_policy_that_uses_up_the_time_is_unscored_as_ever() -> None:
    class Slow(Script):
        async def complete(self, request: Any) -> Any:
            await asyncio.sleep(0.8)
            return await super().complete(request)

    rollout = run(env(), Slow(call("sleep", seconds=0.05), "0"), timeout_seconds=1.0)
    assert rollout.cause is not None
    assert (rollout.cause.kind, rollout.reward, texts(rollout, "tool")) == ("timeout", None, ["slept"])
    late = run(env(), Slow(call("sleep", seconds=60), "0"), timeout_seconds=1.0)
    assert late.cause is not None
    assert (late.cause.kind, late.reward) == ("timeout", None)


def test_a_slow_tool_still_returns() -> None:
    assert answer_to(call("sleep", seconds=0.05)) == ["slept"]


def test_a_thread_that_is_left_behind_ends_and_others_are_used_again() -> None:
    workers = Workers()
    known = set(threading.enumerate())

    async def main() -> None:
        with pytest.raises(Overrun):
            await workers.call(spin, {}, 0.02)
        (left,) = set(threading.enumerate()) - known or {None}
        for number in range(5):
            assert await workers.call(add, {"a": number}, 5.0) == number + 1
        fresh = set(threading.enumerate()) - known - {left}
        assert len(fresh) == 1
        if left is not None:
            left.join(timeout=10)
            assert not left.is_alive()

    asyncio.run(main())


def test_a_cancelled_call_leaves_its_thread_and_the_next_one_works() -> None:
    workers = Workers()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(workers.call(sleep, {"seconds": 0.2}, 5.0), 0.02)
        assert await workers.call(sleep, {"seconds": 0.01}, 5.0) == "slept"

    asyncio.run(main())


def test_slow_tools_of_several_episodes_run_at_the_same_time() -> None:
    world = env()
    task = world.tasks()[0]

    async def main() -> float:
        started = time.perf_counter()
        episodes = [
            play(world, task, Script(call("sleep", seconds=0.5), "done"), sampling=Sampling(), seed=i) for i in range(8)
        ]
        rollouts = await asyncio.gather(*episodes)
        assert [texts(rollout, "tool") for rollout in rollouts] == [["slept"]] * 8
        return time.perf_counter() - started

    assert asyncio.run(main()) < 3.5  # one after the other would take 4


def test_a_process_with_a_tool_that_never_returns_can_exit() -> None:
    code = """
import asyncio, time
from polygym.environments.workers import Overrun, Workers
def block(): time.sleep(600)
def stubborn():
    while True:
        try:
            while True: pass
        except BaseException: pass
async def main():
    for function in (block, stubborn):
        try: await Workers().call(function, {}, 0.05)
        except Overrun: print("given up", flush=True)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout, done.stderr) == ("given up\ngiven up\n", "")


def test_without_a_timeout_tools_run_in_place() -> None:
    names: list[str] = []

    def where() -> str:
        """Name of the thread."""
        names.append(threading.current_thread().name)
        return names[-1]

    for limit in (None, 5.0):
        run(env(tools=[where], tool_timeout_seconds=limit), Script(call("where"), "done"))
    assert names == ["MainThread", "polygym-tool"]


def test_the_last_turn_may_call_and_is_answered() -> None:
    rollout = run(env(max_turns=1), Script(call("add", a=1)))
    assert (rollout.stop_reason, texts(rollout, "tool")) == ("max_turns", ["2"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tools": []}, "ToolEnv has no tools"),
        ({"tool_timeout_seconds": 0}, "tool_timeout_seconds=0 must be above 0, or None"),
        ({"tool_timeout_seconds": float("nan")}, "tool_timeout_seconds=nan must be above 0"),
        ({"tool_output_characters": 0}, "tool_output_characters=0 must be at least 1"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        env(**arguments)


@pytest.mark.parametrize("parallel", [True, False])
def test_calls_of_one_turn_run_together_where_the_environment_says_so_and_answer_in_order(parallel: bool) -> None:
    order: list[str] = []

    async def wait(name: str, seconds: float) -> str:
        """Wait."""
        await asyncio.sleep(seconds)
        order.append(name)
        return name

    calls = tuple(ToolCall("wait", {"name": n, "seconds": s}, n) for n, s in (("a", 0.1), ("b", 0.05), ("c", 0)))
    environment = env(tools=[wait], parallel_tool_calls=parallel)
    rollout = run(environment, Script(Message("assistant", tool_calls=calls), "done"))
    assert texts(rollout, "tool") == ["a", "b", "c"]
    assert order == (["c", "b", "a"] if parallel else ["a", "b", "c"])
    assert rollout.metrics == {"tool_calls": 3, "tool_errors": 0}
