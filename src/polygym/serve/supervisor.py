"""Supervisor: starts the servers of a stack, keeps them up, and stops them.

The one idea: the supervisor holds every listening socket from before the first start until after the last stop. A
server is ready when it answers; one that ends is started again on the same socket, the first time at once and then
after growing pauses, in which whoever connects is told to come back (503).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any, Protocol

from polygym.errors import PolygymError, UsageError
from polygym.serve.catalog import RESOURCES
from polygym.serve.config import ServerConfig, StackConfig
from polygym.serve.fork_server import ForkServer
from polygym.serve.masking import masked, redacted, secrets_of
from polygym.serve.process import USAGE, ServerSpec
from polygym.serve.settings import ResourcesSettings
from polygym.serve.sockets import PortInUseError, bind, request, turned_away, url_of
from polygym.serve.stacks import Registration, Stack, stack_folder

if TYPE_CHECKING:
    from polygym.serve.head import Head

STARTING, READY, SILENT, RESTARTING, FAILED, STOPPED = (
    "starting",
    "ready",
    "not answering",
    "restarting",
    "failed",
    "stopped",
)
STABLE_SECONDS = 60.0
"""A server that was up for so long has not crashed again, but anew."""
LONGEST_PAUSE_SECONDS = 30.0
START_SECONDS = 600.0
CHECK_SECONDS = 5.0
STOP_SECONDS = 3.5
"""How long servers may take to stop before they are killed; all is to be over within 5 seconds."""
_TAIL_LINES = 12


class StartError(PolygymError):
    """A server did not come up, for a reason that is not the configuration's."""


class Process(Protocol):
    """A server that runs: a child of the fork server, or a task."""

    pid: int
    exited: asyncio.Future[int]

    def terminate(self) -> None:
        """Ask it to stop."""

    def kill(self) -> None:
        """End it at once."""


class Host(Protocol):
    """Where servers run."""

    def start(self) -> None:
        """Prepare; returns at once."""

    async def fork(self, work: dict[str, Any], listening: socket, log: Path) -> Process:
        """Start a server."""

    async def close(self) -> None:
        """Let go of what is left."""


class Server:
    """One server of the stack, and what is known of it."""

    def __init__(self, config: ServerConfig, listening: socket, log: Path) -> None:
        self.config = config
        self.listening = listening
        self.log = log
        self.host, self.port = listening.getsockname()[:2]
        self.url = url_of(listening)
        self.status = STARTING
        self.restarts = 0
        self.process: Process | None = None
        self.ready_since: float | None = None
        self.up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.keeper: asyncio.Task[None] | None = None

    def to_dict(self) -> dict[str, Any]:
        """What the head tells of it."""
        running = self.process is not None and not self.process.exited.done()
        return {
            "name": self.config.name,
            "server_type": self.config.type,
            "impl": self.config.implementation,
            "host": self.host,
            "port": self.port,
            "url": self.url,
            "pid": self.process.pid if running and self.process else None,
            "status": self.status,
            "restarts": self.restarts,
            "uptime_seconds": None if self.ready_since is None else round(time.monotonic() - self.ready_since, 3),
            "log": str(self.log),
        }


def served_environments(config: StackConfig) -> dict[str, dict[str, Any]]:
    """What each resources server serves. An environment is named by its implementation while one server has that."""
    resources = config.of_type(RESOURCES)
    implementations = [server.implementation for server in resources.values()]
    found = {}
    for name, server in resources.items():
        assert isinstance(server.settings, ResourcesSettings)
        found[name] = {
            "name": server.implementation if implementations.count(server.implementation) == 1 else name,
            "implementation": server.implementation,
            "entrypoint": server.settings.entrypoint,
            "args": server.settings.args,
        }
    return found


