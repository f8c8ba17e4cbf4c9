"""One server of a stack, from its first start to its end.

The one idea: a server is ready when it answers, and one that ends is started again on the socket it had: the first time
at once, then after growing pauses, in which whoever connects is told to come back (503). A server that ends before it
ever answered is not started again; its own words say why.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from socket import socket
from typing import Any, Protocol

from polygym.errors import PolygymError, UsageError
from polygym.serve.config import ServerConfig
from polygym.serve.sockets import request, turned_away, url_of
from polygym.serve.spec import NOT_STARTED, USAGE, ServerSpec

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
_TAIL_LINES = 12


def ended(code: int) -> str:
    """How a process has ended, in words.

    >>> ended(7), ended(-9)
    ('ended with exit code 7', 'was killed by signal 9')
    """
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def stamped(text: str) -> str:
    """A line of a log, with its time."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n"


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
    """One server, and what is known of it.

    Args:
        config: what it is.
        listening: its socket, which outlives its processes.
        log: where they write.
        on_change: called when its state has changed.
        note: called with a line for the supervisor's log whenever it starts, answers, ends or is started again.
        redacted: takes secrets out of a text.
    """

    def __init__(
        self,
        config: ServerConfig,
        listening: socket,
        log: Path,
        on_change: Callable[[], None],
        note: Callable[[str], None],
        redacted: Callable[[str], str],
    ) -> None:
        self.config = config
        self.log = log
        self.host, self.port = listening.getsockname()[:2]
        self.url = url_of(listening)
        self.status = STARTING
        self.restarts = 0
        self.process: Process | None = None
        self.up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once it has answered; or why it never did."""
        self._listening = listening
        self._changed = on_change
        self._note = lambda text: note(f"{config.name}: {text}")
        self._redacted = redacted
        self._ready_since: float | None = None
        self._stopping = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    def to_dict(self) -> dict[str, Any]:
        """What the head tells of it."""
        return {
            "name": self.config.name,
            "server_type": self.config.type,
            "impl": self.config.implementation,
            "host": self.host,
            "port": self.port,
            "url": self.url,
            "pid": self.process.pid if self.process is not None and self.running else None,
            "status": self.status,
            "restarts": self.restarts,
            "uptime_seconds": None if self._ready_since is None else round(time.monotonic() - self._ready_since, 3),
            "log": str(self.log),
        }

    def start(self, host: Host, spec: Callable[[], ServerSpec]) -> None:
        """Begin; `up` tells when it answers. `spec` says what to run, each time that it is started."""
        self._keeper = asyncio.create_task(self._keep(host, spec))
        self._keeper.add_done_callback(self._kept)

    def terminate(self) -> None:
        """Ask it to stop, and start it no more."""
        self._stopping.set()
        if self.process is not None:
            self.process.terminate()

    def kill(self) -> None:
        """End it at once."""
        if self.process is not None:
            self.process.kill()

    async def close(self) -> None:
        """Wait until it has ended, and give up its socket."""
        if self._keeper is not None:
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self.up.done() and not self.up.cancelled():
            self.up.exception()  # seen: whoever started it was told of the first that failed
        self.up.cancel()
        self.status, self._ready_since = STOPPED, None
        self._listening.close()

    @property
    def _pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    @property
    def running(self) -> bool:
        """Whether there is a process of it."""
        return self.process is not None and not self.process.exited.done()

    def _kept(self, keeper: asyncio.Task[None]) -> None:
        error = None if keeper.cancelled() else keeper.exception()
        if error is not None and not self.up.done():
            self.up.set_exception(error)

    async def _keep(self, host: Host, spec: Callable[[], ServerSpec]) -> None:
        """Run it until it is to stop; restart it whenever it ends."""
        crashes = 0
        while not self._stopping.is_set():
            log_size = self.log.stat().st_size if self.log.exists() else 0
            try:
                code = await self._run(host, spec())
            except UsageError as error:  # a server in this process says it itself
                self.status = FAILED
                self.up.set_exception(UsageError(f"server {self.config.name!r}: {error}"))
                return
            except OSError as error:  # no process can be made now
                with open(self.log, "a", encoding="utf-8") as file:
                    file.write(f"error: {error}\n")
                code = NOT_STARTED
            self._note(f"process {self._pid} {ended(code)}")
            if self._stopping.is_set():
                break
            if not self.up.done():
                self.status = FAILED
                self.up.set_exception(self._start_error(code, log_size))
                return
            was_up = self._ready_since is not None and time.monotonic() - self._ready_since >= STABLE_SECONDS
            crashes = 1 if was_up else crashes + 1
            self.restarts += 1
            self.status, self._ready_since = RESTARTING, None
            self._changed()
            pause = min(2.0 ** (crashes - 2), LONGEST_PAUSE_SECONDS) if crashes > 1 else 0.0
            again = f"restart {self.restarts}, {f'after a pause of {pause:g} s' if pause else 'at once'}"
            self._note(again)
            with suppress(OSError), open(self.log, "a", encoding="utf-8") as file:
                file.write(stamped(f"process {self._pid} {ended(code)}; {again}"))
            if pause:
                async with turned_away(self._listening, self.config.name, pause):
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._stopping.wait(), pause)
        self.status = STOPPED

    async def _run(self, host: Host, spec: ServerSpec) -> int:
        """Start it, wait until it answers, then until it ends; its exit code."""
        process = await host.fork(spec.to_dict(), self._listening, self.log)
        self.process = process
        self._note(f"started as process {process.pid} at {self.url}")
        if self._stopping.is_set():
            process.kill()
        answers = asyncio.create_task(self._answers(START_SECONDS))
        try:
            either: set[asyncio.Future[Any]] = {answers, process.exited}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not process.exited.done():
                if not answers.result():
                    process.kill()
                    return await process.exited
                self.status, self._ready_since = READY, time.monotonic()
                self._note("ready")
                if not self.up.done():
                    self.up.set_result(None)
                self._changed()
            while not process.exited.done():
                await asyncio.wait({process.exited}, timeout=CHECK_SECONDS)
                if not process.exited.done() and not self._stopping.is_set():
                    await self._check()
            return process.exited.result()
        finally:
            answers.cancel()

    async def _check(self) -> None:
        """Note whether it still answers. A busy server is left alone."""
        status = READY if await self._answers(CHECK_SECONDS) else SILENT
        if self.status in (READY, SILENT) and status != self.status:
            self.status = status
            self._note(status)
            self._changed()

    async def _answers(self, seconds: float) -> bool:
        """Whether the server answers; the socket is open already, so one question waits until it can."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        return (await request(self.url))[0] == 200
                    except (OSError, EOFError, ValueError):
                        await asyncio.sleep(0.05)  # the connection was the last process's
        except TimeoutError:
            return False

    def _start_error(self, code: int, log_size: int) -> PolygymError:
        """Why a server did not come up, in its own words."""
        with open(self.log, "rb") as file:
            file.seek(log_size)
            lines = file.read().decode("utf-8", "replace").splitlines()
        name = self.config.name
        told = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        if code == USAGE and told:
            return UsageError(self._redacted(f"server {name!r}: {told[-1]}"))
        tail = "".join(f"\n  {line}" for line in lines[-_TAIL_LINES:])
        return StartError(
            self._redacted(f"server {name!r} {ended(code)} before it was ready; its log, {self.log}:{tail}")
        )
