from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "rollout_overhead.py"


def test_the_benchmark_of_rollout_overhead_runs_with_tiny_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("rollout_overhead", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    module.main(["--tasks", "2", "--rollouts", "2", "--repeats", "1"])  # too few for its limits to mean anything

    printed = capsys.readouterr()
    report = json.loads(printed.out)
    for way in ("in_process", "http"):
        assert (report[way]["rollouts"], report[way]["policy_calls"]) == (12, 36)
        assert report[way]["cpu_ms_per_rollout"] > 0
    assert report["grading"]["math_verify_wall_ms"] > report["grading"]["plain_number_wall_ms"] > 0
    assert printed.err.count("\n") == 5
