"""Tests of checkpoints that cannot be written or read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from polygym.errors import PolygymError, UsageError
from polygym.train import checkpoint


class Part:
    """A model or tokenizer that is saved as one small file, or cannot be."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def save_pretrained(self, path: Path) -> None:
        if self.error:
            raise self.error
        path.mkdir(exist_ok=True)
        (path / "part").write_text("x")


def optimizer() -> torch.optim.Optimizer:
    parameter = torch.nn.Parameter(torch.ones(3))
    adam = torch.optim.AdamW([parameter])
    parameter.sum().backward()
    adam.step()
    return adam


def save(path: Path, error: Exception | None = None) -> None:
    checkpoint.save_checkpoint(path, model=Part(error), tokenizer=Part(), optimizer=optimizer(), state={"step": 2})


def test_a_checkpoint_comes_back(tmp_path: Path) -> None:
    save(tmp_path / "step_2")
    assert checkpoint.load_state(tmp_path / "step_2") == {"step": 2}
    fresh = torch.optim.AdamW([torch.nn.Parameter(torch.ones(3))])
    checkpoint.load_optimizer(tmp_path / "step_2", fresh)
    assert fresh.state_dict()["state"][0]["step"] == 1


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("iostream error\nmore")])
def test_a_full_disk_leaves_the_checkpoints_before_and_says_so(tmp_path: Path, error: Exception) -> None:
    save(tmp_path / "step_2")
    with pytest.raises(PolygymError, match=r"step_2 could not be written: .*error|device; make room on the disk"):
        save(tmp_path / "step_2", error)
    assert checkpoint.load_state(tmp_path / "step_2") == {"step": 2}


@pytest.mark.parametrize("name", ["state.json", "optimizer.pt"])
@pytest.mark.parametrize("size", [0, 9, 200])
def test_a_file_that_was_cut_is_told_with_the_way_out(tmp_path: Path, name: str, size: int) -> None:
    save(tmp_path / "step_2")
    file = tmp_path / "step_2" / name
    file.write_bytes(file.read_bytes()[:size] if name == "optimizer.pt" else file.read_bytes()[: size // 30])
    with pytest.raises(UsageError, match=r"step_2 cannot be read: .*; remove that folder to resume from an older one"):
        checkpoint.load_state(file.parent)
        checkpoint.load_optimizer(file.parent, optimizer())
