from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "collection.py"


@pytest.mark.slow
def test_the_benchmark_of_collection_runs_with_tiny_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("collection", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    module.main(["--rows", "1000", "--concurrent", "20", "--kills", "2", "--repeats", "1"])

    report = json.loads(capsys.readouterr().out)
    assert report["overhead"]["cpu_ms"] > report["overhead"]["bare_cpu_ms"] > 0
    assert report["memory_rows"]["rollouts"] == report["memory_in_process"]["rollouts"] == 1000
    assert max(report[name]["growth_mb"] for name in ("memory_rows", "memory_in_process")) < 10
    for name in ("concurrent_in_process", "concurrent_served"):
        assert (report[name]["rollouts"], report[name]["unscored"]) == (20, 0)
        assert report[name]["p99_seconds"] >= report[name]["median_seconds"] > 0
    assert (report["kills"]["rows"], report["kills"]["same"]) == (4000, True)
