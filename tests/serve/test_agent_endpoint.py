"""A stack whose model is somebody else's endpoint: what that endpoint does, as the agent tells it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from policies.loopback import Answer, Loopback, as_json, completion, ok, status, tool_calls
from polygym.environments import Environment, SingleTurnEnv, ToolEnv
from polygym.environments.wire_rows import row_of
from polygym.policies.openai import OpenAIPolicy
from polygym.rewards.rubric import Rubric
from polygym.serve.model import ModelServer
from polygym.serve.model_kinds import RETRIES
from serve.test_agent_rollouts import run, stack

GOOD = "the good question"


def exact(completion: str, answer: str) -> float:
    return float(completion == answer)


def questions() -> SingleTurnEnv:
    return SingleTurnEnv([{"question": "q", "answer": "4"}], name="questions", rubric=Rubric([exact]))


@contextmanager
def agent_before(
    answers: Callable[[dict[str, Any]], Answer], environment: Environment | None = None
) -> Iterator[tuple[str, Loopback]]:
    """The address of an agent whose model server asks an endpoint, and that endpoint."""
    with Loopback(answers) as endpoint:
        policy = OpenAIPolicy("m", endpoint.url, retries=RETRIES)
        with stack(environment or questions(), ModelServer(policy, name="policy_model").app()) as url:
            yield url, endpoint


def rows(count: int, question: str) -> list[dict[str, Any]]:
    environment = questions()
    row = dict(row_of(environment, environment.tasks()[0]))
    params = {**row["responses_create_params"], "input": question}
    return [{**row, "id": index, "responses_create_params": params} for index in range(count)]


@pytest.mark.parametrize(
    "bad",
    [completion({"content": ""}, "content_filter"), status(400, "Invalid prompt: content_policy_violation")],
    ids=["finish", "status"],
)
def test_refusals_leave_the_rows_after_them_alone(bad: Answer) -> None:
    def answers(body: dict[str, Any]) -> Answer:
        return ok("4") if GOOD in str(body["messages"]) else bad

    with agent_before(answers) as (url, endpoint):
        refused = [answer.body for row in rows(12, "bad") for answer in run(url, [row])]
        asked = len(endpoint.requests)
        good = [answer.body for answer in run(url, rows(10, GOOD))]
    assert asked == 12
    assert [(body["reward"], body["cause"]["class"], body["retry"]) for body in refused] == [
        (None, "refused", False)
    ] * 12
    assert [body["cause"] for body in good] == [None] * 10
    words = refused[0]["cause"]["message"]
    assert words.startswith("turn 0: model server policy_model at http://127.0.0.1:")
    assert f"model 'm' at {endpoint.url}: content_filter, " in words
    assert words.count("content_filter,") == 1


def test_an_endpoint_that_says_nothing_is_asked_three_times_and_the_rollout_unscored() -> None:
    with agent_before(lambda body: completion({"content": None})) as (url, endpoint):
        bodies = [answer.body for answer in run(url, rows(10, "anything"))]
    for body in bodies:
        assert (body["reward"], body["cause"]["class"], body["retry"]) == (None, "empty_sample", False)
    assert len(endpoint.requests) == 30


def test_a_dead_endpoint_is_found_dead_once_and_rollouts_that_did_not_ask_it_say_so() -> None:
    with agent_before(lambda body: status(503)) as (url, endpoint):
        causes = [answer.body["cause"] for answer in run(url, rows(16, "anything"))]
        asked = len(endpoint.requests)
        [late] = run(url, rows(1, "anything"))
        assert len(endpoint.requests) == asked
    assert {cause["class"] for cause in causes} == {"endpoint"}
    assert late.body["cause"]["asked"] is False
    assert "asked" not in causes[0]
    assert late.body["cause"]["message"].endswith(
        "not tried, as the requests before it found: server_error, status 503"
    )
    assert late.body["retry"] is True
    assert late.body["cause"]["message"].count("server_error") == 1


def test_what_an_endpoint_refuses_stands_in_the_logs_of_both_servers(caplog: pytest.LogCaptureFixture) -> None:
    busy = as_json({"error": {"message": "too many requests"}}, 429, Retry_After="0.1")
    answers = iter([busy, ok("4")])
    with (
        caplog.at_level(logging.WARNING),
        agent_before(lambda body: next(answers)) as (url, _),
    ):
        run(url, rows(1, "anything"))
    told = {record.name: record.getMessage() for record in caplog.records}
    assert "rate_limited, status 429: too many requests" in told["polygym.serve.model"]
    assert "too many requests" in told["polygym.serve.agent"] and "tried again in" in told["polygym.serve.agent"]


def test_a_rollout_that_runs_out_of_the_time_its_row_gives_tells_what_the_endpoint_said() -> None:
    busy = as_json({"error": {"message": "too many requests"}}, 429, Retry_After="30")
    with agent_before(lambda body: busy) as (url, _):
        [answer] = run(url, [{**row, "_ng_timeout": 1.5} for row in rows(1, "anything")])
    assert (answer.body["reward"], answer.body["cause"]["class"], answer.seconds < 5) == (None, "timeout", True)
    assert "longer than 1.5 s; model server policy_model at" in answer.body["cause"]["message"]
    assert "rate_limited, status 429: too many requests" in answer.body["cause"]["message"]
    assert "_ng_timeout" not in answer.body


@pytest.mark.parametrize("calls", [1, 2])
def test_a_tool_that_never_returns_is_told_to_the_policy_within_the_time_its_row_gives(calls: int) -> None:
    async def wait() -> None:
        """Never return."""
        await asyncio.sleep(60)

    environment = ToolEnv([{"question": "q", "answer": ""}], name="waits", tools=[wait], rubric=Rubric([exact]))
    row = dict(row_of(environment, environment.tasks()[0]))
    with agent_before(lambda body: tool_calls(*[("wait", "{}")] * calls), environment) as (url, endpoint):
        [answer] = run(url, [{**row, "_ng_timeout": 2.0}])
    results = [message["content"] for message in answer.body["messages"] if message["role"] == "tool"]
    assert (answer.body["reward"], answer.body["cause"], answer.body["stop_reason"]) == (1.0, None, "time_budget")
    assert results[0].endswith("and was given up; the time of the rollout is used up")
    assert results[1:] == ["Error: wait was not run: the time of the rollout is used up"] * (calls - 1)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("seconds", [0, -1, "9", True])
def test_time_that_is_no_number_above_0_is_refused(seconds: object) -> None:
    with agent_before(lambda body: ok("4")) as (url, _):
        [answer] = run(url, [{**row, "_ng_timeout": seconds} for row in rows(1, "anything")])
    assert answer.status in (400, 422)
    assert "_ng_timeout" in str(answer.body)
