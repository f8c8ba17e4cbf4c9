"""WaveDesk: many coroutines ask for one thing each; one thread computes them together.

The one idea: a wave starts when every episode that is under way waits for it, so that a synchronous run always computes
the same batches in the same order. An episode that is busy elsewhere (a slow tool) delays a wave by at most
`patience_seconds` after the last arrival. What is asked outside any episode, by the clients of a server, is computed at
once, unless the wave before was larger: then those clients may be about to ask again, and the wave waits for them,
`gather_seconds` after each arrival but no longer than a part of what the wave before took.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

Item = TypeVar("Item")

#: Turns of the event loop without any change before a wave starts: an episode that ends lets the next one begin first.
QUIET_TURNS = 4
#: A wave gathers for this part of the seconds that the wave before took at most.
GATHER_FRACTION = 0.2


@dataclass(eq=False, slots=True)
class _Episode:
    waiting: int = 0


class _Desk(Generic[Item]):
    """What is under way in one event loop."""

    def __init__(self) -> None:
        self.episodes: set[_Episode] = set()
        self.waiting: dict[asyncio.Future[None], tuple[Item, _Episode | None]] = {}
        self.computing: list[Item] = []
        self.changes = 0
        self.watching = False
        self.timer: asyncio.TimerHandle | None = None
        self.gathering_until: float | None = None
        self.last_wave = 0  # items of the wave before, and its seconds
        self.last_seconds = 0.0


class WaveDesk(Generic[Item]):
    """Collects items and computes them in waves.

    Args:
        compute: called in the desk's only thread with a wave's items and a function to call, from that thread, with
            items that are ready before the others.
        order: sort key of a wave's items.
        cancel: called for an item whose waiter was cancelled while it may be computed.
        patience_seconds, gather_seconds: see the module.
    """

    def __init__(
        self,
        compute: Callable[[list[Item], Callable[[Sequence[Item]], None]], None],
        order: Callable[[Item], int],
        cancel: Callable[[Item], None],
        patience_seconds: float,
        gather_seconds: float = 0.0,
    ) -> None:
        self._compute, self._order, self._cancel = compute, order, cancel
        self._patience_seconds, self._gather_seconds = patience_seconds, gather_seconds
        self._desks: WeakKeyDictionary[asyncio.AbstractEventLoop, _Desk[Item]] = WeakKeyDictionary()
        self._episode: ContextVar[_Episode | None] = ContextVar("episode", default=None)
        self._thread: ThreadPoolExecutor | None = None

    def _desk(self) -> _Desk[Item]:
        return self._desks.setdefault(asyncio.get_running_loop(), _Desk())

    @contextlib.contextmanager
    def episode(self) -> Iterator[None]:
        """Held while an episode is under way."""
        desk, episode, outer = self._desk(), _Episode(), self._episode.get()
        desk.episodes.add(episode)
        self._episode.set(episode)
        self._changed(desk)
        try:
            yield
        finally:
            self._episode.set(outer)
            desk.episodes.discard(episode)
            self._changed(desk)

    async def ask(self, item: Item) -> None:
        """Return when the item is computed.

        Raises:
            Exception: what `compute` raised for the wave that the item was in.
        """
        desk, episode = self._desk(), self._episode.get()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if episode is not None and episode not in desk.episodes:
            episode = None
        if episode is not None:
            episode.waiting += 1
        desk.waiting[future] = (item, episode)
        self._changed(desk)
        try:
            await future
        except asyncio.CancelledError:
            self._cancel(item)
            raise
        finally:
            desk.waiting.pop(future, None)
            if episode is not None:
                episode.waiting -= 1
            self._changed(desk)

    def close(self) -> None:
        """End the thread; a wave that it computes is cancelled. Calling it twice is harmless."""
        for desk in self._desks.values():
            for item in desk.computing:
                self._cancel(item)
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None

    def _changed(self, desk: _Desk[Item]) -> None:
        """Note that an episode or an item came or went, and see whether that makes a wave."""
        desk.changes += 1
        if not desk.watching and not desk.computing and desk.waiting:
            desk.watching = True
            asyncio.get_running_loop().call_soon(self._watch, desk, desk.changes, 0)

    def _watch(self, desk: _Desk[Item], changes: int, quiet: int) -> None:
        """Wait for some turns of the loop without a change, then start a wave or the timer that will."""
        desk.watching = False
        if desk.computing or not desk.waiting:
            return
        loop = asyncio.get_running_loop()
        if desk.timer is not None:
            desk.timer.cancel()
            desk.timer = None
        quiet = quiet + 1 if changes == desk.changes else 0
        if quiet < QUIET_TURNS:
            desk.watching = True
            loop.call_soon(self._watch, desk, desk.changes, quiet)
        elif any(episode is None for _, episode in desk.waiting.values()):
            wait = self._gathering_seconds(desk, loop.time())
            if wait > 0:
                desk.timer = loop.call_later(wait, self._start, desk)
            else:
                self._start(desk)
        elif all(episode.waiting for episode in desk.episodes):
            self._start(desk)
        else:
            desk.timer = loop.call_later(self._patience_seconds, self._start, desk)

    def _gathering_seconds(self, desk: _Desk[Item], now: float) -> float:
        """How long to wait for more items from outside any episode; 0 to start."""
        if not self._gather_seconds or len(desk.waiting) >= desk.last_wave:
            return 0.0
        if desk.gathering_until is None:
            desk.gathering_until = now + GATHER_FRACTION * desk.last_seconds
        return min(self._gather_seconds, desk.gathering_until - now)

    def _start(self, desk: _Desk[Item]) -> None:
        desk.timer = desk.gathering_until = None
        if desk.computing or not desk.waiting:
            return
        loop = asyncio.get_running_loop()
        futures = {id(item): future for future, (item, _) in desk.waiting.items()}
        wave = desk.computing = sorted((item for item, _ in desk.waiting.values()), key=self._order)
        desk.waiting = {}
        desk.last_wave, started = len(wave), loop.time()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="polygym-generate")

        def ready(items: Sequence[Item]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(resolve, items)

        def resolve(items: Sequence[Item]) -> None:
            for item in items:
                future = futures[id(item)]
                if not future.done():
                    future.set_result(None)

        def finished(result: asyncio.Future[None]) -> None:
            desk.computing = []
            desk.last_seconds = loop.time() - started
            error = None if result.cancelled() else result.exception()
            for item in wave:
                future = futures[id(item)]
                if not future.done():
                    future.set_exception(error or RuntimeError("the wave ended without this item"))
            self._changed(desk)

        loop.run_in_executor(self._thread, self._compute, wave, ready).add_done_callback(finished)
