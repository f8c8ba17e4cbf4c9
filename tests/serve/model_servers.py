"""Model servers on this machine for the length of a `with` block, and a policy that answers by script.

with served(Scripted(lambda request: said("4"))) as url:
    httpx.post(f"{url}/v1/responses", ...)
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from polygym.messages import Message, ToolCall
from polygym.policies.base import Policy, Request
from polygym.rollout import Turn, Usage
from polygym.serve.model import ModelServer
from polygym.serve.run import server_config
from polygym.serve.sockets import bind, url_of

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
CHAT_TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "description": "The weather.", "parameters": WEATHER, "strict": True},
}
RESPONSES_TOOL = {"type": "function", **CHAT_TOOL["function"]}


class Scripted(Policy):
    """Answers with `script(request)`, which may raise; notes every request."""

    name = "scripted"

    def __init__(self, script: Callable[[Request], Any]) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.cancelled = 0
        self.closed = 0

    async def complete(self, request: Request) -> Turn:
        self.requests.append(request)
        answer = self.script(request)
        if hasattr(answer, "__await__"):
            try:
                answer = await answer
            except BaseException:
                self.cancelled += 1
                raise
        return answer

    async def close(self) -> None:
        self.closed += 1


def said(text: str, finish_reason: str = "stop", reasoning: str = "") -> Turn:
    """A turn of text."""
    return Turn(Message("assistant", text, reasoning=reasoning), finish_reason, Usage(11, 3))


def called(name: str = "get_weather", text: str = "", **arguments: Any) -> Turn:
    """A turn with one call."""
    return Turn(Message("assistant", text, (ToolCall(name, arguments),)), "stop", Usage(11, 5))


@contextlib.contextmanager
def served(policy: Policy, **options: Any) -> Iterator[str]:
    """Address of a model server around `policy`, in a thread of its own."""
    app = ModelServer(policy, **{"name": "policy_model", **options}).app()
    with bind("127.0.0.1", 0, "test") as listening:
        server = uvicorn.Server(server_config(app, timeout_graceful_shutdown=0.2))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + 10
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.started
        try:
            yield url_of(listening)
        finally:
            server.should_exit = True
            thread.join(10)
            assert not thread.is_alive()
