"""Metrics for TensorBoard: `tensorboard --logdir runs`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class TensorBoardTracker:
    """Writes every metric under its own name to the folder `tensorboard/` of the run."""

    def __init__(self) -> None:
        self._writer: Any = None

    def open(self, folder: Path, step: int) -> None:
        """Write below `folder`; what an earlier process wrote after `step` is dropped from view."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """The metrics of one step."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close; twice is harmless."""
        if self._writer is not None:
            self._writer.close()
