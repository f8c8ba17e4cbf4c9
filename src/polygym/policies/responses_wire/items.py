"""Items of the Responses API and messages.

The one idea: what stands between two replies is one answer. Reasoning, text and calls that follow one another are read
as one assistant message, and an item with token fields is the last of its answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from polygym.errors import UsageError, nearest
from polygym.messages import Message, ToolCall
from polygym.policies.wire import TOKEN_FIELDS, accepted_call, decoded_call, token_fields_of, with_call_ids
from polygym.policies.wire_input import Tokens, read_role, read_text, read_tokens, turn_with
from polygym.rollout import Turn

Item = dict[str, Any]

_ROLES = ("system", "developer", "user", "assistant")
_TYPES = ("message", "reasoning", "function_call", "function_call_output")


# ---------------------------------------------------------------------------------------------------- messages to items


def input_items(messages: Sequence[Message], previous: Turn | None = None) -> list[Item]:
    """Messages as the input of a request, in a form that every server accepts.

    With `previous`, the turn that wrote the last answer of `messages`, the last item of that answer carries its token
    fields.

    >>> input_items([Message("user", "2 + 2?")])
    [{'type': 'message', 'role': 'user', 'content': '2 + 2?'}]
    """
    items: list[Item] = []
    last = None
    for position, message in enumerate(with_call_ids(messages)):
        if message.role != "assistant":
            items.append(_reply_item(message))
            continue
        if message.reasoning:
            items.append(_reasoning_item(message.reasoning, f"rs_{position}"))
        if message.content or not (message.reasoning or message.tool_calls):
            items.append({"type": "message", "role": "assistant", "content": message.content})
        for call in message.tool_calls:
            name, arguments = accepted_call(call)
            items.append({"type": "function_call", "call_id": call.id, "name": name, "arguments": arguments})
        last = items[-1]
    if previous is not None and last is not None:
        last.update(token_fields_of(previous))
    return items


def output_items(turn: Turn, token_fields: bool = False, *, base: str = "0", position: int = 0) -> list[Item]:
    """A turn as output: reasoning, text and calls as the policy wrote them.

    Args:
        token_fields: whether the last item carries the turn's token fields, where it has them.
        base: makes the ids of the items unique.
        position: number of messages before the turn; a call without an id is named after it.
    """
    [message] = with_call_ids([turn.message], position)
    items: list[Item] = []
    if message.reasoning:
        items.append(_reasoning_item(message.reasoning, f"rs_{base}"))
    if message.content or not (message.reasoning or message.tool_calls):
        part = {"type": "output_text", "text": message.content, "annotations": []}
        status = "incomplete" if turn.finish_reason == "length" else "completed"
        items.append({"type": "message", "id": f"msg_{base}", "role": "assistant", "status": status, "content": [part]})
    for index, call in enumerate(message.tool_calls):
        items.append(
            {
                "type": "function_call",
                "id": f"fc_{base}_{index}",
                "call_id": call.id,
                "name": call.name,
                "arguments": _written_arguments(call),
                "status": "completed",
                **({"error": call.error} if call.error is not None else {}),
            }
        )
    if token_fields:
        items[-1].update(token_fields_of(turn))
    return items


def reply_items(messages: Sequence[Message]) -> list[Item]:
    """What an environment said, as items; every result has its call's id."""
    return [_reply_item(message) for message in messages]


def _reply_item(message: Message) -> Item:
    if message.role == "tool":
        return {"type": "function_call_output", "call_id": message.tool_call_id, "output": message.content}
    return {"type": "message", "role": message.role, "content": message.content}


def _reasoning_item(text: str, item_id: str) -> Item:
    return {"type": "reasoning", "id": item_id, "summary": [{"type": "summary_text", "text": text}]}


def _written_arguments(call: ToolCall) -> str:
    if call.error is not None and not call.arguments and call.raw:
        return call.raw
    return json.dumps(dict(call.arguments), ensure_ascii=False)


# ---------------------------------------------------------------------------------------------------- items to messages


def read_input(value: object, where: str = "input") -> list[Message]:
    """Messages of a request's input: a text (one user message) or a list of items.

    `developer` is read as `system`; an item without a type is a message.

    Raises:
        UsageError: when it is empty, or an item cannot be read.
    """
    return read_conversation(value, where)[0]


def read_conversation(value: object, where: str = "input") -> tuple[list[Message], Turn | None]:
    """The messages of `read_input`, and the turn that wrote the last answer where that carries token fields."""
    if isinstance(value, str) and value:
        return [Message("user", value)], None
    if not value or not isinstance(value, Sequence) or isinstance(value, bytes):
        raise UsageError(f"{where} must be a text or a list of items, got {value!r:.80}")
    reader = _Reader()
    for index, item in enumerate(value):
        reader.read(item, f"{where}[{index}]")
    reader.end_answer()
    return reader.messages, reader.previous


