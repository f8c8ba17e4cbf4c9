"""A policy behind a model server, against a real server on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from policies.loopback import (
    Answer,
    Loopback,
    as_json,
    busy,
    context_overflow,
    cut,
    dead_url,
    dropped,
    html,
    slow,
    status,
)
from polygym.errors import PolicyError, UsageError
from polygym.messages import Message, ToolCall, ToolSpec
from polygym.policies import backoff
from polygym.policies.base import Request, Sampling
from polygym.policies.responses_policy import ResponsesPolicy
from polygym.policies.responses_wire import response_body, tool_items
from polygym.rollout import Task, Turn, Usage

ADD = ToolSpec("add", "Add.", {"type": "object", "properties": {}, "additionalProperties": True})
OURS = as_json({"polygym": True, "name": "policy_model"})
WANTS_TASK = as_json({"polygym": True, "wants_task": True})
TASK = Task("math", 7, (Message("user", "2+2?"),), "4", {"level": 1})


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_WAIT_SECONDS", 0.01)


def said(text: str = "4", *calls: ToolCall, usage: Usage = Usage(11, 3), **headers: str) -> Answer:  # noqa: B008
    return as_json(response_body([Turn(Message("assistant", text, calls), "stop", usage)], model="m"), **headers)


def ask(text: str = "2+2?", **changes: Any) -> Request:
    return Request(**{"messages": [Message("user", text)], "tools": (), "sampling": Sampling(), "seed": 7, **changes})


def complete(policy: ResponsesPolicy, *requests: Request) -> list[Any]:
    async def together() -> list[Any]:
        return await asyncio.gather(*map(policy.complete, requests or [ask()]), return_exceptions=True)

    results = asyncio.run(together())
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, PolicyError):
            raise result
    return results


def answer_of(
    script: Sequence[Answer] | Callable[[dict[str, Any]], Answer],
    request: Request | None = None,
    home: Answer | None = None,
    **options: Any,
) -> tuple[Any, Loopback]:
    with Loopback(script, home) as server:
        [result] = complete(ResponsesPolicy(server.url, **options), request or ask())
    return result, server


def test_a_server_of_others_is_sent_the_published_fields_only() -> None:
    request = ask(
        tools=(ADD,),
        sampling=Sampling(max_tokens=9, temperature=0.5, top_p=0.9),
        task=TASK,
        extra={"parallel_tool_calls": False, "stream": True},
    )
    turn, server = answer_of([said()], request)
    assert turn == Turn(Message("assistant", "4"), "stop", Usage(11, 3))
    assert server.requests[0].body == {
        "input": [{"type": "message", "role": "user", "content": "2+2?"}],
        "tools": tool_items([ADD]),
        "max_output_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "parallel_tool_calls": False,
    }
    assert "Authorization" not in server.requests[0].headers


def test_a_server_of_ours_is_sent_seed_and_stop_texts_and_the_task_where_it_wants_it() -> None:
    request = ask(sampling=Sampling(stop=("\n",)), task=TASK)
    _, server = answer_of([said()], request, OURS)
    body = server.requests[0].body
    assert (body["seed"], body["stop"]) == (7, ["\n"])
    assert "task" not in body
    _, server = answer_of([said()], request, WANTS_TASK)
    assert server.requests[0].body["task"] == {
        "environment": "math",
        "row": {
            "id": 7,
            "answer": "4",
            "level": 1,
            "responses_create_params": {"input": [{"type": "message", "role": "user", "content": "2+2?"}]},
        },
    }


def test_a_task_that_came_as_a_row_goes_as_that_row() -> None:
    row = {"id": 7, "responses_create_params": {"input": "2+2?"}, "level": 1}
    _, server = answer_of([said()], ask(task=Task("math", 7, (), None, row)), WANTS_TASK)
    assert server.requests[0].body["task"] == {"environment": "math", "row": row}


@pytest.mark.parametrize("home", [status(404), status(401), status(500), html(), as_json([1]), as_json({"polygym": 1})])
def test_a_server_that_does_not_say_it_is_ours_is_another(home: Answer) -> None:
    def no_extras(body: dict[str, Any]) -> Answer:
        return said("no seed" if "seed" not in body else "seed")

    if home.status == 500:  # may pass by itself: asked again, and never taken for a no
        turn, _ = answer_of(no_extras, home=home, retries=1)
        assert "server_error, status 500" in str(turn)
    else:
        turn, _ = answer_of(no_extras, home=home)
        assert turn.message.content == "no seed"


def test_stop_texts_are_refused_where_the_server_would_not_heed_them() -> None:
    error, server = answer_of([said()], ask(sampling=Sampling(stop=("\n",))))
    assert (error.kind, len(server.requests)) == ("refused", 0)
    assert "the Responses API has no stop texts, and the server is not ours" in str(error)


def test_calls_come_back_and_what_was_said_goes_out() -> None:
    call = ToolCall("add", {"a": 1}, "c1")
    turn, _ = answer_of([said("", call)], ask(tools=(ADD,)))
    assert turn.message == Message("assistant", "", (call,))
    messages = [Message("user", "u"), turn.message, Message("tool", "3", tool_call_id="c1")]
    _, server = answer_of([said()], ask(messages=messages))
    assert [item["type"] for item in server.requests[0].body["input"]] == [
        "message",
        "function_call",
        "function_call_output",
    ]


def test_token_ids_come_back_and_go_with_the_next_request() -> None:
    sampled = Turn(Message("assistant", "4"), "stop", Usage(2, 2), (1, 2), (3, 4), (-0.5, 0.0))
    body = response_body([sampled], model="m", token_fields=True)
    turn, _ = answer_of([as_json(body)])
    assert turn == sampled
    messages = [Message("user", "u"), turn.message, Message("user", "more")]
    _, server = answer_of([said()], ask(messages=messages, previous=turn))
    user, assistant, _ = server.requests[0].body["input"]
    assert assistant["generation_token_ids"] == [3, 4]
    assert assistant["prompt_token_ids"] == [1, 2]
    assert assistant["generation_log_probs"] == [-0.5, 0.0]
    assert "generation_token_ids" not in user


@pytest.mark.parametrize(
    "bad", [status(500), status(503), busy("0"), html(), cut(), dropped(), as_json({"output": []})]
)
def test_what_may_pass_by_itself_is_tried_again(bad: Answer) -> None:
    turn, server = answer_of([bad, bad, said()])
    assert turn.message.content == "4"
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("bad", "kind", "words"),
    [
        (status(500, "out of memory"), "endpoint", "server_error, status 500: out of memory (3 tries)"),
        (busy("0"), "rate_limited", "rate_limited, status 429: Rate limit reached (3 tries)"),
        (html(), "empty_response", "status 200 with an HTML page in place of a response (3 tries)"),
        (status(400, "bad input"), "refused", "bad_request, status 400: bad input"),
        (status(404), "refused", "check that a model server is at this address, one that has POST /v1/responses"),
        (status(401), "refused", "the server wants a token, and none was given"),
    ],
)
def test_what_does_not_pass_is_an_error_that_says_why(bad: Answer, kind: str, words: str) -> None:
    error, _ = answer_of([bad], retries=2)
    assert isinstance(error, PolicyError) and error.kind == kind
    assert words in str(error)


def test_an_error_of_a_server_that_has_tried_enough_is_not_tried_again() -> None:
    error, server = answer_of([status(502, "upstream is dead", x_should_retry="false")])
    assert str(error).endswith("status 502: upstream is dead")
    assert len(server.requests) == 1


def test_our_server_may_answer_nothing_because_the_policy_did() -> None:
    turn, server = answer_of([said("", usage=Usage())], home=OURS)
    assert turn == Turn(Message("assistant"))
    assert len(server.requests) == 1


def relayed(status: int, code: str, **headers: str) -> Answer:
    """An error that a model server of ours tells of its own policy."""
    error = {"message": "model 'm' at http://up: what it found", "type": "server_error", "param": None, "code": code}
    return as_json({"error": error}, status, **headers)


@pytest.mark.parametrize(
    ("bad", "kind", "requests"),
    [
        (relayed(400, "refused", x_should_retry="false"), "refused", 1),
        (relayed(401, "refused", x_should_retry="false"), "refused", 1),
        (relayed(422, "oracle", x_should_retry="false"), "refused", 1),
        (relayed(502, "endpoint"), "endpoint", 3),
        (relayed(504, "timeout"), "timeout", 3),
        (relayed(429, "rate_limited", Retry_After="0"), "rate_limited", 3),
        (relayed(502, "empty_response"), "empty_response", 3),
    ],
)
def test_what_our_server_relays_keeps_its_class_and_is_told_once(bad: Answer, kind: str, requests: int) -> None:
    error, server = answer_of([bad], home=OURS, retries=2)
    assert (error.kind, error.asked, len(server.requests)) == (kind, True, requests)
    tries = f" ({requests} tries)" if requests > 1 else ""
    assert str(error) == f"model server policy_model at {server.url[:-3]}: model 'm' at http://up: what it found{tries}"


def test_what_our_server_relays_does_not_make_the_server_dead() -> None:
    with Loopback([*[relayed(502, "endpoint")] * 12, said()], OURS) as server:
        policy = ResponsesPolicy(server.url, retries=0, concurrency=1)
        answers = complete(policy, *[ask()] * 13)
    assert answers[-1].message.content == "4"


def test_a_dead_endpoint_that_our_server_did_not_ask_was_not_asked() -> None:
    error, server = answer_of([relayed(502, "endpoint", x_should_retry="false")], home=OURS)
    assert (error.kind, error.asked, len(server.requests)) == ("endpoint", False, 1)


def test_a_prompt_that_does_not_fit_ends_the_episode_and_is_no_error() -> None:
    turn, _ = answer_of([context_overflow()])
    assert (turn.finish_reason, turn.message) == ("context", Message("assistant"))


def test_an_answer_that_was_cut_says_so() -> None:
    body = response_body([Turn(Message("assistant", "4"), "length")], model="m")
    assert answer_of([as_json(body)])[0].finish_reason == "length"


def test_a_server_that_accepts_and_never_answers_is_given_up_at_the_deadline() -> None:
    error, _ = answer_of([slow(30, said())], deadline_seconds=0.3)
    assert error.kind == "timeout"


def test_a_server_that_is_not_there_is_found_dead_once_for_all() -> None:
    policy = ResponsesPolicy(dead_url(), retries=0, concurrency=1)
    errors = complete(policy, *[ask()] * 20)
    assert {error.kind for error in errors} == {"endpoint"}
    assert "not tried, as the requests before it found: connection" in str(errors[19])


def test_a_server_is_asked_once_what_it_is() -> None:
    async def play() -> list[dict[str, Any]]:
        with Loopback([said()], OURS) as server:
            policy = ResponsesPolicy(server.url)
            for _ in range(3):
                await policy.complete(ask())
            server._home_answer = status(500)
            await policy.complete(ask())
            await policy.close()
        return [request.body for request in server.requests]

    assert [body["seed"] for body in asyncio.run(play())] == [7] * 4


def test_cookies_of_an_episode_are_its_own() -> None:
    def counted(body: dict[str, Any]) -> Answer:
        return said(Set_Cookie=f"session={body['input'][0]['content']}; Path=/; HttpOnly")

    async def play() -> list[str]:
        with Loopback(counted) as server:
            policy = ResponsesPolicy(server.url)

            async def episode(name: str) -> None:
                with policy.episode():
                    for _ in range(2):
                        await policy.complete(ask(name))

            await asyncio.gather(episode("a"), episode("b"))
            await policy.complete(ask("alone"))
            await policy.complete(ask("alone"))
            await policy.close()
        return sorted(
            f"{request.body['input'][0]['content']}: {request.headers.get('Cookie')}" for request in server.requests
        )

    assert asyncio.run(play()) == [
        "a: None",
        "a: session=a",
        "alone: None",
        "alone: None",
        "b: None",
        "b: session=b",
    ]


def test_a_token_is_sent_and_never_shown() -> None:
    with Loopback([status(400, "bad token secret-0123")]) as server:
        policy = ResponsesPolicy(server.url, token="secret-0123")
        [error] = complete(policy)
    assert server.requests[0].headers["Authorization"] == "Bearer secret-0123"
    assert "bad token ***" in str(error)
    assert "secret" not in repr(policy) + str(error)


@pytest.mark.parametrize("tail", ["", "/", "/v1", "/v1/", "/v1/responses"])
def test_an_address_may_end_before_or_behind_v1(tail: str) -> None:
    with Loopback([said()]) as server:
        [turn] = complete(ResponsesPolicy(server.url.removesuffix("/v1") + tail))
    assert turn.message.content == "4"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "localhost"}, "base_url='localhost' is no http address"),
        ({"url": "http://u:p@host"}, "base_url='http://***@host' holds a user or password; give the token as token="),
        ({"concurrency": 0}, "concurrency=0 must be an integer of at least 1"),
        ({"retries": -1}, "retries=-1 must be an integer of at least 0"),
        ({"deadline_seconds": 0}, "deadline_seconds=0 must be a number of seconds above 0"),
    ],
)
def test_arguments_out_of_range_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as error:
        ResponsesPolicy(**{"url": "http://localhost:1", **options})
    assert words in str(error.value)
