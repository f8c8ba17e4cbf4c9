"""Stacks that run on this machine, and how to speak to them.

The one idea: every supervisor keeps a file that only its owner can read, and holds a lock on it for as long as it
lives. A file whose lock is free belongs to a stack that has ended, however it ended.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from polygym.errors import PolygymError, UsageError
from polygym.serve.config import StackConfig
from polygym.serve.sockets import request

CONTROL_HEADER = "x-polygym-control"
STOP_SECONDS = 6.0
KEPT_SECONDS = 7 * 24 * 3600.0
"""How long the logs of a stack that has ended are kept."""
_ASK_SECONDS = 2.0
_JOIN_SECONDS = 600.0


@dataclass(frozen=True)
class Stack:
    """A stack that runs: its head, and what it takes to control it."""

    pid: int
    port: int
    url: str
    logs: str
    started: float
    control: str = field(repr=False)
    token: str | None = field(default=None, repr=False)

    async def instances(self) -> list[dict[str, Any]]:
        """What runs where.

        Raises:
            PolygymError: when the head does not answer.
        """
        answer = await self._ask("/server_instances", seconds=_ASK_SECONDS)
        return list(answer)

    async def join(self, config: StackConfig) -> list[dict[str, Any]]:
        """Add servers; what runs where of them.

        Raises:
            UsageError: when the stack refuses them.
            PolygymError: when they do not come up.
        """
        document = {name: config.document[name] for name in config.servers}
        answer = await self._ask("/join", method="POST", body={"document": document}, seconds=_JOIN_SECONDS)
        return list(answer)

    async def stop(self) -> None:
        """Stop it, and wait until it is gone: asked first, then by signals."""
        try:
            await self._ask("/stop", method="POST", seconds=_ASK_SECONDS)
        except PolygymError:
            _signal(self.pid, signal.SIGTERM)
        if not await self._ends(STOP_SECONDS):
            _signal(self.pid, signal.SIGKILL)
            await self._ends(STOP_SECONDS)

    async def _ends(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if all(other.pid != self.pid for other in running_stacks()):
                return True
            await asyncio.sleep(0.02)
        return False

    async def _ask(self, path: str, *, method: str = "GET", body: Any = None, seconds: float) -> Any:
        headers = {CONTROL_HEADER: self.control} if method == "POST" else {}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            async with asyncio.timeout(seconds):
                status, answer = await request(self.url, path, method=method, body=body, headers=headers)
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            raise PolygymError(f"the head at {self.url} does not answer: {error or type(error).__name__}") from error
        if status == 200:
            return answer
        message = answer["error"]["message"] if isinstance(answer, dict) else str(answer)
        raise (UsageError if status == 422 else PolygymError)(message)


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where stacks leave their files: `$XDG_STATE_HOME/polygym/stacks`, by default below `~/.local/state`."""
    home = environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "polygym" / "stacks"


def running_stacks() -> list[Stack]:
    """The stacks of this user that run, by port of their heads."""
    found = []
    for file in state_folder().glob("*/stack.json"):
        try:
            with open(file, "rb") as opened:
                if _locked(opened.fileno()):
                    found.append(Stack(**json.loads(opened.read())))
        except (OSError, ValueError, TypeError):
            continue  # it is being written, or it has just been removed
    return sorted(found, key=lambda stack: stack.port)


def find_stack(port: int) -> Stack | None:
    """The stack whose head has this port."""
    return next((stack for stack in running_stacks() if stack.port == port), None)


class Registration:
    """The file of a stack that runs here, locked until it is closed."""

    def __init__(self, stack: Stack) -> None:
        self._file = stack_folder(stack.port) / "stack.json"
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _remove_old(self._file.parent.parent)
        self._file.unlink(missing_ok=True)  # of a stack that was killed; its port is ours now
        self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        os.write(self._descriptor, json.dumps(asdict(stack)).encode())

    def close(self) -> None:
        """Remove it."""
        self._file.unlink(missing_ok=True)
        os.close(self._descriptor)


def stack_folder(port: int) -> Path:
    """The folder of the stack whose head has this port."""
    return state_folder() / str(port)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _remove_old(folder: Path) -> None:
    """Remove the folders of stacks that ended long ago."""
    alive = {str(stack.port) for stack in running_stacks()}
    for path in folder.iterdir():
        if path.name not in alive and time.time() - path.stat().st_mtime > KEPT_SECONDS:
            shutil.rmtree(path, ignore_errors=True)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        os.kill(pid, number)
