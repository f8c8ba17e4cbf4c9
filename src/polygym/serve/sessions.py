"""Sessions of a server: state that belongs to one episode, named by an id that nobody can guess.

The one idea: a session ends for certain. The rollout closes it, or a time to live does that its requests renew; there
are never more than a fixed number.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from polygym.serve.app import HttpError

TTL_SECONDS = 3600.0
MAX_SESSIONS = 20_000
_ID_BYTES = 32
_SWEEP_SECONDS = 10.0


class Session:
    """One session. `data` is the server's own, such as a counter; a new session has an empty dict."""

    __slots__ = ("_lock", "_running", "closed", "data", "id", "used")

    def __init__(self, data: Any) -> None:
        self.id = secrets.token_urlsafe(_ID_BYTES)
        self.data = data
        self.used = time.monotonic()
        self.closed = False
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def request(self, *, alone: bool = True) -> AsyncIterator[None]:
        """Held while a request works in the session; requests that work `alone` wait for each other.

        Raises:
            HttpError: 410 when the session was closed meanwhile: what was under way has been cancelled.
        """
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            if alone:
                async with self._lock:
                    self._check_open()
                    yield
            else:
                yield
        except asyncio.CancelledError:
            if self.closed:
                task.uncancel()  # it was `close` that cancelled
            self._check_open()
            raise
        finally:
            self._running.discard(task)
            self.used = time.monotonic()

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return bool(self._running)

    def close(self) -> None:
        """End what is under way, but for the request that closes."""
        self.closed = True
        here = asyncio.current_task()
        for task in self._running:
            if task is not here:
                task.cancel()

    def _check_open(self) -> None:
        if self.closed:
            raise lost_session()


def lost_session() -> HttpError:
    """What a request is told whose session is not here."""
    return HttpError(410, "session_lost", "this session has ended, or the server has been restarted since")


class Sessions:
    """The sessions that are open.

    Args:
        ttl_seconds: a session that no request has used for so long is closed.
        limit: how many may be open; a further one is refused with status 503.
        on_expired: called with each session whose time has come.
    """

    def __init__(self, ttl_seconds: float, limit: int, on_expired: Callable[[Session], Awaitable[None]]) -> None:
        self.ttl_seconds = ttl_seconds
        self.limit = limit
        self._on_expired = on_expired
        self._open: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, data: Any) -> Session:
        """A new session.

        Raises:
            HttpError: 503 when there are too many.
        """
        if len(self._open) >= self.limit:
            raise HttpError(
                503,
                "too_many_sessions",
                f"{len(self._open)} sessions are open, the limit; end some with /verify or /close_session",
                {"Retry-After": "5"},
            )
        session = Session(data)
        self._open[session.id] = session
        return session

    def get(self, id: str) -> Session:
        """The session of an id.

        Raises:
            HttpError: 410 when there is none.
        """
        session = self._open.get(id)
        if session is None:
            raise lost_session()
        return session

    def close(self, id: str) -> Session | None:
        """Take a session out and end what is under way in it; None when there is none of this id."""
        session = self._open.pop(id, None)
        if session is not None:
            session.close()
        return session

    async def expire(self, now: float | None = None) -> int:
        """Close the sessions that nobody has used for their time to live; returns their number."""
        now = time.monotonic() if now is None else now
        old = [s for s in self._open.values() if not s.busy and now - s.used >= self.ttl_seconds]
        for session in old:
            self.close(session.id)
            await self._on_expired(session)
        return len(old)

    async def expire_for_ever(self) -> None:
        """Close old sessions until cancelled."""
        while True:
            await asyncio.sleep(min(_SWEEP_SECONDS, self.ttl_seconds / 2))
            await self.expire()

    async def close_all(self) -> None:
        """Close every session, as when the server ends."""
        for id in list(self._open):
            session = self.close(id)
            if session is not None:
                await self._on_expired(session)
