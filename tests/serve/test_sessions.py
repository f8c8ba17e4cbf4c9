"""Sessions: unguessable, bounded, and ended for certain."""

from __future__ import annotations

import asyncio
import time

import pytest

from polygym.serve.app import HttpError
from polygym.serve.sessions import Session, Sessions


def make(ttl_seconds: float = 10.0, limit: int = 3) -> tuple[Sessions, list[Session]]:
    expired: list[Session] = []

    async def on_expired(session: Session) -> None:
        expired.append(session)

    return Sessions(ttl_seconds, limit, on_expired), expired


def test_ids_are_long_random_and_lead_to_their_session() -> None:
    async def main() -> None:
        sessions, _ = make()
        first, second = sessions.open({"n": 1}), sessions.open({})
        assert len(first.id) >= 43
        assert first.id != second.id
        assert sessions.get(first.id).data == {"n": 1}
        for unknown in ("", first.id[:-1], "x" * 43):
            with pytest.raises(HttpError) as error:
                sessions.get(unknown)
            assert (error.value.status, error.value.kind) == (410, "session_lost")
        assert sessions.close(first.id) is first
        assert sessions.close(first.id) is None
        assert len(sessions) == 1

    asyncio.run(main())


def test_one_more_than_the_limit_is_refused_until_one_ends() -> None:
    async def main() -> None:
        sessions, _ = make(limit=2)
        first = sessions.open({})
        sessions.open({})
        with pytest.raises(HttpError) as error:
            sessions.open({})
        assert (error.value.status, error.value.headers) == (503, {"Retry-After": "5"})
        sessions.close(first.id)
        sessions.open({})

    asyncio.run(main())


def test_a_session_that_nobody_uses_expires_and_one_at_work_does_not() -> None:
    async def main() -> None:
        sessions, expired = make(ttl_seconds=10)
        idle, used, busy = (sessions.open({}) for _ in range(3))
        now = time.monotonic()
        used.used = now + 9
        async with busy.request():
            assert await sessions.expire(now + 10.5) == 1
        assert expired == [idle]
        assert len(sessions) == 2
        await sessions.close_all()
        assert expired == [idle, used, busy]

    asyncio.run(main())


def test_requests_of_a_session_wait_for_each_other_unless_they_need_not() -> None:
    async def main() -> None:
        session = make()[0].open({})
        log: list[str] = []

        async def work(name: str, alone: bool) -> None:
            async with session.request(alone=alone):
                log.append(f"{name} in")
                await asyncio.sleep(0.01)
                log.append(f"{name} out")

        await asyncio.gather(work("a", True), work("b", True))
        assert log == ["a in", "a out", "b in", "b out"]
        log.clear()
        await asyncio.gather(work("a", False), work("b", False))
        assert log == ["a in", "b in", "a out", "b out"]

    asyncio.run(main())


def test_closing_a_session_ends_what_is_under_way_in_it() -> None:
    async def main() -> None:
        sessions, _ = make()
        session = sessions.open({})

        async def work() -> None:
            async with session.request():
                await asyncio.sleep(60)

        running, waiting = asyncio.create_task(work()), asyncio.create_task(work())
        await asyncio.sleep(0.01)
        sessions.close(session.id)
        for task in (running, waiting):
            with pytest.raises(HttpError) as error:
                await task
            assert error.value.kind == "session_lost"

    asyncio.run(main())
