"""The address of a model endpoint, and one try to ask it.

The one idea: whatever happens to a request is an `Outcome`, never an exception. A key that the environment holds is
read where it is needed and kept nowhere else.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import orjson

from polygym.errors import UsageError
from polygym.policies.backoff import retry_after_seconds
from polygym.policies.connections import PerLoop, client_session
from polygym.policies.outcomes import Outcome, classify

if TYPE_CHECKING:
    import aiohttp

OPENAI_URL = "https://api.openai.com/v1"
CONNECT_SECONDS = 15.0
SECRET_LENGTH = 8  # characters of a key that no text holds by chance
LARGE_BODY_BYTES = 1 << 20
"""From here on a body is sent in pieces, so that it does not hold up the other requests."""


@dataclass(slots=True)
class _Loop:
    """What belongs to one event loop: a session, and the places at the endpoint."""

    session: aiohttp.ClientSession
    places: asyncio.Semaphore


Classify = Callable[[int, Any, float | None], Outcome]
"""What an answer means, from its status, its JSON or text, and the seconds that it asks to wait."""


class Endpoint:
    """Sends bodies to one address and says what came back.

    Args:
        address: an http address as `http_address` checks it.
        concurrency: places; each is for one request under way.
        path: of the requests, after the address.
        key: tells the key, or None where there is none.
        classify: the meaning of an answer.
    """

    def __init__(
        self,
        address: str,
        concurrency: int,
        *,
        path: str = "/chat/completions",
        key: Callable[[], str | None],
        classify: Classify = classify,
    ) -> None:
        self.address = address
        self.path = path
        self._concurrency = concurrency
        self._key = key
        self._classify = classify
        self._here = PerLoop(self._opened)

    @property
    def is_openai(self) -> bool:
        """Whether this is OpenAI's own service."""
        return urlsplit(self.address).hostname == urlsplit(OPENAI_URL).hostname

    @property
    def has_key(self) -> bool:
        """Whether there is a key."""
        return bool(self._key())

    def redacted(self, text: str) -> str:
        """`text` without the key, which servers like to quote; a short one may be part of any word and stays there."""
        key = self._key()
        if not key:
            return text
        found = re.escape(key)
        return re.sub(found if len(key) >= SECRET_LENGTH else rf"(?<![\w-]){found}(?![\w-])", "***", text)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place, and hold it for a request with all its tries."""
        async with (await self._here.get()).places:
            yield

    async def post(self, body: bytes, seconds: float, cookies: dict[str, str] | None = None) -> tuple[Outcome, Any]:
        """One try: what it means, and the decoded answer (None where there was none).

        `cookies` are sent along, and those that the server sets are put there.
        """
        data = body if len(body) < LARGE_BODY_BYTES else io.BytesIO(body)
        return await self._request("POST", self.path, data, seconds, cookies, self._classify)

    async def get(self, path: str, seconds: float) -> tuple[Outcome, Any]:
        """One try to read `path`; any answer with status 200 means `continue`."""
        return await self._request("GET", path, None, seconds, None, _reachable)

    async def _request(
        self, method: str, path: str, data: Any, seconds: float, cookies: dict[str, str] | None, classify: Classify
    ) -> tuple[Outcome, Any]:
        import aiohttp

        session = (await self._here.get()).session
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(seconds, CONNECT_SECONDS))
        try:
            async with session.request(
                method, f"{self.address}{path}", data=data, timeout=timeout, allow_redirects=False, cookies=cookies
            ) as response:
                answer = decode(await response.read())
                if cookies is not None:
                    cookies.update((name, morsel.value) for name, morsel in response.cookies.items())
                if response.status == 200:
                    return classify(200, answer, None), answer
                outcome = classify(response.status, answer, retry_after_seconds(response.headers))
                # What OpenAI's servers, and ours, say when another try would be in vain.
                final = response.headers.get("x-should-retry") == "false"
                return (replace(outcome, final=True) if final else outcome), answer
        except (aiohttp.InvalidURL, aiohttp.ClientSSLError) as error:
            return Outcome("fail", "connection", _words(error)), None
        except aiohttp.ConnectionTimeoutError:
            return Outcome("retry", "connection", f"no connection within {timeout.sock_connect:.3g} s"), None
        except TimeoutError:
            return Outcome("retry", "timeout", f"no answer within {seconds:.3g} s"), None
        except (aiohttp.ClientError, OSError) as error:
            return Outcome("retry", "connection", _words(error)), None

    async def close(self) -> None:
        """Close the running loop's connections. Those of other loops close when their loops end."""
        await self._here.close()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[_Loop]:
        async with client_session(self._key(), proxy=_proxy(self.address)) as session:
            yield _Loop(session, asyncio.Semaphore(self._concurrency))


def encode(fields: Mapping[str, Any]) -> bytes:
    """A request's JSON."""
    try:
        return orjson.dumps(fields)
    except TypeError:  # an integer beyond 64 bits, or half of a surrogate pair
        return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")


def decode(data: bytes) -> Any:
    """The JSON of a body, or its text where it is none."""
    try:
        return orjson.loads(data)
    except ValueError:
        text = data.decode("utf-8", "replace")
    try:
        value = json.loads(text)  # NaN, Infinity and escapes of half a surrogate pair, which Python servers write
    except (ValueError, RecursionError):
        return text
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _reachable(status: int, body: Any, retry_after: float | None) -> Outcome:
    return classify(status, body, retry_after, lambda body, retry_after: Outcome("continue"))


def openai_address(base_url: str | None, api_key_env: str) -> str:
    """The address of an OpenAI-compatible endpoint: `base_url`, the environment's `OPENAI_BASE_URL`, or OpenAI's own.

    Raises:
        UsageError: when there is no address, or it is no http address.
    """
    given = base_url if base_url is not None else os.environ.get("OPENAI_BASE_URL")
    if not given:
        if base_url is None and os.environ.get(api_key_env):
            return OPENAI_URL
        raise UsageError(
            "no model endpoint is known: set OPENAI_BASE_URL (such as http://localhost:8000/v1), "
            f"or {api_key_env} for {OPENAI_URL}"
        )
    return http_address(given, f"keys are read from {api_key_env} only").removesuffix("/chat/completions")


def http_address(given: str, keys: str) -> str:
    """An address without its last slashes. It is shown and saved, so it may not hold a password, and paths are appended
    to it, so it has no query.

    Raises:
        UsageError: when it does (`keys` says where keys go instead), or it is no http address.
    """
    url = given.strip().rstrip("/")
    if "?" in url or "#" in url:
        shown = re.split("[?#]", url)[0].rpartition("@")[2]
        raise UsageError(f"base_url={shown + '?***'!r} has a query or a fragment, which no path can follow; {keys}")
    if "@" in url:
        shown = f"{url.partition('//')[0]}//***@{url.rpartition('@')[2]}"
        raise UsageError(f"base_url={shown!r} holds a user or password; {keys}")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # half an IPv6 address, a port that is no number
        usable = False
    if not usable:
        raise UsageError(f"base_url={given!r} is no http address; give one like http://localhost:8000/v1")
    return url


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for `url`; never one for this machine itself."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host == "localhost" or host.startswith("127.") or host == "::1" or proxy_bypass(host):
        return None
    return getproxies().get(parts.scheme)
