"""What a training run tells whoever watches: a display for progress, a tracker for numbers.

The one idea: training knows no display; it calls these methods, which by default do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from polygym.collect.progress import Progress


class TrainProgress(Progress):
    """Collection's progress, plus the steps of a run."""

    def phase(self, name: str) -> None:
        """A part of the work begins: `evaluate`, `collect`, `update`, `checkpoint`."""

    def step(self, step: int, max_steps: int, metrics: Mapping[str, float]) -> None:
        """Step 1, 2, ..., `max_steps` is done, with its line of `metrics.jsonl`."""

    def message(self, text: str) -> None:
        """One line for a person: a warning, a changed mix."""


class Tracker(Protocol):
    """Where metrics go besides `metrics.jsonl`."""

    def open(self, folder: Path, step: int) -> None:
        """The run lies in `folder` and goes on after `step` steps; called once, before the first `log`."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """The metrics of one step, or of the evaluation after it, under their own names."""

    def close(self) -> None:
        """Flush and release."""
