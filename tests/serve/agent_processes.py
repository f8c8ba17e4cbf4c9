"""Servers of `agent_worlds` as processes, and rows for them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp

from polygym.environments.wire_rows import row_of
from serve.agent_worlds import Tools, script

TESTS = Path(__file__).parents[1]


class Served:
    """A server in a process of its own, for the length of a `with` block.

    Requests may be sent at once: the socket listens before the process starts, and they wait in its queue.
    """

    def __init__(self, name: str, *arguments: str, log: Path | None = None) -> None:
        self._command = (name, arguments)
        self._log = log
        self._start(0)

    def _start(self, port: int) -> None:
        name, arguments = self._command
        with (
            socket.create_server(("127.0.0.1", port), backlog=128) as listening,
            open(self._log or os.devnull, "ab") as log,
        ):
            self.port = listening.getsockname()[1]
            self.url = f"http://127.0.0.1:{self.port}"
            self.process = subprocess.Popen(
                [sys.executable, "-m", "serve.agent_worlds", name, str(listening.fileno()), *arguments],
                pass_fds=[listening.fileno()],
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")])),
                },
                stderr=log if self._log else None,
            )

    def start_again(self) -> None:
        """Another process at the same address."""
        self._start(self.port)

    def kill(self) -> None:
        """End the process without a word."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def __enter__(self) -> Served:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@contextmanager
def silent_endpoint() -> Iterator[str]:
    """The address of something that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    body: Any
    cookies: dict[str, str]
    seconds: float


async def post(
    url: str, body: Any, *, cookies: dict[str, str] | None = None, token: str | None = None, seconds: float = 60.0
) -> Answer:
    """One request of a client that knows nothing of ours."""
    started = time.perf_counter()
    timeout = aiohttp.ClientTimeout(total=seconds)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(timeout=timeout, cookies=cookies, headers=headers) as session:
        data = body if isinstance(body, bytes) else None
        async with session.post(url, json=None if data else body, data=data) as response:
            read = await response.json(content_type=None)
            got = {name: morsel.value for name, morsel in response.cookies.items()}
            return Answer(response.status, read, got, time.perf_counter() - started)


async def get_text(url: str) -> str:
    """The body of a page."""
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.text()


def wire_row(*turns: list[Any], **keys: Any) -> dict[str, Any]:
    """A row of `Tools`, whose answer is "2", for a model that says `turns`."""
    environment = Tools()
    row = dict(row_of(environment, environment.tasks()[0]))
    row["responses_create_params"] = {**row["responses_create_params"], "input": script(*turns)}
    return {**row, "id": 7, "answer": "2", **keys}


def run_row(agent: Served, *turns: list[Any], **keys: Any) -> Answer:
    """Let an agent play a row."""
    return asyncio.run(post(f"{agent.url}/run", wire_row(*turns, **keys)))


def open_sessions(resources: Served) -> int:
    """Sessions that a resources server holds, as its metrics tell."""
    lines = asyncio.run(get_text(f"{resources.url}/metrics")).splitlines()
    return int(sum(float(line.split()[-1]) for line in lines if line.startswith("polygym_sessions")))
