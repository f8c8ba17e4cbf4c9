"""A served policy is the policy: an episode over HTTP has the ids and log-probabilities of the one in process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest

import polygym as pg
from polygym.environments.episode import play
from polygym.policies.base import Policy, Sampling
from polygym.policies.load import load_policy
from polygym.policies.openai import OpenAIPolicy
from polygym.policies.responses_policy import ResponsesPolicy
from polygym.rollout import Rollout
from polygym.serve.model_kinds import build_policy
from polygym.serve.settings import VLLMSettings
from serve.model_servers import served

TASKS = 6
ENVIRONMENT = pg.load_environment("tool_use")
TOKENS = {"return_token_ids": True}


@pytest.fixture(scope="module")
def nano() -> Iterator[str]:
    with served(load_policy("nano", device="cpu")) as url:
        yield url


@pytest.fixture(scope="module")
def in_process() -> list[Rollout]:
    return rollouts(load_policy("nano", device="cpu"))


def rollouts(policy: Policy) -> list[Rollout]:
    """One episode of each task after the other, so that every wave holds one row."""

    async def run() -> list[Rollout]:
        try:
            return [
                await play(ENVIRONMENT, task, policy, sampling=Sampling(max_tokens=64), seed=7)
                for task in ENVIRONMENT.tasks("held_out")[:TASKS]
            ]
        finally:
            await policy.close()

    return asyncio.run(run())


def sampled(episodes: list[Rollout]) -> list[list[tuple[Any, ...]]]:
    return [
        [
            (list(turn.prompt_token_ids or ()), list(turn.token_ids or ()), list(turn.logprobs or ()))
            for turn in rollout.turns
        ]
        for rollout in episodes
    ]


def assert_same(over_http: list[Rollout], in_process: list[Rollout]) -> None:
    assert [rollout.cause for rollout in over_http] == [None] * TASKS
    assert sampled(over_http) == sampled(in_process)
    assert [rollout.reward for rollout in over_http] == [rollout.reward for rollout in in_process]
    assert [rollout.stop_reason for rollout in over_http] == [rollout.stop_reason for rollout in in_process]
    said = [[(message.role, message.content) for message in rollout.messages] for rollout in over_http]
    assert said == [[(message.role, message.content) for message in rollout.messages] for rollout in in_process]


def test_the_episodes_that_are_compared_have_several_turns_and_a_prefix_that_was_sampled(
    in_process: list[Rollout],
) -> None:
    several = [rollout for rollout in in_process if len(rollout.turns) > 1]
    assert len(several) >= 3
    for rollout in several:
        first, second = rollout.turns[:2]
        known = [*(first.prompt_token_ids or ()), *(first.token_ids or ())]
        assert list(second.prompt_token_ids or ())[: len(known)] == known


def test_episodes_over_responses_are_those_in_process(in_process: list[Rollout]) -> None:
    with served(load_policy("nano", device="cpu"), return_token_ids=True) as url:
        assert_same(rollouts(ResponsesPolicy(url)), in_process)


def test_episodes_over_chat_completions_are_those_in_process(nano: str, in_process: list[Rollout]) -> None:
    policy = OpenAIPolicy("nano", f"{nano}/v1", extra_body=TOKENS, echo_token_ids=True)
    assert_same(rollouts(policy), in_process)


def test_a_vllm_model_server_in_front_of_another_server_loses_no_token(nano: str, in_process: list[Rollout]) -> None:
    settings = VLLMSettings(base_url=f"{nano}/v1", model="nano")
    with served(build_policy(settings), return_token_ids=True) as url:
        assert_same(rollouts(ResponsesPolicy(url)), in_process)


def test_token_ids_come_only_where_they_are_asked_for(nano: str) -> None:
    silent, telling = (
        rollouts(OpenAIPolicy("nano", f"{nano}/v1", extra_body=extra))[0].turns[0] for extra in ({}, TOKENS)
    )
    assert (silent.token_ids, silent.logprobs) == (None, None)
    assert telling.token_ids and telling.logprobs


@pytest.mark.parametrize("wrong", [10**6, -1, 10**30])
def test_ids_that_are_no_tokens_are_refused_and_hurt_nobody_else(nano: str, wrong: int) -> None:
    fields = {"prompt_token_ids": [1, 2], "generation_token_ids": [wrong], "generation_log_probs": [-1.0]}
    good = [{"role": "user", "content": "What is 2 + 3?"}]
    bad = [*good, {"role": "assistant", "content": "5", **fields}, {"role": "user", "content": "Sure?"}]

    async def run() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{nano}/v1", api_key="none", max_retries=0) as client:
            asked = [client.chat.completions.create(model="nano", messages=rows) for rows in (good, bad, good)]
            return await asyncio.gather(*asked, return_exceptions=True)

    first, refused, second = asyncio.run(run())
    assert isinstance(refused, openai.BadRequestError)
    assert f"token id {wrong} of an earlier turn is none of nano's 0 to" in str(refused)
    assert first.choices[0].message and second.choices[0].message
