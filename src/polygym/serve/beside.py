"""A policy served beside what else an event loop does: for agents that play while a run trains.

The one idea: it is the model server of `polygym model serve`, in a task of the caller's, with token ids in answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from polygym.policies.base import Policy
from polygym.serve.model import ModelServer
from polygym.serve.run import TaskServer
from polygym.serve.sockets import LOOPBACK, bind, url_of

GRACE_SECONDS = 1


@asynccontextmanager
async def serving(policy: Policy, port: int) -> AsyncIterator[str]:
    """Serve `policy` on a port of this machine while the context lasts; gives the address.

    Raises:
        UsageError: when the port is taken.
    """
    with bind(LOOPBACK, port, "policy_port") as listening:
        url = url_of(listening)
        server = TaskServer(ModelServer(policy, name=policy.name, return_token_ids=True).app(), GRACE_SECONDS)
        try:
            await server.start(listening)
            yield url
        finally:
            await server.stop()
