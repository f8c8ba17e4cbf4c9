"""Rows of a file one by one, each checked, with the environment and the task that it belongs to.

The one idea: what makes two rows the same task is what makes two tasks the same when an environment holds some out:
the prompt and the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from polygym.data.checks import agent_in
from polygym.data.files import read_lines
from polygym.environments.dataset import content_key
from polygym.environments.names import environment_of_agent
from polygym.environments.wire_rows import check_row, task_of
from polygym.errors import UsageError
from polygym.rollout import Task
from polygym.rows import Row, parse_row

NO_AGENT = "(no agent)"


class WireTask(NamedTuple):
    """A row, its bytes, its environment's name, and its task. `content` is the `content_key` of the task."""

    raw: bytes
    row: Row
    environment: str
    task: Task
    content: str


def read_wire_tasks(path: Path) -> Iterator[WireTask]:
    """The rows of a file. Those that name no agent belong to the environment `NO_AGENT`.

    Raises:
        UsageError: for the first row that cannot be used, with its line, or where there is none.
    """
    line = 0
    for line, raw in read_lines(path):
        yield _wire_task(path, line, raw)
    if not line:
        raise UsageError(f"{path} has no rows")


def bad_row(path: Path | str, line: int, error: UsageError) -> UsageError:
    """What is said of a row that stops a command."""
    where = f"{path}, line {line}: "
    return UsageError(f"{where}{str(error).removeprefix(where)}; polygym data prepare writes the good rows of a file")


def _wire_task(path: Path, line: int, raw: bytes) -> WireTask:
    try:
        row = parse_row(raw, line, str(path))
        check_row(row)
        agent = agent_in(row)
        environment = NO_AGENT if agent is None else environment_of_agent(agent) or agent
        task = task_of(row, environment)
        return WireTask(raw, row, environment, task, content_key(task))
    except UsageError as error:
        raise bad_row(path, line, error) from error
