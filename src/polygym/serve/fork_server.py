"""A process whose children start with everything imported.

The one idea: importing the web framework costs a second of CPU, forking a process that has done so costs milliseconds.
The fork server imports, then forks when it is asked to; it has one thread and no event loop, so that forking it is
safe. What a child works on travels by pipe, never by arguments or environment.

Children cannot outlive their supervisor, however it ends: the fork server leaves when the socket to the supervisor
closes, and the kernel kills its children then (elsewhere than on Linux, a thread in each child watches a pipe).
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib
import json
import os
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

PRELOAD = (
    "polygym.serve.agent",
    "polygym.serve.environment_server",
    "polygym.serve.model",
    "aiohttp",
    "jsonschema",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
)
SECRET_VARIABLES = ("POLICY_API_KEY", "POLYGYM_TOKEN")
"""What servers are told by pipe; their environment, which others of the same user can read, is without it."""
CLOSE_SECONDS = 0.5
_REPORT = struct.Struct("<ii")  # pid of a child, and its exit status as of waitpid, or what follows
_FORKED = -1
_COMMAND = "from polygym.serve.fork_server import main; main()"
_PR_SET_PDEATHSIG = 1

Job = Callable[[dict[str, Any], socket.socket], int]


class Child:
    """A process that the fork server made. `exited` is its exit code, negative for a signal."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def terminate(self) -> None:
        """Ask it to stop."""
        if not self.exited.done():
            _send(os.kill, self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, with whatever it has started."""
        if not self.exited.done():
            _send(os.kill, self.pid, signal.SIGKILL)
            _send(os.killpg, self.pid, signal.SIGKILL)


def _send(how: Callable[[int, int], None], pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # it has just ended
        how(pid, number)


class ForkServer:
    """The supervisor's side: starts the fork server when the first child is asked for, and again should it die.

    Args:
        log: where the fork server writes, should it have to.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._lock = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._forked: asyncio.Queue[Child | None] = asyncio.Queue()
        self._children: dict[int, Child] = {}
        self._reader: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start importing. Returns at once."""
        if self._process is not None and self._reader is not None and not self._reader.done():
            return
        if self._socket is not None:
            self._socket.close()
        ours, theirs = socket.socketpair()
        with theirs, open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={name: value for name, value in os.environ.items() if name not in SECRET_VARIABLES},
                start_new_session=True,  # a terminal's Ctrl-C is for the supervisor, who then stops the servers
            )
        ours.setblocking(False)
        self._socket = ours
        self._forked = asyncio.Queue()
        self._reader = asyncio.create_task(self._read(ours, self._forked, self._process))

    async def fork(self, work: dict[str, Any], listening: socket.socket, log: Path) -> Child:
        """A child that does `work` on a listening socket and writes to `log`.

        Raises:
            OSError: when there can be none now.
        """
        async with self._lock:
            self.start()
            assert self._socket is not None
            reading, writing = os.pipe()
            with open(log, "ab") as file:
                try:
                    socket.send_fds(self._socket, [b"f"], [listening.fileno(), file.fileno(), reading])
                except OSError:
                    os.close(writing)
                    raise
                finally:
                    os.close(reading)
            with suppress(BrokenPipeError):  # the child ended before it had read everything
                await asyncio.to_thread(_write_all, writing, json.dumps(work).encode())  # the pipe may hold less
            child = await self._forked.get()
            if child is None:
                raise ConnectionResetError(f"the fork server has died; its log: {self._log}")
            return child

    async def close(self) -> None:
        """Let the fork server go; children that are left end with it."""
        if self._socket is None or self._reader is None or self._process is None:
            return
        self._socket.shutdown(socket.SHUT_RDWR)
        _, late = await asyncio.wait({self._reader}, timeout=CLOSE_SECONDS)
        if late:
            self._process.kill()
            await self._reader
        self._socket.close()
        self._socket = None

    async def _read(
        self, source: socket.socket, forked: asyncio.Queue[Child | None], process: subprocess.Popen[bytes]
    ) -> None:
        """Take reports until the fork server is gone; its children are gone with it."""
        loop = asyncio.get_running_loop()
        buffer = b""
        while True:
            try:
                data = await loop.sock_recv(source, 4096)
            except OSError:
                data = b""
            if not data:
                break
            buffer += data
            while len(buffer) >= _REPORT.size:
                pid, status = _REPORT.unpack(buffer[: _REPORT.size])
                buffer = buffer[_REPORT.size :]
                if status == _FORKED:
                    child = self._children[pid] = Child(pid)
                    forked.put_nowait(child)
                elif pid in self._children:
                    self._end(self._children.pop(pid), os.waitstatus_to_exitcode(status))
        await asyncio.to_thread(process.wait)
        forked.put_nowait(None)
        for child in self._children.values():
            self._end(child, -signal.SIGKILL)
        self._children.clear()

    @staticmethod
    def _end(child: Child, code: int) -> None:
        _send(os.killpg, child.pid, signal.SIGKILL)  # what it has started and left behind
        if not child.exited.done():
            child.exited.set_result(code)


def _write_all(descriptor: int, data: bytes) -> None:
    with open(descriptor, "wb") as file:
        file.write(data)


# ------------------------------------------------------------------------------------------ the fork server's own side


def main() -> None:
    """The fork server: import, then fork whenever the supervisor asks, until it is gone."""
    from polygym.serve.run import run_server

    sys.path.append(os.getcwd())  # `package.module:name` also finds what lies here
    with socket.socket(fileno=int(sys.argv[1])) as supervisor:
        for name in PRELOAD:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()  # what is shared with the children is not written to by their garbage collectors
        sys.exit(_serve(supervisor, run_server))


def _serve(supervisor: socket.socket, job: Job) -> int:
    """Fork and report; in a child, the exit code of its job."""
    woken, waking = socket.socketpair()
    for end in (woken, waking):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking.fileno())
    with selectors.DefaultSelector() as selector:
        selector.register(supervisor, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is woken:
                    woken.recv(4096)
                    _reap(supervisor)
                    continue
                data, descriptors, _, _ = socket.recv_fds(supervisor, 1, 3)
                if not data:
                    return 0
                own_pid = os.getpid()
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    selector.close()
                    for unneeded in (woken, waking):
                        unneeded.close()
                    return _child(own_pid, supervisor, descriptors, job)
                for descriptor in descriptors:
                    os.close(descriptor)
                supervisor.sendall(_REPORT.pack(pid, _FORKED))


def _reap(supervisor: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        supervisor.sendall(_REPORT.pack(pid, status))


def _child(parent: int, supervisor: socket.socket, descriptors: list[int], job: Job) -> int:
    listening, log, work = descriptors
    os.setpgid(0, 0)  # so that whatever it starts can be ended with it
    _end_with(parent)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    with open(work, "rb") as file:
        content = file.read()
    watch = threading.Thread(target=_leave_with, args=(supervisor.dup(),), daemon=True)
    watch.start()
    return job(json.loads(content), socket.socket(fileno=listening))


def _end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, even while it hangs."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before that was said
            os._exit(1)


def _leave_with(supervisor: socket.socket) -> None:
    """Leave when the supervisor does, on systems whose kernel does not see to it."""
    poll = select.poll()
    poll.register(supervisor, 0)  # its end alone is of interest: what it says is for the fork server
    poll.poll()
    os._exit(1)
