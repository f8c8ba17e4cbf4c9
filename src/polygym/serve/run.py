"""Running an application on a socket that listens already.

The one idea: an application knows nothing of how it is run. In the foreground it ends with Ctrl-C (`run_app`), in a
child of the fork server with SIGTERM (`run_server`), beside other work of an event loop when it is told (`TaskServer`).
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from polygym.errors import PolygymError, UsageError
from polygym.serve.sockets import BACKLOG, url_of
from polygym.serve.spec import NOT_STARTED, USAGE, ServerSpec, build_app

KEEP_ALIVE_SECONDS = 75
"""How long a server keeps an idle connection: longer than the clients do, so that no request meets a closing one."""
GRACE_SECONDS = 2
"""How long requests under way may go on once a server is asked to stop."""


def server_config(app: ASGIApp, **options: Any) -> uvicorn.Config:
    """How uvicorn runs an application of ours: quiet, and with connections that outlive those of the clients."""
    defaults = {
        "access_log": False,
        "log_level": "warning",
        "server_header": False,
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": GRACE_SECONDS,
        "backlog": BACKLOG,
    }
    return uvicorn.Config(app, **{**defaults, **options})


class TaskServer(uvicorn.Server):
    """A server in a task of an event loop that does other things too; signals and logging are left to those."""

    def __init__(self, app: ASGIApp, grace_seconds: int = GRACE_SECONDS) -> None:
        super().__init__(server_config(app, timeout_graceful_shutdown=grace_seconds, log_config=None))
        self._task: asyncio.Task[None] | None = None

    async def start(self, listening: socket.socket) -> None:
        """Serve on a socket until `stop`; returns once it answers.

        Raises:
            PolygymError: when it does not come up.
        """
        self._task = asyncio.create_task(self.serve(sockets=[listening]))
        while not self.started:
            if self._task.done():
                raise PolygymError(f"nothing could be served at {url_of(listening)}")
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Answer no more; returns when all is over. The socket is closed."""
        self.should_exit = True
        if self._task is not None:
            await self._task

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class _ForegroundServer(uvicorn.Server):
    def __init__(self, app: ASGIApp, ready: Callable[[], None]) -> None:
        super().__init__(server_config(app))
        self._ready = ready
        self.interrupted = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but the second of two quick Ctrl-C does not break off the shutdown, which is short anyway."""
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            loop.add_signal_handler(number, self._interrupt)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def _interrupt(self) -> None:
        self.should_exit = self.interrupted = True


def run_app(app: ASGIApp, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Serve in the foreground; `ready` is called once the server answers.

    Raises:
        KeyboardInterrupt: when Ctrl-C or SIGTERM has stopped it.
    """
    server = _ForegroundServer(app, ready)
    server.run(sockets=[listening])
    if server.interrupted:
        raise KeyboardInterrupt


def run_server(work: dict[str, Any], listening: socket.socket) -> int:
    """Be the server of a spec (`ServerSpec.to_dict`) until SIGTERM; the exit code."""
    try:
        app = build_app(ServerSpec(**work))
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return USAGE
    server = uvicorn.Server(server_config(app))
    server.run(sockets=[listening])
    return 0 if server.started else NOT_STARTED
