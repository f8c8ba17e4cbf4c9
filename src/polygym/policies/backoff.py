"""When to try again, and when to stop trying.

The one idea: patience is bounded twice. One request waits longer from try to try; and once several requests in a row
have found nobody there, the ones after them are not made to wait for the same answer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0


def backoff_seconds(tries: int, draw: Callable[[], float] = random.random) -> float:
    """Seconds to wait after `tries` failures: 0.5, 1, 2, ... up to 30, of which a random half is taken off.

    The draw keeps requests that failed together from coming back together.
    """
    return min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(tries - 1, 30)) * (1 - draw() / 2)


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait, from `Retry-After` (seconds or an HTTP date) or `retry-after-ms`.

    A date is read against the server's own `Date` where there is one, so that a wrong clock does not count.

    >>> retry_after_seconds({"Retry-After": "7"})
    7.0
    """
    if (wait := _number(headers.get("retry-after-ms", ""))) is not None:
        return wait / 1000
    value = headers.get("Retry-After", "")
    if (wait := _number(value)) is not None:
        return wait
    date = _timestamp(value)
    if date is None:
        return None
    sent = _timestamp(headers.get("Date", ""))
    return max(0.0, date - (time.time() if sent is None else sent))


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _timestamp(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


class CircuitBreaker:
    """Remembers that an endpoint is dead, for all requests together.

    After `threshold` requests in a row that gave up, it is open for `cooldown_seconds`: `is_open` is then true and
    requests should fail at once with `cause` and its `kind`. After that, one request in each cooldown is let through
    as a probe. Any answer closes it.
    """

    def __init__(self, threshold: int, cooldown_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.threshold = threshold
        self.cooldown_seconds = cooldown_seconds
        self.cause = ""
        self.kind = ""
        self._clock = clock
        self._failures = 0
        self._next_probe_at = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the endpoint counts as dead."""
        return self._failures >= self.threshold

    def admit_probe(self) -> bool:
        """While open: whether this request may try the endpoint. True once in each cooldown."""
        now = self._clock()
        if now < self._next_probe_at:
            return False
        self._next_probe_at = now + self.cooldown_seconds
        return True

    def failed(self, cause: str, kind: str) -> None:
        """A request has given up because nobody answered."""
        self._failures += 1
        self.cause = cause
        self.kind = kind
        self._next_probe_at = self._clock() + self.cooldown_seconds

    def answered(self) -> None:
        """The endpoint has answered."""
        self._failures = 0
