"""Whether a row can be played.

The one idea: a row is good when its environment begins its episode and can score it. So where the environment is known
here, an episode is set up and judged with no answer given: a row that lacks what a hook or a reward function needs is
found before a model is paid for.

Limit: an environment is loaded with its own defaults, unless arguments are given; a rubric that asks a judge is not
asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from polygym.data.export import refuse_group
from polygym.environments.base import Environment
from polygym.environments.names import environment_of_agent
from polygym.environments.registry import load_environment
from polygym.environments.session import EnvironmentSession, EpisodeFailure
from polygym.environments.wire_rows import check_row, task_of
from polygym.errors import UsageError, nearest
from polygym.rewards.judge import JudgeRubric
from polygym.rewards.rubric import BadRewardError
from polygym.rollout import Cause, Task
from polygym.rows import Row

CLEANUP_SECONDS = 60.0


class RowChecker:
    """Checks rows one by one. Use it in a `with` block.

    Args:
        environment: id of the environment of rows that name no agent.
        arguments: of its loader.

    Raises:
        UsageError: when that environment cannot be loaded, or is a group.
    """

    def __init__(self, environment: str | None = None, arguments: Mapping[str, Any] | None = None) -> None:
        self.unchecked: set[str] = set()
        """Agents of whose environments nothing is known here: their rows have the right shape."""
        self._environments: dict[str | None, Environment | None] = {None: None}
        self._loop = asyncio.new_event_loop()
        if environment is not None:
            self._environments[None] = _load(environment, arguments or {})

    def __enter__(self) -> RowChecker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._loop.close()

    def check(self, row: Row) -> None:
        """Check a row.

        Raises:
            UsageError: says what is wrong with it.
        """
        check_row(row)
        agent = agent_in(row)
        if agent not in self._environments:
            self._environments[agent] = self._find(agent or "")
        environment = self._environments[agent]
        if environment is not None:
            self._begin(row, environment)

    def _find(self, agent: str) -> Environment | None:
        id = environment_of_agent(agent)
        try:
            if id is not None:
                return _load(id, {})
        except UsageError:  # an environment of another machine, or an agent of somebody's own
            pass
        self.unchecked.add(agent)
        return None

    def _begin(self, row: Row, environment: Environment) -> None:
        task = task_of(row, environment)
        allowed = [tool.name for tool in environment.tools_of(task)]
        for tool in tools_in(row):
            if tool not in allowed:
                raise UsageError(f"environment {environment.name!r} has no tool {tool!r}; {nearest(tool, allowed)}")
        cause = self._loop.run_until_complete(_first_failure(environment, task))
        if cause is not None:
            raise UsageError(f"environment {environment.name!r} cannot play it: {cause.message}")


def agent_in(row: Row) -> str | None:
    """The agent that a row of the right shape names."""
    return (row.get("agent_ref") or {}).get("name") or None


def tools_in(row: Row) -> list[str]:
    """Names of the tools that a row of the right shape offers."""
    tools = row["responses_create_params"].get("tools") or ()
    return [tool.get("function", tool)["name"] for tool in tools]


async def _first_failure(environment: Environment, task: Task) -> Cause | None:
    session = EnvironmentSession(environment, task, seed=0)
    cause = None
    try:
        await session.set_up()
        if not isinstance(environment.rubric, JudgeRubric):
            cause = (await session.grade([])).cause
    except EpisodeFailure as failure:
        cause = failure.cause
    except BadRewardError as error:
        cause = Cause("reward", str(error))
    return await session.clean_up(CLEANUP_SECONDS) or cause


def _load(id: str, arguments: Mapping[str, Any]) -> Environment:
    environment = load_environment(id, **arguments)
    refuse_group(id, environment)
    return environment
