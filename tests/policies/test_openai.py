"""The OpenAI-compatible policy against a real server on this machine."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest

import polygym as pg
from policies.loopback import (
    Answer,
    Loopback,
    as_json,
    busy,
    completion,
    context_overflow,
    cut,
    dead_url,
    dropped,
    empty,
    html,
    ok,
    slow,
    status,
    tool_calls,
)
from polygym.errors import PolicyError, UsageError
from polygym.messages import Message, ToolCall, ToolSpec
from polygym.policies import backoff
from polygym.policies.backoff import CircuitBreaker
from polygym.policies.base import Request, Sampling
from polygym.policies.endpoint import Endpoint
from polygym.policies.hermes import tools_block
from polygym.policies.openai import OpenAIPolicy
from polygym.rollout import Turn, Usage

ADD = ToolSpec(
    "add",
    "Add two numbers.",
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
)
KEY = "sk-secret-0123456789"


@pytest.fixture(autouse=True)
def _quick_and_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def ask(text: str = "2+2?", tools: tuple[ToolSpec, ...] = (), seed: int = 7, **sampling: Any) -> Request:
    return Request([Message("user", text)], tools, Sampling(**sampling), seed)


def complete(policy: OpenAIPolicy, *requests: Request) -> list[Turn | PolicyError]:
    async def together() -> list[Any]:
        return await asyncio.gather(*map(policy.complete, requests or [ask()]), return_exceptions=True)

    results = asyncio.run(together())
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, PolicyError):
            raise result
    return results


def answer_of(script: list[Answer], request: Request | None = None, **options: Any) -> tuple[Any, Loopback]:
    with Loopback(script) as server:
        [result] = complete(OpenAIPolicy("m", server.url, **options), request or ask())
    return result, server


def test_a_request_says_what_was_asked_and_a_turn_what_came_back() -> None:
    request = ask("2+2?", max_tokens=9, temperature=0.5, top_p=0.9, stop=("\n",), seed=2**62)
    turn, server = answer_of([ok("4")], request, extra_body={"top_k": -1})
    assert turn == Turn(Message("assistant", "4"), "stop", Usage(11, 3))
    assert server.requests[0].body == {
        "model": "m",
        "messages": [{"role": "user", "content": "2+2?"}],
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["\n"],
        "seed": 2**62,
        "top_k": -1,
    }
    assert server.requests[0].headers["Content-Type"] == "application/json"
    assert "Authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    "bad",
    [status(500), status(503), status(408), html(), html(502), empty(), cut(), dropped(), completion({}, "abort")],
)
def test_what_may_pass_by_itself_is_tried_again(bad: Answer) -> None:
    turn, server = answer_of([bad, bad, ok("4")])
    assert turn.message.content == "4"
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("bad", "kind", "words"),
    [
        (status(500, "out of memory"), "endpoint", "server_error, status 500: out of memory (3 tries)"),
        (busy("0"), "rate_limited", "rate_limited, status 429: Rate limit reached (3 tries)"),
        (html(), "empty_response", "empty_response, status 200 with an HTML page in place of a completion (3 tries)"),
        (empty(), "empty_response", "empty_response, status 200 with an empty body in place of a completion (3 tries)"),
        (cut(), "endpoint", "connection, ClientPayloadError"),
        (dropped(), "endpoint", "connection, ServerDisconnectedError"),
    ],
)
def test_tries_are_bounded_and_the_last_answer_is_told(bad: Answer, kind: str, words: str) -> None:
    error, server = answer_of([bad], retries=2)
    assert isinstance(error, PolicyError)
    assert error.kind == kind
    assert str(error).startswith(f"model 'm' at {server.url}: {words}")
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (status(400, "Invalid value"), "bad_request, status 400: Invalid value"),
        (status(400, 'tool choice "auto" is not enabled'), 'use tool_calls="text"'),
        (status(401), "the key is read from the environment variable OPENAI_API_KEY, which is not set"),
        (status(403), "auth_error, status 403"),
        (html(404), "not_found, status 404: an HTML page; check the model's name, and that the base URL ends before"),
        (status(307, Location="/elsewhere"), "the endpoint redirects, give its final address as base URL"),
        (completion({"content": "x"}, "content_filter"), "content_filter"),
    ],
)
def test_what_will_not_pass_fails_at_once_with_the_fix(bad: Answer, words: str) -> None:
    error, server = answer_of([bad])
    assert isinstance(error, PolicyError)
    assert error.kind == "refused"
    assert words in str(error)
    assert len(server.requests) == 1


def test_a_policy_at_a_dead_endpoint_fails_with_the_address() -> None:
    url = dead_url()
    [error] = complete(OpenAIPolicy("m", url, retries=1))
    assert isinstance(error, PolicyError)
    assert error.kind == "endpoint"
    assert str(error).startswith(
        f"model 'm' at {url}: connection, ClientConnectorError: Cannot connect to host 127.0.0.1"
    )
    assert "(2 tries)" in str(error)


def test_a_slow_try_is_given_up_and_tried_again() -> None:
    turn, server = answer_of([slow(5), ok("4")], timeout_seconds=0.2)
    assert turn.message.content == "4"
    assert len(server.requests) == 2


def test_an_endpoint_that_never_answers_ends_at_the_deadline() -> None:
    started = time.monotonic()
    error, server = answer_of([slow(30)], timeout_seconds=0.2, deadline_seconds=0.5, retries=100)
    assert time.monotonic() - started < 5
    assert isinstance(error, PolicyError)
    assert error.kind == "timeout"
    assert "no answer within" in str(error)
    assert len(server.requests) in (2, 3)


@pytest.mark.parametrize(
    "bad", [busy("0.5"), status(429, retry_after_ms="500"), status(503, Retry_After="0.5")], ids=["429", "ms", "503"]
)
def test_retry_after_is_waited_for(bad: Answer) -> None:
    turn, server = answer_of([bad, ok("4")])
    assert turn.message.content == "4"
    assert 0.5 <= server.requests[1].at - server.requests[0].at < 5


def test_retry_after_as_a_date_is_waited_for() -> None:
    first = True

    def script(body: dict[str, Any]) -> Answer:
        nonlocal first
        first, is_first = False, first
        return busy(formatdate(time.time() + 2, usegmt=True)) if is_first else ok("4")

    with Loopback(script) as server:
        [turn] = complete(OpenAIPolicy("m", server.url))
    assert isinstance(turn, Turn)
    assert 0.9 < server.requests[1].at - server.requests[0].at < 5


def test_a_retry_after_beyond_the_deadline_is_not_waited_for() -> None:
    started = time.monotonic()
    error, server = answer_of([busy("3600")])
    assert time.monotonic() - started < 5
    assert isinstance(error, PolicyError)
    assert error.kind == "rate_limited"
    assert "the next would come after 3600 s and the deadline is 600 s" in str(error)
    assert len(server.requests) == 1


def zero(completion: str) -> float:
    return 0.0


def test_a_rollout_that_runs_out_of_time_tells_what_the_tries_found() -> None:
    env = pg.SingleTurnEnv([{"question": f"{number} + 2?"} for number in range(4)], rubric=pg.Rubric([zero]))
    with Loopback([busy("30")]) as server:
        results = pg.evaluate(env, OpenAIPolicy("m", server.url), num_examples=1, rollouts_per_example=1, timeout=0.5)
    [rollout] = results.rollouts
    assert rollout.cause is not None
    assert rollout.cause.kind == "timeout"
    assert rollout.cause.message.startswith("the rollout took longer than 0.5 s; model 'm' at http://127.0.0.1")
    assert rollout.cause.message.endswith("rate_limited, status 429: Rate limit reached")


def test_a_prompt_past_the_context_is_a_turn_and_not_an_error() -> None:
    turn, server = answer_of([context_overflow()])
    assert turn == Turn(Message("assistant"), "context")
    assert len(server.requests) == 1


def test_a_prompt_that_fits_without_the_room_asked_for_is_asked_with_the_room_there_is() -> None:
    words = (
        "This model's maximum context length is 4096 tokens and your request has 4000 input tokens (512 > 4096 - 4000)"
    )
    turn, server = answer_of([status(400, words), ok("4")])
    assert turn.message.content == "4"
    assert [request.body["max_tokens"] for request in server.requests] == [512, 96]
    turn, server = answer_of([status(400, words)])
    assert turn.finish_reason == "context"
    assert len(server.requests) == 2


def test_a_cut_sample_keeps_its_text_and_says_so() -> None:
    turn, _ = answer_of([ok("half an ans", "length")])
    assert (turn.message.content, turn.finish_reason) == ("half an ans", "length")


def test_an_empty_sample_is_drawn_again_with_another_seed_but_not_where_token_ids_came() -> None:
    turn, server = answer_of([ok(""), ok(""), ok("4")])
    seeds = [request.body["seed"] for request in server.requests]
    assert turn.message.content == "4"
    assert seeds[0] == 7
    assert len(set(seeds)) == 3
    _, server_again = answer_of([ok(""), ok(""), ok("4")])
    assert [request.body["seed"] for request in server_again.requests] == seeds
    sampled = completion({"content": "", "generation_token_ids": [2], "generation_log_probs": [-0.5]})
    turn, server = answer_of([sampled])
    assert (turn.message.content, turn.finish_reason, len(server.requests)) == ("", "stop", 1)
    assert (turn.token_ids, turn.logprobs) == ((2,), (-0.5,))


@pytest.mark.parametrize("content", ["", None])
def test_an_endpoint_that_samples_nothing_is_asked_twice_more_and_then_given_up(content: str | None) -> None:
    started = time.monotonic()
    error, server = answer_of([completion({"content": content})], retries=0)
    assert (error.kind, len(server.requests)) == ("empty_sample", 3)
    assert "(3 tries)" in str(error)
    assert time.monotonic() - started < 0.4


@pytest.mark.parametrize("bad", [completion({"content": "x"}, "content_filter"), ok(""), status(400, "no")])
def test_what_an_endpoint_refuses_or_leaves_empty_says_nothing_against_the_requests_after_it(bad: Answer) -> None:
    with Loopback([*[bad] * 36, ok("4")]) as server:
        policy = OpenAIPolicy("m", server.url, retries=0, concurrency=1)
        answers = complete(policy, *[ask()] * 40)
    assert answers[-1].message.content == "4"


def test_reasoning_is_kept_apart_from_what_is_said() -> None:
    turn, _ = answer_of([ok("<think>2 and 2</think>4")])
    assert turn.message == Message("assistant", "4", reasoning="2 and 2")
    turn, _ = answer_of([completion({"content": "4", "reasoning_content": "2 and 2"})])
    assert turn.message == Message("assistant", "4", reasoning="2 and 2")


def test_native_tool_calls_are_read_and_bad_ones_carry_their_error() -> None:
    script = [
        tool_calls(("add", '{"a": 1, "b": 12345678901234567890123}'), ("add", '{"a": 1'), ("sub", "{}"), ("add", "[]"))
    ]
    turn, server = answer_of(script, ask(tools=(ADD,)))
    assert server.requests[0].body["tools"] == [ADD.to_dict()]
    assert turn.message.tool_calls == (
        ToolCall("add", {"a": 1, "b": 12345678901234567890123}, "c0"),
        ToolCall("add", {}, "c1", "invalid_json", '{"a": 1'),
        ToolCall("sub", {}, "c2", "unknown_tool", "{}"),
        ToolCall("add", {}, "c3", "arguments_not_object", "[]"),
    )


def test_calls_without_an_id_of_their_own_get_one() -> None:
    entry = {"function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
    turn, _ = answer_of(
        [completion({"tool_calls": [entry, {**entry, "id": "x"}, {**entry, "id": "x"}]})], ask(tools=(ADD,))
    )
    assert [call.id for call in turn.message.tool_calls] == ["call_1_0", "x", "call_1_2"]
    assert turn.message.tool_calls[0].arguments == {"a": 1, "b": 2}


def test_tool_calls_as_text_are_described_in_the_system_message_and_read_from_the_text() -> None:
    text = '<think>hm</think>I add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
    turn, server = answer_of([ok(text)], ask(tools=(ADD,)), tool_calls="text")
    assert "tools" not in server.requests[0].body
    assert server.requests[0].body["messages"][0] == {"role": "system", "content": tools_block([ADD])}
    assert turn.message.content == "I add."
    assert turn.message.reasoning == "hm"
    assert [(call.name, dict(call.arguments), call.error) for call in turn.message.tool_calls] == [
        ("add", {"a": 1, "b": 2}, None)
    ]


def test_a_call_cut_by_the_token_limit_is_no_call() -> None:
    turn, _ = answer_of([ok('<tool_call>{"name": "add"', "length")], ask(tools=(ADD,)), tool_calls="text")
    assert turn.finish_reason == "length"
    assert [call.error for call in turn.message.tool_calls] == ["unterminated"]


def test_no_more_requests_are_under_way_than_allowed() -> None:
    with Loopback([slow(0.02)]) as server:
        turns = complete(OpenAIPolicy("m", server.url, concurrency=3), *[ask(seed=seed) for seed in range(12)])
    assert [isinstance(turn, Turn) for turn in turns] == [True] * 12
    assert server.most_under_way == 3
    assert len(server.connections) == 3


def test_the_deadline_of_a_request_begins_when_its_turn_comes() -> None:
    with Loopback([slow(0.3)]) as server:
        policy = OpenAIPolicy("m", server.url, concurrency=1, deadline_seconds=1.2)
        turns = complete(policy, *[ask(seed=seed) for seed in range(5)])
    assert [isinstance(turn, Turn) for turn in turns] == [True] * 5


def test_one_bad_answer_does_not_touch_the_other_requests() -> None:
    def script(body: dict[str, Any]) -> Answer:
        return status(500) if body["seed"] == 3 else ok(str(body["seed"]))

    with Loopback(script) as server:
        turns = complete(OpenAIPolicy("m", server.url, retries=1), *[ask(seed=seed) for seed in range(6)])
    assert [turn.message.content if isinstance(turn, Turn) else turn.kind for turn in turns] == [
        *"012", "endpoint", *"45"
    ]  # fmt: skip


def test_a_thousand_requests_to_a_dead_endpoint_end_soon_with_the_cause() -> None:
    started = time.monotonic()
    errors = complete(OpenAIPolicy("m", dead_url(), concurrency=32), *[ask(seed=seed) for seed in range(1000)])
    assert time.monotonic() - started < 10
    assert {error.kind for error in errors if isinstance(error, PolicyError)} == {"endpoint"}
    assert len(errors) == 1000
    assert "not tried, as the requests before it found: connection, ClientConnectorError" in str(errors[-1])


def test_an_endpoint_that_hangs_is_found_dead_too() -> None:
    with Loopback([slow(30)]) as server:
        policy = OpenAIPolicy("m", server.url, timeout_seconds=0.1, retries=1, concurrency=4)
        errors = complete(policy, *[ask(seed=seed) for seed in range(200)])
        assert len(server.requests) < 30
    assert [error.kind for error in errors if isinstance(error, PolicyError)] == ["timeout"] * 200


def test_an_endpoint_that_comes_back_is_used_again() -> None:
    now = 0.0
    with Loopback([*[status(500)] * 9, busy("0"), ok("4")]) as server:
        policy = OpenAIPolicy("m", server.url, retries=0, concurrency=1)
        policy.asker.breaker = CircuitBreaker(8, 10.0, clock=lambda: now)
        errors = complete(policy, *[ask(seed=seed) for seed in range(20)])
        assert len(server.requests) == 8
        assert "not tried" in str(errors[8])
        now = 10.0
        complete(policy, ask(), ask())
        assert len(server.requests) == 9
        now, policy.asker.retries = 20.0, 1
        turns = complete(policy, *[ask()] * 5)
        assert [isinstance(turn, Turn) for turn in turns] == [True] * 5
        assert len(server.requests) == 15


def test_a_policy_serves_one_event_loop_after_another_and_leaves_nothing_open(
    recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with Loopback([ok("4")]) as server:
        policy = OpenAIPolicy("m", server.url)
        for _ in range(3):
            assert isinstance(complete(policy)[0], Turn)

        async def closes_twice_and_goes_on() -> None:
            await policy.complete(ask())
            await policy.close()
            await policy.close()
            await policy.complete(ask())

        asyncio.run(closes_twice_and_goes_on())
    gc.collect()
    assert [str(warning.message) for warning in recwarn if "nclosed" in str(warning.message)] == []
    assert "nclosed" not in caplog.text


def test_a_cancelled_request_frees_its_place() -> None:
    with Loopback(lambda body: slow(30) if body["seed"] == 1 else ok("4")) as server:
        policy = OpenAIPolicy("m", server.url, concurrency=1)

        async def cancel_and_ask() -> Turn:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(policy.complete(ask(seed=1)), 0.2)
            return await policy.complete(ask(seed=2))

        assert asyncio.run(cancel_and_ask()).message.content == "4"


@pytest.mark.parametrize(
    ("key", "text", "shown"),
    [
        ("k", "no key in the request, key k", "no key in the request, key ***"),
        ("EMPTY", "EMPTY: EMPTYING is not EMPTY-ish, Bearer EMPTY.", "***: EMPTYING is not EMPTY-ish, Bearer ***."),
        ("sk-12", 'key "sk-12" of sk-123', 'key "***" of sk-123'),
        ("sk-12345", "xsk-12345y", "x***y"),
    ],
)
def test_a_key_is_taken_out_of_texts_and_a_short_one_only_where_it_stands_alone(
    key: str, text: str, shown: str
) -> None:
    assert Endpoint("http://host/v1", 1, key=lambda: key).redacted(text) == shown


def test_the_key_comes_from_the_environment_and_is_never_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("MY_KEY", KEY)
    with Loopback([status(401, f"Incorrect API key provided: {KEY}")]) as server:
        policy = OpenAIPolicy("m", server.url, api_key_env="MY_KEY")
        [error] = complete(policy)
    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert isinstance(error, PolicyError)
    values = [vars(policy), vars(policy.endpoint)]
    shown = [str(error), repr(error), repr(policy), str(values), caplog.text, *traceback.format_exception(error)]
    assert KEY not in "".join(shown)
    with pytest.raises(UsageError) as refused:
        OpenAIPolicy("m", f"http://user:{KEY}@host/v1")
    assert str(refused.value) == (
        "base_url='http://***@host/v1' holds a user or password; keys are read from OPENAI_API_KEY only"
    )
    with pytest.raises(UsageError) as refused:
        OpenAIPolicy("m", f"http://host/v1?api_key={KEY}")
    assert str(refused.value) == (
        "base_url='http://host/v1?***' has a query or a fragment, which no path can follow; keys are read from "
        "OPENAI_API_KEY only"
    )
    assert "MY_KEY, which is set" in str(error)


def test_a_long_request_is_sent_whole_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    turn, server = answer_of([status(500), ok("4")], ask("x" * 3_000_000))
    assert turn.message.content == "4"
    assert [len(request.body["messages"][0]["content"]) for request in server.requests] == [3_000_000] * 2
    assert len(recwarn) == 0


def test_text_that_is_no_clean_unicode_goes_and_comes_without_an_error() -> None:
    body = b'{"choices": [{"message": {"content": "a\\ud83d"}, "logprobs": NaN, "finish_reason": "stop"}]}'
    turn, server = answer_of([Answer(body)], ask("b\ud83d"))
    assert turn.message.content == "a?"
    assert server.requests[0].body["messages"][0]["content"] == "b?"


@pytest.mark.parametrize("usage", [None, "many", {}, {"prompt_tokens": None}, {"prompt_tokens": -1}])
def test_usage_that_the_server_does_not_tell_is_counted_from_the_ids(usage: object) -> None:
    choices = [{"message": {"content": "4"}, "token_ids": [5, 6], "finish_reason": "stop"}]
    turn, _ = answer_of([as_json({"choices": choices, "prompt_token_ids": [1, 2, 3], "usage": usage})])
    assert turn.usage == Usage(3, 2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: OpenAIPolicy("m"), "no model endpoint is known: set OPENAI_BASE_URL"),
        (lambda: OpenAIPolicy("m", ""), "no model endpoint is known"),
        (lambda: OpenAIPolicy("m", "localhost:8000"), "base_url='localhost:8000' is no http address"),
        (lambda: OpenAIPolicy("m", "http://[::1/v1"), "is no http address"),
        (lambda: OpenAIPolicy("m", "http://host:port/v1"), "is no http address"),
        (lambda: OpenAIPolicy("", "http://h/v1"), "model='' must be the name"),
        (lambda: OpenAIPolicy("m", "http://h/v1", concurrency=0), "concurrency=0 must be an integer of at least 1"),
        (lambda: OpenAIPolicy("m", "http://h/v1", retries=-1), "retries=-1 must be an integer of at least 0"),
        (lambda: OpenAIPolicy("m", "http://h/v1", retries=True), "retries=True must be"),
        (lambda: OpenAIPolicy("m", "http://h/v1", deadline_seconds=0), "deadline_seconds=0 must be a number"),
        (lambda: OpenAIPolicy("m", "http://h/v1", timeout_seconds=float("nan")), "timeout_seconds=nan must be"),
        (lambda: OpenAIPolicy("m", "http://h/v1", tool_calls="txt"), "did you mean 'text'?"),  # type: ignore[arg-type]
        (lambda: OpenAIPolicy("m", "http://h/v1", extra_body={"seed": 1}), "extra_body must not set 'seed'"),
    ],
)
def test_a_bad_argument_is_refused_by_name(make: Callable[[], OpenAIPolicy], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        make()
    assert words in str(refused.value)


def test_the_address_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert repr(OpenAIPolicy("m")) == "OpenAIPolicy('m', 'https://api.openai.com/v1')"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://host:1/v1/")
    assert repr(OpenAIPolicy("m")) == "OpenAIPolicy('m', 'http://host:1/v1')"
    assert repr(OpenAIPolicy("m", "https://other/v1/chat/completions")) == "OpenAIPolicy('m', 'https://other/v1')"


def test_making_a_policy_does_not_import_aiohttp() -> None:
    code = (
        "import sys, polygym.policies.openai as o; o.OpenAIPolicy('m', 'http://h/v1'); print('aiohttp' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
