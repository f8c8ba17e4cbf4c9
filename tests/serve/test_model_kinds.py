"""What stands behind each kind of model server: demonstrations, endpoints that fail, endpoints that tell token ids."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

import polygym as pg
from policies.loopback import Answer, Loopback, busy, completion, dead_url, ok, slow, status
from polygym.environments.episode import play
from polygym.environments.wire_rows import row_of, task_of
from polygym.errors import PolicyError, UsageError
from polygym.messages import Message
from polygym.policies.base import Policy, Request, Sampling
from polygym.policies.responses_policy import ResponsesPolicy
from polygym.rollout import Rollout
from polygym.serve.model_kinds import build_policy
from polygym.serve.oracle import RowOracle
from polygym.serve.settings import LocalSettings, OpenAISettings, OracleSettings, VLLMSettings
from serve.model_servers import CHAT_TOOL, served

KEY = "sk-secret-0123456789"


@contextmanager
def in_front_of(*answers: Answer, **settings: Any) -> Iterator[tuple[str, Loopback]]:
    """An `openai_model` server, and the endpoint behind it."""
    with Loopback(answers) as endpoint:
        given = {"openai_base_url": endpoint.url, "openai_model": "big", "openai_api_key": KEY, **settings}
        with served(build_policy(OpenAISettings(**given))) as url:
            yield url, endpoint


def episode(url: str, **options: Any) -> Rollout:
    """One rollout with the model server at `url`, and how long it took."""
    environment = pg.SingleTurnEnv([{"question": "2+2?", "answer": "4"}], rubric=pg.MathRubric(), held_out=0.0)

    async def run() -> Rollout:
        policy = ResponsesPolicy(url, **options)
        try:
            return await play(environment, environment.tasks()[0], policy, sampling=Sampling(), seed=1)
        finally:
            await policy.close()

    return asyncio.run(run())


# -------------------------------------------------------------------------------------------------- endpoints that fail


def test_an_endpoint_answers_through_the_server() -> None:
    with in_front_of(ok("4")) as (url, endpoint):
        rollout = episode(url)
    assert (rollout.reward, rollout.cause) == (1.0, None)
    [request] = endpoint.requests
    assert request.headers["Authorization"] == f"Bearer {KEY}"
    assert request.body["model"] == "big"


def test_an_endpoint_that_accepts_and_never_answers_ends_the_rollout_unscored_and_in_time() -> None:
    started = time.monotonic()
    with in_front_of(slow(30), timeout_seconds=0.3) as (url, endpoint):
        rollout = episode(url, retries=1, deadline_seconds=5)
        assert time.monotonic() - started < 4
        assert len(endpoint.requests) == 2
    assert rollout.reward is None
    assert rollout.cause is not None
    assert "no answer within 0.3 s" in rollout.cause.message


def test_a_429_keeps_its_wait_on_the_way_and_passes() -> None:
    with in_front_of(busy("1"), ok("4")) as (url, endpoint):
        rollout = episode(url)
    assert rollout.reward == 1.0
    first, second = endpoint.requests
    assert second.at - first.at >= 1.0


def test_a_429_that_asks_for_more_time_than_there_is_ends_the_rollout_at_once() -> None:
    started = time.monotonic()
    with in_front_of(busy("3600")) as (url, _):
        rollout = episode(url, deadline_seconds=20)
    assert time.monotonic() - started < 3
    assert rollout.reward is None
    assert rollout.cause is not None
    assert rollout.cause.kind == "rate_limited"
    assert "3600 s" in rollout.cause.message


def test_an_endpoint_that_is_dead_ends_the_rollout_unscored_and_does_not_hang() -> None:
    started = time.monotonic()
    settings = OpenAISettings(openai_base_url=dead_url(), openai_model="big")
    with served(build_policy(settings)) as url:
        rollout = episode(url, retries=1)
    assert time.monotonic() - started < 4
    assert rollout.reward is None
    assert rollout.cause is not None
    assert rollout.cause.kind == "endpoint"


def test_a_key_that_is_refused_is_not_tried_again_and_not_shown() -> None:
    with in_front_of(status(401, f"bad key {KEY}")) as (url, endpoint):
        rollout = episode(url)
    assert len(endpoint.requests) == 1
    assert rollout.cause is not None
    assert rollout.cause.kind == "refused"
    assert "the setting api_key, which is set" in rollout.cause.message
    assert KEY not in rollout.cause.message


# ---------------------------------------------------------------------------------------------- fields that go further


def test_fields_that_are_not_ours_reach_the_endpoint_and_responses_fields_in_the_form_of_chat() -> None:
    with in_front_of(ok("4")) as (url, endpoint), openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        messages: Any = [{"role": "user", "content": "?"}]
        client.chat.completions.create(
            model="any", messages=messages, tools=[CHAT_TOOL], tool_choice="required", extra_body={"top_k": 5}
        )
        client.responses.create(
            model="any",
            input="?",
            reasoning={"effort": "low"},
            text={"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}, "verbosity": "low"},
            tool_choice={"type": "function", "name": "get_weather"},
            truncation="auto",
        )
        client.responses.create(model="any", input="?", text={"verbosity": "high"})
        client.chat.completions.create(model="any", messages=messages, max_completion_tokens=None, max_tokens=7)
    chat, response, wordy, short = (request.body for request in endpoint.requests)
    assert (response["verbosity"], wordy["verbosity"]) == ("low", "high")
    assert short["max_tokens"] == 7
    assert (chat["tool_choice"], chat["top_k"]) == ("required", 5)
    assert response["reasoning_effort"] == "low"
    assert response["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "a", "schema": {"type": "object"}},
    }
    assert response["tool_choice"] == {"type": "function", "function": {"name": "get_weather"}}
    assert not {"reasoning", "text", "truncation", "model_", "input"} & response.keys()


def test_vllm_is_asked_for_token_ids_and_log_probabilities_and_they_are_returned() -> None:
    entries = [{"token": "token_id:3", "logprob": -0.5}, {"token": "token_id:4", "logprob": -0.25}]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "4"},
        "finish_reason": "stop",
        "logprobs": {"content": entries},
        "token_ids": [3, 4],
    }
    with Loopback([completion({}, choices=[choice], prompt_token_ids=[1, 2])]) as endpoint:
        policy = build_policy(VLLMSettings(base_url=endpoint.url, model="big"))
        with served(policy, return_token_ids=True) as url:
            rollout = episode(url)
    [request] = endpoint.requests
    assert (request.body["logprobs"], request.body["return_token_ids"]) == (True, True)
    [turn] = rollout.turns
    assert (turn.prompt_token_ids, turn.token_ids, turn.logprobs) == ((1, 2), (3, 4), (-0.5, -0.25))


def test_several_addresses_of_vllm_are_refused() -> None:
    with pytest.raises(UsageError, match="lists 2 addresses"):
        build_policy(VLLMSettings(base_url=["http://a:1/v1", "http://b:1/v1"], model="big"))


def test_a_local_model_is_what_load_policy_knows() -> None:
    policy = build_policy(LocalSettings(model="nano"))
    assert policy.name == "nano"


# ----------------------------------------------------------------------------------------------------------- the oracle


def ask_oracle(oracle: Policy, request: Request) -> Message:
    return asyncio.run(oracle.complete(request)).message


def test_the_oracle_plays_the_demonstration_of_the_row_that_it_is_sent() -> None:
    environment = pg.load_environment("tool_use")
    with served(build_policy(OracleSettings())) as url:

        async def run() -> list[Rollout]:
            policy = ResponsesPolicy(url)
            try:
                return [
                    await play(environment, task, policy, sampling=Sampling(), seed=1)
                    for task in environment.tasks("held_out")[:5]
                ]
            finally:
                await policy.close()

        rollouts = asyncio.run(run())
    assert [(rollout.cause, rollout.reward) for rollout in rollouts] == [(None, 1.0)] * 5


def test_the_oracle_says_what_it_lacks_and_is_not_asked_again() -> None:
    with served(build_policy(OracleSettings())) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        with pytest.raises(openai.UnprocessableEntityError, match="without a task"):
            client.responses.create(model="oracle", input="2+2?")
        task = {"environment": "maths", "row": {"responses_create_params": {"input": "?"}}}
        with pytest.raises(openai.BadRequestError, match="did you mean 'math_rl'"):
            client.responses.create(model="oracle", input="2+2?", extra_body={"task": task})
        task["environment"] = "tool_use"
        with pytest.raises(openai.UnprocessableEntityError, match="demonstrate of 'tool_use' raised KeyError"):
            client.responses.create(model="oracle", input="2+2?", extra_body={"task": task})


@pytest.mark.parametrize("name", ["os:system", "subprocess:run", "./somewhere", "/tmp"])
def test_the_oracle_imports_nothing_that_a_request_names(name: str) -> None:
    environment = pg.load_environment("tool_use")
    task = environment.tasks()[0]
    named = task_of(row_of(environment, task), name)
    request = Request(list(named.prompt), (), Sampling(), 1, task=named)
    with pytest.raises(UsageError, match="unknown to the oracle"):
        ask_oracle(RowOracle(), request)


def test_no_field_of_a_row_keeps_the_oracle_from_answering() -> None:
    environment = pg.load_environment("tool_use")
    row = row_of(environment, environment.tasks()[0])
    extra = {"task": {"environment": "tool_use", "row": row}, "top_k": 5}
    with served(RowOracle()) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        params = row["responses_create_params"]
        answer = client.responses.create(
            model="any", input=params["input"], tools=params["tools"], tool_choice="required", extra_body=extra
        )
    assert answer.output[-1].type == "function_call"


def test_rows_with_one_id_have_their_own_demonstrations() -> None:
    environment = pg.load_environment("tool_use")
    first, second = (row_of(environment, task) for task in environment.tasks()[:2])
    oracle = RowOracle({"renamed": ("tool_use", {})})
    answers = []
    for row in (first, second):
        task = task_of({**row, "id": 0}, "renamed")
        answers.append(ask_oracle(oracle, Request(list(task.prompt), (), Sampling(), 1, task=task)))
    assert answers[0] != answers[1]


def test_the_oracle_of_an_episode_that_goes_on_says_so() -> None:
    environment = pg.load_environment("tool_use")
    task = task_of(row_of(environment, environment.tasks()[0]), "tool_use")
    long = [*task.prompt, *([Message("assistant", "Hm.")] * 9)]
    with pytest.raises(PolicyError, match="turn 9 was asked for"):
        ask_oracle(RowOracle(), Request(long, (), Sampling(), 1, task=task))
