"""What breaks around one rollout: every time it ends soon, scored or with its cause, and never with a reward of 0."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serve.agent_processes import Answer, Served, open_sessions, post, run_row, silent_endpoint, wire_row
from serve.agent_worlds import bad_call, call


@pytest.fixture(scope="module")
def resources() -> Iterator[Served]:
    with Served("tools") as server:
        yield server


@pytest.fixture(scope="module")
def model() -> Iterator[Served]:
    with Served("scripted_model") as server:
        yield server


def assert_unscored(answer: Answer, *kinds: str, seconds: float) -> dict[str, Any]:
    """The body of a rollout that infrastructure ended."""
    body: dict[str, Any] = answer.body
    assert answer.status == 200
    assert (body["reward"], body["scored"], body["stop_reason"]) == (None, False, "error")
    assert body["cause"]["class"] in kinds
    assert body["cause"]["message"]
    assert body["retry"] is True
    assert body["note"] == "kept"
    assert answer.seconds < seconds
    return body


def test_a_resources_server_that_dies_in_the_middle_leaves_the_rollout_unscored(model: Served) -> None:
    with Served("tools") as resources, Served("agent", resources.url, model.url) as agent:
        row = wire_row([call("add", a=1, b=1)], [call("die")], ["2"], note="kept")
        died = assert_unscored(asyncio.run(post(f"{agent.url}/run", row)), "server", seconds=20)
    assert [message["role"] for message in died["messages"]] == ["user", "assistant", "tool", "assistant"]


def test_a_resources_server_that_is_not_there_leaves_the_rollout_unscored(model: Served) -> None:
    with Served("tools") as resources, Served("agent", resources.url, model.url) as agent:
        resources.kill()
        row = wire_row(["2"], note="kept")
        gone = assert_unscored(asyncio.run(post(f"{agent.url}/run", row)), "server", seconds=20)
    assert gone["turns"] == 0


def test_a_resources_server_killed_while_a_tool_runs_leaves_the_rollout_unscored(model: Served) -> None:
    with Served("tools") as resources, Served("agent", resources.url, model.url) as agent:
        run_row(agent, ["2"])

        async def kill_in_the_middle() -> Answer:
            row = wire_row([call("nap", seconds=30)], ["2"], note="kept")
            running = asyncio.create_task(post(f"{agent.url}/run", row))
            await asyncio.sleep(1)
            resources.kill()
            return await running

        assert_unscored(asyncio.run(kill_in_the_middle()), "server", seconds=20)


def test_a_resources_server_that_comes_back_without_the_session_leaves_the_rollout_unscored(model: Served) -> None:
    with Served("tools") as first, Served("agent", first.url, model.url) as agent:
        run_row(agent, ["2"])

        async def restart_in_the_middle() -> Answer:
            row = wire_row([call("nap", seconds=1.5)], [call("add", a=1, b=1)], ["2"], note="kept")
            running = asyncio.create_task(post(f"{agent.url}/run", row))
            await asyncio.sleep(0.5)
            first.kill()
            first.start_again()
            return await running

        assert_unscored(asyncio.run(restart_in_the_middle()), "server", seconds=20)
        assert run_row(agent, [call("add", a=1, b=1)], ["2"]).body["reward"] == 1.0


def test_a_model_server_killed_in_the_middle_leaves_the_rollout_unscored(resources: Served) -> None:
    with Served("scripted_model") as model, Served("agent", resources.url, model.url, _short(6)) as agent:
        run_row(agent, ["2"])

        async def kill_in_the_middle() -> Answer:
            row = wire_row([call("nap", seconds=1.5)], ["2"], note="kept")
            running = asyncio.create_task(post(f"{agent.url}/run", row))
            await asyncio.sleep(0.7)
            model.kill()
            return await running

        body = assert_unscored(asyncio.run(kill_in_the_middle()), "endpoint", "timeout", seconds=15)
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool"]


def test_a_model_that_takes_the_connection_and_never_answers_ends_the_rollout_in_time(resources: Served) -> None:
    with silent_endpoint() as url, Served("agent", resources.url, url, _short(3)) as agent:
        row = wire_row(["2"], note="kept")
        assert_unscored(asyncio.run(post(f"{agent.url}/run", row)), "timeout", seconds=15)


def test_a_resources_server_that_never_answers_ends_the_rollout_in_time(model: Served) -> None:
    with silent_endpoint() as url, Served("agent", url, model.url, _short(3)) as agent:
        row = wire_row(["2"], note="kept")
        assert_unscored(asyncio.run(post(f"{agent.url}/run", row)), "timeout", "server", seconds=15)


def test_an_overloaded_model_is_waited_for_where_it_asks_for_little(resources: Served) -> None:
    with Served("briefly_limited_model") as model, Served("agent", resources.url, model.url) as agent:
        played = run_row(agent, [call("add", a=1, b=1)], ["2"])
    assert (played.body["reward"], played.body["cause"]) == (1.0, None)


def test_an_overloaded_model_that_asks_for_an_hour_leaves_the_rollout_unscored(resources: Served) -> None:
    with Served("limited_model") as model, Served("agent", resources.url, model.url) as agent:
        row = wire_row(["2"], note="kept")
        body = assert_unscored(asyncio.run(post(f"{agent.url}/run", row)), "rate_limited", seconds=20)
    assert "429" in body["cause"]["message"] or "rate" in body["cause"]["message"]


def test_a_model_server_that_says_nothing_is_asked_twice_more_and_then_given_up(resources: Served) -> None:
    with Served("empty_model") as model, Served("agent", resources.url, model.url, _short(5)) as agent:
        answer = asyncio.run(post(f"{agent.url}/run", wire_row(note="kept")))
    body = answer.body
    assert (body["reward"], body["cause"]["class"], body["retry"]) == (None, "empty_sample", False)
    assert answer.seconds < 3


def test_malformed_arguments_in_one_environment_leave_the_other_alone(model: Served) -> None:
    with (
        Served("tools") as tools,
        Served("neutral_resources") as neutral,
        Served("agent", tools.url, model.url) as first,
        Served("agent", neutral.url, model.url) as second,
    ):
        count = {"start": 1, "expected": 1}
        broken = wire_row(*[[bad_call("add", text)] for text in ("{", "null", '{"a": }', '{"a": 1e999}')], ["2"])
        healthy = [wire_row(["done"], **count) for _ in range(8)]

        async def both() -> list[Answer]:
            return await asyncio.gather(
                *[post(f"{first.url}/run", broken) for _ in range(8)],
                *[post(f"{second.url}/run", row) for row in healthy],
            )

        answers = asyncio.run(both())
    assert [answer.status for answer in answers] == [200] * 16
    assert [answer.body["reward"] for answer in answers] == [1.0] * 16
    assert all(answer.seconds < 20 for answer in answers)


def test_an_agent_that_is_told_to_stop_ends_the_sessions_of_its_rollouts(resources: Served, model: Served) -> None:
    with Served("agent", resources.url, model.url) as agent:
        run_row(agent, ["2"])

        async def stop_in_the_middle() -> float:
            row = wire_row([call("nap", seconds=30)], ["2"])
            running = asyncio.create_task(post(f"{agent.url}/run", row))
            await asyncio.sleep(1)
            agent.process.send_signal(signal.SIGTERM)
            started = time.perf_counter()
            await asyncio.gather(running, return_exceptions=True)
            agent.process.wait(5)
            return time.perf_counter() - started

        assert asyncio.run(stop_in_the_middle()) < 5
    assert open_sessions(resources) == 0


def test_nothing_of_an_expected_failure_is_a_traceback_in_the_log(model: Served, tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    with Served("tools") as resources, Served("agent", resources.url, model.url, log=log) as agent:
        run_row(agent, [call("die")], ["2"])
    assert "Traceback" not in log.read_text()


def _short(seconds: float) -> str:
    return json.dumps({"timeout_seconds": seconds})
