"""The agent between servers that run as processes of their own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from serve.agent_processes import Answer, Served, open_sessions, post, run_row, wire_row
from serve.agent_worlds import bad_call, call, script, think


@pytest.fixture(scope="module")
def resources() -> Iterator[Served]:
    with Served("tools") as server:
        yield server


@pytest.fixture(scope="module")
def model() -> Iterator[Served]:
    with Served("scripted_model") as server:
        yield server


@pytest.fixture(scope="module")
def agent(resources: Served, model: Served) -> Iterator[Served]:
    with Served("agent", resources.url, model.url) as server:
        yield server


def outputs(answer: Answer) -> list[str]:
    """What the calls of a rollout returned."""
    return [item["output"] for item in answer.body["response"]["output"] if item["type"] == "function_call_output"]


def test_a_row_comes_back_with_its_own_keys_the_response_and_the_reward(agent: Served) -> None:
    played = run_row(agent, [call("add", a=1, b=1)], ["2"], note="kept", agent_ref={"name": "agent"})
    body = played.body
    assert (played.status, body["reward"], body["cause"], body["stop_reason"]) == (200, 1.0, None, "answered")
    assert (body["note"], body["agent_ref"], body["answer"]) == ("kept", {"name": "agent"}, "2")
    assert (body["environment"], body["task_id"], body["turns"], body["scored"]) == ("tools", 7, 2, True)
    assert body["rewards"] == {"right_sum": 1.0}
    assert body["metrics"]["sums_made"] == 1
    assert [item["type"] for item in body["response"]["output"]] == ["function_call", "function_call_output", "message"]
    assert outputs(played) == ["2"]
    assert body["usage"] == {"prompt_tokens": 20, "completion_tokens": 10}
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert "retry" not in body


def test_what_is_wrong_with_a_call_goes_back_as_text(agent: Served) -> None:
    played = run_row(
        agent,
        [bad_call("add", '{"a": 1,')],
        [bad_call("add", '{"a": "one", "b": 1}')],
        [bad_call("add", "[1, 1]")],
        [call("ad", a=1, b=1)],
        [call("fail")],
        ["2"],
    )
    assert (played.body["reward"], played.body["turns"]) == (1.0, 6)
    unfinished, wrong_type, no_object, unknown, failed = outputs(played)
    assert "not run" in unfinished or "JSON" in unfinished
    assert "a" in wrong_type and "integer" in wrong_type
    assert "object" in no_object
    assert "did you mean 'add'" in unknown
    assert "the tool is out of order" in failed


@pytest.mark.parametrize(
    "name",
    ["verify", "seed_session", "close_session", "aggregate_metrics", "env_response", "metrics", "../verify", "", "/"],
)
def test_an_endpoint_that_is_no_tool_cannot_be_called(agent: Served, name: str) -> None:
    played = run_row(agent, [call("add", a=1, b=1)], [call(name)], [call("add", a=1, b=1)], ["2"])
    assert (played.body["reward"], played.body["metrics"]["sums_made"]) == (1.0, 2)
    assert outputs(played)[1].startswith("Error")


def test_a_control_endpoint_stays_out_of_reach_when_a_row_lists_it_as_a_tool(agent: Served) -> None:
    row = wire_row([call("verify")], ["2"])
    row["responses_create_params"]["tools"].append(
        {"type": "function", "name": "verify", "description": "", "parameters": {"type": "object", "properties": {}}}
    )
    answer = asyncio.run(post(f"{agent.url}/run", row))
    if answer.status == 200:
        assert outputs(answer)[0].startswith("Error")
        assert answer.body["reward"] == 1.0
    else:
        assert answer.status == 422


def test_a_tool_that_fails_keeps_its_session(agent: Served) -> None:
    played = run_row(agent, [call("add", a=1, b=1)], [call("fail")], [call("add", a=1, b=1)], ["2"])
    assert (played.body["reward"], played.body["metrics"]["sums_made"]) == (1.0, 2)


@pytest.mark.parametrize("turn", [[think("I wonder")], []])
def test_reasoning_alone_and_sampled_nothing_end_the_rollout(agent: Served, turn: list[Any]) -> None:
    played = run_row(agent, turn)
    assert (played.body["reward"], played.body["turns"], played.body["stop_reason"]) == (0.0, 1, "answered")


def test_ten_megabytes_of_output_are_cut(agent: Served) -> None:
    played = run_row(agent, [call("flood")], ["2"])
    assert played.body["reward"] == 1.0
    assert 20_000 <= len(outputs(played)[0]) < 20_100


def test_calls_of_one_turn_are_answered_in_their_order(agent: Served) -> None:
    played = run_row(agent, [call("add", a=1, b=1), call("fail"), call("add", a=2, b=2)], ["2"])
    assert [text[:5] for text in outputs(played)] == ["2", "Error", "4"]


def test_calls_of_one_turn_run_at_the_same_time_where_the_environment_says_so(model: Served) -> None:
    with Served("parallel_tools") as resources, Served("agent", resources.url, model.url) as agent:
        run_row(agent, ["2"])
        played = run_row(agent, [call("nap", seconds=0.6), call("add", a=1, b=1), call("nap", seconds=0.6)], ["2"])
    assert outputs(played) == ["rested", "2", "rested"]
    assert 0.6 < played.body["seconds"]["total"] < 1.1
    assert played.body["reward"] == 1.0


def test_a_rollout_is_bounded_by_steps_and_by_tokens(resources: Served, model: Served) -> None:
    settings = json.dumps({"max_steps": 5})
    with Served("agent", resources.url, model.url, settings) as agent:
        steps = run_row(agent, [call("add", a=1, b=1)]).body
    assert (steps["turns"], steps["stop_reason"], steps["truncated"], steps["reward"]) == (5, "max_turns", False, 0.0)
    settings = json.dumps({"max_total_tokens": 12})
    with Served("agent", resources.url, model.url, settings) as agent:
        tokens = run_row(agent, [call("add", a=1, b=1)]).body
    assert (tokens["turns"], tokens["stop_reason"], tokens["truncated"]) == (3, "token_budget", True)
    assert tokens["reward"] == 0.0


@pytest.mark.parametrize(
    "body, words",
    [
        ([], "object"),
        ({"answer": "2"}, "responses_create_params"),
        ({"responses_create_params": {}}, "input"),
        ({"responses_create_params": {"input": [{"role": "wizard", "content": "?"}]}}, "wizard"),
        ({"responses_create_params": {"input": "1 + 1?", "temperature": "hot"}}, "temperature"),
        ({"responses_create_params": {"input": "1 + 1?", "tools": "add"}}, "tools"),
    ],
)
def test_a_malformed_row_is_refused_with_what_is_wrong(agent: Served, body: Any, words: str) -> None:
    answer = asyncio.run(post(f"{agent.url}/run", body))
    assert answer.status == 422
    assert words in answer.body["error"]["message"]
    assert asyncio.run(post(f"{agent.url}/run", b"{")).status == 400


def test_responses_alone_runs_the_loop_in_the_callers_session(agent: Served, resources: Served) -> None:
    row = wire_row([call("add", a=1, b=1)], ["2"])

    async def by_hand() -> tuple[Answer, Answer]:
        seeded = await post(f"{resources.url}/seed_session", row)
        answered = await post(f"{agent.url}/v1/responses", row["responses_create_params"], cookies=seeded.cookies)
        cookies = {**seeded.cookies, **answered.cookies}
        return answered, await post(f"{resources.url}/verify", {**row, "response": answered.body}, cookies=cookies)

    answered, verified = asyncio.run(by_hand())
    assert answered.status == 200
    assert [item["type"] for item in answered.body["output"]] == ["function_call", "function_call_output", "message"]
    assert (verified.body["reward"], verified.body["metrics"]["sums_made"]) == (1.0, 1)


def test_metrics_of_many_rollouts_are_asked_of_the_resources_server(agent: Served) -> None:
    rows = [run_row(agent, [reply]).body for reply in ("2", "3")]
    answer = asyncio.run(post(f"{agent.url}/aggregate_metrics", {"verify_responses": rows}))
    assert answer.status == 200
    assert answer.body["agent_metrics"]["mean/reward"] == 0.5


def test_sessions_end_with_their_rollouts(agent: Served, resources: Served) -> None:
    run_row(agent, [call("add", a=1, b=1)], ["2"])
    assert open_sessions(resources) == 0


def test_a_caller_that_hangs_up_ends_its_rollout(agent: Served, resources: Served) -> None:
    row = wire_row([call("nap", seconds=20)], ["2"])

    async def impatient() -> None:
        with pytest.raises(TimeoutError):
            await post(f"{agent.url}/run", row, seconds=1.0)

    asyncio.run(impatient())
    until = time.monotonic() + 10
    while open_sessions(resources) and time.monotonic() < until:
        time.sleep(0.1)
    assert open_sessions(resources) == 0


def test_a_server_written_for_the_published_wire_alone_is_played(model: Served) -> None:
    parameters = {"type": "object", "properties": {"by": {"type": "integer"}}, "required": ["by"]}
    tools = [{"type": "function", "name": name, "description": "", "parameters": parameters, "strict": True}
             for name in ("increment", "explode", "flood")]  # fmt: skip
    turns = [
        [call("increment", by=2)],
        [call("explode", by=1), call("increment", by=1)],
        [bad_call("increment", '{"by": "x"}')],
        [call("flood", by=1)],
        ["counted"],
    ]
    row = {"responses_create_params": {"input": script(*turns), "tools": tools}, "start": 4, "expected": 7}
    with Served("neutral_resources") as resources, Served("agent", resources.url, model.url) as agent:
        played = asyncio.run(post(f"{agent.url}/run", row))
        wrong = asyncio.run(post(f"{agent.url}/run", {**row, "expected": 8}))
        lax = [{**tool, "parameters": {"type": "object", "properties": {"by": {}}}} for tool in tools]
        checked = asyncio.run(post(f"{agent.url}/run", {**row, "responses_create_params": {
            "input": script(*turns), "tools": lax}}))  # fmt: skip
        metrics = asyncio.run(post(f"{agent.url}/aggregate_metrics", {"verify_responses": [played.body]}))
    assert (played.body["reward"], played.body["count"], played.body["said"]) == (1.0, 7, 1)
    assert (played.body["rewards"], played.body["cause"], wrong.body["reward"]) == ({"reward": 1.0}, None, 0.0)
    first, exploded, third, refused, flood = outputs(played)
    assert (json.loads(first), json.loads(third)) == ({"count": 6}, {"count": 7})
    assert "Internal Server Error" in exploded
    assert "by" in refused
    assert 20_000 <= len(flood) < 20_100
    assert "int_type" in outputs(checked)[3]  # the server's own words, where the row's schema lets the call pass
    assert metrics.body["agent_metrics"] == {"rows": 1}
