"""Messages, requests and responses on the wire of the Responses API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response

from polygym.errors import UsageError
from polygym.messages import Message, ToolCall, ToolSpec
from polygym.policies.base import Sampling
from polygym.policies.outcomes import turn_of
from polygym.policies.responses_wire import (
    classify_response,
    input_items,
    output_items,
    read_create_params,
    read_input,
    read_output,
    read_tools,
    response_body,
    tool_items,
)
from polygym.policies.wire_input import read_messages
from polygym.rollout import Turn, Usage

ADD = ToolSpec(
    "add",
    "Add two numbers.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
CALL = ToolCall("add", {"a": 1, "b": 2}, "c1")
TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3, 4], "generation_log_probs": [-0.5, 0.0]}


def answer(*calls: ToolCall, content: str = "", reasoning: str = "") -> Message:
    return Message("assistant", content, calls, reasoning=reasoning)


def result(text: str, call_id: str | None = "c1") -> Message:
    return Message("tool", text, tool_call_id=call_id)


def read_response(body: Any, tools: Sequence[ToolSpec] = (), position: int = 0) -> Turn:
    """The turn that a client reads in a response."""
    return turn_of(classify_response(200, body), body, tools, position)


CONVERSATION = [
    Message("system", "Be brief."),
    Message("user", "1 + 2?"),
    answer(CALL, content="I add.", reasoning="They want a sum."),
    result("3"),
    answer(content="3"),
    Message("user", "And twice that?"),
]


def test_a_conversation_is_items_and_reads_back() -> None:
    items = input_items(CONVERSATION)
    assert items == [
        {"type": "message", "role": "system", "content": "Be brief."},
        {"type": "message", "role": "user", "content": "1 + 2?"},
        {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "They want a sum."}]},
        {"type": "message", "role": "assistant", "content": "I add."},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1, "b": 2}'},
        {"type": "function_call_output", "call_id": "c1", "output": "3"},
        {"type": "message", "role": "assistant", "content": "3"},
        {"type": "message", "role": "user", "content": "And twice that?"},
    ]
    assert read_input(items) == CONVERSATION


texts = st.text(max_size=5)
calls = st.builds(lambda at: ToolCall("add", {"a": at}, f"c{at}"), st.integers(0, 9))
answers = st.builds(
    lambda content, calls, reasoning: Message("assistant", content, tuple(calls), reasoning=reasoning),
    texts,
    st.lists(calls, max_size=2),
    texts,
)
replies = st.one_of(
    st.builds(Message, st.sampled_from(["user", "system"]), texts),
    st.builds(lambda text, at: result(text, f"c{at}"), texts, st.integers(0, 9)),
)


@given(st.lists(st.tuples(answers, replies), min_size=1, max_size=4))
def test_whatever_is_said_in_turns_reads_back_from_input_and_output(turns: list[tuple[Message, Message]]) -> None:
    said = [message for pair in turns for message in pair]
    assert read_input(input_items(said)) == said
    body = response_body([Turn(message) for message, _ in turns], [[reply] for _, reply in turns], model="m")
    assert read_output(body["output"]) == said


def test_calls_and_results_without_an_id_are_tied_in_their_order() -> None:
    said = [answer(ToolCall("add", {"a": 1}), ToolCall("add", {"a": 2})), result("1", None), result("2", None)]
    items = input_items(said)
    assert [item["call_id"] for item in items] == ["call_0_0", "call_0_1", "call_0_0", "call_0_1"]


def test_calls_without_an_id_are_named_after_their_place_in_the_conversation() -> None:
    turns = [Turn(answer(ToolCall("add", {"a": 1}))), Turn(answer(ToolCall("add", {"a": 2})))]
    body = response_body(turns, [[result("1", None)], [result("2", None)]], model="m", position=2)
    assert [item["call_id"] for item in body["output"]] == ["call_2_0", "call_2_0", "call_4_0", "call_4_0"]


def test_a_bad_call_goes_into_a_request_in_a_form_that_every_server_accepts() -> None:
    bad = answer(ToolCall("add numbers!", {}, "c1", "invalid_json", '{"a": 1'))
    [item] = input_items([bad])
    assert (item["name"], item["arguments"]) == ("add_numbers_", '{"malformed": "{\\"a\\": 1"}')


def test_a_bad_call_stands_in_a_response_as_it_was_written() -> None:
    bad = ToolCall("add numbers!", {}, "c1", "invalid_json", '{"a": 1')
    [item] = output_items(Turn(answer(bad)))
    assert (item["name"], item["arguments"]) == ("add numbers!", '{"a": 1')
    assert read_output([item]) == [answer(bad)]


def test_the_forms_that_people_and_other_servers_write_are_read() -> None:
    items = [
        {"role": "developer", "content": "d"},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "u"}], "content": None},
        {"type": "message", "id": "m", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "x", "annotations": []}, {"type": "refusal", "refusal": "y"}]},
        {"type": "function_call", "id": "f", "call_id": "c1", "name": "add", "arguments": "{}", "status": "completed"},
        {"type": "function_call", "call_id": "c2", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "3"}]},
    ]  # fmt: skip
    assert read_input(items) == [
        Message("system", "d"),
        Message("user", "ab"),
        answer(ToolCall("add", id="c1"), ToolCall("add", id="c2"), content="xy", reasoning="t\nu"),
        result("3"),
    ]


def test_messages_that_a_person_wrote_one_after_the_other_stay_apart() -> None:
    items = [
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "t"}]},
        {"role": "assistant", "content": "c"},
    ]
    assert read_input(items) == [answer(content="a"), answer(content="b"), answer(content="c", reasoning="t")]


def test_an_item_with_token_fields_ends_its_answer() -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
    assert read_output([{**said, **TOKENS}, said]) == [answer(content="a"), answer(content="a")]
    assert read_output([said, said]) == [answer(content="aa")]


def test_a_text_is_one_user_message() -> None:
    assert read_input("hello") == [Message("user", "hello")]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "input must be a text or a list of items, got ''"),
        ([], "input must be a text or a list of items, got []"),
        (None, "input must be a text or a list of items, got None"),
        ([7], "input[0] must be an object, got int: 7"),
        ([{"role": "user", "content": "a"}, {"type": "mcp_call"}], "input[1] has type 'mcp_call'; Allowed: "),
        ([{"role": "usr", "content": "a"}], "input[0].role is 'usr'; did you mean 'user'?"),
        ([{"role": "user"}], "input[0].content must be text or a list of text parts, got nothing"),
        (
            [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}],
            "input[0].content[0] has type 'input_image'; only text can be read",
        ),
        ([{"type": "function_call", "name": "add"}], "input[0].call_id must name the call, got None"),
        ([{"type": "function_call", "call_id": "c"}], "input[0].name must be the name of a tool, got None"),
        ([{"type": "function_call_output", "call_id": "c"}], "input[0].output must be text"),
        ([{"type": "reasoning", "summary": 7}], "input[0] must have a summary or a content, got 7"),
        (
            [{"role": "assistant", "content": "a", "prompt_token_ids": [1]}],
            "input[0] has prompt_token_ids but no generation_token_ids; give all of",
        ),
        (
            [{"role": "assistant", "content": "a", **TOKENS, "generation_token_ids": ["3", 4]}],
            "input[0].generation_token_ids must be a list of integers, got list: ['3', 4]",
        ),
        (
            [{"role": "assistant", "content": "a", **TOKENS, "generation_log_probs": [0.0]}],
            "input[0] has 2 generation_token_ids but 1 generation_log_probs",
        ),
    ],
)  # fmt: skip
def test_an_input_that_cannot_be_read_is_refused_with_its_place(value: object, words: str) -> None:
    with pytest.raises(UsageError) as error:
        read_input(value)
    assert words in str(error.value)


def test_what_is_no_message_is_left_out_of_an_output() -> None:
    said = {"type": "message", "role": "assistant", "content": "a"}
    odd = [None, 7, {}, {"type": "web_search_call", "id": "w"}, {"type": "function_call", "name": 3}, said]
    assert read_output(odd) == [answer(content="a")]
    assert read_output(None) == read_output("text") == []


# ---------------------------------------------------------------------------------------------------- tokens


def test_token_fields_stand_on_the_last_item_of_a_turn() -> None:
    turn = Turn(answer(CALL, content="I add.", reasoning="r"), "stop", Usage(2, 2), [1, 2], [3, 4], [-0.5, 0.0])
    reasoning, message, call = output_items(turn, token_fields=True)
    assert {name: call[name] for name in TOKENS} == TOKENS
    assert not TOKENS.keys() & (reasoning.keys() | message.keys())
    assert not any(TOKENS.keys() & item.keys() for item in output_items(turn))
    turn.logprobs = None  # without one of the three, readers would refuse the others
    assert not any(TOKENS.keys() & item.keys() for item in output_items(turn, token_fields=True))


def test_token_fields_go_with_the_last_answer_and_come_back_as_the_turn_before() -> None:
    previous = Turn(CONVERSATION[4], "stop", Usage(2, 2), (1, 2), (3, 4), (-0.5, 0.0))
    items = input_items(CONVERSATION, previous)
    assert [TOKENS.keys() <= item.keys() for item in items] == [False] * 6 + [True, False]
    read = read_create_params({"input": items})
    assert read.messages == CONVERSATION
    assert read.previous == Turn(CONVERSATION[4], prompt_token_ids=[1, 2], token_ids=[3, 4], logprobs=[-0.5, 0.0])


def test_only_the_last_answer_can_be_gone_on_from() -> None:
    items = [{"role": "assistant", "content": "a", **TOKENS}, {"role": "user", "content": "u"}]
    assert read_create_params({"input": items}).previous is not None
    assert read_create_params({"input": [*items, {"role": "assistant", "content": "b"}]}).previous is None


def test_a_response_gives_the_turn_its_token_ids_and_usage() -> None:
    turn = Turn(answer(CALL), "stop", Usage(2, 2), (1, 2), (3, 4), (-0.5, 0.0))
    assert read_response(response_body([turn], model="m", token_fields=True), [ADD]) == turn


# ---------------------------------------------------------------------------------------------------- parameters


def test_parameters_are_what_polygym_understands_and_the_rest() -> None:
    read = read_create_params(
        {
            "input": "2 + 2?",
            "instructions": "Be brief.",
            "tools": [{"type": "function", **tool_items([ADD])[0]}],
            "max_output_tokens": 9,
            "temperature": 0,
            "top_p": None,
            "stop": "\n",
            "parallel_tool_calls": False,
            "metadata": {"k": "v"},
            "user": None,
        }
    )
    assert read.messages == [Message("system", "Be brief."), Message("user", "2 + 2?")]
    assert read.tools == [ADD]
    assert Sampling(**read.sampling) == Sampling(max_tokens=9, temperature=0, stop=("\n",))
    assert "top_p" not in read.sampling
    assert read.extra == {"parallel_tool_calls": False, "metadata": {"k": "v"}}


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (None, "responses_create_params must be an object with input, got NoneType"),
        ({}, "responses_create_params.input must be a text or a list of items, got None"),
        ({"input": "a", "instructions": 7}, "responses_create_params.instructions must be text, got 7"),
        ({"input": "a", "temperature": "hot"}, "responses_create_params.temperature must be a number, got 'hot'"),
        ({"input": "a", "temperature": True}, "responses_create_params.temperature must be a number, got True"),
        ({"input": "a", "top_p": 2}, "responses_create_params: top_p=2 is outside (0, 1]"),
        ({"input": "a", "max_output_tokens": 0}, "max_tokens=0 must be an integer of at least 1"),
        ({"input": "a", "stop": [7]}, "responses_create_params.stop must be a text or a list of texts, got [7]"),
        ({"input": "a", "tools": {}}, "responses_create_params.tools must be a list, got dict"),
        ({"input": "a", "tools": [{"type": "web_search"}]}, "tools[0] has type 'web_search'; only 'function'"),
        ({"input": "a", "tools": [{"type": "function"}]}, "tools[0] must have a name, got nothing"),
        ({"input": "a", "tools": [{"name": "f"}, {"name": "f"}]}, "tools[1] is called 'f' like one before it"),
        ({"input": "a", "tools": [{"name": "f", "parameters": 3}]}, "tools[0].parameters must be a JSON schema"),
    ],
)
def test_bad_parameters_are_refused_with_their_place(params: object, words: str) -> None:
    with pytest.raises(UsageError) as error:
        read_create_params(params)
    assert words in str(error.value)


def test_tools_are_flat_and_both_forms_are_read() -> None:
    assert tool_items([ADD]) == [
        {
            "type": "function",
            "name": "add",
            "description": "Add two numbers.",
            "parameters": dict(ADD.parameters),
            "strict": True,
        }
    ]
    assert read_tools(tool_items([ADD])) == read_tools([ADD.to_dict()]) == [ADD]
    assert read_tools(None) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": [], "additionalProperties": False},
        {"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False},
        {"type": "object", "properties": {"a": {"type": "array"}}, "required": ["a"], "additionalProperties": False},
        {
            "type": "object",
            "properties": {"a": {"type": "integer", "default": 1}},
            "required": ["a"],
            "additionalProperties": False,
        },
    ],
)
def test_a_tool_is_not_strict_where_its_schema_leaves_something_open(schema: dict[str, Any]) -> None:
    assert tool_items([ToolSpec("f", "", schema)])[0]["strict"] is False


# ---------------------------------------------------------------------------------------------------- bodies


def test_the_response_of_a_rollout_holds_all_turns_and_replies() -> None:
    turns = [Turn(CONVERSATION[2], "stop", Usage(10, 4)), Turn(CONVERSATION[4], "stop", Usage(20, 1))]
    params = {"input": "1 + 2?", "tools": [ADD.to_dict()], "temperature": 0.5, "user": "me"}
    body = response_body(
        turns, [[result("3")]], model="m", params=params, position=2, response_id="resp_7", created_at=5.5
    )
    assert body == {
        "id": "resp_7",
        "object": "response",
        "created_at": 5,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "m",
        "output": [
            {"type": "reasoning", "id": "rs_7_0", "summary": [{"type": "summary_text", "text": "They want a sum."}]},
            {
                "type": "message",
                "id": "msg_7_0",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "I add.", "annotations": []}],
            },
            {
                "type": "function_call",
                "id": "fc_7_0_0",
                "call_id": "c1",
                "name": "add",
                "arguments": '{"a": 1, "b": 2}',
                "status": "completed",
            },
            {"type": "function_call_output", "call_id": "c1", "output": "3"},
            {
                "type": "message",
                "id": "msg_7_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "3", "annotations": []}],
            },
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": tool_items([ADD]),
        "usage": {
            "input_tokens": 30,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 35,
        },
        "temperature": 0.5,
        "user": "me",
    }


@pytest.mark.parametrize(("finish_reason", "truncated"), [("length", False), ("context", False), ("stop", True)])
def test_a_response_that_a_token_limit_ended_is_incomplete(finish_reason: str, truncated: bool) -> None:
    body = response_body([Turn(answer(content="a"), finish_reason)], model="m", truncated=truncated)
    assert body["status"] == "incomplete"
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert read_response(body).finish_reason == "length"


def test_an_answer_of_nothing_is_an_empty_message_that_can_carry_tokens() -> None:
    turn = Turn(answer(), "stop", Usage(2, 1), [1, 2], [3], [0.0])
    [item] = output_items(turn, token_fields=True)
    assert (item["content"][0]["text"], item["generation_token_ids"]) == ("", [3])
    assert read_response(response_body([turn], model="m")).message == answer()  # usage tells that it was sampled


def test_our_responses_are_responses_of_the_official_client() -> None:
    turns = [Turn(CONVERSATION[2], "stop", Usage(10, 4)), Turn(CONVERSATION[4], "length", Usage(20, 1))]
    body = response_body(turns, model="m", params={"tools": tool_items([ADD]), "metadata": {"k": "v"}})
    response = Response.model_validate(body, strict=True)
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call", "message"]
    assert response.output_text == "I add.3"
    assert response.usage is not None and response.usage.total_tokens == 35
    assert response.incomplete_details is not None and response.incomplete_details.reason == "max_output_tokens"
    assert response.to_dict(mode="json").items() <= {**body, "created_at": float(body["created_at"])}.items()


def ok_body(**changes: Any) -> dict[str, Any]:
    return {**response_body([Turn(answer(content="4"), "stop", Usage(1, 1))], model="m"), **changes}


@pytest.mark.parametrize(
    ("status", "body", "action", "reason"),
    [
        (200, ok_body(), "continue", ""),
        (200, {"output": [{"content": "4"}]}, "continue", ""),
        (200, ok_body(status="incomplete", incomplete_details={"reason": "max_output_tokens"}), "stop", "truncated"),
        (200, ok_body(status="incomplete", incomplete_details=None), "stop", "truncated"),
        (200, ok_body(incomplete_details={"reason": "content_filter"}), "fail", "content_filter"),
        (200, ok_body(status="failed", output=[]), "retry", "server_error"),
        (200, ok_body(error={"code": "server_error", "message": "boom"}), "retry", "server_error"),
        (200, {"error": {"message": "rate limit reached"}}, "retry", "rate_limited"),
        (200, {"output": []}, "retry", "empty_response"),
        (200, {"output": None}, "retry", "empty_response"),
        (200, {"choices": []}, "retry", "empty_response"),
        (200, "<html>", "retry", "empty_response"),
        (200, None, "retry", "empty_response"),
        (400, {"error": {"code": "context_length_exceeded", "message": "too long"}}, "stop", "truncated"),
        (401, {}, "fail", "auth_error"),
        (429, {}, "retry", "rate_limited"),
        (503, {}, "retry", "server_error"),
    ],
)
def test_every_answer_has_a_meaning(status: int, body: Any, action: str, reason: str) -> None:
    outcome = classify_response(status, body)
    assert (outcome.action, outcome.reason) == (action, reason)


WORDS = (
    *("type", "role", "content", "text", "summary", "name", "arguments", "call_id", "output", "status", "error"),
    *("incomplete_details", "usage", "generation_token_ids", "generation_log_probs", "prompt_token_ids"),
    *("tool_calls", "function", "tools", "input"),
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(WORDS),
            inner | st.sampled_from(["message", "reasoning", "function_call", "function_call_output", "assistant"]),
            max_size=5,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(json_values, json_values)
def test_reading_is_total(body: Any, item: Any) -> None:
    classify_response(200, body)
    classify_response(200, {"output": [item]})
    read_output([item])
    reads: tuple[Callable[[Any], Any], ...] = (read_input, read_create_params, read_tools, read_messages, read_response)
    for read in reads:
        for value in (body, [item], {"input": [item]}):
            try:
                read(value)
            except UsageError:
                continue


def test_reasoning_that_a_server_left_in_the_text_is_taken_out() -> None:
    body = ok_body(output=[{"type": "message", "content": "<think>hm</think>4"}])
    assert read_response(body).message == answer(content="4", reasoning="hm")


def test_calls_are_checked_against_the_tools_of_the_request() -> None:
    items = [
        {"type": "function_call", "call_id": "", "name": "add", "arguments": '{"a": 1}'},
        {"type": "function_call", "call_id": "x", "name": "verify", "arguments": "{}"},
        {"type": "function_call", "call_id": "y", "name": "add", "arguments": "{a"},
    ]
    turn = read_response({"output": items}, [ADD], position=4)
    assert turn.message.tool_calls == (
        ToolCall("add", {"a": 1}, "call_4_0"),
        ToolCall("verify", {}, "x", "unknown_tool", "{}"),
        ToolCall("add", {}, "y", "invalid_json", "{a"),
    )


# ---------------------------------------------------------------------------------------------------- chat


def test_chat_messages_are_read_with_calls_parts_and_reasoning() -> None:
    rows = [
        {"role": "developer", "content": "d"},
        {"role": "user", "content": [{"type": "text", "text": "u"}]},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "r",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
            ],
            **TOKENS,
        },
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    ]
    messages, previous = read_messages(rows)
    assert messages == [Message("system", "d"), Message("user", "u"), answer(CALL, reasoning="r"), result("3")]
    assert previous == Turn(messages[2], prompt_token_ids=[1, 2], token_ids=[3, 4], logprobs=[-0.5, 0.0])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("hello", "messages must be a list of messages, got str: 'hello'"),
        ([7], "messages[0] must be an object with role and content, got int: 7"),
        ([{"role": "function", "content": "a"}], "messages[0].role is 'function'; "),
        ([{"role": "user", "content": 7}], "messages[0].content must be text or a list of text parts, got int: 7"),
        ([{"role": "user", "content": [7]}], "messages[0].content[0] must be an object with type and text, got int: 7"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0] must hold text, got nothing"),
        ([{"role": "assistant", "tool_calls": 7}], "messages[0].tool_calls must be a list, got int: 7"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0] must be an object with id, type and"),
    ],
)
def test_chat_messages_that_cannot_be_read_are_refused_with_their_place(rows: object, words: str) -> None:
    with pytest.raises(UsageError) as error:
        read_messages(rows)
    assert words in str(error.value)
