"""RemoteEnvironment: an environment that a resources server holds.

The one idea: a server is an environment at a distance. Its tasks are wire rows, its sessions (`RemoteSession`) ask the
server what an `EnvironmentSession` would find out itself, and `play` knows no difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polygym.environments.base import SPLITS, Environment, Split, check_max_turns
from polygym.environments.http import DEADLINE_SECONDS, HttpClient
from polygym.environments.multi_turn import DEFAULT_MAX_TURNS
from polygym.environments.names import check_names
from polygym.environments.remote_session import RemoteSession
from polygym.environments.wire_rows import task_of
from polygym.errors import UsageError, nearest
from polygym.messages import ToolSpec
from polygym.policies.responses_wire import read_tools
from polygym.rewards.rubric import Rubric
from polygym.rollout import Task


def remote_task(row: Mapping[str, Any], name: str = "remote") -> Task:
    """A wire row as a task: its prompt is the row's input, its info the row itself.

    Raises:
        UsageError: when it is no row.
    """
    task = task_of(row, name)
    return Task(name, task.id, task.prompt, task.answer, row)


class RemoteEnvironment(Environment):
    """The environment behind a resources server.

    Args:
        url: address of the server.
        name: of the environment, in records and metrics.
        rows: the tasks, of both splits. They may also come from elsewhere, one by one (`remote_task`).
        tasks: instead of rows, the tasks of each split (`polygym.environments.row_tasks`).
        token: what the server wants to be sent.
        model: name of the policy, for the responses that the server is sent.
        max_turns: answers in one episode, where the server does not say less. Default: what the server says, or 10.
        deadline_seconds: longest time of one request; a tool may take as long.

    Connections close with the event loop that used them, or with `close`.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str = "remote",
        rows: Sequence[Mapping[str, Any]] | None = None,
        tasks: Mapping[Split, Sequence[Task]] | None = None,
        token: str | None = None,
        model: str = "policy",
        max_turns: int | None = None,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        # No dataset, no rubric and no hooks: they are at the server. What an environment has all the same:
        check_names([name])
        self.name = name
        self.max_turns = DEFAULT_MAX_TURNS if max_turns is None else check_max_turns(max_turns)
        self.limits_turns = max_turns is not None
        self.rubric = Rubric()
        self.parser = None
        self.preamble = []
        self.stops = self.cleanups = ()
        of_rows = [remote_task(row, name) for row in rows or ()]
        self._tasks = {split: of_rows if tasks is None else tasks[split] for split in SPLITS}
        self.client = HttpClient(url, token=token, deadline_seconds=deadline_seconds)
        self.model = model

    def tools_of(self, task: Task) -> list[ToolSpec]:
        """The tools in the task's row."""
        return read_tools(task.info["responses_create_params"].get("tools"))

    def open_session(self, task: Task, *, seed: int) -> RemoteSession:
        """An episode whose half of the environment is at the server."""
        return RemoteSession(self, task, seed=seed)

    def tasks(self, split: Split = "train") -> Sequence[Task]:
        """The tasks of the rows, whatever the split."""
        if split not in SPLITS:
            raise UsageError(f"split {split!r} is unknown; {nearest(split, SPLITS)}")
        return self._tasks[split]

    def demonstrated_reward(self, task: Task) -> float:
        """Not known at a distance: 1."""
        return 1.0

    async def close(self) -> None:
        """Close this event loop's connections."""
        await self.client.close()

    def __repr__(self) -> str:
        return f"RemoteEnvironment({self.client.url!r}, name={self.name!r}, rows={len(self._tasks['train'])})"
