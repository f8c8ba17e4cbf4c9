"""The model server beyond what OpenAI's client asks: our policies, odd bodies, clients that leave."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from polygym.errors import PolicyError
from polygym.messages import Message, ToolCall
from polygym.policies.base import Policy, Request, Sampling
from polygym.policies.openai import OpenAIPolicy
from polygym.policies.responses_policy import ResponsesPolicy
from polygym.policies.wire_input import read_tools
from polygym.rollout import Turn
from serve.model_servers import CHAT_TOOL, RESPONSES_TOOL, Scripted, called, said, served

QUESTION = Request([Message("user", "2+2?")], (), Sampling(), 7)


def complete(policy: Policy, request: Request = QUESTION) -> Turn:
    async def run() -> Turn:
        try:
            return await policy.complete(request)
        finally:
            await policy.close()

    return asyncio.run(run())


def send(url: str, body: Any, method: str = "POST") -> tuple[int, Any]:
    """Status and JSON."""
    data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def both(url: str) -> list[Policy]:
    """Our two clients of a model server."""
    return [ResponsesPolicy(url, retries=0), OpenAIPolicy("any", f"{url}/v1", retries=0)]


def test_liveness_says_what_the_server_is() -> None:
    with served(Scripted(lambda request: said("4"))) as url:
        status, alive = send(url, None, "GET")
        assert status == 200
        assert (alive["polygym"], alive["name"], alive["kind"]) == (True, "policy_model", "responses_api_models")
        assert (alive["wants_task"], alive["model"]) == (False, "scripted")


def test_our_own_policies_are_answered_as_in_process() -> None:
    policy = Scripted(lambda request: said("4", reasoning="2+2"))
    with served(policy) as url:
        for client in both(url):
            turn = complete(client)
            assert turn.message == Message("assistant", "4", reasoning="2+2")
            assert (turn.usage.prompt_tokens, turn.usage.completion_tokens) == (11, 3)
    assert [request.seed for request in policy.requests] == [7, 7]


def test_a_request_without_a_seed_draws_one_and_the_servers_sampling_holds_where_it_is_silent() -> None:
    policy = Scripted(lambda request: said("4"))
    with served(policy, sampling=Sampling(max_tokens=9, temperature=0.3)) as url:
        for _ in range(2):
            assert send(f"{url}/v1/responses", {"input": "2+2?"})[0] == 200
    first, second = policy.requests
    assert first.seed != second.seed
    assert (first.sampling.max_tokens, first.sampling.temperature) == (9, 0.3)


@pytest.mark.parametrize("code", ["orphan_close", "unterminated", "invalid_json", "unknown_tool"])
def test_a_bad_call_keeps_what_is_wrong_with_it(code: str) -> None:
    call = ToolCall("" if code == "orphan_close" else "now", error=code, raw='{"name": "now", "argu')
    request = Request([Message("user", "?")], read_tools([CHAT_TOOL]), Sampling(), 7)
    with served(Scripted(lambda request: Turn(Message("assistant", "", (call,))))) as url:
        for client in both(url):
            [back] = complete(client, request).message.tool_calls
            assert (back.name, back.error, back.raw, back.arguments) == (call.name, code, call.raw, {})


def test_token_fields_of_the_last_answer_come_to_the_policy_as_its_previous_turn() -> None:
    fields = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
    policy = Scripted(lambda request: said("4"))
    with served(policy) as url:
        answer = {"role": "assistant", "content": "Hm.", **fields}
        messages = [{"role": "user", "content": "2+2?"}, answer, {"role": "user", "content": "Well?"}]
        assert send(f"{url}/v1/chat/completions", {"messages": messages})[0] == 200
        assert send(f"{url}/v1/responses", {"input": messages})[0] == 200
        later = [*messages, {"role": "assistant", "content": "Four."}, {"role": "user", "content": "Sure?"}]
        assert send(f"{url}/v1/chat/completions", {"messages": later})[0] == 200
    for request in policy.requests[:2]:
        assert request.previous is not None
        assert request.previous.message.content == "Hm."
        assert (request.previous.prompt_token_ids, request.previous.token_ids) == ([1, 2], [3])
    assert policy.requests[2].previous is None


@pytest.mark.parametrize("given", [{"return_token_ids": True}, {"return_token_id_information": True}])
def test_token_fields_are_returned_in_the_forms_of_vllm_and_nemo_gym(given: dict[str, bool]) -> None:
    turn = called(city="Oslo")
    turn.prompt_token_ids, turn.token_ids, turn.logprobs = [1, 2], [3, 4], [-0.5, -0.25]
    fields = {"prompt_token_ids": [1, 2], "generation_token_ids": [3, 4], "generation_log_probs": [-0.5, -0.25]}
    with served(Scripted(lambda request: turn)) as url:
        body = {"messages": [{"role": "user", "content": "?"}], "tools": [CHAT_TOOL], "logprobs": True, **given}
        _, chat = send(f"{url}/v1/chat/completions", body)
        _, response = send(f"{url}/v1/responses", {"input": "?", "tools": [RESPONSES_TOOL], **given})
        _, silent = send(f"{url}/v1/responses", {"input": "?", "tools": [RESPONSES_TOOL]})
    [choice] = chat["choices"]
    assert {name: choice["message"][name] for name in fields} == fields
    assert (chat["prompt_token_ids"], choice["token_ids"]) == ([1, 2], [3, 4])
    assert [(entry["token"], entry["logprob"]) for entry in choice["logprobs"]["content"]] == [
        ("token_id:3", -0.5),
        ("token_id:4", -0.25),
    ]
    assert {name: response["output"][-1][name] for name in fields} == fields
    assert not fields.keys() & silent["output"][-1].keys()


class Lettered(Scripted):
    """Knows its tokens: those of an alphabet, and half of a character."""

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        return ["\ufffd" if token == 9 else "abc"[token] for token in ids]


def test_log_probabilities_stand_beside_the_text_of_each_token_and_ids_only_where_they_are_asked_for() -> None:
    turn = said("ab")
    turn.prompt_token_ids, turn.token_ids, turn.logprobs = [1, 2], [0, 9], [-0.5, -0.25]
    chat = {"messages": [{"role": "user", "content": "?"}], "logprobs": True}
    with served(Lettered(lambda request: turn)) as url:
        _, texts = send(f"{url}/v1/chat/completions", chat)
        _, ids = send(f"{url}/v1/chat/completions", {**chat, "return_tokens_as_token_ids": True})
        _, response = send(f"{url}/v1/responses", {"input": "?", "include": ["message.output_text.logprobs"]})
        _, silent = send(f"{url}/v1/responses", {"input": "?"})
    told = [
        {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []},
        {"token": "\ufffd", "logprob": -0.25, "bytes": None, "top_logprobs": []},
    ]
    assert texts["choices"][0]["logprobs"]["content"] == told
    assert response["output"][0]["content"][0]["logprobs"] == told
    assert "logprobs" not in silent["output"][0]["content"][0]
    assert [entry["token"] for entry in ids["choices"][0]["logprobs"]["content"]] == ["token_id:0", "token_id:9"]


def test_a_server_alone_answers_to_its_names_and_a_server_of_a_stack_to_any() -> None:
    policy = Scripted(lambda request: said("4"))
    with served(policy, name="nano", answers_to=["policy_model"]) as url:
        for name in ("nano", "scripted", "policy_model", "", None):
            assert send(f"{url}/v1/responses", {"input": "?", "model": name})[0] == 200
        for path, body in (("responses", {"input": "?"}), ("chat/completions", {"messages": []})):
            status, answer = send(f"{url}/v1/{path}", {**body, "model": "gpt-4"})
            assert (status, answer["error"]["code"]) == (404, "model_not_found")
            assert answer["error"]["message"] == "the model 'gpt-4' does not exist; this server has 'scripted'"
        assert send(f"{url}/v1/models/nano", None, "GET")[1]["id"] == "scripted"
        assert send(f"{url}/v1/models/organisation/name", None, "GET")[0] == 404
    with served(policy) as url:
        assert send(f"{url}/v1/responses", {"input": "?", "model": "gpt-4"})[0] == 200
        assert send(f"{url}/v1/models/scripted", None, "GET")[1]["id"] == "scripted"


@pytest.mark.parametrize(
    ("field", "refused", "taken"),
    [
        ("reasoning", {"effort": "low"}, {"summary": "auto"}),
        ("reasoning_effort", "low", "none"),
        ("truncation", "auto", "disabled"),
    ],
)
def test_a_field_that_a_local_model_cannot_heed_is_refused_by_name(field: str, refused: Any, taken: Any) -> None:
    with served(Scripted(lambda request: said("4"))) as url:
        status, answer = send(f"{url}/v1/responses", {"input": "?", field: refused})
        assert (status, answer["error"]["param"]) == (400, field)
        assert send(f"{url}/v1/responses", {"input": "?", field: taken})[0] == 200


def test_a_policy_that_tells_no_token_ids_is_not_passed_off_as_one_that_does() -> None:
    with served(Scripted(lambda request: said("4")), return_token_ids=True) as url:
        status, answer = send(f"{url}/v1/responses", {"input": "2+2?"})
    assert status == 400
    assert answer["error"]["message"] == "model 'scripted' does not tell token ids and log-probabilities"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "no JSON"),
        (b"", "no JSON"),
        (b"[1]", "must be a JSON object"),
        ({}, "must be a"),
        ({"stream": "yes"}, "must be true or false"),
        ({"temperature": "hot"}, "must be a number"),
    ],
)
def test_a_malformed_request_is_refused_in_openais_shape(path: str, body: Any, words: str) -> None:
    policy = Scripted(lambda request: said("4"))
    if body and isinstance(body, dict):
        body = {("input" if path == "/v1/responses" else "messages"): [{"role": "user", "content": "?"}], **body}
    with served(policy) as url:
        status, answer = send(url + path, body)
    assert status in (400, 422)
    assert words in answer["error"]["message"]
    assert answer["error"]["type"] == "invalid_request_error"
    assert policy.requests == []


def test_text_that_is_no_unicode_comes_through_as_replacement() -> None:
    with served(Scripted(lambda request: said("half \ud83d of it"))) as url:
        for stream in (False, True):
            body = {"messages": [{"role": "user", "content": "?"}], "stream": stream}
            request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode())
            with urllib.request.urlopen(request, timeout=10) as answer:
                assert b"half" in answer.read()


def test_work_for_a_client_that_has_left_is_cancelled() -> None:
    policy = Scripted(lambda request: asyncio.sleep(30))
    with served(policy) as url:
        with pytest.raises(PolicyError, match="no answer within"):
            complete(ResponsesPolicy(url, retries=0, timeout_seconds=0.3))
        wait_for(lambda: policy.cancelled == 1)


def test_one_choice_that_fails_cancels_the_others() -> None:
    def script(request: Request) -> Any:
        if request.seed == 5:
            raise PolicyError("busy", "rate_limited", status=429)
        return asyncio.sleep(30)

    policy = Scripted(script)
    with served(policy) as url:
        body = {"messages": [{"role": "user", "content": "?"}], "n": 3, "seed": 5}
        assert send(f"{url}/v1/chat/completions", body)[0] == 429
        wait_for(lambda: policy.cancelled == 2)


def test_the_policy_is_closed_with_the_server() -> None:
    policy = Scripted(lambda request: said("4"))
    with served(policy):
        assert policy.closed == 0
    assert policy.closed == 1


def test_requests_are_counted() -> None:
    with served(Scripted(lambda request: said("4"))) as url:
        send(f"{url}/v1/responses", {"input": "2+2?"})
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    assert 'polygym_requests_total{path="/v1/responses",status="200"} 1.0' in text
