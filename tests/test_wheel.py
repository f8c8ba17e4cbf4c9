"""The wheel holds all that the commands need: installed elsewhere, they run outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scripts of an environment that has polygym from a wheel; other packages are those of the tests' environment."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("polygym-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    found = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    )
    purelib = Path(found.stdout.strip())
    subprocess.run([*pip, "--python", str(python), "install", "--no-deps", str(wheel)], check=True)
    # The wheel stands in front of this folder, so a checkout that is installed there for editing is not seen.
    (purelib / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python.parent


def run(installed: Path, folder: Path, *command: str) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(installed / "polygym"), *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_commands_run_from_a_wheel_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    where = subprocess.run(
        [str(installed / "python"), "-c", "import polygym; print(polygym.__file__)"],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert str(installed.parent) in where
    assert "word_game" in run(installed, tmp_path, "env", "list")
    assert "word_game" in run(installed, tmp_path, "env", "show", "word_game")
    run(installed, tmp_path, "env", "test", "word_game", "-n", "3")
    run(installed, tmp_path, "env", "init", "mine")
    assert "groups" in run(installed, tmp_path, "plan", "multi_env")
    run(installed, tmp_path, "eval", "run", "multi_env", "--model", "nano", "-n", "2", "-r", "2", "-o", "out")
    assert (tmp_path / "out_metrics.json").exists()
    run(installed, tmp_path, "rl", "run", "multi_env", "--set", "max_steps=1", "--set", "eval.num_examples=2")
    assert (tmp_path / "runs" / "multi_env" / "checkpoints" / "step_1" / "model").is_dir()
