"""OpenAI's own client against the model server: chat completions and responses, tools, streams, errors."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from polygym.errors import PolicyError
from polygym.messages import Message
from polygym.policies.base import Request
from polygym.rollout import Turn, Usage
from serve.model_servers import CHAT_TOOL, RESPONSES_TOOL, Scripted, called, said, served


@contextlib.contextmanager
def client_of(script: Callable[[Request], Any], **options: Any) -> Iterator[tuple[openai.OpenAI, Scripted]]:
    policy = Scripted(script)
    with served(policy, **options) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key=options.get("token") or "none", max_retries=0, timeout=20)
        with client:
            yield client, policy


def ask(client: openai.OpenAI, **options: Any) -> Any:
    given = {"model": "any", "messages": [{"role": "user", "content": "2+2?"}], **options}
    return client.chat.completions.create(**given)


def respond(client: openai.OpenAI, **options: Any) -> Any:
    return client.responses.create(**{"model": "any", "input": "2+2?", **options})


# ------------------------------------------------------------------------------------------------- chat completions


def test_a_chat_completion_reaches_the_policy_and_comes_back() -> None:
    with client_of(lambda request: said("It is 4.", reasoning="2+2")) as (client, policy):
        answer = ask(client, temperature=0.5, top_p=0.9, max_tokens=7, stop="!", seed=3)
    assert answer.choices[0].message.content == "It is 4."
    assert answer.choices[0].message.reasoning_content == "2+2"
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.model, answer.object) == ("scripted", "chat.completion")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (11, 3, 14)
    [request] = policy.requests
    assert request.messages == [Message("user", "2+2?")]
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens, sampling.stop) == (0.5, 0.9, 7, ("!",))
    assert request.seed == 3


def test_a_choice_of_several_is_sampled_with_a_seed_of_its_own() -> None:
    with client_of(lambda request: said(str(request.seed))) as (client, _):
        first, second, third = (choice.message.content for choice in ask(client, n=3, seed=5).choices)
        assert [choice.message.content for choice in ask(client, n=3, seed=5).choices] == [first, second, third]
    assert first == "5"
    assert len({first, second, third}) == 3


def test_a_tool_is_called_answered_and_read_over_chat() -> None:
    def script(request: Request) -> Turn:
        if request.messages[-1].role == "tool":
            return said(f"It is {request.messages[-1].content}.")
        return called(city=request.messages[-1].content)

    with client_of(script) as (client, policy):
        messages: list[Any] = [{"role": "user", "content": "Oslo"}]
        choice = ask(client, messages=messages, tools=[CHAT_TOOL]).choices[0]
        assert choice.finish_reason == "tool_calls"
        [call] = choice.message.tool_calls
        assert (call.type, call.function.name) == ("function", "get_weather")
        assert json.loads(call.function.arguments) == {"city": "Oslo"}
        messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "cold"}]
        assert ask(client, messages=messages, tools=[CHAT_TOOL]).choices[0].message.content == "It is cold."
    [tool] = policy.requests[0].tools
    assert (tool.name, tool.description, tool.parameters) == (
        "get_weather",
        "The weather.",
        CHAT_TOOL["function"]["parameters"],
    )
    assert policy.requests[1].messages[1].tool_calls[0].arguments == {"city": "Oslo"}


def test_a_streamed_chat_completion_says_what_the_whole_one_says() -> None:
    with client_of(lambda request: said("It is\n 4. ", "length")) as (client, _):
        chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "It is\n 4. "
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + ["length"]
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == 14
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_clients_own_reader_of_streams_collects_text_and_calls() -> None:
    with client_of(lambda request: called(text="Let me look.", city="Oslo")) as (client, _):
        given = {"model": "any", "messages": [{"role": "user", "content": "?"}], "tools": [CHAT_TOOL]}
        with client.chat.completions.stream(**given) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_completion()
    assert "content.delta" in kinds and "tool_calls.function.arguments.done" in kinds
    message = final.choices[0].message
    assert message.content == "Let me look."
    assert message.tool_calls[0].function.arguments == '{"city": "Oslo"}'
    assert final.choices[0].finish_reason == "tool_calls"


# -------------------------------------------------------------------------------------------------------- responses


def test_a_response_reaches_the_policy_and_comes_back() -> None:
    with client_of(lambda request: said("It is 4.", reasoning="2+2")) as (client, policy):
        answer = respond(client, instructions="Be brief.", temperature=0.5, max_output_tokens=7, metadata={"who": "me"})
    assert answer.output_text == "It is 4."
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    assert answer.output[0].summary[0].text == "2+2"
    assert (answer.status, answer.model, answer.metadata) == ("completed", "scripted", {"who": "me"})
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (11, 3)
    [request] = policy.requests
    assert request.messages == [Message("system", "Be brief."), Message("user", "2+2?")]
    assert (request.sampling.temperature, request.sampling.max_tokens) == (0.5, 7)


def test_a_tool_is_called_answered_and_read_over_responses() -> None:
    def script(request: Request) -> Turn:
        if request.messages[-1].role == "tool":
            return said(f"It is {request.messages[-1].content}.")
        return called(city="Oslo")

    with client_of(script) as (client, policy):
        items: list[Any] = [{"role": "user", "content": "Oslo"}]
        first = respond(client, input=items, tools=[RESPONSES_TOOL])
        [call] = first.output
        assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "get_weather", {"city": "Oslo"})
        items += [*first.output, {"type": "function_call_output", "call_id": call.call_id, "output": "cold"}]
        assert respond(client, input=items, tools=[RESPONSES_TOOL]).output_text == "It is cold."
    assert policy.requests[0].tools[0].name == "get_weather"
    assert [message.role for message in policy.requests[1].messages] == ["user", "assistant", "tool"]


def test_a_response_that_was_cut_says_so() -> None:
    with client_of(lambda request: said("It is", "length")) as (client, _):
        answer = respond(client)
        with client.responses.stream(model="any", input="2+2?") as stream:
            kinds = [event.type for event in stream]
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert kinds[-1] == "response.incomplete"


def test_a_streamed_response_says_what_the_whole_one_says() -> None:
    turn = called(text="Let me look.", city="Oslo")
    turn.message = Message("assistant", turn.message.content, turn.message.tool_calls, reasoning="I need the weather")
    with client_of(lambda request: turn) as (client, _):
        events = list(respond(client, stream=True, tools=[RESPONSES_TOOL]))
        with client.responses.stream(model="any", input="?", tools=[RESPONSES_TOOL]) as stream:
            final = stream.get_final_response()
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = {
        kind: "".join(event.delta for event in events if event.type == kind)
        for kind in (
            "response.output_text.delta",
            "response.function_call_arguments.delta",
            "response.reasoning_summary_text.delta",
        )
    }
    assert list(deltas.values()) == ["Let me look.", '{"city": "Oslo"}', "I need the weather"]
    assert [item.type for item in events[-1].response.output] == ["reasoning", "message", "function_call"]
    assert final.output_text == "Let me look."
    assert final.output[2].arguments == '{"city": "Oslo"}'


# ----------------------------------------------------------------------------------------------------------- models


def test_the_model_is_listed() -> None:
    with client_of(lambda request: said("4")) as (client, _):
        assert [model.id for model in client.models.list()] == ["scripted"]


# ----------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("fields", "words", "param"),
    [
        ({"messages": []}, "at least one message", "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, r"messages\[0\].role is 'wizard'", None),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only text can be read", None),
        ({"temperature": -1}, "temperature=-1 is outside", None),
        ({"max_tokens": 0}, "max_tokens=0 must be", None),
        ({"n": 0}, "n=0 must be an integer from 1 to 128", "n"),
        ({"seed": "x"}, "seed='x' must be an integer", "seed"),
        ({"tools": [{"type": "function"}]}, r"tools\[0\] must have a name", None),
        ({"extra_body": {"temprature": 1}}, "did you mean 'temperature'", "temprature"),
        ({"frequency_penalty": 0.5}, "frequency_penalty=0.5: this value is not supported", "frequency_penalty"),
        ({"response_format": {"type": "json_object"}}, "this value is not supported", "response_format"),
        ({"tool_choice": "required", "tools": [CHAT_TOOL]}, "this value is not supported", "tool_choice"),
        ({"logprobs": True}, "does not tell log-probabilities", "logprobs"),
    ],
)
def test_a_request_that_cannot_be_heeded_is_a_400_that_says_why(
    fields: dict[str, Any], words: str, param: str | None
) -> None:
    with (
        client_of(lambda request: said("4")) as (client, _),
        pytest.raises(openai.BadRequestError, match=words) as info,
    ):
        ask(client, **fields)
    assert info.value.type == "invalid_request_error"
    assert info.value.param == param


def test_fields_that_ask_for_nothing_are_taken() -> None:
    with client_of(lambda request: said("4")) as (client, policy):
        ask(
            client,
            frequency_penalty=0,
            presence_penalty=0,
            response_format={"type": "text"},
            user="me",
            parallel_tool_calls=True,
            store=False,
        )
        respond(client, store=True, truncation="disabled", include=[], text={"format": {"type": "text"}})
        ask(client, tools=[CHAT_TOOL], tool_choice="none")
    assert len(policy.requests) == 3
    assert policy.requests[2].tools == []
    assert [request.extra for request in policy.requests] == [{}, {}, {}]


def test_a_conversation_that_the_server_would_have_to_keep_is_refused() -> None:
    with (
        client_of(lambda request: said("4")) as (client, _),
        pytest.raises(openai.BadRequestError, match="send the whole input"),
    ):
        respond(client, previous_response_id="resp_1")


def test_a_full_context_is_a_400_that_clients_know() -> None:
    full = Turn(Message("assistant"), "context", Usage(5000))
    with client_of(lambda request: full) as (client, _):
        for send in (ask, respond):
            with pytest.raises(openai.BadRequestError, match="5000 tokens") as info:
                send(client)
            assert info.value.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("error", "expected", "retry_after"),
    [
        (PolicyError("busy", "rate_limited", status=429, retry_after=7.0), openai.RateLimitError, "7"),
        (PolicyError("down", "endpoint", status=503, retry_after=0.5), openai.InternalServerError, "1"),
        (PolicyError("bad key", "refused", status=401), openai.AuthenticationError, None),
        (PolicyError("filtered", "refused"), openai.BadRequestError, None),
        (PolicyError("never answers", "timeout"), openai.InternalServerError, None),
        (PolicyError("gone", "endpoint"), openai.InternalServerError, None),
    ],
)
def test_a_policy_that_cannot_answer_keeps_the_status_and_the_wait_of_its_endpoint(
    error: PolicyError, expected: type[openai.APIStatusError], retry_after: str | None
) -> None:
    def script(request: Request) -> Turn:
        raise error

    with client_of(script) as (client, _):
        for send in (ask, respond):
            with pytest.raises(expected, match=str(error)) as info:
                send(client, stream=True)
            assert info.value.status_code == error.status or info.value.status_code in (400, 502, 504)
            assert info.value.response.headers.get("retry-after") == retry_after
            assert info.value.code == error.kind
            assert info.value.response.headers.get("x-should-retry") == ("false" if error.kind == "refused" else None)


def test_the_client_retries_what_may_pass() -> None:
    turns = iter([PolicyError("busy", "rate_limited", status=429, retry_after=0.05), said("4")])

    def script(request: Request) -> Turn:
        turn = next(turns)
        if isinstance(turn, PolicyError):
            raise turn
        return turn

    with client_of(script) as (client, policy):
        assert ask(client.with_options(max_retries=1)).choices[0].message.content == "4"
    assert len(policy.requests) == 2


def test_a_policy_with_a_bug_is_a_500_with_its_words_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def script(request: Request) -> Turn:
        raise ZeroDivisionError("a bug")

    with client_of(script) as (client, _), pytest.raises(openai.InternalServerError) as info:
        ask(client)
    assert info.value.body["message"] == "ZeroDivisionError: a bug"
    assert "Traceback" not in info.value.response.text
    assert "ZeroDivisionError" in caplog.text


def test_a_token_is_needed_where_one_is_set() -> None:
    with client_of(lambda request: said("4"), token="secret") as (client, _):
        assert ask(client).choices[0].message.content == "4"
        with pytest.raises(openai.AuthenticationError, match="needs a token"):
            ask(client.with_options(api_key="another"))
