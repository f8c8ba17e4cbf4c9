"""Running one server in this process, until Ctrl-C.

The one idea: it is announced when it answers, not before.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from polygym.serve.app import server_config

GRACE_SECONDS = 2
"""How long requests under way may go on once the server is asked to stop."""


class _Server(uvicorn.Server):
    def __init__(self, app: ASGIApp, ready: Callable[[], None]) -> None:
        super().__init__(server_config(app, timeout_graceful_shutdown=GRACE_SECONDS))
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
    """Serve on a listening socket; `ready` is called once the server answers.

    Raises:
        KeyboardInterrupt: when Ctrl-C or SIGTERM has stopped it.
    """
    server = _Server(app, ready)
    server.run(sockets=[listening])
    if server.interrupted:
        raise KeyboardInterrupt
