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
import traceback
from collections.abc import Awaitable, Callable
from typing import IO, Any

from polygym.errors import PolygymError, UsageError

Tell = Callable[[dict[str, Any]], None]


def detached(work: Callable[[Tell], Awaitable[None]]) -> dict[str, Any]:
    """Do `work` in the background; what it tells (once) is returned here.

    What it writes afterwards goes to the file that it tells of as `log`.

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
    with open(os.devnull, "r+b") as nowhere:  # whoever reads what the command writes is not kept waiting
        _redirect(nowhere, 0, 1, 2)

    told = False

    def tell(what: dict[str, Any]) -> None:
        nonlocal told
        told = True
        with open(writing, "wb") as pipe:
            pipe.write(json.dumps(what).encode())
        if "log" in what:
            with open(what["log"], "ab") as log:
                _redirect(log, 1, 2)

    async def run() -> None:
        await work(tell)

    try:
        asyncio.run(run())
    except Exception as error:  # what the command would have raised, it raises; the rest is a bug of ours
        known = isinstance(error, (PolygymError, OSError))
        words = str(error) if known else traceback.format_exc()
        if told:
            print(f"error: {words}", file=sys.stderr, flush=True)
        else:
            tell({"error": words, "usage": isinstance(error, UsageError)})
        return 1
    return 0


def _redirect(target: IO[bytes], *streams: int) -> None:
    for stream in streams:
        os.dup2(target.fileno(), stream)
