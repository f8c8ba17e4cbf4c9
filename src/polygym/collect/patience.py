"""Waiting for a server that fails, for all rollouts together.

The one idea: a server that comes back soon costs no rollout, and one that is dead is found dead once. As long as every
try fails, one rollout at a time tries again and the others wait for how that goes; when that has lasted too long, all
are given up at once. One is still tried now and then, and a success ends all this.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from polygym.policies.backoff import backoff_seconds
from polygym.rollout import Cause
from polygym.text import one_line

RETURN_SECONDS = 30.0
"""How long a server that fails is waited for."""
TOLD_SECONDS = 3.0  # after which a person is told
LONGEST_WAIT_SECONDS = 5.0  # between two tries
LOOK_AGAIN_SECONDS = 0.2


class Patience:
    """The patience with one server.

    Args:
        name: of the server, in messages.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.cause = Cause("server", "")
        self.worked_at = -math.inf
        self.tell: Callable[[str], None] = lambda text: None
        self._since: float | None = None  # every try has failed
        self._until = 0.0
        self._next_try_at = 0.0
        self._tries = 0
        self._trying = False
        self._told = ""  # the state that a person was told last

    @property
    def is_failing(self) -> bool:
        """Whether every try has failed for some time."""
        return self._since is not None

    @property
    def is_dead(self) -> bool:
        """Whether it is not waited for any more; a try that is under way may still change that."""
        return self._since is not None and not self._trying and time.monotonic() > self._until

    @property
    def is_held(self) -> bool:
        """Whether no rollout should be begun now: it is dead, and not yet to be tried again."""
        return self.is_dead and time.monotonic() < self._next_try_at

    @property
    def failing_seconds(self) -> float:
        """For how long every try has failed."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    async def admit(self, tries: int) -> bool:
        """Wait until a rollout may be tried that was tried `tries` times; False where the server is dead."""
        while self._since is not None:
            if not self._trying and time.monotonic() >= self._next_try_at and not (tries and self.is_dead):
                self._trying = True
                self._tries += 1
                return True
            if self.is_dead:
                self._say(
                    "dead", f"has failed for {self.failing_seconds:.0f} s and is not waited for: {self.cause.message}"
                )
                return False
            if self.failing_seconds > TOLD_SECONDS and not self._told:
                self._say("failing", f"fails and is waited for: {self.cause.message}")
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        return True

    def worked(self) -> None:
        """A try has ended well."""
        if self._told:
            self._say("", "works again")
        self.worked_at = time.monotonic()
        self._since, self._tries, self._trying = None, 0, False

    def failed(self, began: float, cause: Cause, more_seconds: float = 0.0) -> None:
        """A try that began at `began` has failed, and so would others; `more_seconds` are waited beyond the usual."""
        now = time.monotonic()
        if self._since is None:
            self._since = max(began, self.worked_at)
        self.cause = cause
        self._until = self._since + RETURN_SECONDS + more_seconds
        self._trying = False
        self._next_try_at = now + min(LONGEST_WAIT_SECONDS, backoff_seconds(self._tries + 1))

    def broken_off(self) -> None:
        """A try has ended without telling anything of the server."""
        self._trying = False

    def _say(self, state: str, words: str) -> None:
        if state != self._told:
            self._told = state
            self.tell(f"{self.name} {one_line(words, 300)}")
