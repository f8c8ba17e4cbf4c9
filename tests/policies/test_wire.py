"""Messages on the OpenAI wire."""

from __future__ import annotations

import json

import pytest

from polygym.messages import Message, ToolCall
from polygym.policies.wire import wire_messages


def test_plain_messages_are_role_and_content_and_reasoning_is_not_shown_again() -> None:
    messages = [Message("system", "s"), Message("user", "u"), Message("assistant", "a", reasoning="hidden")]
    assert wire_messages(messages) == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
    ]


def test_calls_and_results_are_tied_by_id() -> None:
    call = ToolCall("add", {"a": 1, "text": "é"}, "x")
    assert wire_messages([Message("assistant", "", (call,)), Message("tool", "2", tool_call_id="x")]) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "text": "é"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "x", "content": "2"},
    ]


def test_calls_and_results_without_an_id_are_tied_in_their_order() -> None:
    calls = (ToolCall("a"), ToolCall("b", id="own"), ToolCall("c"))
    rows = wire_messages(
        [
            Message("user", "u"),
            Message("assistant", "hm", calls),
            Message("tool", "1"),
            Message("tool", "2", tool_call_id="own"),
            Message("tool", "3"),
            Message("assistant", "", (ToolCall("a"),)),
            Message("tool", "4"),
        ]
    )
    assert [call["id"] for call in rows[1]["tool_calls"]] == ["call_1_0", "own", "call_1_2"]
    assert rows[1]["content"] == "hm"
    assert [row["tool_call_id"] for row in rows if row["role"] == "tool"] == ["call_1_0", "own", "call_1_2", "call_5_0"]


@pytest.mark.parametrize(
    ("call", "name", "arguments"),
    [
        (ToolCall("add", {}, "x", "invalid_json", '{"a": 1'), "add", {"malformed": '{"a": 1'}),
        (ToolCall("add", {}, "x", "arguments_not_object", "[1]"), "add", {"malformed": "[1]"}),
        (ToolCall("sub", {"a": 1}, "x", "unknown_tool", '{"a": 1}'), "sub", {"a": 1}),
        (ToolCall("my tool!", {}, "x", "unknown_tool", "{}"), "my_tool_", {}),
        (ToolCall("", {}, "x", "missing_name", ""), "unknown", {}),
        (ToolCall("x" * 100, {}, "x", "unknown_tool"), "x" * 64, {}),
        (ToolCall("add", {}, "x", "invalid_json", "[" * 100_000), "add", {"malformed": "[" * 100_000}),
    ],
)
def test_a_bad_call_goes_out_in_a_form_that_every_server_takes(call: ToolCall, name: str, arguments: object) -> None:
    [row] = wire_messages([Message("assistant", "", (call,))])
    function = row["tool_calls"][0]["function"]
    assert function["name"] == name
    assert json.loads(function["arguments"]) == arguments
