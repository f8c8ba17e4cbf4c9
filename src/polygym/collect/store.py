"""Rollout files: the record of what was played.

The one idea: a rollout is a line, added and never changed. A run keeps a file a step, so that cutting back to a
checkpoint removes files; an evaluation keeps one file, and beside it the lines that were not scored.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, BinaryIO, Self

from polygym.collect.resume import check_output, cut_tail
from polygym.collect.rollout_rows import RolloutRows
from polygym.collect.unscored import NO_CAUSE
from polygym.environments.wire_rows import ROLLOUT_INDEX, TASK_INDEX
from polygym.errors import PolygymError, UsageError
from polygym.rollout import Rollout
from polygym.rows import Row, cut_torn_tail, dump_document, dump_row, scan_lines, write_aside, written_aside

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
    """OUT.jsonl with every rollout as it ends, OUT_failures.jsonl with why some have no reward, OUT_metrics.json.

    A context manager: inside it the files are held, and no other evaluation writes them. OUT_metrics.json is there from
    the beginning, because it says what is being collected.

    Args:
        output: OUT, with or without `.jsonl`.
        overwrite: whether files of that name are replaced.
        resume: whether files of that name are gone on with.
        reads: a file that is read meanwhile, and so none of these.

    Raises:
        UsageError: when OUT names no file or the one that is read, or there is an evaluation already that is neither to
            be replaced nor to be gone on with; on entering, when the files cannot be written to, or another evaluation
            writes them.
    """

    def __init__(
        self, output: str | Path, *, overwrite: bool = False, resume: bool = False, reads: str | Path | None = None
    ) -> None:
        if overwrite and resume:
            raise UsageError("an evaluation is replaced or gone on with: give one of --overwrite and --resume")
        self.output = Path(output)
        self._overwrite = overwrite
        self._resume = resume
        stem = self.output.with_suffix("") if self.output.suffix == ".jsonl" else self.output
        if stem.name in ("", ".."):
            raise UsageError(f"output {str(output)!r} has no name; give the start of a file name, such as results/nano")
        self.rollouts = stem.with_name(f"{stem.name}.jsonl")
        self.failures = stem.with_name(f"{stem.name}_failures.jsonl")
        self.metrics = stem.with_name(f"{stem.name}_metrics.json")
        self.has_earlier = False
        self._written = 0
        self._found: set[Path] = set()
        for path in (self.rollouts, self.failures, self.metrics):
            if reads is not None and _are_one_file(path, Path(reads)):
                raise UsageError(
                    f"output {str(self.output)!r} would be written to {str(path)!r}, which is the input; give another "
                    "one (-o)"
                )
        self._check()

    def __enter__(self) -> Self:
        self._lines: list[_Lines] = []
        if self._resume:
            check_output(self.rollouts, self.failures, self.metrics)
        try:
            self.rollouts.parent.mkdir(parents=True, exist_ok=True)
            self._found = {path for path in (self.rollouts, self.failures, self.metrics) if os.path.lexists(path)}
            for path in (self.rollouts, self.failures):
                self._lines.append(_Lines(_held(path, self._busy)))
                if not self._resume:
                    if self._lines[-1].size and not self._overwrite:
                        self._check()  # another evaluation was faster, and has ended since
                    self._lines[-1].empty()
            if self._resume:
                for path, lines in zip((self.rollouts, self.failures), self._lines, strict=True):
                    cut_tail(path)
                    lines.look()
                self.has_earlier = self._lines[0].size > 0
            if not self.has_earlier:
                self.metrics.unlink(missing_ok=True)
            for path in (self.rollouts, self.failures, self.metrics):
                for aside in path.parent.glob(f".{glob.escape(path.name)}.*"):  # of a writer that was killed
                    aside.unlink(missing_ok=True)
        except OSError as error:
            self._close()
            raise UsageError(
                f"cannot write output {str(self.output)!r}: {error}; give a path in a folder you may write to"
            ) from error
        except BaseException:
            self._close()
            raise
        return self

    def _check(self) -> None:
        there = [str(path) for path in (self.rollouts, self.failures, self.metrics) if path.exists()]
        if there and not (self._overwrite or self._resume):
            raise UsageError(
                f"output {str(self.output)!r} holds an evaluation already ({', '.join(there)}); give another one "
                "(-o), replace it (--overwrite, overwrite=True), or go on with it (--resume, resume=True)"
            )

    def _busy(self) -> UsageError:
        return UsageError(
            f"output {str(self.output)!r} is being written by another evaluation; give another one (-o), or wait "
            "for its end"
        )

    def write(self, rollout: Rollout, own: Mapping[str, Any] | None = None, attempts: int = 1) -> None:
        """Add one rollout, which was played `attempts` times. `own` are keys of its row beside those that every rollout
        has; the latter win.

        Raises:
            PolygymError: when the disk is full; the files hold whole lines only, and can be gone on with.
        """
        row = {**(own or {}), **rollout.to_row()}
        if not rollout.scored:
            row["attempts"] = attempts
        with self._told():
            self._lines[0].append(dump_row(row))
            self._written += 1
            if not rollout.scored:
                self._lines[1].append(dump_row(failure_row(row)))

    def write_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Write OUT_metrics.json as a whole."""
        with self._told():
            write_aside(self.metrics, dump_document(metrics))

    def settle(self, take: Callable[[Row], None]) -> None:
        """Bring files that were gone on with to one row a rollout, its last one, and hand each to `take`."""
        if not self._lines[0].size:
            return
        with self._told(), RolloutRows(self.rollouts) as rows:
            with ExitStack() as stack:
                failures = stack.enter_context(written_aside(self.failures))
                kept = stack.enter_context(written_aside(self.rollouts)) if rows.replaced else None
                for key in rows.names():
                    raw = rows.raw(key)
                    row = json.loads(raw)
                    take(row)
                    if not rows.scored(key):
                        failures.write(dump_row(failure_row(row)))
                    if kept is not None:
                        kept.write(raw)
                # held before they get their names, so that no other evaluation comes in between
                held = [None if file is None else _hold_copy(file) for file in (kept, failures)]
            for place, file in enumerate(held):
                if file is not None:
                    self._lines[place].close()
                    self._lines[place] = _Lines(file)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not self._written and not self.has_earlier:
            for path in (self.rollouts, self.failures, self.metrics):  # the next try finds its name free
                if path not in self._found:
                    path.unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        for lines in self._lines:
            lines.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise PolygymError(
                f"cannot write output {str(self.output)!r}: {error.strerror or error}; what was collected is whole: "
                "make room, then go on with --resume"
            ) from error


