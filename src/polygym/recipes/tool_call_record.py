"""What an episode of tool calls holds: the calls made, the last reply, and how to write such an episode down.

The one idea: a call counts as what the tool would have been given. A malformed one is there, as None, so that rewards
can score it; none of them raises.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from polygym.messages import Message, ToolCall, ToolSpec
from polygym.parsing.arguments import parse_arguments

Step = tuple[str, dict[str, Any], Any]
"""A tool's name, what it is given, what it returns."""


def calls_of(tool: ToolSpec, messages: Sequence[Message], prompt: Sequence[Message]) -> list[dict[str, Any] | None]:
    """Arguments of each call of `tool` that the policy made, in order; None for one that could not be run.

    Args:
        tool: as the policy is told of it.
        messages: of the whole episode, which begins with the prompt.
        prompt: its messages; calls that stand in it are not the policy's.
    """
    return [
        None if call.error is not None else parse_arguments(call.arguments, tool.parameters).args
        for message in messages[len(prompt) :]
        if message.role == "assistant"
        for call in message.tool_calls
        if call.name == tool.name
    ]


def last_reply(messages: Sequence[Message], prompt: Sequence[Message]) -> str:
    """The text of the policy's last message; empty when that is a call, or there is none."""
    last = next((message for message in reversed(messages[len(prompt) :]) if message.role == "assistant"), None)
    return "" if last is None or last.tool_calls else last.content


def demonstrated(steps: Sequence[Step], reply: str) -> list[Message]:
    """The messages of an episode that takes `steps`, a call a turn, and then replies."""
    messages = []
    for number, (name, arguments, result) in enumerate(steps, start=1):
        call = ToolCall(name, arguments, id=f"call_{number}")
        messages.append(Message("assistant", tool_calls=(call,)))
        messages.append(Message("tool", json.dumps(result, ensure_ascii=False), tool_call_id=call.id))
    return [*messages, Message("assistant", reply)]
