"""The benchmark of files of rows, small."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "data.py"


def test_the_benchmark_of_rows_runs_with_few_of_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("data_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    module.main(["--rows", "2000", "--repeats", "1", "--folder", str(tmp_path), "--output", str(tmp_path / "figures")])

    report = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "figures").read_text("utf-8")) == report
    assert report["within_limits"] is True
    assert 980 < report["bytes_a_row"] <= 1_000
    for command in ("blend", "blend_shuffle", "prepare", "prepare_environment"):
        assert 0 < report[command]["cpu_seconds"] < 10
        assert 20 < report[command]["resident_megabytes"] < 200
    assert [path.name for path in tmp_path.iterdir()] == ["figures"]
