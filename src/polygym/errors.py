"""Errors, named after who has to act.

    PolygymError
    ├── UsageError     the user: a bad argument, name, config or file; the command line prints it, exit code 2
    ├── PolicyError    the policy's endpoint or process: rollouts that meet it are unscored, never paid 0
    └── GraderError    the grading of an answer: likewise unscored

A message says what was given, what is allowed and how to fix it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PolygymError(Exception):
    """Base of every error that polygym raises on purpose."""


class UsageError(PolygymError, ValueError):
    """Something the user gave is wrong; the message names it, the allowed values and the fix."""


class PolicyError(PolygymError):
    """The policy could not answer, for a reason that lies outside the policy's own output.

    Args:
        message: what happened, without secrets.
        kind: class of the failure as it is counted: `endpoint`, `rate_limited`, `timeout`, `empty_response`, `refused`.
        status: HTTP status of the endpoint's last answer, where there was one.
        retry_after: seconds that the endpoint asked to wait, where it did.
        asked: False where the endpoint was not even asked, because requests before had found it dead.
    """

    def __init__(
        self,
        message: str,
        kind: str = "endpoint",
        *,
        status: int | None = None,
        retry_after: float | None = None,
        asked: bool = True,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.retry_after = retry_after
        self.asked = asked


class GraderError(PolygymError):
    """An answer could not be judged because the judge failed, not because the answer was wrong."""


def nearest(name: object, choices: Iterable[str]) -> str:
    """The hint that ends an "unknown name" message.

    >>> nearest("wieght", ["weight", "name"])
    "did you mean 'weight'? Allowed: name, weight"
    """
    allowed = sorted(choices)
    close = difflib.get_close_matches(str(name), allowed, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}Allowed: {', '.join(allowed) or '(none)'}"
