"""Reading a file of rollouts again: OUT.jsonl of a collection, or a file of a run's `rollouts/`.

The one idea: a rollout is named by (environment, task id, rollout index), and its last row counts. One pass finds where
that row stands and keeps its place only, so that a file larger than memory can be read in any order.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from polygym.collect.summary_builder import by_id
from polygym.environments.wire_rows import INTERNAL_PREFIX
from polygym.errors import UsageError
from polygym.rollout import SCHEMA, Rollout, TaskId
from polygym.rows import Row, dump_row
from polygym.statistics import finite_number
from polygym.text import one_line

OWN = "_ng_row"
"""Key of what a row was where the line of its rollout says something else."""
PARAMETERS = "responses_create_params"
_ROW, _PARAMETERS, _ADDED = "keys", "params", "added"  # under `OWN`: values put back, parameters too, and keys to drop
LARGEST_INDEX = 2**31
RolloutKey = tuple[str, TaskId, int]
_OF_ROLLOUTS = frozenset(Rollout("", 0, "", 0, 0).to_row()) - {"answer"}
_NEEDED = ("environment", "task_id", "group_id", "rollout_index", "reward", "messages", "turns", "stop_reason", "seed")
_OBJECTS = ("rewards", "metrics", "cause", "usage", "seconds")
OF_REPLIES = frozenset({"response", "mask_sample", "failure_kind", "failure_reason", "retry", "extracted_answer"})
"""Keys that are a server's to say of a rollout."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a row stands, and its reward."""

    offset: int
    size: int
    reward: float | None


class RolloutRows:
    """The rollouts of a file, the last row of each. A context manager.

    Attributes:
        torn: whether the file ends in a line that a kill has torn; it is passed over.
        replaced: rows of which a later one of their key has taken the place.
        conflicts: keys of which two rows have different rewards, and those rewards.

    Raises:
        UsageError: on entering, for a file that cannot be read, has no rollouts, is damaged before its last line, or
            was written in another schema.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.torn = False
        self.replaced = 0
        self.conflicts: dict[RolloutKey, tuple[float, float]] = {}
        self._places: dict[RolloutKey, _Place] = {}

    def __enter__(self) -> Self:
        try:
            self._file = open(self.path, "rb")
        except OSError as error:
            reason = error.strerror or error
            raise UsageError(
                f"cannot read rollouts from {str(self.path)!r}: {reason}; give OUT.jsonl of an evaluation"
            ) from error
        try:
            self._index()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._places)

    @property
    def counts_E(self) -> dict[str, int]:
        """Rollouts of each environment, in the order of their names."""
        return dict(sorted(Counter(environment for environment, _, _ in self._places).items()))

    def names(self) -> list[RolloutKey]:
        """Every rollout by name, in one order wherever it stands (`in_order`)."""
        return sorted(self._places, key=in_order)

    def scored(self, key: RolloutKey) -> bool:
        """Whether the rollout has a reward."""
        return self._places[key].reward is not None

    def rewards(self) -> Iterator[tuple[RolloutKey, float | None]]:
        """Every rollout's name and reward, in the order of `names`."""
        for key in self.names():
            yield key, self._places[key].reward

    def raw(self, key: RolloutKey) -> bytes:
        """The rollout's row as it stands in the file, with its newline."""
        place = self._places[key]
        self._file.seek(place.offset)
        return self._file.read(place.size).rstrip(b"\r\n") + b"\n"

    def row(self, key: RolloutKey) -> Row:
        """The rollout's row."""
        row: Row = json.loads(self.raw(key))
        return row

    def rows(self) -> Iterator[Row]:
        """Every rollout's row, in the order of `names`."""
        for key in self.names():
            yield self.row(key)

    def _index(self) -> None:
        offset = 0
        damaged: tuple[int, str] | None = None
        for line, raw in enumerate(self._file, start=1):
            size = len(raw)
            if raw.strip():
                if damaged is not None:
                    raise self._fault(*damaged)
                row, problem = _parsed(raw)
                if row is None:
                    damaged = line, problem
                else:
                    self._take(row, offset, size, line)
            offset += size
        self.torn = damaged is not None
        if not self._places:
            raise UsageError(f"{str(self.path)!r} has no rollouts; give OUT.jsonl of an evaluation")

    def _take(self, row: Row, offset: int, size: int, line: int) -> None:
        key, reward = rollout_key(row, lambda text: self._fault(line, text))
        before = self._places.get(key)
        if before is not None:
            self.replaced += 1
            if before.reward is not None and reward is not None and before.reward != reward:
                self.conflicts[key] = (before.reward, reward)
        self._places[key] = _Place(offset, size, reward)

    def _fault(self, line: int, text: str) -> UsageError:
        return UsageError(f"{self.path}, line {line}: {text}")


