"""Writing the three files of an evaluation from rows that are there already.

The one idea: nothing is played, so nothing needs to be saved on the way: each file is written as a whole.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from polygym.collect.results import read_results
from polygym.collect.store import EvaluationFiles, failure_row
from polygym.collect.summary_builder import SummaryBuilder
from polygym.data.files import FULL
from polygym.errors import PolygymError, UsageError
from polygym.rows import Row, dump_row, written_aside


def write_whole(files: EvaluationFiles, rows: Iterable[Row], environments: Iterable[str]) -> dict[str, SummaryBuilder]:
    """Write OUT.jsonl and OUT_failures.jsonl, and sum up their rows; OUT_metrics.json is the caller's.

    Raises:
        UsageError: when a collection is writing them.
        PolygymError: when the disk is full.
    """
    for path in (files.rollouts, files.failures):
        _refuse_held(path)
    builders = {name: SummaryBuilder(name) for name in environments}
    with disk_told(files), ExitStack() as stack:
        rollouts = stack.enter_context(written_aside(files.rollouts))
        failures = stack.enter_context(written_aside(files.failures))
        for row in rows:
            rollouts.write(dump_row(row))
            if row["reward"] is None:
                failures.write(dump_row(failure_row(row)))
            builders[row["environment"]].add_row(row)
    return builders


@contextmanager
def disk_told(files: EvaluationFiles) -> Iterator[None]:
    """Name the output when the disk is full.

    Raises:
        PolygymError: then.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise PolygymError(
            f"cannot write {str(files.rollouts)!r} and the files beside it: {error.strerror}; make room, and run it "
            "again with --overwrite"
        ) from error


def _refuse_held(path: Path) -> None:
    if not path.exists():
        return
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"{str(path)!r} is being written by an evaluation; give another output (-o), or wait for its end"
            ) from error


def metrics_beside(path: str | Path) -> dict[str, Any]:
    """What the OUT_metrics.json beside an OUT.jsonl says; nothing where there is none."""
    path = Path(path)
    metrics = path.with_name(f"{path.name.removesuffix('.jsonl')}_metrics.json")
    return read_results(metrics) if metrics.is_file() else {}


def shares_of(told: Sequence[Mapping[str, Any]], counts_E: Mapping[str, int]) -> dict[str, float]:
    """The shares that all metrics tell alike, if they are of these environments; else by the counts.

    Their order is that in which environments are shown.
    """
    shares = [(found.get("combined") or {}).get("shares") for found in told]
    if shares and shares[0] and all(of == shares[0] for of in shares) and set(shares[0]) == set(counts_E):
        return {name: float(share) for name, share in shares[0].items()}
    total = sum(counts_E.values())
    return {name: count / total for name, count in counts_E.items()}
