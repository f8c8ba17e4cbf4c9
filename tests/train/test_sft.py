"""Tests of supervised training on demonstrations."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from transformers import AutoModelForCausalLM

import training_toys as toy
from polygym.errors import UsageError
from polygym.train import sft
from polygym.train.progress import TrainProgress
from polygym.train.sft_config import load_config

CONFIG = """
model = "{model}"
output = "{output}"
from_scratch = true
max_steps = 60
learning_rate = 3e-2
threads = 1
[sampling]
max_tokens = 6
[eval]
interval = 20
num_examples = 4
[[env]]
id = "training_toys:demonstrated"
name = "a"
batch_size = 8
[[env]]
id = "training_toys:demonstrated"
name = "e"
batch_size = 8
args = {{ letter = "e" }}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.save_model(tmp_path_factory.mktemp("model"))


def config(model: Path, folder: Path, *overrides: str) -> sft.SFTConfig:
    path = folder / "warm.toml"
    path.write_text(CONFIG.format(model=model, output=folder / "run"), encoding="utf-8")
    return load_config(path, overrides)


def test_demonstrations_are_learned_from_random_weights_and_repeat_for_a_seed(model: Path, tmp_path: Path) -> None:
    summary = sft.run(config(model, tmp_path))
    assert summary.results is not None
    assert summary.results.mean_reward is not None
    assert summary.results.mean_reward > 0.8
    other = tmp_path / "other"
    other.mkdir()
    again = sft.run(config(model, other))
    assert again.results is not None
    assert again.results.mean_reward == summary.results.mean_reward
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()


def test_an_environment_that_reaches_its_target_gets_a_quarter_and_the_run_ends_when_all_have(
    model: Path, tmp_path: Path
) -> None:
    summary = sft.run(config(model, tmp_path, "env.a.target=0.0", "env.e.target=2.0", "max_steps=40"))
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert summary.steps == 40
    assert rows[-1]["a/tokens"] * 4 == rows[0]["a/tokens"]
    assert rows[-1]["e/tokens"] == rows[0]["e/tokens"]
    early = tmp_path / "early"
    early.mkdir()
    assert sft.run(config(model, early, "env.a.target=0.0", "env.e.target=0.0")).steps == 20


def test_muon_takes_the_matrices(model: Path, tmp_path: Path) -> None:
    summary = sft.run(config(model, tmp_path, "optimizer=muon", "matrix_learning_rate=0.02", "max_steps=20"))
    assert summary.steps == 20


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["env.a.id=training_toys:load_environment"], "a demonstrates nothing for task"),
        (["max_seq_len=8"], "raise max_seq_len above 8"),
        (["optimizer=sgd"], "optimizer='sgd'"),
        (["rate=1"], "unknown key 'rate'"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(
    model: Path, tmp_path: Path, overrides: list[str], message: str
) -> None:
    with pytest.raises(UsageError) as error:
        sft.run(config(model, tmp_path, *overrides))
    assert message in str(error.value)


def test_ctrl_c_ends_a_run_after_its_step_keeps_the_model_and_exits_with_130(model: Path, tmp_path: Path) -> None:
    config(model, tmp_path)
    command = [sys.executable, "-m", "polygym", "sft", "run", str(tmp_path / "warm.toml")]
    process = subprocess.Popen(
        [*command, "--set", "max_steps=1000000", "--set", "eval.interval=0"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and not metrics.exists():
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert errors.splitlines()[-2:] == [f"the model so far is in {tmp_path / 'run' / 'model'}", "interrupted"]
    AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model")


def test_a_supervised_run_prints_nothing_of_its_own(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sft.run(config(model, tmp_path, "max_steps=1"))
    assert capfd.readouterr() == ("", "")


def test_the_display_is_told_each_phase_and_every_rollout_of_an_evaluation(model: Path, tmp_path: Path) -> None:
    class Heard(TrainProgress):
        told: ClassVar[list[str]] = []

        def phase(self, name: str) -> None:
            self.told.append(name)

        def start(self, total_by_environment: Mapping[str, int]) -> None:
            self.told.append(f"start {dict(total_by_environment)}")

        def step(self, step: int, max_steps: int, metrics: Mapping[str, float]) -> None:
            self.told.append(f"step {step}")

    sft.run(config(model, tmp_path, "max_steps=2", "eval.interval=0"), progress=Heard())
    assert Heard.told == [
        *("update", "step 1", "update", "step 2", "checkpoint", "evaluate"),
        "start {'a': 4, 'e': 4}",
    ]