def in_order(key: RolloutKey) -> tuple[str, tuple[bool, TaskId], int]:
    """Sorts rollouts: the same order wherever they come from."""
    environment, task, index = key
    return environment, by_id(task), index


def rollout_key(row: Row, fault: Callable[[str], UsageError]) -> tuple[RolloutKey, float | None]:
    """The name of the rollout in a row, and its reward.

    Raises:
        UsageError: what `fault` makes of the reason, where the row is no rollout of this schema.
    """
    if row.get("schema") != SCHEMA:
        if "environment" in row and "task_id" in row:
            told = "no schema" if "schema" not in row else f"schema {row['schema']!r:.20}"
            raise fault(
                f"the rollout has {told}, and this version reads schema {SCHEMA}; read it with the version that wrote "
                "it, or collect again"
            )
        raise fault(
            f"no rollout: it has no schema, environment and task_id (its keys: {', '.join(row) or 'none'!s:.80}); give "
            "OUT.jsonl of an evaluation"
        )
    missing = next((key for key in _NEEDED if key not in row), None)
    if missing is not None:
        raise fault(f"the rollout has no {missing!r}; give a file as it was written")
    environment, task, index, reward = (row.get(key) for key in ("environment", "task_id", "rollout_index", "reward"))
    if not isinstance(environment, str):
        raise fault(f"environment is {environment!r:.80}; it must be a text")
    if isinstance(task, bool) or not isinstance(task, (int, str)):
        raise fault(f"task_id is {task!r:.80}; it must be an integer or a text")
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < LARGEST_INDEX:
        raise fault(f"rollout_index is {index!r:.80}; it must be an integer of at least 0")
    if reward is not None and finite_number(reward) is None:
        raise fault(f"reward is {reward!r:.80}; it must be a finite number, or null for unscored")
    turns = row["turns"]
    if not isinstance(row["messages"], list) or not isinstance(turns, int) or not 0 <= turns <= len(row["messages"]):
        raise fault("messages must be a list, and turns the number of those that the policy has said")
    for key in _OBJECTS:
        if not isinstance(row.get(key) or {}, dict):
            raise fault(f"{key} is {row[key]!r:.80}; it must be an object, or null")
    return (environment, task, index), finite_number(reward)


def own_keys(row: Row) -> Row:
    """What a row was before it was played: without the rollout's record, what servers added, and what it was replaced.

    What the rollout's record has taken the place of is put back (`shadowed`).
    """
    told = row.get("metrics") or {}
    kept = {
        key: value
        for key, value in row.items()
        if key not in _OF_ROLLOUTS
        and key not in OF_REPLIES
        and key not in told
        and not key.startswith(INTERNAL_PREFIX)
        and not (key == "answer" and value is None)
    }
    note = row.get(OWN)
    note = note if isinstance(note, dict) else {}
    kept = {key: value for key, value in kept.items() if key not in (note.get(_ADDED) or ())}
    if isinstance(before := note.get(_PARAMETERS), dict) and isinstance(sent := kept.get(PARAMETERS), dict):
        params = {key: value for key, value in sent.items() if key not in before}
        kept[PARAMETERS] = params | {key: value for key, value in before.items() if value is not None}
    return kept | (note.get(_ROW) or {})


def shadowed(own: Row, line: Row) -> Row:
    """What a line is to hold under `_ng_row` so that `own_keys` of it are `own`; nothing where they are without it.

    Args:
        own: the row before it was played.
        line: what is written of its rollout.
    """
    own = {key: value for key, value in own.items() if not key.startswith(INTERNAL_PREFIX)}
    found = own_keys({key: value for key, value in line.items() if key != OWN})
    note: Row = {}
    if added := [key for key in found if key not in own]:
        note[_ADDED] = added
    lost = {key: value for key, value in own.items() if key not in found or not _same(found[key], value)}
    asked, sent = lost.get(PARAMETERS), found.get(PARAMETERS)
    if isinstance(asked, dict) and isinstance(sent, dict):  # only what was replaced: the rest may be long
        lost.pop(PARAMETERS)
        names = [key for key in {**sent, **asked} if not _same(sent.get(key), asked.get(key))]
        if names:
            note[_PARAMETERS] = {key: asked.get(key) for key in names}
    if lost:
        note[_ROW] = lost
    return note


def _same(one: Any, other: Any) -> bool:
    return one is other or dump_row({"": one}) == dump_row({"": other})


def _parsed(raw: bytes) -> tuple[Row | None, str]:
    """The object on a line, or what is wrong with it."""
    try:
        row: Any = json.loads(raw)
    except (ValueError, RecursionError) as error:
        return None, f"not JSON ({one_line(str(error))}); repair or remove the line"
    if not isinstance(row, dict):
        return None, f"a rollout is an object {{...}}, got {type(row).__name__}; repair or remove the line"
    return row, ""