class Supervisor:
    """The servers of one stack. An async context manager: they are up inside it and gone after it.

    Args:
        config: what to start.
        logs: folder of a log file for each server; default: one in the user's state folder.
        single_process: run all servers in this process.
        on_change: called with the instances whenever the state of one has changed.

    Raises:
        UsageError: on entering, when a port is taken (nothing has been started then), or a server refuses its
            settings (everything has been stopped again).
        StartError: on entering, when a server does not come up.
    """

    def __init__(
        self,
        config: StackConfig,
        logs: Path | None = None,
        *,
        single_process: bool = False,
        on_change: Callable[[list[dict[str, Any]]], None] | None = None,
    ) -> None:
        self.config = config
        self._logs = logs
        self.control = secrets.token_urlsafe(32)
        """What a request to the head must bring to add servers or to stop the stack."""
        self.is_up = False
        self.stop_asked = asyncio.Event()
        self.servers: dict[str, Server] = {}
        self._on_change = on_change or (lambda instances: None)
        self._single_process = single_process
        self._host: Host = ForkServer()
        self._head: Head | None = None
        self._stopping = asyncio.Event()
        self._registration: Registration | None = None

    async def __aenter__(self) -> Supervisor:
        head, listening = self._bind()
        try:
            if not self._single_process:
                self._host.start()  # it imports while this process does
            from polygym.serve.head import Head  # the web framework: half a second

            if self._single_process:
                from polygym.serve.in_process import ThisProcess

                self._host = ThisProcess()
            self._head = Head(self, head)
            self.logs.mkdir(parents=True, exist_ok=True)
            await self._head.start()
            self._registration = Registration(self._stack())
            await self._start(self.config.servers, listening)
            self.is_up = True
        except BaseException:
            await self.stop()
            head.close()
            for free in listening.values():
                free.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """Address of the head."""
        assert self._head is not None
        return self._head.url

    @property
    def port(self) -> int:
        """Port of the head."""
        assert self._head is not None
        return self._head.port

    @property
    def logs(self) -> Path:
        """Folder of the servers' logs."""
        return self._logs if self._logs is not None else stack_folder(self.port) / "logs"

    def instances(self) -> list[dict[str, Any]]:
        """What runs where, in the order of the configuration."""
        return [server.to_dict() for server in self.servers.values()]

    def document(self) -> dict[str, Any]:
        """The configuration with the addresses filled in and the secrets hidden, as the head shows it."""
        document = masked(self.config.document)
        for server in self.servers.values():
            block = document[server.config.name][server.config.type][server.config.implementation]
            block["host"], block["port"] = server.host, server.port
        if self._head is not None:
            document["head_server"] = {"host": self._head.host, "port": self._head.port}
        return document

    async def add(self, config: StackConfig) -> list[dict[str, Any]]:
        """Start more servers, which may refer to those that run; their instances.

        Raises:
            UsageError, StartError: as on entering; the servers that ran before go on.
        """
        listening = {name: self._bind_server(server) for name, server in config.servers.items()}
        before = self.config
        self.config = StackConfig(
            {**before.servers, **config.servers},
            {**before.document, **config.document},
            before.host,
            before.head,
            before.token,
        )
        try:
            await self._start(config.servers, listening)
        except BaseException:
            self.config = before
            await self._stop([self.servers.pop(name) for name in listening if name in self.servers])
            raise
        return [self.servers[name].to_dict() for name in listening]

    async def stop(self) -> None:
        """Stop everything and wait until it is gone."""
        self._stopping.set()
        await self._stop(list(self.servers.values()))
        await self._host.close()
        if self._head is not None:
            await self._head.stop()
        if self._registration is not None:
            self._registration.close()

    def kill(self) -> None:
        """End all servers at once; `stop` then has nothing to wait for."""
        for server in self.servers.values():
            if server.process is not None:
                server.process.kill()

    def _stack(self) -> Stack:
        return Stack(os.getpid(), self.port, self.url, str(self.logs), time.time(), self.control, self.config.token)

    # Sockets.

    def _bind(self) -> tuple[socket, dict[str, socket]]:
        """The head's socket and the servers'; the fixed ports first, so that no free one takes theirs."""
        settings = self.config.head
        try:
            head = bind(settings.host or self.config.host, settings.port, "the head")
        except PortInUseError:
            raise PortInUseError(
                f"head port {settings.port} is in use; if a stack runs there (see: polygym env status), add to it with "
                "--join, or give this one another --head-port"
            ) from None
        listening: dict[str, socket] = {}
        try:
            for name, server in sorted(self.config.servers.items(), key=lambda item: item[1].settings.port is None):
                listening[name] = self._bind_server(server)
        except BaseException:
            for bound in (head, *listening.values()):
                bound.close()
            raise
        return head, listening

    def _bind_server(self, server: ServerConfig) -> socket:
        return bind(server.settings.host or self.config.host, server.settings.port or 0, f"server {server.name!r}")

    # Starting and keeping up.

    async def _start(self, configs: Mapping[str, ServerConfig], listening: Mapping[str, socket]) -> None:
        """Start servers in parallel and wait until each answers."""
        started = []
        for name, config in configs.items():
            server = Server(config, listening[name], self.logs / f"{name}.log")
            server.log.write_bytes(b"")
            self.servers[name] = server
            started.append(server)
        for server in started:
            server.keeper = asyncio.create_task(self._keep(server))
        self._changed()
        await asyncio.gather(*(server.up for server in started))

    def _spec(self, config: ServerConfig) -> ServerSpec:
        return ServerSpec(
            name=config.name,
            type=config.type,
            implementation=config.implementation,
            settings=config.settings.model_dump(),
            urls={name: server.url for name, server in self.servers.items()},
            environments=served_environments(self.config),
            token=self.config.token,
        )

    async def _keep(self, server: Server) -> None:
        """Run a server until the stack stops; restart it whenever it ends."""
        crashes = 0
        while not self._stopping.is_set():
            log_size = server.log.stat().st_size if server.log.exists() else 0
            try:
                code = await self._run(server)
            except UsageError as error:  # a server in this process says it itself
                server.status = FAILED
                server.up.set_exception(UsageError(f"server {server.config.name!r}: {error}"))
                return
            except OSError as error:  # no process can be made now
                code = error.errno or 1
            if self._stopping.is_set():
                break
            if not server.up.done():
                server.status = FAILED
                server.up.set_exception(self._start_error(server, code, log_size))
                return
            was_up = server.ready_since is not None and time.monotonic() - server.ready_since >= STABLE_SECONDS
            crashes = 1 if was_up else crashes + 1
            server.restarts += 1
            server.status, server.ready_since = RESTARTING, None
            self._changed()
            if crashes > 1:
                pause = min(2.0 ** (crashes - 2), LONGEST_PAUSE_SECONDS)
                async with turned_away(server.listening, server.config.name, pause):
                    await asyncio.sleep(pause)
        server.status = STOPPED

    async def _run(self, server: Server) -> int:
        """Start a server, wait until it answers, then until it ends; its exit code."""
        process = await self._host.fork(self._spec(server.config).to_dict(), server.listening, server.log)
        server.process = process
        if self._stopping.is_set():
            process.kill()
        answers = asyncio.create_task(self._answers(server, START_SECONDS))
        try:
            either: set[asyncio.Future[Any]] = {answers, process.exited}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not process.exited.done():
                if not answers.result():
                    process.kill()
                    return await process.exited
                server.status, server.ready_since = READY, time.monotonic()
                if not server.up.done():
                    server.up.set_result(None)
                self._changed()
            while not process.exited.done():
                await asyncio.wait({process.exited}, timeout=CHECK_SECONDS)
                if not process.exited.done() and not self._stopping.is_set():
                    await self._check(server)
            return process.exited.result()
        finally:
            answers.cancel()

    async def _check(self, server: Server) -> None:
        """Note whether a server that is up still answers. A busy one is left alone."""
        status = READY if await self._answers(server, CHECK_SECONDS) else SILENT
        if server.status in (READY, SILENT) and status != server.status:
            server.status = status
            self._changed()

    async def _answers(self, server: Server, seconds: float) -> bool:
        """Whether the server answers; the socket is open already, so one question waits until it can."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        return (await request(server.url))[0] == 200
                    except (OSError, EOFError, ValueError):
                        await asyncio.sleep(0.05)  # the connection was the last process's
        except TimeoutError:
            return False

    def _start_error(self, server: Server, code: int, log_size: int) -> PolygymError:
        """Why a server did not come up, in its own words."""
        with open(server.log, "rb") as file:
            file.seek(log_size)
            lines = file.read().decode("utf-8", "replace").splitlines()
        name = server.config.name
        told = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        if code == USAGE and told:
            return UsageError(self.redacted(f"server {name!r}: {told[-1]}"))
        ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        tail = "".join(f"\n  {line}" for line in lines[-_TAIL_LINES:])
        return StartError(self.redacted(f"server {name!r} {ended} before it was ready; its log, {server.log}:{tail}"))

    def redacted(self, text: str) -> str:
        """`text` without the secrets of the stack."""
        return redacted(text, {*secrets_of(self.config.document), *filter(None, [self.config.token, self.control])})

    def _changed(self) -> None:
        self._on_change(self.instances())

    # Stopping.

    async def _stop(self, servers: list[Server]) -> None:
        for server in servers:
            if server.process is None or server.process.exited.done():
                if server.keeper is not None:
                    server.keeper.cancel()  # it is between two processes
            else:
                server.process.terminate()
        ending: set[asyncio.Future[int]] = {server.process.exited for server in servers if server.process is not None}
        if ending:
            _, late = await asyncio.wait(ending, timeout=STOP_SECONDS)
            for server in servers:
                if server.process is not None and server.process.exited in late:
                    server.process.kill()
            if late:
                await asyncio.wait(late)
        for server in servers:
            if server.keeper is not None:
                server.keeper.cancel()
            if server.up.done() and not server.up.cancelled():
                server.up.exception()  # seen: the first one that failed was told
            server.up.cancel()
            server.status, server.ready_since = STOPPED, None
            server.listening.close()
        await asyncio.gather(*(s.keeper for s in servers if s.keeper is not None), return_exceptions=True)
        self._changed()
