"""How long the parts of a step take."""

from __future__ import annotations

import time


class StepClock:
    """Seconds of the parts of a step, as `time/<phase>`."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self._seconds: dict[str, float] = {}

    def mark(self, phase: str) -> None:
        """The part that ends here is `phase`."""
        now = time.perf_counter()
        self._seconds[phase] = now - self._last
        self._last = now

    def metrics(self) -> dict[str, float]:
        """Seconds by phase, and of the step so far."""
        total = {"step": time.perf_counter() - self._start}
        return {f"time/{phase}": seconds for phase, seconds in (self._seconds | total).items()}
