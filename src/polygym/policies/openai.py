"""A policy behind an OpenAI-compatible endpoint (`POST {base_url}/chat/completions`).

The one idea: a request ends within its deadline, in a turn or in a `PolicyError` that says why. What may pass by itself
is tried again (`polygym.policies.outcomes`), for a bounded number of times; a dead endpoint is found dead once, not by
each of a thousand rollouts.

Limits: one completion a request, not streamed. An endpoint renders the chat itself, so `Request.previous` is not used
and the sampled ids of earlier turns may be encoded anew there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, get_args

from polygym.errors import PolicyError, UsageError, nearest
from polygym.messages import Message
from polygym.parsing.tool_calls import parse_tool_calls
from polygym.policies.backoff import CircuitBreaker, backoff_seconds
from polygym.policies.base import Request
from polygym.policies.endpoint import Endpoint, encode
from polygym.policies.hermes import as_plain_messages
from polygym.policies.outcomes import Outcome, tokens_left
from polygym.policies.wire import native_turn, read_usage, wire_messages
from polygym.rollout import Turn, Usage
from polygym.seeds import derive_seed

ToolCalls = Literal["native", "text"]

BREAKER_REQUESTS = 8
"""So many requests in a row that found nobody there, and the next ones are not tried..."""
BREAKER_SECONDS = 10.0
"""...for so long."""

_OWN_KEYS = {"model", "messages", "tools", "max_tokens", "max_completion_tokens"} | {
    "temperature",
    "top_p",
    "stop",
    "seed",
    "n",
    "stream",
}
_KINDS = {"rate_limited": "rate_limited", "timeout": "timeout", "empty_response": "empty_response"}
_DEAD = ("connection", "server_error", "timeout")
"""Reasons that, request after request, mean a dead endpoint."""


class OpenAIPolicy:
    """A model at an OpenAI-compatible endpoint.

    Args:
        model: name of the model, as the endpoint knows it.
        base_url: address up to and without `/chat/completions`. Default: `OPENAI_BASE_URL`, else OpenAI's own.
        api_key_env: name of the environment variable that holds the key. A key is never taken from anywhere else.
        concurrency: requests under way at the same time; more wait here, and their deadline has not begun.
        retries: further tries after a failure that may pass by itself.
        deadline_seconds: longest time from the first try to an answer or an error, waits included.
        timeout_seconds: longest time of one try.
        tool_calls: `native` uses the endpoint's own fields; `text` describes the tools in the system message, in the
            Hermes form, and reads the calls from the text.
        extra_body: further fields of the request, such as `{"logprobs": True, "return_token_ids": True}` for vLLM.

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
        concurrency: int = 64,
        retries: int = 6,
        deadline_seconds: float = 600.0,
        timeout_seconds: float = 300.0,
        tool_calls: ToolCalls = "native",
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(model, str) or not model:
            raise UsageError(f"model={model!r} must be the name of a model that the endpoint knows")
        _check_whole("concurrency", concurrency, 1)
        _check_whole("retries", retries, 0)
        _check_seconds("deadline_seconds", deadline_seconds)
        _check_seconds("timeout_seconds", timeout_seconds)
        if tool_calls not in get_args(ToolCalls):
            raise UsageError(f"tool_calls={tool_calls!r} is unknown; {nearest(tool_calls, get_args(ToolCalls))}")
        own = sorted(set(extra_body or {}) & _OWN_KEYS)
        if own:
            raise UsageError(
                f"extra_body must not set {own[0]!r}: it is set by each request; use the sampling settings"
            )
        self.name = model
        self.endpoint = Endpoint(base_url, api_key_env, concurrency)
        self.retries = retries
        self.deadline_seconds = deadline_seconds
        self.timeout_seconds = timeout_seconds
        self.tool_calls = tool_calls
        self.extra_body = dict(extra_body or {})
        # OpenAI's own newer models refuse max_tokens; other servers know nothing else.
        self._limit_key = "max_completion_tokens" if self.endpoint.is_openai else "max_tokens"
        self._breaker = CircuitBreaker(BREAKER_REQUESTS, BREAKER_SECONDS)

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
        async with self.endpoint.place():
            outcome, usage = await self._ask(request)
        return self._turn(request, outcome, usage)

    async def close(self) -> None:
        """Close this event loop's connections. Those of other loops close with their loops."""
        await self.endpoint.close()

    async def _ask(self, request: Request) -> tuple[Outcome, Usage]:
        """An answer that is a turn. Raises PolicyError when there is none to be had.

        A request that is cancelled carries away what its last try found, for whoever has to say what took so long.
        """
        tried: list[str] = []
        try:
            return await self._try(request, tried)
        except asyncio.CancelledError as cancelled:
            if tried:
                cancelled.add_note(tried[-1])
            raise

    async def _try(self, request: Request, tried: list[str]) -> tuple[Outcome, Usage]:
        """As many tries as it takes; what each one found goes to `tried`."""
        probing = self._breaker.is_open
        if probing and not self._breaker.admit_probe():
            raise self._error(self._breaker.kind, f"not tried, as the requests before it found: {self._breaker.cause}")
        deadline = time.monotonic() + self.deadline_seconds
        fields = self._fields(request)
        body = encode(fields)
        tries = 0
        while True:
            remaining = max(0.001, deadline - time.monotonic())
            outcome, answer = await self.endpoint.post(body, min(self.timeout_seconds, remaining))
            tries += 1
            if outcome.reason not in _DEAD:
                self._breaker.answered()
                probing = False
            if outcome.action == "fail":
                raise self._error("refused", f"{outcome.reason}, {outcome.detail}{self._hint(outcome)}", outcome)
            if outcome.action != "retry":
                room = None if outcome.sample else tokens_left(outcome.detail)
                if room is None or room >= fields[self._limit_key]:
                    return outcome, read_usage(answer, outcome.sample)
                fields[self._limit_key] = room  # the prompt fits, but with less room behind it than was asked for
                body = encode(fields)
                continue
            wait = max(backoff_seconds(tries), outcome.retry_after or 0.0)
            too_late = time.monotonic() + wait >= deadline
            if tries > self.retries or too_late or probing or self._breaker.is_open:
                raise self._gave_up(outcome, tries, wait if too_late else None)
            tried.append(str(self._failure(outcome, tries)))
            await asyncio.sleep(wait)
            if self._breaker.is_open:
                raise self._error(
                    self._breaker.kind, f"given up, as the requests before it found: {self._breaker.cause}"
                )
            if outcome.reason == "empty_response":
                # A server that repeats itself for equal seeds would be empty again.
                fields["seed"] = derive_seed(request.seed, "after empty", tries)
                body = encode(fields)

    def _fields(self, request: Request) -> dict[str, Any]:
        as_text = self.tool_calls == "text"
        messages = as_plain_messages(request.messages, request.tools) if as_text else request.messages
        sampling = request.sampling
        fields: dict[str, Any] = {
            "model": self.name,
            "messages": wire_messages(messages),
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

    def _turn(self, request: Request, outcome: Outcome, usage: Usage) -> Turn:
        sample = outcome.sample
        if sample is None:
            return Turn(Message("assistant"), "context", usage)
        finish_reason = "length" if outcome.action == "stop" else "stop"
        if self.tool_calls == "native" or not request.tools:
            return native_turn(sample, request.tools, len(request.messages), finish_reason, usage)
        parsed = parse_tool_calls(sample.content, request.tools, finish_reason=finish_reason)
        return Turn(
            Message("assistant", parsed.content, parsed.calls, reasoning=sample.reasoning or parsed.reasoning),
            finish_reason,
            usage,
            sample.prompt_token_ids,
            sample.token_ids,
            sample.logprobs,
        )

    def _gave_up(self, outcome: Outcome, tries: int, wait: float | None) -> PolicyError:
        error = self._failure(outcome, tries, wait)
        if outcome.reason in _DEAD:
            self._breaker.failed(f"{outcome.reason}, {outcome.detail}", error.kind)
        return error

    def _failure(self, outcome: Outcome, tries: int, wait: float | None = None) -> PolicyError:
        after = f"{tries} tries" if tries > 1 else "1 try"
        if wait is not None:
            after += f", the next would come after {wait:.0f} s and the deadline is {self.deadline_seconds:g} s"
        kind = _KINDS.get(outcome.reason, "endpoint")
        return self._error(kind, f"{outcome.reason}, {outcome.detail} ({after})", outcome)

    def _error(self, kind: str, text: str, outcome: Outcome | None = None) -> PolicyError:
        words = self.endpoint.redacted(f"model {self.name!r} at {self.endpoint.address}: {text}")
        return PolicyError(
            words,
            kind,
            status=outcome.status if outcome else None,
            retry_after=outcome.retry_after if outcome else None,
        )

    def _hint(self, outcome: Outcome) -> str:
        if outcome.reason == "auth_error":
            state = "is set" if self.endpoint.has_key else "is not set"
            return f"; the key is read from the environment variable {self.endpoint.api_key_env}, which {state}"
        if outcome.reason == "not_found":
            return "; check the model's name, and that the base URL ends before /chat/completions (often in /v1)"
        if outcome.reason == "bad_request" and "tool" in outcome.detail and self.tool_calls == "native":
            return '; where the endpoint takes no tools, use tool_calls="text"'
        if outcome.detail.startswith("status 3"):
            return "; the endpoint redirects, give its final address as base URL"
        return ""


def _check_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{name}={value!r} must be an integer of at least {least}")


def _check_seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise UsageError(f"{name}={value!r} must be a number of seconds above 0")
