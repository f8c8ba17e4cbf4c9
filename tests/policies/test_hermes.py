"""Tools, calls and results as plain text."""

from __future__ import annotations

import json

from polygym.messages import Message, ToolCall, ToolSpec
from polygym.policies.hermes import as_plain_messages, call_block, tools_block

ADD = ToolSpec("add", "Add two numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}})


def test_the_tools_block_holds_each_tool_as_one_line_of_json() -> None:
    text = tools_block([ADD, ADD])
    lines = text[text.index("<tools>\n{") :].split("\n")[1:3]
    assert [json.loads(line) for line in lines] == [ADD.to_dict()] * 2


def test_tools_are_appended_to_the_system_message() -> None:
    plain = as_plain_messages([Message("system", "Be brief."), Message("user", "1+1?")], [ADD])
    assert [message.role for message in plain] == ["system", "user"]
    assert plain[0].content == "Be brief.\n\n" + tools_block([ADD])


def test_a_system_message_is_added_where_there_is_none() -> None:
    plain = as_plain_messages([Message("user", "1+1?")], [ADD])
    assert plain == [Message("system", tools_block([ADD])), Message("user", "1+1?")]


def test_calls_become_text_and_results_in_a_row_become_one_user_message() -> None:
    calls = (ToolCall("add", {"a": 1}, id="x"), ToolCall("add", {"a": 2}, id="y"))
    plain = as_plain_messages(
        [
            Message("assistant", "I add.", calls),
            Message("tool", "1", tool_call_id="x"),
            Message("tool", "2", tool_call_id="y"),
            Message("user", "go on"),
        ],
        [],
    )
    assert plain == [
        Message(
            "assistant",
            'I add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n'
            '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>',
        ),
        Message("user", "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>"),
        Message("user", "go on"),
    ]


def test_a_call_with_an_error_is_shown_as_it_was_written() -> None:
    assert call_block(ToolCall("", error="invalid_json", raw='{"name": "ad')) == (
        '<tool_call>\n{"name": "ad\n</tool_call>'
    )
    whole = "<tool_call>{oops</tool_call>"
    assert call_block(ToolCall("", error="invalid_json", raw=whole)) == whole


def test_a_conversation_without_tools_is_left_as_it_is() -> None:
    messages = [Message("system", "Be brief."), Message("user", "hi"), Message("assistant", "ho", reasoning="hm")]
    assert as_plain_messages(messages, []) == messages
