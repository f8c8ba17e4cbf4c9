"""What a model server is asked: bodies of chat completions and of responses, as requests to a policy.

The one idea: no field is dropped that would change the answer. A policy behind another endpoint gets every field that
is not ours handed on; for one that computes here a field is heeded, known to change nothing, or refused by name.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from polygym.environments.wire_rows import task_of
from polygym.errors import UsageError, nearest
from polygym.messages import Message, ToolSpec
from polygym.policies.base import Request, Sampling
from polygym.policies.responses_wire import read_create_params
from polygym.policies.wire_input import read_messages, read_tools
from polygym.rollout import Task, Turn
from polygym.seeds import derive_seed
from polygym.serve.model_errors import bad_request

MOST_CHOICES = 128

#: Fields that the server reads itself.
_HEEDED = frozenset(
    {"logprobs", "max_completion_tokens", "max_tokens", "model", "n", "return_token_id_information",
     "return_token_ids", "return_tokens_as_token_ids", "seed", "stream", "stream_options", "task"}
)  # fmt: skip
_CHAT = _HEEDED | {"messages", "stop", "temperature", "tools", "top_p"}
_RESPONSES = _HEEDED | {"input", "instructions", "max_output_tokens", "stop", "temperature", "tools", "top_p"}

#: Fields that say nothing about how an answer is sampled, and wishes that may stay unfulfilled.
_HINTS = frozenset(
    {"include", "metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention", "safety_identifier",
     "service_tier", "store", "user", "verbosity"}
)  # fmt: skip
#: Fields that have a value which asks for nothing.
_NEUTRAL: Mapping[str, Callable[[Any], bool]] = {
    "background": lambda value: value is False,
    "frequency_penalty": lambda value: value == 0,
    "logit_bias": lambda value: value == {},
    "presence_penalty": lambda value: value == 0,
    "reasoning": lambda value: isinstance(value, Mapping) and value.get("effort") in (None, "none"),
    "reasoning_effort": lambda value: value == "none",
    "response_format": lambda value: value == {"type": "text"},
    "text": lambda value: isinstance(value, Mapping) and value.get("format", {"type": "text"}) == {"type": "text"},
    "tool_choice": lambda value: value == "auto",
    "top_logprobs": lambda value: value == 0,
    "truncation": lambda value: value == "disabled",
}
#: Fields of which an endpoint is told every value: they hold wishes too, or have a default of its own.
_TOLD = frozenset({"reasoning", "reasoning_effort", "text"})
#: Fields that change an answer in a way that is not read here.
_UNREADABLE = frozenset({"background", "top_logprobs"})
_LOGPROBS = "message.output_text.logprobs"
_STATE = ("conversation", "previous_response_id", "prompt")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it was read: `request` for the first choice, and how the answer is to be written."""

    request: Request
    choices: int = 1
    stream: bool = False
    include_usage: bool = False
    token_ids: bool = False
    logprobs: bool = False
    tokens_as_ids: bool = False

    def requests(self) -> list[Request]:
        """One request for each choice; the first has the seed that was asked for."""
        first = self.request
        return [
            first if index == 0 else replace(first, seed=derive_seed(first.seed, "choice", index))
            for index in range(self.choices)
        ]


