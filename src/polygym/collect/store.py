"""Rollout files: the record of what was played.

The one idea: a rollout is a line, added and never changed. A run keeps a file a step, so that cutting back to a
checkpoint removes files; an evaluation keeps one file, and beside it the lines that were not scored.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from polygym.errors import UsageError
from polygym.rollout import Rollout
from polygym.rows import cut_torn_tail, dump_document, dump_row, scan_lines, write_aside

_STEP_FILE = re.compile(r"step_(\d+)\.jsonl")


class RolloutStore:
    """The `rollouts/` folder of a run: `step_000001.jsonl`, `step_000002.jsonl`, ...

    Opening it cuts the line that a killed run may have torn at the end of the last file.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        for step in self.steps()[-1:]:
            cut_torn_tail(self._file(step))

    def append(self, step: int, rollouts: Iterable[Rollout]) -> None:
        """Add rollouts to the file of `step`, in one write."""
        data = b"".join(dump_row(rollout.to_row()) for rollout in rollouts)
        if data:
            with open(self._file(step), "ab") as file:
                file.write(data)

    def steps(self) -> list[int]:
        """The steps that have a file, in order."""
        found = (_STEP_FILE.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match.group(1)) for match in found if match)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every row, step after step."""
        for step in self.steps():
            yield from scan_lines(self._file(step))

    def cut_back(self, step: int) -> None:
        """Forget what was played after `step`, the last one first: whoever interrupts this leaves no gap."""
        for later in reversed(self.steps()):
            if later > step:
                self._file(later).unlink()

    def _file(self, step: int) -> Path:
        return self.folder / f"step_{step:06d}.jsonl"


class EvaluationFiles:
    """OUT.jsonl with every rollout as it ends, OUT_failures.jsonl with the unscored ones, OUT_metrics.json at the end.

    A context manager: inside it the files are held, and no other evaluation writes them.

    Args:
        output: OUT, with or without `.jsonl`.
        overwrite: whether files of that name are replaced.

    Raises:
        UsageError: when OUT names no file, or there is an evaluation already that is not to be replaced; on entering,
            when the files cannot be written to, or another evaluation writes them.
    """

    def __init__(self, output: str | Path, *, overwrite: bool = False) -> None:
        self._output = Path(output)
        self._overwrite = overwrite
        stem = self._output.with_suffix("") if self._output.suffix == ".jsonl" else self._output
        if stem.name in ("", ".."):
            raise UsageError(f"output {str(output)!r} has no name; give the start of a file name, such as results/nano")
        self.rollouts = stem.with_name(f"{stem.name}.jsonl")
        self.failures = stem.with_name(f"{stem.name}_failures.jsonl")
        self.metrics = stem.with_name(f"{stem.name}_metrics.json")
        self._written = 0
        self._check()

    def __enter__(self) -> Self:
        try:
            self.rollouts.parent.mkdir(parents=True, exist_ok=True)
            with ExitStack() as stack:
                # Without a buffer, so that a line is on its way to the disk as soon as its rollout has ended.
                self._rollouts = stack.enter_context(open(self.rollouts, "ab", buffering=0))
                self._hold(self._rollouts)
                self._failures = stack.enter_context(open(self.failures, "ab", buffering=0))
                self._hold(self._failures)
                self._open = stack.pop_all()
            self.metrics.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(
                f"cannot write output {str(self._output)!r}: {error}; give a path in a folder you may write to"
            ) from error
        return self

    def _check(self) -> None:
        there = [str(path) for path in (self.rollouts, self.failures, self.metrics) if path.exists()]
        if there and not self._overwrite:
            raise UsageError(
                f"output {str(self._output)!r} holds an evaluation already ({', '.join(there)}); give another one "
                "(-o), or replace it (--overwrite, overwrite=True)"
            )

    def _hold(self, file: IO[bytes]) -> None:
        """Lock an open file until it is closed; what it holds is of an evaluation that has ended."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"output {str(self._output)!r} is being written by another evaluation; give another one (-o), or wait "
                "for its end"
            ) from error
        if file.seek(0, os.SEEK_END) and not self._overwrite:
            self._check()  # another evaluation was faster, and has ended since
        file.truncate(0)

    def write(self, rollout: Rollout, own: Mapping[str, Any] | None = None) -> None:
        """Add one rollout. `own` are keys of its row beside those that every rollout has; the latter win."""
        line = dump_row({**(own or {}), **rollout.to_row()})
        self._written += 1
        self._rollouts.write(line)
        if not rollout.scored:
            self._failures.write(line)

    def write_metrics(self, metrics: dict[str, Any]) -> None:
        """Write OUT_metrics.json as a whole."""
        write_aside(self.metrics, dump_document(metrics))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not self._written:  # nothing to keep, and the next try finds its name free
            for path in (self.rollouts, self.failures, self.metrics):
                path.unlink(missing_ok=True)
        self._open.close()