def failure_row(row: Mapping[str, Any]) -> Row:
    """What OUT_failures.jsonl says of a rollout without a reward: its key, why, and how often it was played."""
    cause = row.get("cause") or {}
    key = ("environment", "task_id", "rollout_index", "agent_ref", TASK_INDEX, ROLLOUT_INDEX)
    return {
        **{name: row[name] for name in key if name in row},
        "class": cause.get("class", NO_CAUSE.kind),
        "attempts": row.get("attempts", 1),
        "last_error": cause.get("message", NO_CAUSE.message),
    }


class _Lines:
    """A file that whole lines are added to, each in one go: without a buffer, so that it is on its way to the disk."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.look()

    def look(self) -> None:
        """Take note of what is there."""
        self.size = os.fstat(self._file.fileno()).st_size

    def append(self, line: bytes) -> None:
        """Add a line; a part of one that did not fit is taken back."""
        left = memoryview(line)
        try:
            while left:
                left = left[os.write(self._file.fileno(), left) :]
        except OSError:
            os.ftruncate(self._file.fileno(), self.size)
            raise
        self.size += len(line)

    def empty(self) -> None:
        """Remove what is there."""
        self._file.truncate(0)
        self.size = 0

    def close(self) -> None:
        """Let the file go."""
        self._file.close()


def _are_one_file(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them is not there
        return False


def _held(path: Path, busy: Callable[[], UsageError]) -> IO[bytes]:
    """A file to add to, held until it is closed; what stands in it is of an evaluation that has ended."""
    while True:
        file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by whoever holds it
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise busy() from error
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        file.close()  # replaced since it was opened


def _hold_copy(file: BinaryIO) -> IO[bytes]:
    copy = os.fdopen(os.dup(file.fileno()), "ab", buffering=0)
    fcntl.flock(copy, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return copy
