"""A wave starts when every episode waits; patience and calls outside an episode are the exceptions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import pytest

from polygym.policies.waves import WaveDesk


class Recorder:
    """A desk that only notes its waves; an item `-1` fails its wave."""

    def __init__(
        self, patience_seconds: float = 30.0, gather_seconds: float = 0.0, compute_seconds: float = 0.0
    ) -> None:
        self.compute_seconds = compute_seconds
        self.waves: list[list[int]] = []
        self.cancelled: list[int] = []
        self.desk: WaveDesk[int] = WaveDesk(
            self._compute, lambda item: item, self.cancelled.append, patience_seconds, gather_seconds
        )

    def _compute(self, items: list[int], ready: Callable[[Sequence[int]], None]) -> None:
        self.waves.append(list(items))
        time.sleep(self.compute_seconds)
        if -1 in items:
            raise RuntimeError("broken")
        ready(items)

    async def play(self, name: int, turns: int, pause: float = 0.0) -> None:
        with self.desk.episode():
            for turn in range(turns):
                if pause:
                    await asyncio.sleep(pause)
                await self.desk.ask(10 * turn + name)


def test_a_wave_holds_one_item_of_every_episode_in_order() -> None:
    recorder = Recorder()

    async def run() -> None:
        await asyncio.gather(*(recorder.play(name, turns=2 if name else 1) for name in (2, 0, 1)))

    asyncio.run(run())
    recorder.desk.close()
    assert recorder.waves == [[0, 1, 2], [11, 12]]


def test_an_episode_that_starts_where_another_ended_joins_its_wave() -> None:
    recorder = Recorder()

    async def run() -> None:
        places = asyncio.Semaphore(2)

        async def play(name: int, turns: int) -> None:
            async with places:
                await recorder.play(name, turns)

        await asyncio.gather(play(0, 1), play(1, 3), play(2, 2))

    asyncio.run(run())
    assert recorder.waves == [[0, 1], [2, 11], [12, 21]]


def test_an_episode_that_is_busy_delays_a_wave_by_the_patience_at_most() -> None:
    recorder = Recorder(patience_seconds=0.05)

    async def run() -> None:
        await asyncio.gather(recorder.play(0, 1), recorder.play(1, 1, pause=0.4))

    asyncio.run(run())
    assert recorder.waves == [[0], [1]]


def test_what_is_asked_outside_any_episode_runs_at_once_with_what_waits() -> None:
    recorder = Recorder()

    async def run() -> float:
        busy = asyncio.create_task(recorder.play(1, 1, pause=0.3))
        waiting = asyncio.create_task(recorder.play(0, 1))
        await asyncio.sleep(0.05)
        start = time.perf_counter()
        await recorder.desk.ask(5)
        took = time.perf_counter() - start
        await asyncio.gather(busy, waiting)
        return took

    assert asyncio.run(run()) < 0.2
    assert recorder.waves == [[0, 5], [1]]


def test_an_error_reaches_everyone_in_its_wave_and_the_desk_goes_on() -> None:
    recorder = Recorder()

    async def run() -> list[object]:
        async def one(item: int) -> None:
            with recorder.desk.episode():
                await recorder.desk.ask(item)

        results = await asyncio.gather(one(-1), one(3), return_exceptions=True)
        await recorder.desk.ask(4)
        return list(results)

    assert [str(error) for error in asyncio.run(run())] == ["broken", "broken"]
    assert recorder.waves == [[-1, 3], [4]]


def test_a_cancelled_waiter_no_longer_holds_the_others_up() -> None:
    recorder = Recorder()

    async def run() -> None:
        slow = asyncio.create_task(recorder.play(1, 1, pause=60))
        other = asyncio.create_task(recorder.play(0, 1))
        await asyncio.sleep(0.05)
        slow.cancel()
        await other
        with pytest.raises(asyncio.CancelledError):
            await slow

    asyncio.run(run())
    assert recorder.waves == [[0]]


def test_an_item_cancelled_while_it_is_computed_is_told_to_the_computation() -> None:
    recorder = Recorder()

    def slowly(items: list[int], ready: Callable[[Sequence[int]], None]) -> None:
        while not recorder.cancelled:
            time.sleep(0.005)

    desk: WaveDesk[int] = WaveDesk(slowly, lambda item: item, recorder.cancelled.append, 30.0)

    async def run() -> None:
        task = asyncio.create_task(desk.ask(7))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    desk.close()
    assert set(recorder.cancelled) == {7}


def test_one_desk_serves_one_event_loop_after_another() -> None:
    recorder = Recorder()
    for _ in range(2):
        asyncio.run(recorder.play(3, 1))
    recorder.desk.close()
    recorder.desk.close()
    assert recorder.waves == [[3], [3]]


def test_clients_that_come_back_one_by_one_are_gathered_into_one_wave() -> None:
    recorder = Recorder(gather_seconds=0.2, compute_seconds=0.5)

    async def client(name: int) -> None:
        for turn in range(3):
            await recorder.desk.ask(10 * turn + name)
            await asyncio.sleep(0.01 * name)  # what an environment does between two turns

    async def run() -> None:
        await asyncio.gather(*(client(name) for name in range(4)))

    asyncio.run(run())
    recorder.desk.close()
    assert recorder.waves == [[0, 1, 2, 3], [10, 11, 12, 13], [20, 21, 22, 23]]


def test_a_client_whose_neighbours_have_left_waits_for_them_once_and_for_a_part_of_a_wave() -> None:
    recorder = Recorder(gather_seconds=5.0, compute_seconds=0.5)

    async def run() -> list[float]:
        await asyncio.gather(*(recorder.desk.ask(name) for name in range(4)))
        seconds = []
        for item in (10, 20):
            start = time.perf_counter()
            await recorder.desk.ask(item)
            seconds.append(time.perf_counter() - start)
        return seconds

    second, third = asyncio.run(run())
    recorder.desk.close()
    assert recorder.waves == [[0, 1, 2, 3], [10], [20]]
    assert 0.6 <= second < 3  # a fifth of the half second, not the five seconds that it may take
    assert second - third > 0.05
