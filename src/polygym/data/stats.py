"""What a file of rows holds, environment by environment.

The one idea: one pass of sums and digests; 16 bytes a row tell which rows are equal, and which tasks two files share.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polygym.data.checks import tools_in
from polygym.data.wire_tasks import WireTask, read_wire_tasks
from polygym.messages import Message
from polygym.policies.wire_input import read_tools
from polygym.rows import task_digest

Counter = Callable[[WireTask], int]
"""Tokens of what the policy reads first."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A number of each row: its mean and its largest."""

    mean: float
    max: int


@dataclass(frozen=True, slots=True)
class RowStats:
    """Rows of one environment.

    `tasks` are different rows, `duplicates` the others, which are more rollouts of the same tasks. `tokens` are of the
    first prompt with its tools; `turns` are messages of the user. `held_out` are the different tasks, by prompt and
    answer, that the held-out file has too; None where there is no such file.
    """

    rows: int
    tasks: int
    duplicates: int
    tokens: Spread
    tools: Spread
    tool_names: tuple[str, ...]
    turns: Spread
    held_out: int | None

    def to_dict(self) -> dict[str, Any]:
        """The numbers as data."""
        return asdict(self)


def stats(path: Path, held_out: Path | None = None, tokenizer: str | None = None) -> dict[str, RowStats]:
    """The rows of a file by environment.

    Args:
        held_out: another file, whose tasks should not be in this one.
        tokenizer: name of a model whose tokens are counted, with its chat template; default words between blanks.

    Raises:
        UsageError: for a row that cannot be used, or a tokenizer that is not there.
    """
    count = count_words if tokenizer is None else token_counter(tokenizer)
    found: dict[str, _Rows] = {}
    for read in read_wire_tasks(path):
        found.setdefault(read.environment, _Rows()).add(read, count)
    kept: dict[str, array[int]] = {}
    for read in read_wire_tasks(held_out) if held_out is not None else ():
        kept.setdefault(read.environment, array("Q")).append(_eight(read.content))
    return {name: rows.stats(None if held_out is None else kept.get(name, array("Q"))) for name, rows in found.items()}


def count_words(read: WireTask) -> int:
    """Words between blanks, in the messages and in the tools."""
    texts = [text for message in read.task.prompt for text in _texts(message)]
    tools = read.row["responses_create_params"].get("tools")
    return sum(len(text.split()) for text in texts) + (len(json.dumps(tools).split()) if tools else 0)


def token_counter(model: str) -> Counter:
    """Tokens as the policy `model` reads them.

    Raises:
        UsageError: when it is no local model, or cannot be read.
    """
    from polygym.policies.chat import ChatRenderer
    from polygym.policies.load import load_outline

    renderer = ChatRenderer(load_outline(model)[1])

    def count(read: WireTask) -> int:
        return len(renderer.render(read.task.prompt, read_tools(read.row["responses_create_params"].get("tools"))))

    return count


class _Rows:
    """Sums over the rows of one environment."""

    def __init__(self) -> None:
        self._rows = array("Q")  # digests of whole rows
        self._tasks = array("Q")  # and of their tasks
        self._sums = {"tokens": 0, "tools": 0, "turns": 0}
        self._largest = dict(self._sums)
        self._tool_names: set[str] = set()

    def add(self, read: WireTask, count: Counter) -> None:
        self._rows.append(int.from_bytes(task_digest(read.row)[:8], "big"))
        self._tasks.append(_eight(read.content))
        tools = tools_in(read.row)
        self._tool_names.update(tools)
        turns = sum(message.role == "user" for message in read.task.prompt)
        for what, number in (("tokens", count(read)), ("tools", len(tools)), ("turns", turns)):
            self._sums[what] += number
            self._largest[what] = max(self._largest[what], number)

    def stats(self, held_out: array[int] | None) -> RowStats:
        rows, tasks = len(self._rows), len(_unique(self._rows))
        spreads = {what: Spread(total / rows, self._largest[what]) for what, total in self._sums.items()}
        shared = None if held_out is None else len(np.intersect1d(_unique(self._tasks), _unique(held_out)))
        return RowStats(
            rows, tasks, rows - tasks, tool_names=tuple(sorted(self._tool_names)), held_out=shared, **spreads
        )


def _unique(digests: array[int]) -> NDArray[np.uint64]:
    return np.unique(np.frombuffer(digests, np.uint64)) if digests else np.empty(0, np.uint64)


def _texts(message: Message) -> Sequence[str]:
    return [message.content, message.reasoning, *(json.dumps(call.to_dict()) for call in message.tool_calls)]


def _eight(content: str) -> int:
    return int(content[:16], 16)
