"""What a client sends to a server in the forms of OpenAI: chat messages, content, tools, token fields.

The one idea: a request is read completely or refused. Whatever cannot be read is a `UsageError` that names the place
(`messages[3].content[0]`), what was there and what may be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polygym.errors import UsageError, nearest
from polygym.messages import Message, ToolSpec
from polygym.policies.wire import TOKEN_FIELDS, decoded_call
from polygym.rollout import Turn

Tokens = tuple[list[int], list[int], list[float]]

_ROLES = ("system", "developer", "user", "assistant", "tool")
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal", "summary_text", "reasoning_text")


def read_messages(rows: object, where: str = "messages") -> tuple[list[Message], Turn | None]:
    """Chat messages, and the turn that wrote the last answer where that carries token fields.

    `developer` is read as `system`.

    >>> read_messages([{"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}])[0][0].content
    '2 + 2?'

    Raises:
        UsageError: for anything that is no message of text and tool calls.
    """
    if not isinstance(rows, Sequence) or isinstance(rows, (str, bytes)):
        raise UsageError(f"{where} must be a list of messages, got {_shown(rows)}")
    messages: list[Message] = []
    previous = None
    for index, row in enumerate(rows):
        here = f"{where}[{index}]"
        message = _read_message(row, here)
        messages.append(message)
        if message.role == "assistant":
            previous = turn_with(message, read_tokens(row, here))
    return messages, previous


def _read_message(row: object, where: str) -> Message:
    if not isinstance(row, Mapping):
        raise UsageError(f"{where} must be an object with role and content, got {_shown(row)}")
    role = read_role(row.get("role"), _ROLES, where)
    content = read_text(row.get("content"), f"{where}.content", null=role == "assistant")
    if role == "tool":
        return Message("tool", content, tool_call_id=row.get("tool_call_id") or None)
    if role == "assistant":
        reasoning = next((row[key] for key in ("reasoning_content", "reasoning") if isinstance(row.get(key), str)), "")
        return Message("assistant", content, _read_calls(row.get("tool_calls"), f"{where}.tool_calls"), None, reasoning)
    return Message("user" if role == "user" else "system", content)


def _read_calls(entries: object, where: str) -> tuple[Any, ...]:
    if not entries:
        return ()
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise UsageError(f"{where} must be a list, got {_shown(entries)}")
    calls = []
    for index, entry in enumerate(entries):
        function = entry.get("function") if isinstance(entry, Mapping) else None
        if not isinstance(function, Mapping):
            raise UsageError(f"{where}[{index}] must be an object with id, type and function, got {_shown(entry)}")
        calls.append(
            decoded_call(
                str(function.get("name") or ""),
                function.get("arguments"),
                str(entry.get("id") or ""),
                None,
                entry.get("error"),
            )
        )
    return tuple(calls)


def read_role(role: object, allowed: Sequence[str], where: str) -> str:
    """A role, if it is one of `allowed`.

    Raises:
        UsageError: otherwise.
    """
    if not isinstance(role, str) or role not in allowed:
        raise UsageError(f"{where}.role is {role!r:.80}; {nearest(role, allowed)}")
    return role


def read_text(content: object, where: str, *, null: bool = False) -> str:
    """The text of a content field: a text, a list of text parts, or nothing where `null` is allowed.

    Raises:
        UsageError: for anything else, images and files too.
    """
    if isinstance(content, str):
        return content
    if content is None and null:
        return ""
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise UsageError(f"{where} must be text or a list of text parts, got {_shown(content)}")
    texts = []
    for index, part in enumerate(content):
        if not isinstance(part, Mapping):
            raise UsageError(f"{where}[{index}] must be an object with type and text, got {_shown(part)}")
        kind = part.get("type", "text")
        if kind not in _TEXT_PARTS:
            raise UsageError(f"{where}[{index}] has type {kind!r:.80}; only text can be read: {', '.join(_TEXT_PARTS)}")
        text = part.get("refusal" if kind == "refusal" else "text")
        if not isinstance(text, str):
            raise UsageError(f"{where}[{index}] must hold text, got {_shown(text)}")
        texts.append(text)
    return "".join(texts)


def read_tools(tools: object, where: str = "tools") -> list[ToolSpec]:
    """Tools in the flat form of the Responses API or the nested one of chat; nothing is no tools.

    >>> read_tools([{"type": "function", "name": "now", "parameters": None}])[0].parameters
    {'type': 'object', 'properties': {}}

    Raises:
        UsageError: for a tool that is no function, has no name, or has the name of another.
    """
    if tools is None:
        return []
    if not isinstance(tools, Sequence) or isinstance(tools, (str, bytes)):
        raise UsageError(f"{where} must be a list, got {_shown(tools)}")
    specs: dict[str, ToolSpec] = {}
    for index, tool in enumerate(tools):
        here = f"{where}[{index}]"
        if not isinstance(tool, Mapping):
            raise UsageError(f"{here} must be an object with type and name, got {_shown(tool)}")
        if tool.get("type", "function") != "function":
            raise UsageError(f"{here} has type {tool['type']!r:.80}; only 'function' can be called here")
        function = tool.get("function", tool)
        function = function if isinstance(function, Mapping) else {}
        name, parameters = function.get("name"), function.get("parameters")
        if not isinstance(name, str) or not name:
            raise UsageError(f"{here} must have a name, got {_shown(name)}")
        if name in specs:
            raise UsageError(f"{here} is called {name!r} like one before it; names must be unique")
        if parameters is not None and not isinstance(parameters, Mapping):
            raise UsageError(f"{here}.parameters must be a JSON schema, got {_shown(parameters)}")
        specs[name] = ToolSpec(
            name, str(function.get("description") or ""), parameters or {"type": "object", "properties": {}}
        )
    return list(specs.values())


def read_tokens(row: Mapping[str, Any], where: str) -> Tokens | None:
    """The token fields of a message or an item; None where it has none.

    Raises:
        UsageError: when only some of the three are there, or they are not what they must be.
    """
    given = [name for name in TOKEN_FIELDS if row.get(name) is not None]
    if not given:
        return None
    missing = [name for name in TOKEN_FIELDS if name not in given]
    if missing:
        raise UsageError(f"{where} has {given[0]} but no {missing[0]}; give all of {', '.join(TOKEN_FIELDS)}, or none")
    prompt, ids, logprobs = (row[name] for name in TOKEN_FIELDS)
    for name, values in (("prompt_token_ids", prompt), ("generation_token_ids", ids)):
        if not isinstance(values, list) or not all(type(value) is int for value in values):
            raise UsageError(f"{where}.{name} must be a list of integers, got {_shown(values)}")
    if not isinstance(logprobs, list) or not all(type(value) in (int, float) for value in logprobs):
        raise UsageError(f"{where}.generation_log_probs must be a list of numbers, got {_shown(logprobs)}")
    if len(ids) != len(logprobs):
        raise UsageError(f"{where} has {len(ids)} generation_token_ids but {len(logprobs)} generation_log_probs")
    return prompt, ids, logprobs


def turn_with(message: Message, tokens: Tokens | None) -> Turn | None:
    """The turn that wrote `message`, where its token ids are known."""
    if tokens is None:
        return None
    prompt, ids, logprobs = tokens
    return Turn(message, prompt_token_ids=prompt, token_ids=ids, logprobs=logprobs)


def _shown(value: object) -> str:
    return "nothing" if value is None else f"{type(value).__name__}: {value!r:.80}"
