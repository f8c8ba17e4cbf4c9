"""Going on with a collection that was stopped, or in which rollouts failed.

The one idea: what is there already is told by its key (environment, task, rollout) and its settings. A rollout with a
reward is kept; one without is played again, up to three times in all; and rows of other settings are never mixed in
unless that is asked for, and then recorded.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

from polygym.collect.results import RESULTS_SCHEMA, read_results
from polygym.collect.rollout_rows import RolloutKey, RolloutRows
from polygym.errors import UsageError
from polygym.rows import Row, dump_document

ATTEMPTS = 3
"""How often a rollout is played that gets no reward."""
CHANGED = "changed"
"""Setting that records what earlier collections of the same output had, where it was not the same."""

_NAMES = (CHANGED, "rows")  # the name of a file is not what stands in it

Resume = bool | Literal["changed"]
"""Whether to go on with an output, and whether also where input or settings have changed."""


@dataclass(slots=True)
class Earlier:
    """What an output holds from before.

    `done` are rollouts that are not played again, `failed` the attempts of those that are, `given_up` counts those that
    have failed too often, and `changed` names the settings that were others.
    """

    done: set[RolloutKey] = field(default_factory=set)
    failed: dict[RolloutKey, int] = field(default_factory=dict)
    given_up: int = 0
    changed: list[str] = field(default_factory=list)

    def line(self) -> str:
        """What a person is told."""
        parts = [f"{len(self.done) - self.given_up} rollouts are there already"]
        if self.failed:
            parts.append(f"{len(self.failed)} that failed are played again")
        if self.given_up:
            parts.append(f"{self.given_up} have failed {ATTEMPTS} times and are left so (--overwrite begins anew)")
        if self.changed:
            parts.append(f"changed since: {', '.join(self.changed)}")
        return "; ".join(parts)


def check_resume(resume: object) -> Resume:
    """The value of a `resume` argument, if it is one."""
    if resume not in (True, False, CHANGED):
        raise UsageError(f"resume={resume!r} must be True, False, or {CHANGED!r} to go on although settings changed")
    return resume  # type: ignore[return-value]


def read_earlier(path: Path, planned: Callable[[RolloutKey, Callable[[], Row]], bool]) -> Earlier:
    """What the rollout file `path` holds.

    Args:
        planned: whether a rollout that is there is still asked for; its second argument reads its row.
    """
    earlier = Earlier()
    with RolloutRows(path) as rows:
        for key in rows.names():
            if not planned(key, partial(rows.row, key)):
                continue
            if rows.scored(key):
                earlier.done.add(key)
                continue
            attempts = rows.row(key).get("attempts", 1)
            if isinstance(attempts, int) and attempts >= ATTEMPTS:
                earlier.done.add(key)
                earlier.given_up += 1
            else:
                earlier.failed[key] = attempts if isinstance(attempts, int) else 1
    return earlier


def changed_settings(metrics: Path, model: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were others when an output was begun, with what they were.

    Raises:
        UsageError: when OUT_metrics.json, which holds them, cannot be read.
    """
    before = _read_metrics(metrics)
    old = {"model": before.get("model"), **(before.get("settings") or {})}
    new = json.loads(dump_document({"model": model, **settings}))
    return {key: old.get(key) for key in {**old, **new} if key not in _NAMES and old.get(key) != new.get(key)}


def earlier_changes(metrics: Path) -> dict[str, list[Any]]:
    """What an output says of changes of its settings."""
    found = (read_results(metrics).get("settings") or {}).get(CHANGED)
    return dict(found) if isinstance(found, Mapping) else {}


def refuse_changes(output: str, changed: Mapping[str, Any]) -> None:
    """Refuse to go on with other settings.

    Raises:
        UsageError: names them.
    """
    if changed:
        before = ", ".join(f"{key} was {value!r:.80}" for key, value in changed.items())
        raise UsageError(
            f"output {output!r} was begun with other settings ({before}); give those again, another output (-o), or "
            "--resume --changed to go on with what is there and note the change"
        )


def check_output(rollouts: Path, failures: Path, metrics: Path) -> None:
    """Look whether the files of an output are those of an evaluation that can be gone on with; none is touched.

    Raises:
        UsageError: says what is wrong and what to do.
    """
    there = [path for path in (rollouts, failures) if path.is_file() and path.stat().st_size]
    if metrics.exists():
        _read_metrics(metrics)
    elif there:
        raise UsageError(
            f"{str(metrics)!r}, which says with which settings the rollouts beside it were collected, is not there, so "
            f"{str(there[0])!r} cannot be gone on with; put it back, or give another output (-o); `polygym eval "
            "aggregate` sums up what an OUT.jsonl holds"
        )
    for path in there:
        with open(path, "rb") as file:
            _whole_size(file, path)


def _read_metrics(metrics: Path) -> dict[str, Any]:
    try:
        found = read_results(metrics)
    except UsageError as error:
        raise UsageError(
            f"{str(metrics)!r} does not say with which settings the rollouts beside it were collected ({error}), so "
            "they cannot be gone on with; put it back, or give another output (-o); `polygym eval aggregate` sums up "
            "what an OUT.jsonl holds"
        ) from error
    if found.get("schema") != RESULTS_SCHEMA:
        raise UsageError(
            f"{str(metrics)!r} has schema {found.get('schema')!r:.20}, and this version reads schema {RESULTS_SCHEMA}; "
            "go on with the version that wrote it, or give another output (-o)"
        )
    return found


def cut_tail(path: Path) -> int:
    """Cut the last line of a file where a kill or a full disk has torn it; the bytes cut.

    A last line that is whole but for its newline gets one.

    Raises:
        UsageError: when lines are damaged that no kill has torn; the file stays as it is.
    """
    with open(path, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        end, whole = _whole_size(file, path)
        if end < size:
            file.truncate(end)
        if not whole:
            file.seek(0, os.SEEK_END)
            file.write(b"\n")
        return size - end


def _whole_size(file: BinaryIO, path: Path) -> tuple[int, bool]:
    """The bytes of a file without a torn last line, and whether they end with a newline."""
    size = file.seek(0, os.SEEK_END)
    if not size:
        return 0, True
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        start = view.rfind(b"\n") + 1
        if start < size and _is_row(view[start:]):
            return size, False
        end = start
        while start:  # the last line with something on it
            before = view.rfind(b"\n", 0, start - 1) + 1
            if line := view[before:start].strip():
                if not _is_row(line):
                    raise UsageError(
                        f"{str(path)!r} is no evaluation, or damaged: its last whole line is not a JSON object "
                        f"({line.decode(errors='replace')!r:.80}); give another output (-o), or repair or remove "
                        "the line"
                    )
                break
            start = before
    return end, True


def _is_row(raw: bytes) -> bool:
    try:
        return isinstance(json.loads(raw), dict)
    except (ValueError, RecursionError):
        return False