class RequestReader:
    """Reads bodies for one policy.

    Args:
        defaults: sampling where a request says nothing.
        token_ids: whether answers carry token fields where a request says nothing.
        wants_task: whether the policy is shown the task of a request.
        forwards: whether the policy stands for an endpoint that is handed all other fields.
    """

    def __init__(self, defaults: Sampling, *, token_ids: bool, wants_task: bool, forwards: bool) -> None:
        self.defaults = defaults
        self.token_ids = token_ids
        self.wants_task = wants_task
        self.forwards = forwards

    def chat(self, body: Mapping[str, Any]) -> Asked:
        """The body of `POST /v1/chat/completions`.

        Raises:
            ApiError: 400, where it cannot be heeded.
            UsageError: likewise.
        """
        messages, previous = read_messages(body.get("messages"))
        if not messages:
            raise bad_request("messages must hold at least one message", "messages")
        limit = body.get("max_tokens") if body.get("max_completion_tokens") is None else body["max_completion_tokens"]
        given = {"max_output_tokens": limit, **{key: body.get(key) for key in ("temperature", "top_p", "stop")}}
        sampling = read_create_params({"input": "-", **given}, "request").sampling
        choices = body.get("n")
        if choices is not None and (type(choices) is not int or not 1 <= choices <= MOST_CHOICES):
            raise bad_request(f"n={choices!r:.40} must be an integer from 1 to {MOST_CHOICES}", "n")
        tools = read_tools(body.get("tools"))
        asked = self._asked(body, messages, tools, sampling, previous, _CHAT)
        options = body.get("stream_options")
        include_usage = isinstance(options, Mapping) and options.get("include_usage") is True
        return replace(
            asked, choices=choices or 1, include_usage=include_usage, logprobs=_flag(body, "logprobs", False)
        )

    def responses(self, body: Mapping[str, Any]) -> Asked:
        """The body of `POST /v1/responses`. Raises as `chat` does."""
        for name in _STATE:
            if body.get(name) is not None:
                raise bad_request(f"{name} needs a server that keeps conversations; send the whole input", name)
        params = read_create_params(body, "request")
        asked = self._asked(body, params.messages, params.tools, params.sampling, params.previous, _RESPONSES)
        include = body.get("include")
        return replace(asked, logprobs=isinstance(include, list) and _LOGPROBS in include)

    def _asked(
        self,
        body: Mapping[str, Any],
        messages: list[Message],
        tools: list[ToolSpec],
        sampling: Mapping[str, Any],
        previous: Turn | None,
        read: frozenset[str],
    ) -> Asked:
        extra = self._extra(body, read)
        if extra.get("tool_choice") == "none":
            tools, extra = [], {name: value for name, value in extra.items() if name != "tool_choice"}
        request = Request(
            messages,
            tools,
            replace(self.defaults, **sampling),
            _seed(body.get("seed")),
            previous,
            _task(body.get("task")) if self.wants_task else None,
            extra,
        )
        token_ids = _flag(body, "return_token_ids", _flag(body, "return_token_id_information", self.token_ids))
        return Asked(
            request,
            stream=_flag(body, "stream", False),
            token_ids=token_ids,
            tokens_as_ids=_flag(body, "return_tokens_as_token_ids", False),
        )

    def _extra(self, body: Mapping[str, Any], read: frozenset[str]) -> dict[str, Any]:
        """The fields that go on to an endpoint, or that decide something here."""
        extra = {}
        for name, value in body.items():
            if value is None or name in read:
                continue
            if name in _NEUTRAL and _NEUTRAL[name](value) and not (name in _TOLD and self.forwards):
                continue
            if (name == "tool_choice" and value == "none") or (self.forwards and name not in _UNREADABLE):
                extra[name] = value
            elif name not in _HINTS and not self.wants_task:  # what a task's demonstration is, no field changes
                known = {*read, *_HINTS, *_NEUTRAL}
                why = (
                    "this value is not supported" if name in known else f"the field is unknown; {nearest(name, known)}"
                )
                raise bad_request(f"{name}={value!r:.80}: {why}", name, "unsupported_parameter")
        return _as_chat(extra) if self.forwards and read is _RESPONSES else extra


def _as_chat(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a response in the form of chat completions; hints that those do not know are left out."""
    fields = {
        name: value for name, value in extra.items() if name not in ("include", "reasoning", "text", "truncation")
    }
    reasoning, text, choice = extra.get("reasoning"), extra.get("text"), extra.get("tool_choice")
    if isinstance(reasoning, Mapping) and reasoning.get("effort") is not None:
        fields["reasoning_effort"] = reasoning["effort"]
    if isinstance(text, Mapping):
        if text.get("verbosity") is not None:
            fields["verbosity"] = text["verbosity"]
        if isinstance(form := text.get("format"), Mapping):
            schema = {name: value for name, value in form.items() if name != "type"}
            kind = form.get("type")
            fields["response_format"] = {"type": kind, **({"json_schema": schema} if kind == "json_schema" else {})}
    if isinstance(choice, Mapping) and "name" in choice:
        fields["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}}
    return fields


def _flag(body: Mapping[str, Any], name: str, default: bool) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise bad_request(f"{name}={value!r:.40} must be true or false", name)
    return value


def _seed(value: object) -> int:
    if value is None:
        return secrets.randbits(63)
    if isinstance(value, bool) or not isinstance(value, int):
        raise bad_request(f"seed={value!r:.40} must be an integer", "seed")
    return value % 2**63


def _task(value: object) -> Task | None:
    """The task that a request shows."""
    if value is None:
        return None
    row = value.get("row") if isinstance(value, Mapping) else None
    environment = value.get("environment") if isinstance(value, Mapping) else None
    if not isinstance(row, Mapping) or not isinstance(environment, str):
        raise UsageError(f'task must be {{"environment": NAME, "row": ROW}}, got {value!r:.80}')
    return task_of(row, environment)
