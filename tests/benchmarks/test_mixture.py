"""The mixture benchmark, small: the guarantees hold, independent draws break them, planning is cheap."""

import json
import runpy
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "mixture.py"


def test_the_benchmark_shows_the_guarantees_and_writes_its_figures(tmp_path, capsys):
    output = tmp_path / "mixture.json"
    runpy.run_path(str(BENCHMARK))["main"](["--mixes", "12", "--steps", "100", "--json", str(output)])
    found = json.loads(output.read_text("utf-8"))
    ours, drawn = found["planners"]["schedule"], found["planners"]["independent"]
    assert ours["worst_cumulative"] < 1
    assert ours["worst_window"] < 2
    assert ours["mixes_with_an_absence"] == 0
    assert drawn["worst_cumulative"] > 1
    assert drawn["absent_fraction"] > 0.05
    assert found["example"]["absent_fraction"]["schedule"] == 0
    assert 0.2 < found["example"]["absent_fraction"]["independent"] < 0.45
    assert found["planning"]["cpu_seconds"] < 0.5
    assert "| schedule |" in capsys.readouterr().out
