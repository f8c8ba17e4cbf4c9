"""Metrics as TensorBoard reads them."""

from __future__ import annotations

import pytest

from polygym.cli.tracker import TensorBoardTracker


def read(folder, name):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_a_resumed_run_continues_its_curve_and_drops_what_came_after_the_checkpoint(tmp_path):
    pytest.importorskip("tensorboard")
    first = TensorBoardTracker()
    first.open(tmp_path, 0)
    for step in (1, 2, 3):
        first.log(step, {"math/mean_reward": step / 4, "lr": 0.5})
    first.close()
    second = TensorBoardTracker()
    second.open(tmp_path, 2)
    second.log(3, {"math/mean_reward": 1.0})
    second.close()
    second.close()
    assert read(tmp_path, "math/mean_reward") == [(1, 0.25), (2, 0.5), (3, 1.0)]
    assert read(tmp_path, "lr") == [(1, 0.5), (2, 0.5)]
