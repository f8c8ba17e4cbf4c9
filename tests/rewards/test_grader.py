"""Grader processes: deadlines in CPU time, replacement, bursts."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from polygym.errors import GraderError
from polygym.rewards import grader as grader_module
from polygym.rewards.grader import Grader, shared_grader


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    """One process with a short budget."""
    grader = Grader(cpu_seconds=1.5, processes=1)
    yield grader
    grader.close()


def test_answers_that_never_end_are_wrong_within_their_budget() -> None:
    answers = [
        "9^{9^{9^9}}",
        r"\frac{1}{2^{10^{12}}}",
        "99999999999!",
        "(" * 900 + "x" + ")" * 900,
        r"\sqrt{" * 300 + "x" + "}" * 300,
        "1+" * 4000 + "1",
        ",".join(f"x+{number}" for number in range(1000)),
    ]
    grader = Grader(cpu_seconds=0.7, processes=2)
    futures = [grader.submit("x+4", answer) for answer in answers]
    assert [future.result(timeout=200) for future in futures] == [False] * len(answers)
    assert grader.submit("2x", "x+x").result(timeout=60) is True
    grader.close()


def test_the_next_answer_after_a_hang_is_judged_by_a_new_process(grader: Grader) -> None:
    assert grader.submit("2x", "x+x").result(timeout=60) is True
    before = grader.pids()
    assert grader.submit("2x", "9^{9^{9^9}}").result(timeout=60) is False
    assert grader.submit("2x", "x+x").result(timeout=60) is True
    assert len(grader.pids()) == 1
    assert grader.pids() != before


def test_a_killed_grader_is_replaced_and_asked_again(grader: Grader) -> None:
    assert grader.submit("2x", "x+x").result(timeout=60) is True
    os.kill(grader.pids()[0], signal.SIGKILL)
    assert grader.submit("2x", "x+x").result(timeout=60) is True


def test_a_grader_that_is_killed_in_the_middle_is_asked_again(grader: Grader) -> None:
    assert grader.submit("2x", "x+x").result(timeout=60) is True
    pid = grader.pids()[0]
    os.kill(pid, signal.SIGSTOP)
    future = grader.submit("2x", "x+x")
    time.sleep(0.2)
    os.kill(pid, signal.SIGKILL)
    assert future.result(timeout=60) is True


def test_a_grader_that_keeps_dying_leaves_the_answer_unscored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grader_module.sys, "executable", "/bin/false")
    grader = Grader(processes=1)
    with pytest.raises(GraderError, match="failed 3 times: ended with exit code 1"):
        grader.submit("2x", "x+x").result(timeout=60)
    grader.close()


def test_a_closed_grader_leaves_no_process_and_refuses_work() -> None:
    grader = Grader(cpu_seconds=30, processes=1)
    assert grader.submit("2x", "x+x").result(timeout=60) is True
    pid = grader.pids()[0]
    pending = grader.submit("2x", "9^{9^{9^9}}")
    time.sleep(0.2)
    grader.close()
    grader.close()
    with pytest.raises(GraderError):
        pending.result(timeout=60)
    with pytest.raises(GraderError, match="closed"):
        grader.submit("2x", "x+x")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_forked_child_makes_its_own_grader() -> None:
    parent = shared_grader()
    child = os.fork()
    if child == 0:
        os._exit(0 if shared_grader() is not parent else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert shared_grader() is parent


@pytest.mark.slow
def test_a_burst_on_busy_cores_changes_no_verdict() -> None:
    """200 answers at once, with a budget that a right answer stays well below, beside a busy loop on every core."""

    async def judge(grader: Grader) -> list[bool]:
        futures = [grader.submit(f"{n}x+{n}", f"{n}(x+1)" if n % 2 else f"{n}(x+2)") for n in range(1, 201)]
        return await asyncio.gather(*map(asyncio.wrap_future, futures))

    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    grader = Grader(cpu_seconds=1.0, processes=2)
    try:
        assert asyncio.run(judge(grader)) == [bool(n % 2) for n in range(1, 201)]
    finally:
        for process in busy:
            process.kill()
            process.wait()
        grader.close()
