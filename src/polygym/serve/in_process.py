"""Servers in the supervisor's own process, for machines with little memory.

The one idea: the same interface as the fork server's, with a task where that has a process. Servers share one event
loop, so one that crashes the process takes all with it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

from polygym.serve.run import TaskServer
from polygym.serve.spec import NOT_STARTED, ServerSpec, build_app


class TaskChild:
    """A server in a task of this process; see `fork_server.Child`."""

    def __init__(self, server: TaskServer, listening: socket.socket) -> None:
        self.pid = os.getpid()
        self._server = server
        self.exited: asyncio.Future[int] = asyncio.ensure_future(self._serve(listening))

    async def _serve(self, listening: socket.socket) -> int:
        try:
            await self._server.serve(sockets=[listening])
        except asyncio.CancelledError:
            return -1
        return 0 if self._server.started else NOT_STARTED

    def terminate(self) -> None:
        """Ask it to stop."""
        self._server.should_exit = True

    def kill(self) -> None:
        """End it at once."""
        self._server.force_exit = True
        self.exited.cancel()


class ThisProcess:
    """Hosts servers in this process; see `fork_server.ForkServer`."""

    def start(self) -> None:
        """Nothing is needed."""

    async def fork(self, work: dict[str, Any], listening: socket.socket, log: Path) -> TaskChild:
        """A server that does `work` on a listening socket.

        Raises:
            UsageError: for settings that cannot be used.
        """
        return TaskChild(TaskServer(build_app(ServerSpec(**work))), listening.dup())

    async def close(self) -> None:
        """Nothing is left."""
