"""The folder of a run: where each thing lies, and how a run finds the one it continues.

The one idea: everything is append-only or written aside and renamed, so a reader never meets half a file and `kill -9`
costs only what came after the newest checkpoint.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tomllib
from pathlib import Path
from typing import IO, Any

import tomli_w

from polygym.errors import UsageError
from polygym.rows import dump_row, scan_lines, write_aside
from polygym.train.config import RunConfig
from polygym.train.sft_config import SFTConfig

RUNS = Path("runs")


class RunFolder:
    """`config.toml`, `metrics.jsonl`, `rollouts/`, `eval/`, `checkpoints/step_N/`, `log.txt` of one run."""

    def __init__(self, path: Path) -> None:
        self._lie_at(path)

    def _lie_at(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"
        self.metrics = path / "metrics.jsonl"
        self.rollouts = path / "rollouts"
        self.evals = path / "eval"
        self.checkpoints = path / "checkpoints"
        self.log = path / "log.txt"
        self._lock: IO[str] | None = None

    @classmethod
    def create(cls, config: RunConfig | SFTConfig) -> RunFolder:
        """A new folder: `config.output`, or `runs/NAME` with the next free number; it is made by `make`.

        Raises:
            UsageError: when `config.output` is given and already holds a run, or the folder plainly cannot be made.
        """
        path = Path(config.output) if config.output else _free(config.name)
        there = next(place for place in (path, *path.absolute().parents) if os.path.exists(place))
        if not there.is_dir():
            raise _unusable(path, f"{there} is no folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise _unusable(path, f"{there} is closed to you")
        if there == path and any(path.iterdir()):
            raise _in_use(path)
        return cls(path)

    def make(self, config: RunConfig | SFTConfig) -> None:
        """Make the folder and its parts. When another run was faster, `runs/NAME` gets the next number.

        Raises:
            UsageError: when it cannot be made, or not be written to, or `config.output` has come to hold a run.
        """
        try:
            while True:
                self.path.mkdir(parents=True, exist_ok=True)
                try:
                    self.rollouts.mkdir()  # of several that try, one succeeds
                    break
                except FileExistsError:
                    if config.output:
                        raise _in_use(self.path) from None
                    self._lie_at(_free(config.name))
            self.evals.mkdir()
            self.checkpoints.mkdir()
        except OSError as error:
            raise _unusable(self.path, str(error.strerror)) from error

    @classmethod
    def newest(cls, config: RunConfig) -> RunFolder:
        """The folder to resume: `config.output`, or the newest of `runs/NAME*`.

        A run that was stopped before its first checkpoint starts again from its first step.

        Raises:
            UsageError: when there is none.
        """
        candidates = (
            [Path(config.output)]
            if config.output
            else [path for _, path in sorted(_numbered(config.name), reverse=True)]
        )
        for path in candidates:
            if cls(path).config.exists():
                return cls(path)
        where = config.output or str(RUNS / config.name)
        raise UsageError(
            f"nothing to resume: {where!r} holds no run; start without --resume, or give the run's output="
        )

    def lock(self) -> None:
        """Hold the folder until `release` or the end of the process, so that no other one cuts its files back.

        Raises:
            UsageError: when another process holds it.
        """
        self._lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"run folder {str(self.path)!r} is in use by another process; wait for it, or end it first"
            ) from error

    def release(self) -> None:
        """Let others have the folder. Calling it twice is harmless."""
        if self._lock is not None:
            self._lock.close()

    def save_config(self, config: RunConfig | SFTConfig) -> None:
        """Write the resolved config."""
        write_aside(self.config, tomli_w.dumps(config.model_dump(mode="json", exclude_none=True)).encode())

    def saved_config(self, step: int) -> dict[str, Any]:
        """The config that steps were made with up to `step`.

        Raises:
            UsageError: when its file is broken.
        """
        path = self._config_until(step)
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} cannot be read: {error}; mend it, or start a new run") from error

    def continue_config(self, config: RunConfig, step: int, changed: bool) -> None:
        """Save the config of the steps after `step`; where it is another, the one before stays as `config_step_N.toml`.

        What a run was given for steps that are cut back is forgotten.
        """
        earlier, kept = self._config_until(step), self.path / f"config_step_{step}.toml"
        if changed and earlier != kept:
            write_aside(kept, earlier.read_bytes())
        self.save_config(config)
        for last, path in self._earlier_configs():
            if last > step or (last == step and not changed):
                path.unlink()

    def _config_until(self, step: int) -> Path:
        return next((path for last, path in self._earlier_configs() if last >= step), self.config)

    def _earlier_configs(self) -> list[tuple[int, Path]]:
        found = ((re.fullmatch(r"config_step_(\d+)\.toml", path.name), path) for path in self.path.glob("config_*"))
        return sorted((int(match.group(1)), path) for match, path in found if match)

    def checkpoint_steps(self) -> list[int]:
        """Steps that have a whole checkpoint, in order."""
        found = (re.fullmatch(r"step_(\d+)", path.name) for path in self.checkpoints.glob("step_*"))
        return sorted(int(match.group(1)) for match in found if match)

    def checkpoint(self, step: int) -> Path:
        """Folder of the checkpoint after `step` steps."""
        return self.checkpoints / f"step_{step}"

    def prune(self, keep: int) -> None:
        """Remove all but the newest `keep` checkpoints, and what a killed run left half-written."""
        for step in self.checkpoint_steps()[:-keep]:
            shutil.rmtree(self.checkpoint(step))
        for stale in self.checkpoints.glob(".*"):
            shutil.rmtree(stale)

    def cut_metrics(self, steps: int) -> None:
        """Keep the metric lines of the first `steps` steps, written aside and renamed."""
        if self.metrics.exists():
            rows = [row for row in scan_lines(self.metrics) if row["step"] <= steps]
            write_aside(self.metrics, b"".join(dump_row(row) for row in rows))


def _unusable(path: Path, reason: str) -> UsageError:
    return UsageError(
        f"{str(path)!r} cannot be used as run folder: {reason}; give a folder that you may write to as output"
    )


def _in_use(path: Path) -> UsageError:
    return UsageError(f"run folder {str(path)!r} is not empty; continue it with --resume, or give another output")


def _free(name: str) -> Path:
    """`runs/NAME` with the next free number."""
    numbers = [number for number, _ in _numbered(name)]
    return RUNS / (name if not numbers else f"{name}-{max(numbers) + 1}")


def _numbered(name: str) -> list[tuple[int, Path]]:
    """Existing folders `runs/NAME` (number 1) and `runs/NAME-N`."""
    found = []
    for path in RUNS.glob(f"{name}*"):
        match = re.fullmatch(rf"{re.escape(name)}(?:-(\d+))?", path.name)
        if match and path.is_dir():
            found.append((int(match.group(1) or 1), path))
    return found