def read_output(items: object) -> list[Message]:
    """The messages of a response's output: answers and, in the response of a whole rollout, the replies between them.

    Total: what has no form as a message (calls that a provider ran itself) or is malformed is left out.
    """
    reader = _Reader()
    for item in items if isinstance(items, Sequence) and not isinstance(items, (str, bytes)) else ():
        try:
            reader.read(item, "output")
        except UsageError:
            continue
    reader.end_answer()
    return reader.messages


def read_turns(items: object) -> list[Turn]:
    """The answers in a response's output as turns, each with its token ids and log-probabilities where it has them.

    Total, as `read_output`: an answer whose token fields are malformed has none.
    """
    reader = _Reader()
    for item in items if isinstance(items, Sequence) and not isinstance(items, (str, bytes)) else ():
        try:
            reader.read(item, "output")
        except UsageError:
            if isinstance(item, Mapping):
                with suppress(UsageError):
                    reader.read({key: value for key, value in item.items() if key not in TOKEN_FIELDS}, "output")
    reader.end_answer()
    return reader.turns


class _Reader:
    """Collects items into messages. `turns` are those of answers, `previous` the last where it has token fields."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.turns: list[Turn] = []
        self.previous: Turn | None = None
        self._thoughts: list[str] = []
        self._texts: list[str] = []
        self._calls: list[ToolCall] = []
        self._begun = False
        self._whole = False  # whether its text is a message that a person may have written

    def read(self, item: object, where: str) -> None:
        """Take one item.

        Raises:
            UsageError: when it cannot be read; nothing has been taken then.
        """
        if not isinstance(item, Mapping):
            raise UsageError(f"{where} must be an object, got {type(item).__name__}: {item!r:.80}")
        kind = item.get("type", "message")
        if kind == "message":
            self._message(item, where)
        elif kind == "reasoning":
            self._reasoning(item, where)
        elif kind == "function_call":
            self._call(item, where)
        elif kind == "function_call_output":
            output = read_text(item.get("output"), f"{where}.output")
            call_id = _call_id(item, where)
            self.end_answer()
            self.messages.append(Message("tool", output, tool_call_id=call_id))
        else:
            raise UsageError(f"{where} has type {kind!r:.80}; {nearest(kind, _TYPES)}")

    def _message(self, item: Mapping[str, Any], where: str) -> None:
        role = read_role(item.get("role"), _ROLES, where)
        content = item.get("content")
        text = read_text(content, f"{where}.content", null=role == "assistant")
        if role != "assistant":
            self.end_answer()
            self.messages.append(Message("user" if role == "user" else "system", text))
            return
        tokens = read_tokens(item, where)
        whole = not isinstance(content, Sequence) or isinstance(content, str)
        if self._texts and (whole or self._whole):
            self.end_answer()
        self._whole = self._whole or whole
        self._texts.append(text)
        self._take(tokens)

    def _reasoning(self, item: Mapping[str, Any], where: str) -> None:
        parts = item.get("content") or item.get("summary") or []
        if not isinstance(parts, Sequence):
            raise UsageError(f"{where} must have a summary or a content, got {parts!r:.80}")
        texts = [parts] if isinstance(parts, str) else [read_text([part], f"{where}.summary") for part in parts]
        tokens = read_tokens(item, where)
        if self._texts and self._whole:
            self.end_answer()
        self._thoughts += [text for text in texts if text]
        self._begun = True
        self._take(tokens)

    def _call(self, item: Mapping[str, Any], where: str) -> None:
        name = item.get("name")
        if not isinstance(name, str):
            raise UsageError(f"{where}.name must be the name of a tool, got {name!r:.80}")
        call_id = _call_id(item, where)
        tokens = read_tokens(item, where)
        self._calls.append(decoded_call(name, item.get("arguments"), call_id, None, item.get("error")))
        self._take(tokens)

    def _take(self, tokens: Tokens | None) -> None:
        self._begun = True
        if tokens is not None:
            self.end_answer(tokens)

    def end_answer(self, tokens: Tokens | None = None) -> None:
        """What comes now belongs to another message."""
        if not self._begun:
            return
        message = Message("assistant", "".join(self._texts), tuple(self._calls), reasoning="\n".join(self._thoughts))
        self.messages.append(message)
        self.previous = turn_with(message, tokens)
        self.turns.append(self.previous or Turn(message))
        self._thoughts, self._texts, self._calls = [], [], []
        self._begun = self._whole = False


def _call_id(item: Mapping[str, Any], where: str) -> str:
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or not call_id:
        raise UsageError(f"{where}.call_id must name the call, got {call_id!r:.80}")
    return call_id
