"""The OpenAI chat wire: messages to JSON, and a completion's JSON to a sample and a turn.

The one idea: our messages are strict and the wire is not. What goes out is always something that every server accepts;
what comes in may be anything and is read without raising. What a client sends to a server is read by
`polygym.policies.wire_input`, which refuses what it cannot read.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from polygym.messages import Message, ToolCall, ToolSpec
from polygym.parsing.arguments import parse_arguments
from polygym.parsing.reasoning import strip_reasoning
from polygym.rollout import Turn, Usage

TOKEN_FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
"""What training needs of a turn, on its message or on the last of its items (NeMo Gym's names): all three, or none."""

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_ERROR_CODE = re.compile(r"[a-z_]{1,40}")


def wire_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages with native tool calls. Calls and results without an id get one, in order, as the wire requires."""
    rows: list[dict[str, Any]] = []
    for message in with_call_ids(messages):
        if message.tool_calls:
            calls = []
            for call in message.tool_calls:
                name, arguments = accepted_call(call)
                calls.append({"id": call.id, "type": "function", "function": {"name": name, "arguments": arguments}})
            rows.append({"role": message.role, "content": message.content or None, "tool_calls": calls})
        elif message.role == "tool":
            rows.append({"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content})
        else:
            rows.append({"role": message.role, "content": message.content})
    return rows


def with_call_ids(messages: Sequence[Message], position: int = 0) -> list[Message]:
    """The messages, every call and every result with an id. `position` is the number of messages before them.

    A call without one is named after its place; a result without one belongs to the first call that has none yet.
    """
    named = []
    waiting: deque[str] = deque()  # ids of the last calls that have no result yet
    for at, message in enumerate(messages, position):
        if message.tool_calls:
            if not all(call.id for call in message.tool_calls):
                calls = [
                    call if call.id else replace(call, id=f"call_{at}_{index}")
                    for index, call in enumerate(message.tool_calls)
                ]
                message = replace(message, tool_calls=tuple(calls))
            waiting = deque(call.id for call in message.tool_calls)
        elif message.role == "tool":
            call_id = message.tool_call_id or (waiting[0] if waiting else "call")
            if call_id != message.tool_call_id:
                message = replace(message, tool_call_id=call_id)
            if call_id in waiting:
                waiting.remove(call_id)
        named.append(message)
    return named


def accepted_call(call: ToolCall) -> tuple[str, str]:
    """Name and arguments of a past call as every server accepts them.

    Servers refuse a history with a bad name or with arguments that are no JSON object: one bad call of the policy would
    end its episode with status 400.
    """
    name = _NOT_IN_NAMES.sub("_", call.name)[:64] or "unknown"
    arguments: Any = call.arguments
    if call.error is not None and not arguments and call.raw:
        written_object = _object(call.raw)
        arguments = {"malformed": call.raw} if written_object is None else written_object
    return name, json.dumps(dict(arguments), ensure_ascii=False)


def token_fields_of(turn: Turn) -> dict[str, list[Any]]:
    """The token fields of a turn; empty where one of them is not known, as readers refuse a part of them."""
    if turn.prompt_token_ids is None or turn.token_ids is None or turn.logprobs is None:
        return {}
    return dict(
        zip(TOKEN_FIELDS, (list(turn.prompt_token_ids), list(turn.token_ids), list(turn.logprobs)), strict=True)
    )


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True)
class WireCall:
    """A tool call as the server wrote it; `arguments` is whatever was there, checked by nobody.

    `error` is what our own servers say is wrong with a call that their policy wrote as text.
    """

    name: str
    arguments: Any
    id: str = ""
    error: Any = None


@dataclass(frozen=True, slots=True)
class Sample:
    """What the policy wrote, as the server returned it. Token fields are None where the server sent none.

    `prompt_token_ids`, `token_ids` and `logprobs` come from NeMo Gym's fields on the message (`prompt_token_ids`,
    `generation_token_ids`, `generation_log_probs`) or from vLLM's (`prompt_token_ids` of the body, `token_ids` and
    `logprobs` of the choice).
    """

    content: str = ""
    reasoning: str = ""
    calls: tuple[WireCall, ...] = ()
    prompt_token_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was sampled as far as one can see: no text, reasoning, call or token id."""
        return not (self.content or self.reasoning or self.calls or self.token_ids)


def read_sample(body: Mapping[str, Any], choice: Mapping[str, Any]) -> Sample:
    """The sample in one choice of a completion's body. Total: whatever is malformed is left out."""
    message = choice.get("message")
    if not isinstance(message, Mapping):
        message = {"content": choice.get("text")}  # the form of plain completions
    content, reasoning = content_texts(message.get("content"))
    if not content and isinstance(message.get("refusal"), str):
        content = message["refusal"]  # the policy declined in words: that is its answer
    for key in ("reasoning_content", "reasoning", "thinking"):
        reasoning = reasoning or content_texts(message.get(key))[0]
    return Sample(content, reasoning, _calls(message), *_tokens(body, choice, message))


def content_texts(value: Any) -> tuple[str, str]:
    """Visible text and reasoning of a content field: text, null, or a list of parts."""
    if isinstance(value, str):
        return value, ""
    if not isinstance(value, Sequence):
        return "", ""
    visible, reasoning = [], []
    for part in value:
        if isinstance(part, str):
            visible.append(part)
        elif isinstance(part, Mapping):
            if str(part.get("type", "text")) in ("thinking", "reasoning"):
                reasoning.append(content_texts(part.get("thinking") or part.get("reasoning") or part.get("text"))[0])
            else:
                text = part.get("text", part.get("refusal"))
                visible.append(text if isinstance(text, str) else "")
    return "".join(visible), "".join(reasoning)


