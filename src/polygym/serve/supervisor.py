"""Supervisor: the servers of a stack together, from the first socket to the last process.

The one idea: every listening socket is bound before anything starts and kept until everything has stopped, so there is
no race for ports, and a start that cannot succeed fails before there is anything to clean up.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any

from polygym.serve.catalog import RESOURCES
from polygym.serve.config import ServerConfig, StackConfig, read_document
from polygym.serve.fork_server import ForkServer
from polygym.serve.masking import masked, redacted, secrets_of
from polygym.serve.server import READY, Host, Server, StartError, stamped
from polygym.serve.settings import ResourcesSettings
from polygym.serve.sockets import PortInUseError, bind
from polygym.serve.spec import ServerSpec
from polygym.serve.stacks import Registration, Stack, stack_folder

if TYPE_CHECKING:
    from polygym.serve.head import Head

STOP_SECONDS = 3.5
"""How long servers may take to stop before they are killed; all is to be over within 5 seconds."""
FORK_SERVER_LOG = "fork_server.log"
LOG = "supervisor.log"


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
        StartError: on entering, when a server does not come up, or the stack is stopped before all have.
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
        self._adding = asyncio.Lock()
        self._host: Host | None = None
        self._port: int | None = None
        self._head: Head | None = None
        self._registration: Registration | None = None

    async def __aenter__(self) -> Supervisor:
        head, listening = self._bind()
        self._port = head.getsockname()[1]
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            (self.logs / LOG).write_bytes(b"")
            self._note(f"process {os.getpid()} starts {len(self.config.servers)} servers, head port {self.port}")
            if not self._single_process:
                self._host = ForkServer(self.logs / FORK_SERVER_LOG)
                self._host.start()  # it imports while this process does
            from polygym.serve.head import Head  # the web framework: half a second

            if self._single_process:
                from polygym.serve.in_process import ThisProcess

                self._host = ThisProcess()
            self._head = Head(self, head)
            await self._head.start()
            self._registration = Registration(self._stack())
            await self._start_unless_stopped(listening)
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
        assert self._port is not None
        return self._port

    @property
    def logs(self) -> Path:
        """Folder of the servers' logs."""
        return self._logs if self._logs is not None else stack_folder(self.port) / "logs"

    def instances(self) -> list[dict[str, Any]]:
        """What runs where, in the order of the configuration."""
        return [server.to_dict() for server in self.servers.values()]

    def head(self) -> dict[str, Any]:
        """The head as a row beside the instances."""
        return {"name": "head", "server_type": "head_server", "impl": "head", "url": self.url, "status": READY}

    def document(self) -> dict[str, Any]:
        """The configuration with the addresses filled in and the secrets hidden, as the head shows it."""
        document = masked(self.config.document)
        for server in self.servers.values():
            block = document[server.config.name][server.config.type][server.config.implementation]
            block["host"], block["port"] = server.host, server.port
        if self._head is not None:
            document["head_server"] = {"host": self._head.host, "port": self._head.port}
        return document

    async def add(self, document: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Start more servers, which may refer to those that run; their instances.

        Raises:
            UsageError, StartError: as on entering; the servers that ran before go on.
        """
        async with self._adding:
            running = {name: server.config.type for name, server in self.servers.items()}
            return await self._add(read_document(document, running, host=self.config.host, token=self.config.token))

    async def _add(self, config: StackConfig) -> list[dict[str, Any]]:
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
        await self._stop(list(self.servers.values()))
        self._note("stopped")
        if self._host is not None:
            await self._host.close()
        if self._head is not None:
            await self._head.stop()
        if self._registration is not None:
            self._registration.close()

    def kill(self) -> None:
        """End all servers at once; `stop` then has nothing to wait for."""
        for server in self.servers.values():
            server.kill()

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

    async def _start_unless_stopped(self, listening: Mapping[str, socket]) -> None:
        """Start the configured servers; whoever stops the stack meanwhile does not wait for them."""
        starting = asyncio.ensure_future(self._start(self.config.servers, listening))
        asked = asyncio.ensure_future(self.stop_asked.wait())
        try:
            await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                raise StartError("the stack was stopped before it was ready")
            starting.result()
        finally:
            starting.cancel()
            asked.cancel()
            await asyncio.gather(starting, asked, return_exceptions=True)

    async def _start(self, configs: Mapping[str, ServerConfig], listening: Mapping[str, socket]) -> None:
        """Start servers in parallel and wait until each answers."""
        host = self._host
        assert host is not None
        started = []
        for name, config in configs.items():
            log = self.logs / f"{name}.log"
            server = Server(config, listening[name], log, self._changed, self._note, self.redacted)
            server.log.write_bytes(b"")
            self.servers[name] = server
            started.append(server)
        for server in started:
            server.start(host, partial(self._spec, server.config))
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

    def redacted(self, text: str) -> str:
        """`text` without the secrets of the stack."""
        return redacted(text, {*secrets_of(self.config.document), *filter(None, [self.config.token, self.control])})

    def _note(self, text: str) -> None:
        """Write a line to the supervisor's own log."""
        with suppress(OSError), open(self.logs / LOG, "a", encoding="utf-8") as log:  # a full disk stops no server
            log.write(stamped(text))

    def _changed(self) -> None:
        self._on_change(self.instances())

    # Stopping.

    async def _stop(self, servers: list[Server]) -> None:
        for server in servers:
            server.terminate()
        closing = [asyncio.create_task(server.close()) for server in servers]
        if closing:
            _, late = await asyncio.wait(closing, timeout=STOP_SECONDS)
            for server, task in zip(servers, closing, strict=True):
                if task in late:
                    server.kill()
            await asyncio.gather(*closing)
        self._changed()
