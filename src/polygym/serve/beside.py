"""A policy served beside what else an event loop does: for agents that play while a run trains.

The one idea: it is the model server of `polygym model serve`, in a task of the caller's, with token ids in answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from polygym.errors import PolygymError
from polygym.policies.base import Policy
from polygym.serve.app import server_config
from polygym.serve.in_process import QuietServer
from polygym.serve.model import ModelServer
from polygym.serve.sockets import LOOPBACK, bind, url_of

GRACE_SECONDS = 1


@asynccontextmanager
async def serving(policy: Policy, port: int) -> AsyncIterator[str]:
    """Serve `policy` on a port of this machine while the context lasts; gives the address.

    Raises:
        UsageError: when the port is taken.
    """
    with bind(LOOPBACK, port, "policy_port") as listening:
        app = ModelServer(policy, name=policy.name, return_token_ids=True).app()
        server = QuietServer(server_config(app, timeout_graceful_shutdown=GRACE_SECONDS, log_config=None))
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            while not server.started:
                if task.done():
                    raise PolygymError(f"the policy could not be served at {url_of(listening)}")
                await asyncio.sleep(0.005)
            yield url_of(listening)
        finally:
            server.should_exit = True
            await task
