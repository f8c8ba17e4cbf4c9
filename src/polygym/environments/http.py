"""The HTTP client of a server that holds environments: JSON out, bytes back, cookies kept by the caller.

The one idea: a request is sent again only where nothing can have been executed: the connection was refused, or the
caller says that the request may be repeated. It ends within its deadline in an answer or in a `ServerError`.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any

from polygym.errors import PolygymError
from polygym.policies.backoff import backoff_seconds
from polygym.policies.connections import PerLoop, client_session
from polygym.policies.endpoint import decode, encode, http_address

if TYPE_CHECKING:
    import aiohttp

DEADLINE_SECONDS = 600.0
RETRIES = 4
CONNECT_SECONDS = 5.0
KEEP_ALIVE_SECONDS = 4.0
"""Shorter than servers keep idle connections (uvicorn's default is 5 s), so that no request meets a closing one."""
MAX_ANSWER_BYTES = 64 << 20


class ServerError(PolygymError):
    """A server could not be asked, or did not answer."""


@dataclass(slots=True)
class Cookies:
    """The cookies of one episode, as a header; servers may set them anew with each answer."""

    header: str = ""
    _set: tuple[str, ...] = field(default=(), repr=False)
    _values: dict[str, str] = field(default_factory=dict, repr=False)

    def update(self, lines: tuple[str, ...]) -> None:
        """Take the `Set-Cookie` lines of an answer."""
        if not lines or lines == self._set:
            return
        for line in lines:
            try:
                self._values.update((name, morsel.coded_value) for name, morsel in SimpleCookie(line).items())
            except CookieError:
                continue  # a name that no cookie may have: a browser drops it too
        self._set = lines
        self.header = "; ".join(f"{name}={value}" for name, value in self._values.items())

    @classmethod
    def of(cls, header: str) -> Cookies:
        """The cookies in a request's `Cookie` header."""
        cookies = cls()
        cookies.update(tuple(part.strip() for part in header.split(";") if part.strip()))
        return cookies


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered."""

    status: int
    body: bytes
    content_type: str

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body's JSON, or its text where it is none."""
        return decode(self.body)


class HttpClient:
    """Asks one server. Connections belong to the event loop that uses them and close with it.

    Args:
        url: address of the server.
        token: sent as a bearer token.
        deadline_seconds: longest time of one request, its repetitions included.
    """

    def __init__(self, url: str, *, token: str | None = None, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self.url = http_address(url, "give a token instead")
        self.deadline_seconds = deadline_seconds
        self._token = token
        self._here = PerLoop(self._opened)

    async def post(
        self,
        path: str,
        fields: Any,
        *,
        cookies: Cookies | None = None,
        repeatable: bool = False,
        retries: int = RETRIES,
        seconds: float | None = None,
    ) -> Answer:
        """Post `fields` as JSON. `repeatable` says that doing it twice is as good as once.

        Raises:
            ServerError: when there is no answer in time.
        """
        return await self._ask("POST", path, encode(fields), cookies, repeatable, retries, seconds)

    async def get(self, path: str, *, retries: int = RETRIES, seconds: float | None = None) -> Answer:
        """Read `path`.

        Raises:
            ServerError: when there is no answer in time.
        """
        return await self._ask("GET", path, None, None, True, retries, seconds)

    async def close(self) -> None:
        """Close this event loop's connections. Those of other loops close with their loops."""
        await self._here.close()

    async def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        cookies: Cookies | None,
        repeatable: bool,
        retries: int,
        seconds: float | None,
    ) -> Answer:
        import aiohttp

        deadline = time.monotonic() + (self.deadline_seconds if seconds is None else seconds)
        tries = 0
        while True:
            tries += 1
            remaining = deadline - time.monotonic()
            try:
                return await self._once(method, path, body, cookies, remaining)
            except TimeoutError as error:
                raise ServerError(f"{self.url}{path}: no answer within {remaining:.3g} s") from error
            except (aiohttp.ClientError, OSError) as error:
                unsent = isinstance(error, aiohttp.ClientConnectorError)
                wait = backoff_seconds(tries)
                if tries > retries or not (unsent or repeatable) or time.monotonic() + wait >= deadline:
                    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                    after = f" ({tries} tries)" if tries > 1 else ""
                    raise ServerError(f"{self.url}{path}: {words}{after}") from error
            await asyncio.sleep(wait)

    async def _once(
        self, method: str, path: str, body: bytes | None, cookies: Cookies | None, seconds: float
    ) -> Answer:
        import aiohttp

        session = await self._here.get()
        seconds = max(seconds, 0.001)  # 0 would mean no limit
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(seconds, CONNECT_SECONDS))
        headers = {"Cookie": cookies.header} if cookies is not None and cookies.header else None
        async with session.request(
            method, f"{self.url}{path}", data=body, headers=headers, timeout=timeout, allow_redirects=False
        ) as response:
            if cookies is not None:
                cookies.update(tuple(response.headers.getall("Set-Cookie", ())))
            return Answer(response.status, await _read(response), response.content_type)

    def _opened(self) -> aiohttp.ClientSession:
        # No proxy: environments are on this machine or beside it.
        return client_session(self._token, keep_alive_seconds=KEEP_ALIVE_SECONDS)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    length = response.content_length
    if length is not None and length <= MAX_ANSWER_BYTES:
        return await response.read()
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            raise ServerError(f"{response.url}: the answer is longer than {MAX_ANSWER_BYTES >> 20} MB")
    return b"".join(chunks)
