from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "generation.py"


def test_the_benchmark_of_generation_runs_with_tiny_numbers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("POLYGYM_CACHE", str(tmp_path))
    spec = importlib.util.spec_from_file_location("generation", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    module.main(["--prompts", "3", "--max-tokens", "4", "--wave", "16", "--repeats", "1", "--threads", "1"])

    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert report["models"]["smollm2-135m"] is None
    assert "polygym model fetch smollm2-135m" in printed.err
    nano = report["models"]["nano"]
    assert 24 <= nano["ours"]["tokens"] <= 96
    assert nano["times_tokens_per_second"] > 0
    assert nano["wave"]["tokens_per_second"] > 0
