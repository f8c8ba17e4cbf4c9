"""Rows in two files: to train on, and held out.

The one idea: a task is on one side, whole: rows of equal prompt and answer stay together, and which side it is follows
from the seed and the content alone, as where an environment holds tasks out. So the order of the rows, more rows of the
same tasks, or another process change nothing.
"""

from __future__ import annotations

import hashlib
from array import array
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from polygym.data.files import check_unchanged, read_lines, refuse_own_input, row_writer, stamps_of
from polygym.data.wire_tasks import read_wire_tasks
from polygym.errors import UsageError
from polygym.seeds import check_seed


@dataclass(frozen=True, slots=True)
class Sides:
    """Rows and tasks of one environment on each side."""

    train_rows: int
    train_tasks: int
    held_out_rows: int
    held_out_tasks: int


def split(path: Path, train: Path, held_out_path: Path, held_out: float, seed: int = 0) -> dict[str, Sides]:
    """Write the rows of `path` to `train` and `held_out_path`, in their order, as they stand.

    Args:
        held_out: below 1, the fraction of each environment's tasks; else how many of each.
        seed: names which.

    Raises:
        UsageError: for a row that cannot be used, or an environment that has no more tasks than are held out.
    """
    check_seed(seed)
    if not held_out > 0 or (held_out >= 1 and held_out != int(held_out)):
        raise UsageError(f"--held-out {held_out!r} must be a fraction below 1, or an integer of at least 1")
    if train.resolve() == held_out_path.resolve():
        raise UsageError(f"both sides would go to {str(train)!r}; give two paths")
    for output in (train, held_out_path):
        refuse_own_input(output, [path])
    stamps = stamps_of([path])
    environments: dict[str, int] = {}
    environment_of = array("L")
    ranks = array("Q")
    for read in read_wire_tasks(path):
        environment_of.append(environments.setdefault(read.environment, len(environments)))
        ranks.append(int.from_bytes(hashlib.blake2b(f"{seed}/{read.content}".encode()).digest()[:8], "big"))
    rank_of, number_of = np.frombuffer(ranks, np.uint64), np.frombuffer(environment_of, f"u{environment_of.itemsize}")
    kept = np.zeros(len(rank_of), bool)
    sides_E = {}
    for name, number in environments.items():
        own = np.flatnonzero(number_of == number)
        tasks = np.unique(rank_of[own])
        count = _count(held_out, len(tasks), name)
        kept[own] = held = rank_of[own] < tasks[count]
        rows = int(held.sum())
        sides_E[name] = Sides(len(own) - rows, len(tasks) - count, rows, count)
    with ExitStack() as stack:
        writers = [stack.enter_context(row_writer(output)) for output in (train, held_out_path)]
        for side, (_, raw) in zip(kept.tolist(), read_lines(path), strict=True):
            writers[side].write(raw)
        check_unchanged(stamps)
    return sides_E


def _count(held_out: float, tasks: int, environment: str) -> int:
    """How many tasks of an environment are held out: of two or more at least one on each side, of one none."""
    if held_out < 1:
        return min(max(round(held_out * tasks), 1), tasks - 1)
    if held_out >= tasks:
        raise UsageError(
            f"environment {environment!r} has {tasks} tasks; --held-out {held_out:g} leaves none to train on"
        )
    return int(held_out)
