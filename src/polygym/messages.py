"""Messages, tool calls and tool descriptions: what a policy reads and writes.

The one idea: a conversation is a list of immutable messages; who produced them, and with which token ids, is told by
the turns of a rollout (`polygym.rollout`), so that the text stays plain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from polygym.errors import UsageError, nearest

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[str, ...] = get_args(Role)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that a policy asked for.

    `error` is None for a call that may run. Otherwise it is the code of what is wrong with it (`invalid_json`,
    `unknown_tool`, ...; see `polygym.parsing.tool_calls`): such a call is never run, and `raw` holds what was written.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    error: str | None = None
    raw: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The call as stored in rollout files; empty fields are left out."""
        row: dict[str, Any] = {"name": self.name, "arguments": dict(self.arguments)}
        if self.id:
            row["id"] = self.id
        if self.error is not None:
            row["error"] = self.error
            row["raw"] = self.raw
        return row


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `content` is the visible text; `reasoning` is what a policy thought before it, never shown again."""

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The message as stored in rollout files; empty optional fields are left out."""
        row: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            row["tool_calls"] = [call.to_dict() for call in self.tool_calls]
        if self.tool_call_id is not None:
            row["tool_call_id"] = self.tool_call_id
        if self.reasoning:
            row["reasoning"] = self.reasoning
        return row

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Message:
        """A message from a row of `to_dict`, or one that a person wrote.

        Raises:
            UsageError: for an unknown role or key, or content that is not text.
        """
        unknown = set(row) - {"role", "content", "tool_calls", "tool_call_id", "reasoning"}
        if unknown:
            name = sorted(unknown)[0]
            raise UsageError(f"message key {name!r} is unknown; {nearest(name, cls.__slots__)}")
        role = row.get("role")
        if role not in ROLES:
            raise UsageError(f"message role {role!r} is unknown; allowed: {', '.join(ROLES)}")
        content = row.get("content")
        if content is not None and not isinstance(content, str):
            raise UsageError(f"message content must be text, got {type(content).__name__}: {content!r:.80}")
        calls = tuple(
            ToolCall(
                name=call["name"],
                arguments=call.get("arguments") or {},
                id=call.get("id", ""),
                error=call.get("error"),
                raw=call.get("raw", ""),
            )
            for call in row.get("tool_calls") or ()
        )
        return cls(cast(Role, role), content or "", calls, row.get("tool_call_id"), row.get("reasoning") or "")


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a policy is told about a tool: its name, what it does, and the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The description in the form of the OpenAI wire: `{"type": "function", "function": {...}}`."""
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": dict(self.parameters)},
        }


def as_messages(value: Any) -> list[Message]:
    """Messages from what people write: a text (one user message), a message, a mapping, or a list of either.

    >>> as_messages("hello")[0].role
    'user'

    Raises:
        UsageError: for anything else.
    """
    if isinstance(value, str):
        return [Message("user", value)]
    if isinstance(value, Message):
        return [value]
    if isinstance(value, Mapping):
        return [Message.from_dict(value)]
    if not isinstance(value, Iterable):
        raise UsageError(f"expected text or messages, got {type(value).__name__}: {value!r:.80}")
    messages = []
    for item in value:
        if not isinstance(item, (Message, Mapping)):
            got = f"{type(item).__name__}: {item!r:.80}"
            raise UsageError(f"a message must be a mapping with role and content, got {got}")
        messages.append(item if isinstance(item, Message) else Message.from_dict(item))
    return messages
