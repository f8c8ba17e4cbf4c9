"""Connections of HTTP clients.

The one idea: connections belong to an event loop and live as long as it does, so a client can be used by one
`asyncio.run` after another, and from several threads, and leaves nothing open.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import aiohttp

KEEP_ALIVE_SECONDS = 15.0

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Something that each event loop has for itself: opened when it is first asked for, closed with the loop.

    Args:
        opened: opens it; nothing in it may wait before there is a value.
    """

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._opened = opened
        self._held: dict[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[T, None]]] = {}

    async def get(self) -> T:
        """That of the running loop."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None:
            # asyncio.run closes the generators that are left when it ends, and so what is open inside its own loop.
            owner = self._holding()
            held = self._held[loop] = (await anext(owner), owner)
        return held[0]

    async def close(self) -> None:
        """Close that of the running loop."""
        held = self._held.get(asyncio.get_running_loop())
        if held is not None:
            await held[1].aclose()

    async def _holding(self) -> AsyncGenerator[T, None]:
        try:
            async with self._opened() as value:
                yield value
        finally:
            self._held.pop(asyncio.get_running_loop(), None)


def client_session(
    token: str | None, *, proxy: str | None = None, keep_alive_seconds: float = KEEP_ALIVE_SECONDS
) -> aiohttp.ClientSession:
    """A session for JSON, with `token` as bearer token and as many connections as are wanted."""
    import aiohttp

    headers = {"Content-Type": "application/json", "User-Agent": "polygym"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return aiohttp.ClientSession(
        headers=headers,
        connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300, keepalive_timeout=keep_alive_seconds),
        cookie_jar=aiohttp.DummyCookieJar(),  # a cookie belongs to an episode, not to all of them
        proxy=proxy,
    )
