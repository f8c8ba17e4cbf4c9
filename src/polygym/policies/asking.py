"""Asking an endpoint until there is an answer, or an error that says why there is none.

The one idea: a request ends within its deadline. What may pass by itself is tried again (`polygym.policies.outcomes`),
for a bounded number of times; a dead endpoint is found dead once, not by each of a thousand rollouts. What an endpoint
refuses, or what a model server of ours relays, says nothing of whether it is dead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from polygym.errors import PolicyError, UsageError
from polygym.policies.backoff import CircuitBreaker, backoff_seconds
from polygym.policies.endpoint import Endpoint
from polygym.policies.outcomes import Outcome, tokens_left
from polygym.seeds import derive_seed

BREAKER_REQUESTS = 8
"""So many requests in a row that found nobody there, and the next ones are not tried..."""
BREAKER_SECONDS = 10.0
"""...for so long."""
EMPTY_RETRIES = 2
"""Further tries, at once, where an endpoint without token ids gave an empty sample."""
EMPTY_SAMPLE = "empty_sample"
"""Kind of the error when they were empty too. Whether the policy or its endpoint had nothing to say nobody can tell."""

Send = Callable[[dict[str, Any], float], Awaitable[tuple[Outcome, Any]]]
"""One try with these fields within so many seconds: what it means, and the decoded answer."""

_KINDS = {"rate_limited": "rate_limited", "timeout": "timeout", "empty_response": "empty_response"}
_DEAD = ("connection", "server_error", "timeout")
"""Reasons that, request after request, mean a dead endpoint."""


class Asker:
    """The patience of one policy with its endpoint.

    Args:
        who: is asked, for messages.
        retries: further tries after a failure that may pass by itself.
        deadline_seconds: longest time from the first try to an answer or an error, waits included.
        timeout_seconds: longest time of one try.
        limit_key: field of a request that bounds the tokens of its answer.
        hint: what to tell the user about an outcome that will not pass.

    `tell` is given a line for each try that is followed by another; a server puts it into its log.

    Raises:
        UsageError: when an argument is out of range.
    """

    def __init__(
        self,
        who: str,
        endpoint: Endpoint,
        *,
        retries: int,
        deadline_seconds: float,
        timeout_seconds: float,
        limit_key: str,
        hint: Callable[[Outcome], str],
    ) -> None:
        check_whole("retries", retries, 0)
        _check_seconds("deadline_seconds", deadline_seconds)
        _check_seconds("timeout_seconds", timeout_seconds)
        self.who = who
        self.endpoint = endpoint
        self.retries = retries
        self.deadline_seconds = deadline_seconds
        self.timeout_seconds = timeout_seconds
        self.limit_key = limit_key
        self.breaker = CircuitBreaker(BREAKER_REQUESTS, BREAKER_SECONDS)
        self.tell: Callable[[str], None] = lambda text: None
        self._hint = hint

    async def ask(self, send: Send, fields: dict[str, Any]) -> tuple[Outcome, Any]:
        """An answer that is a turn (`continue` or `stop`), as the server sent it. Waits for a place first.

        `fields` may be changed from try to try: the token limit to what fits, the seed after an empty answer.

        A request that is cancelled carries away what its last try found, for whoever has to say what took so long.

        Raises:
            PolicyError: of kind `endpoint`, `timeout`, `rate_limited`, `empty_response`, `empty_sample` or `refused`.
        """
        tried: list[str] = []
        try:
            async with self.endpoint.place():
                return await self._try(send, fields, tried)
        except asyncio.CancelledError as cancelled:
            if tried:
                cancelled.add_note(tried[-1])
            raise

    async def _try(self, send: Send, fields: dict[str, Any], tried: list[str]) -> tuple[Outcome, Any]:
        """As many tries as it takes; what each one found goes to `tried`."""
        breaker = self.breaker
        probing = breaker.is_open
        if probing and not breaker.admit_probe():
            words = f"not tried, as the requests before it found: {breaker.cause}"
            raise self._error(breaker.kind, words, asked=False)
        deadline = time.monotonic() + self.deadline_seconds
        seed = fields["seed"]
        tries = empty = 0
        while True:
            remaining = max(0.001, deadline - time.monotonic())
            outcome, answer = await send(fields, min(self.timeout_seconds, remaining))
            tries += 1
            if outcome.relayed or outcome.reason not in _DEAD:
                breaker.answered()
                probing = False
            if outcome.action == "fail":
                hint = "" if outcome.relayed else self._hint(outcome)
                kind = EMPTY_SAMPLE if outcome.reason == EMPTY_SAMPLE else "refused"
                raise self._error(kind, f"{outcome.words}{hint}", outcome)
            if outcome.action == "retry" and outcome.sample is not None:
                if empty >= EMPTY_RETRIES or time.monotonic() >= deadline:
                    raise self._error(EMPTY_SAMPLE, f"{outcome.words} ({tries} tries)", outcome)
                empty += 1
                self.tell(str(self._failure(outcome, tries)))
                # A server that repeats itself for equal seeds would be empty again.
                fields["seed"] = derive_seed(seed, "after empty", empty)
                continue
            if outcome.action != "retry":
                room = None if outcome.sample else tokens_left(outcome.detail)
                if room is None or room >= fields[self.limit_key]:
                    return outcome, answer
                fields[self.limit_key] = room  # the prompt fits, but with less room behind it than was asked for
                continue
            wait = max(backoff_seconds(tries), outcome.retry_after or 0.0)
            too_late = time.monotonic() + wait >= deadline
            if outcome.final or tries > self.retries or too_late or probing or breaker.is_open:
                raise self._gave_up(outcome, tries, wait if too_late and not outcome.final else None)
            tried.append(str(self._failure(outcome, tries)))
            self.tell(f"{tried[-1]}; tried again in {wait:.3g} s")
            await asyncio.sleep(wait)
            if breaker.is_open:
                raise self._error(breaker.kind, f"given up, as the requests before it found: {breaker.cause}")

    def _gave_up(self, outcome: Outcome, tries: int, wait: float | None) -> PolicyError:
        error = self._failure(outcome, tries, wait)
        if outcome.reason in _DEAD and not outcome.relayed:
            self.breaker.failed(outcome.words, error.kind)
        return error

    def _failure(self, outcome: Outcome, tries: int, wait: float | None = None) -> PolicyError:
        notes = [f"{tries} tries"] if tries > 1 else []
        if wait is not None:
            notes.append(f"the next would come after {wait:.0f} s and the deadline is {self.deadline_seconds:g} s")
        after = f" ({', '.join(notes)})" if notes else ""
        # A server of ours that could be tried again, and asks not to be, has not asked its endpoint.
        asked = tries > 1 or not (outcome.relayed and outcome.final)
        kind = _KINDS.get(outcome.reason, "endpoint")
        return self._error(kind, f"{outcome.words}{after}", outcome, asked=asked)

    def _error(self, kind: str, text: str, outcome: Outcome | None = None, *, asked: bool = True) -> PolicyError:
        words = self.endpoint.redacted(f"{self.who}: {text}")
        return PolicyError(
            words,
            kind,
            status=outcome.status if outcome else None,
            retry_after=outcome.retry_after if outcome else None,
            asked=asked,
        )


def check_whole(name: str, value: object, least: int) -> None:
    """Check that an argument is an integer of at least `least`.

    Raises:
        UsageError: when it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{name}={value!r} must be an integer of at least {least}")


def _check_seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise UsageError(f"{name}={value!r} must be a number of seconds above 0")
