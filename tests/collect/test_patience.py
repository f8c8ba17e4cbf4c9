"""A server that fails, and who waits for it."""

from __future__ import annotations

import asyncio
import time

import pytest

from polygym.collect import patience as patience_module
from polygym.collect.patience import Patience
from polygym.rollout import Cause

GONE = Cause("server", "gone")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience_module, "backoff_seconds", lambda tries: 0.02)
    monkeypatch.setattr(patience_module, "LOOK_AGAIN_SECONDS", 0.005)
    monkeypatch.setattr(patience_module, "TOLD_SECONDS", 0.03)
    monkeypatch.setattr(patience_module, "RETURN_SECONDS", 0.2)


def test_one_tries_again_while_the_others_wait_for_how_that_goes() -> None:
    async def work() -> tuple[int, list[bool]]:
        patience = Patience("agent")
        patience.failed(time.monotonic(), GONE)
        waiting = [asyncio.create_task(patience.admit(0)) for _ in range(5)]
        await asyncio.sleep(0.1)
        tried = sum(task.done() for task in waiting)
        patience.worked()
        return tried, await asyncio.gather(*waiting)

    assert asyncio.run(work()) == (1, [True] * 5)


def test_after_its_time_all_are_given_up_at_once_and_a_person_is_told() -> None:
    told: list[str] = []

    async def work() -> tuple[list[bool], bool]:
        patience = Patience("agent")
        patience.tell = told.append
        patience.failed(time.monotonic(), GONE)

        async def rollout() -> bool:
            tries = 0
            while await patience.admit(tries):
                tries += 1
                patience.failed(time.monotonic(), GONE)
            return patience.is_dead

        return await asyncio.gather(*(rollout() for _ in range(5))), patience.is_dead

    began = time.monotonic()
    assert asyncio.run(work()) == ([True] * 5, True)
    assert 0.2 < time.monotonic() - began < 2
    assert told[0] == "agent fails and is waited for: gone"
    assert told[1].startswith("agent has failed for 0 s and is not waited for: gone")
    assert len(told) == 2


def test_a_dead_server_is_tried_now_and_then_and_a_success_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience_module, "RETURN_SECONDS", -1.0)

    async def work() -> None:
        patience = Patience("agent")
        patience.failed(time.monotonic(), GONE)
        assert (patience.is_dead, patience.is_held) == (True, True)
        assert await patience.admit(0) is False
        await asyncio.sleep(0.03)
        assert (patience.is_dead, patience.is_held) == (True, False)
        assert await patience.admit(1) is False  # one that has been tried is given up
        assert await patience.admit(0) is True
        assert not patience.is_dead  # it may come back: nobody is given up meanwhile
        patience.worked()
        assert (patience.is_failing, await patience.admit(0)) == (False, True)

    asyncio.run(work())


def test_a_failure_counts_from_the_last_success() -> None:
    patience = Patience("agent")
    began = time.monotonic() - 100
    patience.worked()
    patience.failed(began, GONE)
    assert patience.failing_seconds < 1
    assert not patience.is_dead
