"""The script that measures import, start and size."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "import_time.py"


def test_import_and_help_are_quick_and_load_nothing_heavy(tmp_path: Path) -> None:
    output = tmp_path / "figures.json"
    result = subprocess.run(
        [sys.executable, SCRIPT, "--repeats", "3", "--output", output], capture_output=True, text=True, check=False
    )
    assert result.stderr == ""
    figures = json.loads(result.stdout)
    assert json.loads(output.read_text("utf-8")) == figures
    assert figures["repeats"] == 3
    assert figures["import_polygym"]["heavy_modules"] == []
    # Processor time: other tests may keep the machine busy.
    assert 0 < figures["import_polygym"]["cpu_seconds"] < 0.3
    assert 0 < figures["polygym_help"]["cpu_seconds"] < 0.5
    assert figures["within_limits"] == (result.returncode == 0)


def test_an_install_is_weighed_without_its_bytecode(tmp_path: Path) -> None:
    (tmp_path / "package" / "__pycache__").mkdir(parents=True)
    (tmp_path / "package" / "module.py").write_bytes(b"x" * 100)
    (tmp_path / "package" / "__pycache__" / "module.cpython-311.pyc").write_bytes(b"x" * 70)
    (tmp_path / "single.py").write_bytes(b"x" * 5)
    weigh = runpy.run_path(str(SCRIPT))["weigh"]
    assert weigh([tmp_path / "package", tmp_path / "single.py"]) == ({"package": 100, "single.py": 5}, 70)
