"""AgentServer: plays one row between a resources server and a model server.

The one idea: `POST /run` is `play` of an environment at a distance with a policy at a distance, so a rollout means the
same here as in process. The answer is the resources server's reply to `/verify` with the rollout's own record on top.

What infrastructure ends is answered with status 200 too: `reward` null, the `cause`, and `retry` true where another try
may go better. `POST /v1/responses` is the loop alone, in a session that the caller has seeded and will verify; it calls
tools, and knows no replies in words. A caller that hangs up ends its rollout.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from fastapi import FastAPI
from prometheus_client import Counter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from polygym.environments.episode import play_session
from polygym.environments.http import RETRIES, ServerError
from polygym.environments.remote import RemoteEnvironment, remote_task
from polygym.environments.remote_session import BAD_REWARD, RemoteSession
from polygym.environments.wire_rows import AGENTS, ROLLOUT_INDEX, TIMEOUT, seed_of, timeout_of
from polygym.errors import UsageError
from polygym.policies.base import Policy, Request, Sampling
from polygym.policies.responses_policy import ResponsesPolicy
from polygym.policies.responses_wire import read_create_params
from polygym.rewards.rubric import BadRewardError
from polygym.rollout import Cause, Rollout, Turn
from polygym.serve.app import HttpError, create_app, json_response, read_object
from polygym.serve.hang_up import until_hung_up

_log = logging.getLogger(__name__)

MAX_STEPS = 16
MAX_TOTAL_TOKENS = 131_072
TIMEOUT_SECONDS = 1800.0
RETRIED = frozenset({"server", "endpoint", "timeout", "rate_limited", "empty_response", "grader"})
"""Causes that lie in the servers and not in the row: the same rollout may go better the next time."""
DEAD_SECONDS = 2.0
"""How long a model server that was found dead is not asked again."""
_LAST_SECONDS = 2.0
"""How long the rollouts that a shutdown has cancelled may take to close their sessions."""
_STATUSES = {"timeout": 504, "rate_limited": 429}


class AgentServer:
    """One agent.

    Args:
        name: of the server.
        resources_url, model_url: the servers that it plays between.
        environment: name of the environment, in records and for a model server that wants the task; default `name`.
        max_steps: answers of the model in one rollout, where the environment does not allow less.
        max_total_tokens: what the model may write in one rollout, all its answers together.
        timeout_seconds: of one rollout, where its row does not give less.
        token: what requests must bring, and what the two servers are sent.

    Raises:
        UsageError: for an address or a limit that cannot be used.
    """

    def __init__(
        self,
        name: str,
        resources_url: str,
        model_url: str,
        *,
        environment: str | None = None,
        max_steps: int = MAX_STEPS,
        max_total_tokens: int = MAX_TOTAL_TOKENS,
        timeout_seconds: float = TIMEOUT_SECONDS,
        token: str | None = None,
    ) -> None:
        for limit, value in (("max_steps", max_steps), ("max_total_tokens", max_total_tokens)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"agent {name!r}: {limit}={value!r} must be an integer of at least 1")
        if not timeout_seconds > 0:
            raise UsageError(f"agent {name!r}: timeout_seconds={timeout_seconds!r} must be above 0")
        self.name = name
        self.max_total_tokens = max_total_tokens
        self.timeout_seconds = timeout_seconds
        self.environment = RemoteEnvironment(
            resources_url, name=environment or name, token=token, max_turns=max_steps, deadline_seconds=timeout_seconds
        )
        self.policy = ResponsesPolicy(
            model_url,
            token=token,
            retries=RETRIES,  # few: whoever collects tries again, and wants to know soon
            deadline_seconds=timeout_seconds,
            timeout_seconds=timeout_seconds,
        )
        self.policy.asker.breaker.cooldown_seconds = DEAD_SECONDS
        self.policy.asker.tell = _log.warning
        self._token = token
        self._playing: set[asyncio.Task[Any]] = set()

    def app(self) -> FastAPI:
        """The application to serve."""

        @contextlib.asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            yield
            if self._playing:
                await asyncio.wait(self._playing, timeout=_LAST_SECONDS)
            await self.policy.close()
            await self.environment.close()

        app = create_app(self.name, AGENTS, token=self._token, lifespan=lifespan)
        app.add_route("/run", self._run, methods=["POST"])
        app.add_route("/v1/responses", self._responses, methods=["POST"])
        app.add_route("/aggregate_metrics", self._aggregate, methods=["POST"])
        self._rollouts = Counter(
            "polygym_rollouts", "Rollouts by how they ended", ["outcome"], registry=app.state.registry
        )
        return app

    async def _run(self, request: HttpRequest) -> Response:
        row = await read_object(request)
        timeout_seconds = min(self.timeout_seconds, timeout_of(row) or self.timeout_seconds)
        row = {name: value for name, value in row.items() if name != TIMEOUT}
        task = remote_task(row, self.environment.name)
        session = RemoteSession(self.environment, task, seed=seed_of(row, task))
        rollout = await self._play(session, request, timeout_seconds)
        reply = session.verdict or session.finished_row(rollout.turns)
        answer = {**reply, **rollout.to_row()}
        if rollout.cause is not None:
            answer["retry"] = rollout.cause.kind in RETRIED
        self._rollouts.labels("scored" if rollout.cause is None else rollout.cause.kind).inc()
        return json_response(answer)

    async def _responses(self, request: HttpRequest) -> Response:
        row = {"responses_create_params": await read_object(request)}
        task = remote_task(row, self.environment.name)
        session = RemoteSession(
            self.environment, task, seed=seed_of(row, task), joined=request.headers.get("cookie", "")
        )
        rollout = await self._play(session, request, self.timeout_seconds)
        if rollout.cause is not None:
            raise HttpError(_STATUSES.get(rollout.cause.kind, 502), rollout.cause.kind, rollout.cause.message)
        response = json_response(session.finished_row(rollout.turns)["response"])
        for cookie in filter(None, session.cookies.header.split("; ")):
            response.headers.append("set-cookie", f"{cookie}; Path=/; HttpOnly; SameSite=Strict")
        return response

    async def _aggregate(self, request: HttpRequest) -> Response:
        try:
            answer = await self.environment.client.post("/aggregate_metrics", await read_object(request))
        except ServerError as error:
            raise HttpError(502, "server", str(error)) from error
        return Response(answer.body, answer.status, media_type=answer.content_type)

    async def _play(self, session: RemoteSession, request: HttpRequest, timeout_seconds: float) -> Rollout:
        """One rollout of the session's row, which says how to sample and which rollout of its task this is."""
        task = session.task
        params = read_create_params(task.info["responses_create_params"])
        index = task.info.get(ROLLOUT_INDEX) or 0
        group_id = f"{task.environment}/{task.id!r}"
        playing = asyncio.current_task()
        assert playing is not None
        self._playing.add(playing)
        try:
            async with until_hung_up(request):
                return await play_session(
                    session,
                    _Asking(self.policy, params.extra) if params.extra else self.policy,
                    sampling=replace(Sampling(), **params.sampling),
                    group_id=group_id,
                    rollout_index=index,
                    max_total_tokens=self.max_total_tokens,
                    timeout_seconds=timeout_seconds,
                )
        except BadRewardError as error:
            seed = session.state["seed"]
            rollout = Rollout(task.environment, task.id, group_id, index, seed, session.messages, task.answer)
            rollout.cause, rollout.stop_reason = Cause(BAD_REWARD, str(error)), "error"
            return rollout
        finally:
            self._playing.discard(playing)


class _Asking(Policy):
    """A policy that is asked with further fields of the wire."""

    version = 0
    wants_task = ResponsesPolicy.wants_task

    def __init__(self, policy: ResponsesPolicy, extra: Mapping[str, Any]) -> None:
        self.name = policy.name
        self.policy = policy
        self.extra = extra

    def episode(self) -> AbstractContextManager[None]:
        return self.policy.episode()

    async def complete(self, request: Request) -> Turn:
        return await self.policy.complete(replace(request, extra=self.extra))
