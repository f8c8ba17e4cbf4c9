"""Files of rollouts for the tests of what reads them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from polygym.messages import Message
from polygym.rollout import Cause, Rollout, Turn
from polygym.rows import Row, dump_row


def stored(
    environment: str, task: int | str, index: int, reward: float | None, text: str = "yes", **keys: object
) -> Row:
    """A row of OUT.jsonl."""
    found = Rollout(environment, task, f"{environment}/{task!r}", index, index, reward=reward, stop_reason="answered")
    found.turns = [Turn(Message("assistant", text))]
    found.messages = [Message("user", "?"), *(turn.message for turn in found.turns)]
    found.seconds = {"total": 1.0}
    if reward is None:
        found.cause, found.stop_reason = Cause("endpoint", "down"), "error"
    return found.to_row() | keys


def write(path: Path, rows: Iterable[Row], tail: bytes = b"") -> Path:
    """A file of rows; `tail` comes after them."""
    path.write_bytes(b"".join(map(dump_row, rows)) + tail)
    return path
