"""Graders: processes that decide whether two answers are equal, with a deadline in CPU time.

The one idea: an answer can keep an algebra system busy for ever, so the judge must be killable, and the deadline is CPU
time of its process, so that load cannot turn a right answer wrong. An answer that exhausts the budget is wrong. A judge
that dies otherwise is replaced and asked again; if it keeps dying, the answer is unscored (`GraderError`).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path

from polygym.errors import GraderError

CPU_SECONDS = 5.0  # for one answer; the slowest right ones of our cases take under half a second
START_SECONDS = 300.0  # wall-clock, to load the libraries on a busy machine
PATIENCE = 60.0  # wall-clock seconds per CPU second of the budget before a judge counts as stuck
ATTEMPTS = 3
MAX_PROCESSES = 4

_Job = tuple[str, str, "Future[bool]"]


class _CrashError(Exception):
    """The process died, or answered nothing, for a reason that is not the budget."""


class _BudgetError(Exception):
    """The process was ended by its CPU timer."""


class _Process:
    """One grader process and its pipes."""

    def __init__(self, cpu_seconds: float) -> None:
        self._cpu_seconds = cpu_seconds
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "polygym.rewards.grader_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "SYMPY_GROUND_TYPES": "python"},
        )
        self.pid = self._popen.pid

    def start(self) -> None:
        """Wait until the libraries are loaded."""
        if self._read_line(START_SECONDS) != b"ready":
            raise _CrashError("said something else than ready")

    def ask(self, gold: str, prediction: str) -> bool:
        """The verdict on one answer."""
        request = json.dumps([gold, prediction, self._cpu_seconds]) + "\n"
        try:
            assert self._popen.stdin is not None
            self._popen.stdin.write(request.encode())
        except OSError as error:
            raise _CrashError(f"does not read: {error}") from error
        return self._read_line(self._cpu_seconds * PATIENCE) == b"true"

    def kill(self) -> None:
        """End the process and close its pipes."""
        self._popen.kill()
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def _read_line(self, seconds: float) -> bytes:
        assert self._popen.stdout is not None
        deadline = time.monotonic() + seconds
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._popen.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise _CrashError(f"said nothing for {seconds:g} s")
                piece = os.read(self._popen.stdout.fileno(), 4096)
                if not piece:
                    code = self._popen.wait()
                    raise _BudgetError if code == -signal.SIGPROF else _CrashError(f"ended with exit code {code}")
                line += piece
        return line.strip()


class Grader:
    """A few grader processes, started when first needed and replaced when they die.

    Args:
        cpu_seconds: budget of one answer.
        processes: how many at most; default one a core, and not more than 4.
    """

    def __init__(self, cpu_seconds: float = CPU_SECONDS, processes: int | None = None) -> None:
        self._cpu_seconds = cpu_seconds
        self._limit = processes or min(MAX_PROCESSES, os.cpu_count() or 1)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._waiting = 0  # jobs that no thread has taken up
        self._idle = 0  # threads that wait for a job
        self._running: dict[int, _Process] = {}
        self._closed = False

    def submit(self, gold: str, prediction: str) -> Future[bool]:
        """Ask whether two answers are equal. The future raises `GraderError` when that could not be found out."""
        future: Future[bool] = Future()
        with self._lock:
            if self._closed:
                raise GraderError("the grader is closed")
            self._jobs.put((gold, prediction, future))
            self._waiting += 1
            if self._waiting > self._idle and self._threads < self._limit:
                self._threads += 1
                threading.Thread(target=self._serve, name="polygym-grader", daemon=True).start()
        return future

    def pids(self) -> list[int]:
        """Process ids of the graders that run."""
        with self._lock:
            return sorted(self._running)

    def close(self) -> None:
        """End all processes; answers that are under way fail. Calling it twice is harmless."""
        with self._lock:
            self._closed = True
            processes = list(self._running.values())
            for _ in range(self._threads):
                self._jobs.put(None)
        for process in processes:
            process.kill()

    def _serve(self) -> None:
        process: _Process | None = None
        while (job := self._next_job()) is not None:
            gold, prediction, future = job
            if not future.set_running_or_notify_cancel():
                continue
            problem = ""
            for _ in range(ATTEMPTS):
                try:
                    process = process or self._start()
                    future.set_result(process.ask(gold, prediction))
                    break
                except _BudgetError:
                    self._discard(process)
                    process = None
                    future.set_result(False)
                    break
                except (_CrashError, OSError) as error:
                    self._discard(process)
                    process = None
                    problem = str(error)
                    if self._closed:
                        break
            if not future.done():
                hint = f"`{sys.executable} -m polygym.rewards.grader_process` shows whether it starts"
                future.set_exception(GraderError(f"the grader process failed {ATTEMPTS} times: {problem}; {hint}"))
        self._discard(process)

    def _next_job(self) -> _Job | None:
        with self._lock:
            self._idle += 1
        job = self._jobs.get()
        with self._lock:
            self._idle -= 1
            self._waiting -= job is not None
        return job

    def _start(self) -> _Process:
        process = _Process(self._cpu_seconds)
        with self._lock:
            self._running[process.pid] = process
        try:
            process.start()
        except _BudgetError as error:  # the timer is off while it starts
            self._discard(process)
            raise _CrashError(str(error)) from error
        except _CrashError:
            self._discard(process)
            raise
        return process

    def _discard(self, process: _Process | None) -> None:
        if process is not None:
            with self._lock:
                self._running.pop(process.pid, None)
            process.kill()


_shared: tuple[int, Grader] | None = None
_shared_lock = threading.Lock()


def shared_grader() -> Grader:
    """The grader of this process, made when first asked for. A forked child makes its own."""
    global _shared
    with _shared_lock:
        if _shared is None or _shared[0] != os.getpid():
            grader = Grader()
            atexit.register(grader.close)
            _shared = (os.getpid(), grader)
        return _shared[1]
