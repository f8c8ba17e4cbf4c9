"""Ending work that nobody waits for any more.

The one idea: a caller that has hung up reads no answer, so what is done for it is cancelled, and ends as it does at any
other cancellation: sessions are closed, waves of a model go on without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request

from polygym.serve.app import HttpError

HUNG_UP = 499
"""Status of an answer that nobody reads, for the metrics."""


@asynccontextmanager
async def until_hung_up(request: Request) -> AsyncIterator[None]:
    """Cancels what is inside when the caller hangs up; the request's body must have been read.

    Raises:
        HttpError: 499 after such an end.
    """
    task = asyncio.current_task()
    assert task is not None

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if not watcher.done():
            raise
        task.uncancel()
        raise HttpError(HUNG_UP, "hung_up", "the caller has hung up") from None
    finally:
        watcher.cancel()
