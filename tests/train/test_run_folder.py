"""Tests of the folder of a run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from polygym.errors import UsageError
from polygym.train.config import RunConfig
from polygym.train.run_folder import RunFolder


def config(**settings: str) -> RunConfig:
    return RunConfig.model_validate({"name": "mix", "batch_size": 8, "env": [{"id": "math_rl"}], **settings})


def test_runs_that_begin_together_get_a_folder_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [RunFolder.create(config()) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda folder: folder.make(config()), folders))
    assert sorted(str(folder.path) for folder in folders) == ["runs/mix", *(f"runs/mix-{n}" for n in range(2, 7))]
    assert all(folder.rollouts.is_dir() and folder.checkpoints.is_dir() for folder in folders)


def test_of_two_runs_with_one_output_the_later_is_refused(tmp_path: Path) -> None:
    chosen = config(output=str(tmp_path / "run"))
    first, second = RunFolder.create(chosen), RunFolder.create(chosen)
    first.make(chosen)
    with pytest.raises(UsageError, match="is not empty; continue it with --resume"):
        second.make(chosen)
    with pytest.raises(UsageError, match="is not empty; continue it with --resume"):
        RunFolder.create(chosen)


def test_an_empty_folder_can_be_the_output(tmp_path: Path) -> None:
    chosen = config(output=str(tmp_path))
    RunFolder.create(chosen).make(chosen)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "eval", "rollouts"]


def test_a_run_that_is_alive_cannot_be_resumed_by_another_process(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    alive, other = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    alive.lock()
    with pytest.raises(UsageError, match="is in use by another process"):
        other.lock()
    alive.release()
    RunFolder(tmp_path / "run").lock()
