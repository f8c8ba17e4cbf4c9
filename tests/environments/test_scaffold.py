"""A new environment works as it is written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from environments.worlds import run
from polygym.environments import OraclePolicy, load_environment
from polygym.environments.scaffold import create
from polygym.errors import UsageError


def test_a_new_environment_loads_and_its_demonstrations_earn_the_full_reward(tmp_path: Path) -> None:
    files = create("my_env", tmp_path)
    assert [str(file.relative_to(tmp_path)) for file in files] == [
        "my_env/my_env.py",
        "my_env/README.md",
        "my_env/pyproject.toml",
        "my_env/tests/test_my_env.py",
    ]
    env = load_environment(str(tmp_path / "my_env"), num_examples=5)
    assert (type(env).__name__, env.name, len(env.tasks()), len(env.tasks("held_out"))) == ("MyEnv", "my_env", 5, 20)
    assert run(env, OraclePolicy(env)).reward == 1.0
    assert not any("NAME" in file.read_text() or "CLASS" in file.read_text() for file in files)


def test_its_tests_pass(tmp_path: Path) -> None:
    create("my_env", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "my_env",
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "my_env").mkdir()
    with pytest.raises(UsageError, match=r"my_env' exists already; .* nothing was written"):
        create("my_env", tmp_path)
    assert list((tmp_path / "my_env").iterdir()) == []


@pytest.mark.parametrize(
    "name", ["my-env", "a/b", "9x", "class", "json", "polygym", "all", "", "a b", "../up", "math_rl"]
)
def test_a_name_must_be_a_module_name_of_its_own(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="environment name"):
        create(name, tmp_path)
    assert list(tmp_path.iterdir()) == []
