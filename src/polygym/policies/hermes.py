"""Tools as plain text, in the Hermes form: for models whose chat template, or servers whose interface, has no tools.

The one idea: what is rendered here is what `polygym.parsing.tool_calls` reads back, so tools, calls and results need
nothing but system, assistant and user messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from polygym.messages import Message, ToolCall, ToolSpec

_BEFORE = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
"""
_AFTER = """
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""


def tools_block(tools: Iterable[ToolSpec]) -> str:
    """The part of a system message that describes `tools` and how to call them."""
    return _BEFORE + "\n".join(json.dumps(tool.to_dict(), ensure_ascii=False) for tool in tools) + _AFTER


def call_block(call: ToolCall) -> str:
    """A call as a policy writes it; one with an error as it was written.

    >>> call_block(ToolCall("add", {"a": 1}))
    '<tool_call>\\n{"name": "add", "arguments": {"a": 1}}\\n</tool_call>'
    """
    if call.error is not None and call.raw:
        opening = "" if "<tool_call>" in call.raw else "<tool_call>\n"
        closing = "" if "</tool_call>" in call.raw else "\n</tool_call>"
        return f"{opening}{call.raw.strip()}{closing}"
    written = json.dumps({"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False)
    return f"<tool_call>\n{written}\n</tool_call>"


def result_block(content: str) -> str:
    """The result of a call as it is shown to the policy."""
    return f"<tool_response>\n{content}\n</tool_response>"


def as_plain_messages(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
    """The same conversation without tool fields: system, user and assistant messages of text only.

    Tools go to the end of the system message, calls into the text of their assistant message, and the results that
    follow one another into one user message.
    """
    plain: list[Message] = []
    in_results = False
    for message in messages:
        if message.role == "tool":
            block = result_block(message.content)
            if in_results:
                block = f"{plain.pop().content}\n{block}"
            plain.append(Message("user", block))
        elif message.tool_calls:
            parts = [message.content, *(call_block(call) for call in message.tool_calls)]
            plain.append(Message(message.role, "\n".join(part for part in parts if part)))
        else:
            plain.append(message)
        in_results = message.role == "tool"
    if tools:
        block = tools_block(tools)
        if plain and plain[0].role == "system":
            plain[0] = Message("system", f"{plain[0].content}\n\n{block}" if plain[0].content else block)
        else:
            plain.insert(0, Message("system", block))
    return plain
