"""Going on in the background.

The one idea: a fork of the command becomes the leader of a session of its own, and tells the command when it is ready
or why it cannot be; until then the command waits, and Ctrl-C still ends both.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from polygym.errors import PolygymError, UsageError

Tell = Callable[[dict[str, Any]], None]


def detached(work: Callable[[Tell], Awaitable[None]]) -> dict[str, Any]:
    """Do `work` in the background; what it tells (once) is returned here.

    Call it while this process has one thread.

    Raises:
        UsageError, PolygymError: what the work raised before it told anything.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        code = 1
        try:
            code = _child(work, writing)
        finally:
            os._exit(code)  # what the command would do at its end is not the child's
    os.close(writing)
    try:
        with open(reading, "rb") as pipe:
            content = pipe.read()
    except KeyboardInterrupt:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        raise
    if not content:
        raise PolygymError("the stack ended before it was ready")
    told = json.loads(content)
    if "error" in told:
        os.waitpid(pid, 0)
        raise (UsageError if told["usage"] else PolygymError)(told["error"])
    return dict(told)


def _child(work: Callable[[Tell], Awaitable[None]], writing: int) -> int:
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)

    def tell(what: dict[str, Any]) -> None:
        with open(writing, "wb") as pipe:
            pipe.write(json.dumps(what).encode())

    async def run() -> None:
        await work(tell)

    try:
        asyncio.run(run())
    except (PolygymError, OSError) as error:
        tell({"error": str(error), "usage": isinstance(error, UsageError)})
        return 1
    return 0
