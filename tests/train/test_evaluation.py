"""What is asked in the evaluations of a run: as many held-out tasks as the config says, else 50 or all there are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import training_toys as toy
from polygym.errors import UsageError
from polygym.train import loop, sft
from polygym.train.config import load_config
from polygym.train.progress import TrainProgress
from polygym.train.sft_config import load_config as load_sft_config


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.save_model(tmp_path_factory.mktemp("model"))


class Heard(TrainProgress):
    """Keeps what a run says."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def message(self, text: str) -> None:
        self.told.append(text)


def write(path: Path, model: Path, evaluation: str = "") -> Path:
    path.write_text(
        f'model = "{model}"\noutput = "{path.with_suffix("")}"\nmax_steps = 1\nthreads = 1\n{evaluation}'
        "[sampling]\nmax_tokens = 6\n"
        '[[env]]\nid = "training_toys:demonstrated"\nname = "few"\n'
        '[[env]]\nid = "training_toys:demonstrated"\nname = "none"\nargs = { held_out = 0.0 }\n'
    )
    return path


def test_a_run_asks_all_held_out_tasks_where_there_are_fewer_than_the_default_and_says_so(
    model: Path, tmp_path: Path
) -> None:
    heard = Heard()
    path = write(tmp_path / "run.toml", model)
    summary = loop.run(load_config(path, ["groups_per_environment=1", "rollouts_per_example=2"]), progress=heard)
    assert summary.comparison is not None
    assert {name: found.tasks for name, found in summary.comparison.environments.items()} == {"few": 4}
    line = "evaluation: all held-out tasks are asked where there are fewer than 50: 4 of few, 0 of none"
    assert heard.told == [line]
    assert line in (tmp_path / "run" / "log.txt").read_text()


def test_a_supervised_run_does_so_too(model: Path, tmp_path: Path) -> None:
    heard = Heard()
    summary = sft.run(load_sft_config(write(tmp_path / "run.toml", model)), progress=heard)
    assert summary.results is not None
    assert {name: found.n for name, found in summary.results.environments.items()} == {"few": 4}
    assert heard.told == ["evaluation: all held-out tasks are asked where there are fewer than 50: 4 of few, 0 of none"]


def test_a_number_that_is_given_is_asked_or_refused_before_anything_is_trained(model: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "run.toml", model, "eval = { num_examples = 5 }\n")
    with pytest.raises(UsageError, match=r"\[eval\] environment 'none' has no held-out tasks"):
        loop.run(load_config(path, ["groups_per_environment=1"]))
    with pytest.raises(
        UsageError, match=r"\[eval\] num_examples=5 is more than the 4 held-out tasks of environment 'few'"
    ):
        sft.run(load_sft_config(path, ["env.none.args={}"]))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_new_environment_trains_as_it_was_made(tmp_path: Path) -> None:
    (tmp_path / "mix.toml").write_text('batch_size = 8\nmax_steps = 2\nthreads = 1\n[[env]]\nid = "./my_env"\n')
    for command in (["env", "init", "my_env"], ["rl", "run", "mix.toml", "--set", "sampling.max_tokens=8"]):
        done = subprocess.run(
            [sys.executable, "-m", "polygym", *command],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert "20 of my_env" in done.stderr
    assert "2 steps in" in done.stdout
