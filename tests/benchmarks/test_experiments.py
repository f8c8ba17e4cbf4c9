"""Smoke tests of the experiments on whole training runs: tiny runs, real command, table and picture."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"
TINY = [
    part
    for setting in ("max_steps=1", "groups_per_environment=1", "eval.num_examples=4", "eval.rollouts_per_example=1")
    for part in ("--set", setting)
]


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module(name)


@pytest.mark.slow
def test_robustness_runs_its_variants_and_draws_their_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    robustness = load("robustness", monkeypatch)
    variants = robustness.variants(1e-4)
    assert list(variants) == ["seed 0", "seed 1", "seed 2", "half the rate", "twice the rate"]
    assert variants["twice the rate"] == ["seed=0", "learning_rate=0.0002"]
    few = {label: variants[label] for label in ("seed 1", "half the rate")}
    monkeypatch.setattr(robustness, "variants", lambda rate: few)
    robustness.main(["--folder", str(tmp_path / "runs"), "--docs", str(tmp_path / "docs"), *TINY])
    table = capsys.readouterr().out
    assert table.splitlines()[0] == "| run | math | tools | word | seconds |"
    assert table.count("→") == 6
    curves = json.loads((tmp_path / "docs" / "curves.json").read_text(encoding="utf-8"))
    assert set(curves) == {"seed 1", "half the rate"}
    assert (tmp_path / "docs" / "curves.png").stat().st_size > 10_000


@pytest.mark.slow
def test_the_reward_scale_of_one_environment_changes_no_curve_when_it_is_normalized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reward_scale = load("reward_scale", monkeypatch)
    monkeypatch.setattr(reward_scale, "FACTORS", (1.0, 100.0))
    reward_scale.main(["--folder", str(tmp_path / "runs"), "--docs", str(tmp_path / "docs"), *TINY])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith('largest difference of the training curves with "env": ')
    assert float(last.rsplit(" ", 1)[1]) < 1e-9
    assert (tmp_path / "docs" / "reward_scale.png").exists()
