"""The parameters of a request: `responses_create_params` of a row and the body of `POST /v1/responses`.

The one idea: what polygym understands (input, instructions, tools, sampling) is read and checked; everything else is
kept as it is in `extra`, for the server that the request goes on to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polygym.errors import UsageError
from polygym.messages import Message, ToolSpec
from polygym.policies.base import Sampling
from polygym.policies.responses_wire.items import Item, read_conversation
from polygym.policies.wire_input import read_tools
from polygym.rollout import Turn

_SAMPLING = {"max_output_tokens": "max_tokens", "temperature": "temperature", "top_p": "top_p", "stop": "stop"}
_OWN = {"input", "instructions", "tools", *_SAMPLING}


@dataclass(frozen=True, slots=True)
class CreateParams:
    """A request as it was read.

    `messages` begin with the instructions, where there are any. `sampling` has what the request says of `Sampling`'s
    fields, checked: `dataclasses.replace(default, **params.sampling)`. `previous` is the turn that wrote the last
    answer, where its token fields came along. `extra` holds all other parameters, those that are null left out.
    """

    messages: list[Message]
    tools: list[ToolSpec]
    sampling: dict[str, Any]
    extra: dict[str, Any]
    previous: Turn | None = None


def read_create_params(params: object, where: str = "responses_create_params") -> CreateParams:
    """Read the parameters of a request.

    >>> read_create_params({"input": "2 + 2?", "temperature": 0, "user": "me"}).extra
    {'user': 'me'}

    Raises:
        UsageError: when input, instructions, tools or a sampling parameter is not what it must be.
    """
    if not isinstance(params, Mapping):
        raise UsageError(f"{where} must be an object with input, got {type(params).__name__}: {params!r:.80}")
    messages, previous = read_conversation(params.get("input"), f"{where}.input")
    instructions = params.get("instructions")
    if instructions is not None:
        if not isinstance(instructions, str):
            raise UsageError(f"{where}.instructions must be text, got {instructions!r:.80}")
        messages.insert(0, Message("system", instructions))
    sampling = {ours: params[name] for name, ours in _SAMPLING.items() if params.get(name) is not None}
    if "stop" in sampling:
        sampling["stop"] = _stop_texts(sampling["stop"], where)
    for name in ("temperature", "top_p"):
        if isinstance(sampling.get(name, 0), bool) or not isinstance(sampling.get(name, 0), (int, float)):
            raise UsageError(f"{where}.{name} must be a number, got {sampling[name]!r:.80}")
    try:
        Sampling(**sampling)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
    extra = {name: value for name, value in params.items() if name not in _OWN and value is not None}
    return CreateParams(messages, read_tools(params.get("tools"), f"{where}.tools"), sampling, extra, previous)


def _stop_texts(stop: object, where: str) -> tuple[str, ...]:
    texts = [stop] if isinstance(stop, str) else stop
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) and text for text in texts):
        raise UsageError(f"{where}.stop must be a text or a list of texts, got {stop!r:.80}")
    return tuple(texts)


def tool_items(specs: Sequence[ToolSpec]) -> list[Item]:
    """Tools in the flat form of the Responses API. `strict` is true where the schema leaves nothing open."""
    return [
        {
            "type": "function",
            "name": spec.name,
            "description": spec.description,
            "parameters": dict(spec.parameters),
            "strict": _is_strict(spec.parameters),
        }
        for spec in specs
    ]


def _is_strict(schema: Any) -> bool:
    """Whether a schema is within what `strict` allows: objects are closed and all their properties are required."""
    if not isinstance(schema, Mapping) or not (schema.keys() & {"type", "enum", "anyOf"}):
        return False
    parts = [*schema.get("anyOf", ()), *schema.get("properties", {}).values()]
    if "items" in schema or schema.get("type") == "array":
        parts.append(schema.get("items"))
    if schema.get("type") == "object":
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != set(schema.get("properties", ())):
            return False
    return "default" not in schema and all(_is_strict(part) for part in parts)
