"""A policy behind an OpenAI-compatible endpoint (`POST {base_url}/chat/completions`).

The one idea: every request ends in a turn or in a `PolicyError` that says why (`polygym.policies.asking`).

Limits: one completion a request, not streamed. An endpoint renders the chat itself, and may encode the sampled text of
earlier turns anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Literal, get_args

from polygym.errors import UsageError, nearest
from polygym.messages import Message
from polygym.parsing.tool_calls import parse_tool_calls
from polygym.policies.asking import Asker, check_whole
from polygym.policies.base import Request
from polygym.policies.endpoint import Endpoint, encode, openai_address
from polygym.policies.hermes import as_plain_messages
from polygym.policies.outcomes import Outcome, turn_of
from polygym.policies.wire import token_fields_of, wire_messages
from polygym.rollout import Turn

ToolCalls = Literal["native", "text"]

_OWN_KEYS = frozenset(
    {"max_completion_tokens", "max_tokens", "messages", "model", "n", "seed", "stop", "stream", "temperature", "tools",
     "top_p"}
)  # fmt: skip


class OpenAIPolicy:
    """A model at an OpenAI-compatible endpoint.

    Args:
        model: name of the model, as the endpoint knows it.
        base_url: address up to and without `/chat/completions`. Default: `OPENAI_BASE_URL`, else OpenAI's own.
        api_key_env: name of the environment variable that holds the key.
        key: tells the key instead, for a server whose settings hold it.
        concurrency: requests under way at the same time; more wait here, and their deadline has not begun.
        retries: further tries after a failure that may pass by itself.
        deadline_seconds: longest time from the first try to an answer or an error, waits included.
        timeout_seconds: longest time of one try.
        tool_calls: `native` uses the endpoint's own fields; `text` describes the tools in the system message, in the
            Hermes form, and reads the calls from the text.
        extra_body: further fields of each request, such as `{"logprobs": True, "return_token_ids": True}` for vLLM.
        echo_token_ids: whether the token fields of the last turn go back with its message, for an endpoint that goes
            on from exactly those ids. Others ignore them, and may encode the sampled text anew.

    A request's own `extra` fields are sent as they are.

    Raises:
        UsageError: when an argument is out of range, or no endpoint or key is known.
    """

    version = 0
    wants_task = False

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        *,
        api_key_env: str = "OPENAI_API_KEY",
        key: Callable[[], str | None] | None = None,
        concurrency: int = 64,
        retries: int = 6,
        deadline_seconds: float = 600.0,
        timeout_seconds: float = 300.0,
        tool_calls: ToolCalls = "native",
        extra_body: Mapping[str, Any] | None = None,
        echo_token_ids: bool = False,
    ) -> None:
        if not isinstance(model, str) or not model:
            raise UsageError(f"model={model!r} must be the name of a model that the endpoint knows")
        check_whole("concurrency", concurrency, 1)
        if tool_calls not in get_args(ToolCalls):
            raise UsageError(f"tool_calls={tool_calls!r} is unknown; {nearest(tool_calls, get_args(ToolCalls))}")
        own = sorted(set(extra_body or {}) & _OWN_KEYS)
        if own:
            raise UsageError(
                f"extra_body must not set {own[0]!r}: it is set by each request; use the sampling settings"
            )
        self.name = model
        self._key_source = "the setting api_key" if key else f"the environment variable {api_key_env}"
        self.endpoint = Endpoint(
            openai_address(base_url, api_key_env), concurrency, key=key or (lambda: os.environ.get(api_key_env))
        )
        self.tool_calls = tool_calls
        self.extra_body = dict(extra_body or {})
        self.echo_token_ids = echo_token_ids
        # OpenAI's own newer models refuse max_tokens; other servers know nothing else.
        self._limit_key = "max_completion_tokens" if self.endpoint.is_openai else "max_tokens"
        self.asker = Asker(
            f"model {model!r} at {self.endpoint.address}",
            self.endpoint,
            retries=retries,
            deadline_seconds=deadline_seconds,
            timeout_seconds=timeout_seconds,
            limit_key=self._limit_key,
            hint=self._hint,
        )

    def __repr__(self) -> str:
        return f"OpenAIPolicy({self.name!r}, {self.endpoint.address!r})"

    def episode(self) -> AbstractContextManager[None]:
        """Nothing to hold: requests are not batched here."""
        return nullcontext()

    async def complete(self, request: Request) -> Turn:
        """Ask the endpoint once, with as many tries as it takes within the limits.

        Raises:
            PolicyError: of kind `endpoint`, `timeout`, `rate_limited`, `empty_response` or `refused`.
        """
        outcome, answer = await self.asker.ask(self._send, self._fields(request))
        turn = turn_of(outcome, answer, request.tools, len(request.messages))
        if self.tool_calls == "native" or not request.tools or outcome.sample is None:
            return turn
        parsed = parse_tool_calls(outcome.sample.content, request.tools, finish_reason=turn.finish_reason)
        reasoning = outcome.sample.reasoning or parsed.reasoning
        return replace(turn, message=Message("assistant", parsed.content, parsed.calls, reasoning=reasoning))

    async def close(self) -> None:
        """Close this event loop's connections. Those of other loops close with their loops."""
        await self.endpoint.close()

    async def _send(self, fields: dict[str, Any], seconds: float) -> tuple[Outcome, Any]:
        return await self.endpoint.post(encode(fields), seconds)

    def _fields(self, request: Request) -> dict[str, Any]:
        as_text = self.tool_calls == "text"
        messages = as_plain_messages(request.messages, request.tools) if as_text else request.messages
        sampling = request.sampling
        rows = wire_messages(messages)
        if self.echo_token_ids and request.previous is not None:
            next(row for row in reversed(rows) if row["role"] == "assistant").update(token_fields_of(request.previous))
        fields: dict[str, Any] = {
            **request.extra,
            "model": self.name,
            "messages": rows,
            self._limit_key: sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": request.seed,
            **self.extra_body,
        }
        if sampling.stop:
            fields["stop"] = list(sampling.stop)
        if request.tools and not as_text:
            fields["tools"] = [tool.to_dict() for tool in request.tools]
        return fields

    def _hint(self, outcome: Outcome) -> str:
        if outcome.reason == "auth_error":
            state = "is set" if self.endpoint.has_key else "is not set"
            return f"; the key is read from {self._key_source}, which {state}"
        if outcome.reason == "not_found":
            return "; check the model's name, and that the base URL ends before /chat/completions (often in /v1)"
        if outcome.reason == "bad_request" and "tool" in outcome.detail and self.tool_calls == "native":
            return '; where the endpoint takes no tools, use tool_calls="text"'
        if outcome.detail.startswith("status 3"):
            return "; the endpoint redirects, give its final address as base URL"
        return ""
