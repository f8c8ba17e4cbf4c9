"""A real HTTP server on this machine that answers by script.

The one idea: what a client does with a bad endpoint is tested over real sockets. Answers are values; a server plays
them in order and repeats the last one.

    with Loopback([status(500), ok("4")]) as server:
        policy = OpenAIPolicy("any", server.url)
    server.requests[0].body["messages"]
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from aiohttp import web


@dataclass(frozen=True)
class Answer:
    """What the server sends: after `delay_seconds`, `body` whole, or `cut` in its middle, or nothing (`drop`)."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0
    cut: bool = False
    drop: bool = False


@dataclass(frozen=True)
class Received:
    """A request as the server saw it."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    at: float


def as_json(value: object, status: int = 200, **headers: str) -> Answer:
    """Any JSON value. Header names are written with `_` for `-`."""
    names = {name.replace("_", "-"): text for name, text in headers.items()}
    return Answer(json.dumps(value).encode(), status, {"Content-Type": "application/json", **names})


def completion(message: Mapping[str, Any], finish_reason: str | None = "stop", **extra: Any) -> Answer:
    """A completion with one choice; `extra` goes to the top of the body."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish_reason}
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
    return as_json({"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage, **extra})


def ok(text: str = "4", finish_reason: str = "stop") -> Answer:
    """A plain answer."""
    return completion({"content": text}, finish_reason)


def tool_calls(*calls: tuple[str, str]) -> Answer:
    """Native tool calls: pairs of name and arguments as text."""
    entries = [
        {"id": f"c{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for index, (name, arguments) in enumerate(calls)
    ]
    return completion({"content": None, "tool_calls": entries}, "tool_calls")


def status(code: int, message: str = "", **headers: str) -> Answer:
    """An error status."""
    return as_json({"error": {"message": message}} if message else {}, code, **headers)


def busy(retry_after: str) -> Answer:
    """429 with Retry-After."""
    return status(429, "Rate limit reached", Retry_After=retry_after)


def empty() -> Answer:
    """Status 200 and no byte."""
    return Answer()


def html(code: int = 200) -> Answer:
    """A gateway's web page."""
    return Answer(b"<!DOCTYPE html><html><body>Bad gateway</body></html>", code, {"Content-Type": "text/html"})


def cut() -> Answer:
    """A completion that breaks off in its middle."""
    return replace(ok("this text is cut on its way"), cut=True)


def dropped() -> Answer:
    """The connection is closed without an answer."""
    return Answer(drop=True)


def slow(seconds: float, answer: Answer | None = None) -> Answer:
    """An answer that takes its time."""
    return replace(answer or ok(), delay_seconds=seconds)


def context_overflow() -> Answer:
    """vLLM's words for a prompt that does not fit."""
    words = "This model's maximum context length is 4096 tokens. However, your prompt contains 5000 input tokens."
    return as_json({"object": "error", "message": words, "type": "BadRequestError", "code": 400}, 400)


def dead_url() -> str:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


class Loopback:
    """The server, in a thread of its own, for the length of a `with` block.

    Args:
        script: answers in the order of the requests, the last one repeated; or a function from a request's body.
        home: answer to `GET /`, which is not among the requests.
    """

    def __init__(
        self, script: Sequence[Answer] | Callable[[dict[str, Any]], Answer], home: Answer | None = None
    ) -> None:
        self._script = script
        self._home_answer = home or status(404)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.requests: list[Received] = []
        self.under_way = 0
        self.most_under_way = 0
        self.connections: set[object] = set()
        self.url = ""

    def __enter__(self) -> Loopback:
        self._thread.start()
        self.url = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> str:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/chat/completions", self._answer)
        app.router.add_post("/v1/responses", self._answer)
        app.router.add_get("/", self._home)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def _home(self, request: web.Request) -> web.Response:
        return web.Response(
            body=self._home_answer.body, status=self._home_answer.status, headers=self._home_answer.headers
        )

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        answer = (
            self._script(body)
            if callable(self._script)
            else self._script[min(len(self.requests), len(self._script) - 1)]
        )
        self.requests.append(Received(body, dict(request.headers), time.monotonic()))
        self.connections.add(request.transport)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(answer.delay_seconds)
        finally:
            self.under_way -= 1
        assert request.transport is not None
        if answer.drop:
            request.transport.close()
            return web.Response()
        response = web.StreamResponse(
            status=answer.status, headers={**answer.headers, "Content-Length": str(len(answer.body))}
        )
        await response.prepare(request)
        await response.write(answer.body[: len(answer.body) // 2] if answer.cut else answer.body)
        if answer.cut:
            request.transport.close()
        return response
