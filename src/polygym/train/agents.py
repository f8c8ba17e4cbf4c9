"""Agents that play themselves in a run: they ask the run's policy, which is served for as long as the run lasts.

The one idea: the trainer knows no servers. Who starts the run hands in what serves a policy, and it is asked only where
an environment needs it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from polygym.collect.agent_play import AgentEnvironment
from polygym.environments import Environment
from polygym.errors import UsageError
from polygym.policies.base import Policy
from polygym.policies.remembering import RememberingPolicy

POLICY_PORT = 11001

ModelServer = Callable[[Policy, int], AbstractAsyncContextManager[object]]
"""Serves a policy on a port of this machine while its context lasts."""


@asynccontextmanager
async def asked_by_agents(
    environment: Environment, policy: RememberingPolicy, model_server: ModelServer | None, port: int | None
) -> AsyncIterator[None]:
    """While this lasts, agents among the leaves of `environment` can ask `policy`, and only its turns count.

    Raises:
        UsageError: when there are agents and nobody who serves.
    """
    agents = [leaf for leaf in environment.leaves().values() if isinstance(leaf, AgentEnvironment)]
    if not agents:
        yield
        return
    if model_server is None:
        raise UsageError(
            f"agents of {', '.join(leaf.name for leaf in agents)} play themselves and have to find the policy: give "
            "model_server=polygym.serve.beside.serving"
        )
    for leaf in agents:
        leaf.recall = policy.recall
    async with model_server(policy, POLICY_PORT if port is None else port):
        yield
