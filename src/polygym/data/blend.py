"""Several environments' rows as one file, so that a collection meets all of them all the time.

The one idea: rows are dealt by the schedule that deals groups in training. After any number of rows each source differs
from its share by less than one row, so any part of the file is a fair sample of the mix. Beside the file lies what it
was made of.
"""

from __future__ import annotations

import importlib.metadata
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from polygym.data.counts import Amount, counts_of
from polygym.data.files import check_unchanged, refuse_own_input, row_writer, sha256_of, stamps_of
from polygym.data.sources import Source, StoredRows
from polygym.errors import UsageError, nearest
from polygym.mixture.schedule import GroupSchedule
from polygym.rows import dump_document, write_aside
from polygym.seeds import check_seed

INTERLEAVE, CONCAT = "interleave", "concat"
Dealt = Iterator[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Blend:
    """What was written: the number of rows, by agent, and the manifest."""

    rows: int
    agents: dict[str, int]
    manifest: Path


def manifest_of(output: Path) -> Path:
    """Where the manifest of a blend lies.

    >>> manifest_of(Path("rows.jsonl")).name
    'rows.jsonl.manifest.json'
    """
    return output.with_name(f"{output.name}.manifest.json")


def blend(
    sources: Sequence[Source],
    output: Path,
    *,
    count: Amount | None = None,
    epochs: Amount | None = None,
    order: str = INTERLEAVE,
    shuffle: bool = False,
    seed: int = 0,
) -> Blend:
    """Write the rows of all sources to `output`, each with its agent, and what they are to `manifest_of(output)`.

    Without weights and counts every row is there, and shares follow from how many each source has; see `counts_of`. A
    row that is used again is written again as it is: equal rows are rollouts of one task.

    Args:
        order: `interleave` deals rows by the shares; `concat` writes one source after the other.
        shuffle: take each source's rows in a random order, a new one in each epoch.
        seed: names that order.

    Raises:
        UsageError: when nothing or one name twice is added, weights are given for some only, a row cannot be used, or
            the numbers of rows cannot be had.
    """
    _check(sources, order, check_seed(seed))
    paths = [source.path for source in sources if source.path is not None]
    refuse_own_input(output, paths)
    stamps = stamps_of(paths)
    agents: Counter[str] = Counter()
    with row_writer(output) as writer, ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}."))
        stored_S = {}
        for source in sources:
            stored_S[source.name] = StoredRows(source, Path(folder), shuffled=shuffle)
            stack.callback(stored_S[source.name].close)
        weights_S = {source.name: source.weight for source in sources if source.weight is not None}
        counts_S = counts_of({name: len(stored) for name, stored in stored_S.items()}, weights_S, count, epochs)
        dealt_S = {name: stored_S[name].rows(number, seed if shuffle else None) for name, number in counts_S.items()}
        for agent, raw in _interleaved(dealt_S, counts_S) if order == INTERLEAVE else chain(*dealt_S.values()):
            writer.write(raw)
            agents[agent] += 1
        check_unchanged(stamps)
    settings = {"count": count, "epochs": epochs, "order": order, "shuffle": shuffle, "seed": seed}
    manifest = {
        "output": {"path": str(output), "sha256": sha256_of(output), "rows": agents.total(), "agents": agents},
        "sources": {name: _told(stored.source, len(stored), counts_S[name]) for name, stored in stored_S.items()},
        "settings": settings,
        "polygym": importlib.metadata.version("polygym"),
    }
    write_aside(manifest_of(output), dump_document(manifest))
    return Blend(agents.total(), dict(agents), manifest_of(output))


def _interleaved(dealt_S: Mapping[str, Dealt], counts_S: Mapping[str, int]) -> Dealt:
    total = sum(counts_S.values())
    schedule = GroupSchedule({name: count / total for name, count in counts_S.items()}, 1)
    for _ in range(total):
        (name,) = (name for name, count in schedule.next().items() if count)
        yield next(dealt_S[name])


def _told(source: Source, rows: int, written: int) -> dict[str, Any]:
    """A source in the manifest. An environment's example rows have no path and no hash."""
    return {
        "environment": source.environment,
        "path": None if source.path is None else str(source.path),
        "sha256": None if source.path is None else sha256_of(source.path),
        "weight": source.weight,
        "rows": rows,
        "rows_written": written,
        "epochs": written / rows,
    }


def _check(sources: Sequence[Source], order: str, seed: int) -> None:
    if order not in (INTERLEAVE, CONCAT):
        raise UsageError(f"--order {order!r} is unknown; {nearest(order, (INTERLEAVE, CONCAT))}")
    if not sources:
        raise UsageError("nothing to blend; give --add NAME once for each environment")
    names = [source.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--add names {name!r} twice; an environment is added once: join its rows in one file")
    bare = [source.name for source in sources if source.weight is None]
    if bare and len(bare) < len(sources):
        raise UsageError(f"weights are given, but not for {', '.join(bare)}; give one for each --add, or for none")