def _calls(message: Mapping[str, Any]) -> tuple[WireCall, ...]:
    entries = message.get("tool_calls")
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        entries = []
    if not entries and isinstance(message.get("function_call"), Mapping):
        entries = [{"function": message["function_call"]}]  # the form before tool_calls
    calls = []
    for entry in entries:
        entry = entry if isinstance(entry, Mapping) else {}
        function = entry.get("function") or entry.get("custom")
        function = function if isinstance(function, Mapping) else {}
        name, call_id = function.get("name"), entry.get("id")
        calls.append(
            WireCall(
                name if isinstance(name, str) else "",
                function.get("arguments", function.get("input")),
                call_id if isinstance(call_id, str) else "",
                entry.get("error"),
            )
        )
    return tuple(calls)


def _tokens(
    body: Mapping[str, Any], choice: Mapping[str, Any], message: Mapping[str, Any]
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None, tuple[float, ...] | None]:
    """Ids of the prompt, ids of the sample and their log-probabilities: NeMo Gym's fields on the message, or vLLM's."""
    prompt = token_ids(
        message.get("prompt_token_ids") or body.get("prompt_token_ids") or choice.get("prompt_token_ids")
    )
    listed = choice.get("logprobs")
    listed = listed.get("content") if isinstance(listed, Mapping) else None
    entries = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, Sequence) else []
    ids = token_ids(message.get("generation_token_ids") or choice.get("token_ids"))
    if ids is None and entries:  # vLLM's return_tokens_as_token_ids
        ids = token_ids([entry.get("token") if "token_id:" in str(entry.get("token")) else None for entry in entries])
    values = message.get("generation_log_probs") or [entry.get("logprob") for entry in entries]
    return prompt, ids, log_probs(values, ids)


def token_ids(values: Any) -> tuple[int, ...] | None:
    """Token ids from numbers or texts such as "17" and "token_id:17"; None unless all of them are ids."""
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        return None
    ids = []
    for value in values:
        if isinstance(value, str) and (digits := value.removeprefix("token_id:")).isascii() and digits.isdecimal():
            value = int(digits)
        if isinstance(value, bool) or not isinstance(value, int):
            return None
        ids.append(value)
    return tuple(ids)


def log_probs(values: Any, ids: Sequence[int] | None) -> tuple[float, ...] | None:
    """Log-probabilities of `ids`; None unless there is a number for each."""
    if ids is None or not isinstance(values, Sequence) or len(values) != len(ids):
        return None
    numbers = [float(value) for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return tuple(numbers) if len(numbers) == len(ids) else None


def read_usage(body: Any, sample: Sample | None) -> Usage:
    """Tokens read and written as the server counted them, else by the ids that it returned."""
    counts = body.get("usage") if isinstance(body, Mapping) else None
    counts = counts if isinstance(counts, Mapping) else {}
    numbers = []
    for keys, ids in (
        (("prompt_tokens", "input_tokens"), sample and sample.prompt_token_ids),
        (("completion_tokens", "output_tokens"), sample and sample.token_ids),
    ):
        count = next((counts[key] for key in keys if key in counts), None)
        numbers.append(count if isinstance(count, int) and count >= 0 else len(ids or ()))
    return Usage(*numbers)


def _native_calls(sample: Sample, tools: Sequence[ToolSpec], position: int) -> tuple[ToolCall, ...]:
    """The calls of a sample, arguments decoded; whether they fit the tool is for the environment to check.

    A call of something that is not in `tools`, or whose arguments are no JSON object, carries its error. One without an
    id of its own is named after `position`, the number of messages before it.
    """
    known = {tool.name for tool in tools}
    ids: set[str] = set()
    calls = []
    for index, wire in enumerate(sample.calls):
        call_id = wire.id if wire.id and wire.id not in ids else f"call_{position}_{index}"
        ids.add(call_id)
        calls.append(decoded_call(wire.name, wire.arguments, call_id, known, wire.error))
    return tuple(calls)


def decoded_call(
    name: str, arguments: Any, call_id: str, known: Container[str] | None = None, told: Any = None
) -> ToolCall:
    """A call from what is on the wire. Without the `known` names of tools, every name is one.

    `told` is the error that was sent along, by whoever read the call from a policy's text.
    """
    if isinstance(told, str) and _ERROR_CODE.fullmatch(told):
        return ToolCall(name, {}, call_id, told, arguments if isinstance(arguments, str) else "")
    parsed = parse_arguments(arguments, {"additionalProperties": True})
    error: str | None = parsed.error
    if error is None and not name:
        error = "missing_name"
    elif error is None and known is not None and name not in known:
        error = "unknown_tool"
    raw = ""
    if error is not None:
        raw = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
    return ToolCall(name, parsed.args or {}, call_id, error, raw)


def native_turn(sample: Sample, tools: Sequence[ToolSpec], position: int, finish_reason: str, usage: Usage) -> Turn:
    """The turn that a sample with native calls is; `position` is the number of messages before it."""
    content, thought = strip_reasoning(sample.content) if "think" in sample.content else (sample.content, "")
    calls = _native_calls(sample, tools, position)
    return Turn(
        Message("assistant", content, calls, reasoning=sample.reasoning or thought),
        finish_reason,
        usage,
        sample.prompt_token_ids,
        sample.token_ids,
        sample.logprobs,
    )
