from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "servers.py"


@pytest.mark.slow
def test_the_benchmark_of_servers_runs_with_tiny_numbers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location("servers", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "servers", module)  # its dataclass looks itself up there
    spec.loader.exec_module(module)

    module.main(["--rows", "3", "--repeats", "1"])  # too few for its limits to mean anything

    report = json.loads(capsys.readouterr().out)
    assert [measured["tool_calls"] for measured in report["rollouts"].values()] == [1, 3]
    assert all(measured["in_process_cpu_ms"] > 0 for measured in report["rollouts"].values())
    assert len(report["memory"]) == 6
    assert max(mb["worked_mb"] for mb in report["memory"].values()) < report["limit_server_mb"]
    assert 0 < report["single_process_mb"] < report["limit_single_process_mb"]
    assert report["eval_run_seconds"] > 0
    assert report["ready_seconds"] > 0
