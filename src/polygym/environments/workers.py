"""Threads for plain functions that may never return.

The one idea: the caller first waits for the worker in place, for the time that a quick function takes (a handover costs
about 20 microseconds); only a slow one is awaited through the event loop, and one that overruns its deadline is left
behind with its thread, which is a daemon and does not keep the process alive.

A thread that is left behind is asked to end by an exception; one that is inside a C call does so when it returns.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any

IN_PLACE_SECONDS = 0.001


class _Abandoned(BaseException):
    """Raised inside a function that overran; not an Exception, so that ordinary handlers let it through."""


class Overrun(Exception):
    """The function did not return in time."""


class _Job:
    """One call, its outcome, and who waits for it."""

    __slots__ = ("arguments", "done", "error", "finished", "function", "lock", "notify", "value")

    def __init__(self, function: Callable[..., Any], arguments: dict[str, Any]) -> None:
        self.function = function
        self.arguments = arguments
        self.value: Any = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()
        self.lock = threading.Lock()
        self.notify: Callable[[], None] | None = None
        self.finished = False

    def run(self) -> None:
        # A function of others may raise anything, SystemExit too; the caller decides what it means.
        try:
            self.value = self.function(**self.arguments)
        except BaseException as error:
            self.error = error
        with self.lock:
            self.finished = True
            notify = self.notify
        self.done.release()
        if notify is not None:
            notify()

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class _Worker(threading.Thread):
    """Runs one job after another until it is left behind."""

    def __init__(self) -> None:
        super().__init__(name="polygym-tool", daemon=True)
        self._go = threading.Lock()
        self._go.acquire()
        self._job: _Job | None = None
        self._left = False
        self.start()

    def submit(self, job: _Job) -> None:
        self._job = job
        self._go.release()

    def run(self) -> None:
        try:
            while True:
                self._go.acquire()
                if self._left or self._job is None:
                    return
                job, self._job = self._job, None
                job.run()
        except _Abandoned:
            return

    def leave(self) -> None:
        """Let the thread go: it takes no further job and is asked to end."""
        self._left = True
        if self._go.locked():
            self._go.release()
        if self.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident), ctypes.py_object(_Abandoned))


class Workers:
    """A pool that grows with the number of slow calls under way and reuses its idle threads."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []

    async def call(self, function: Callable[..., Any], arguments: dict[str, Any], timeout_seconds: float) -> Any:
        """What the function returns or raises.

        Raises:
            Overrun: when it has not returned after `timeout_seconds`; its thread is left behind.
        """
        worker = self._take()
        job = _Job(function, arguments)
        started = perf_counter()
        worker.submit(job)
        if not job.done.acquire(timeout=min(IN_PLACE_SECONDS, timeout_seconds)):
            try:
                await self._wait(job, timeout_seconds - (perf_counter() - started))
            except BaseException:  # too late, or cancelled: either way nobody waits for this thread any more
                worker.leave()
                raise
        self._idle.append(worker)
        return job.outcome()

    def _take(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            # After a fork the threads of the parent are gone.
            if worker.is_alive():
                return worker
        return _Worker()

    @staticmethod
    async def _wait(job: _Job, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        returned = asyncio.Event()

        def notify() -> None:
            # The loop may be closed by the time that a left-behind function returns.
            if not loop.is_closed():
                loop.call_soon_threadsafe(returned.set)

        with job.lock:
            if job.finished:
                return
            job.notify = notify
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await returned.wait()
        except TimeoutError:
            raise Overrun from None
