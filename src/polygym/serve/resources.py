"""ResourcesServer: tools, state and grading behind HTTP, for agents that play elsewhere.

The one idea: a resources server holds the environment's half of each episode. `POST /seed_session` opens a session
(named by a cookie), `POST /<tool>` works in it, `POST /verify` grades the finished response and ends it; what goes
wrong in a tool is text for the policy, what goes wrong in grading is a reply without a reward, never a reward of 0.

    class Weather(ResourcesServer):
        @tool
        async def get_weather(self, body: City) -> dict[str, str]:
            return {"city": body.city, "weather": "cold"}

        async def verify(self, body: VerifyRequest) -> float:
            return float(any(item["type"] == "function_call" for item in body.response["output"]))

    app = Weather("weather").app()

Environments are served by `EnvironmentServer`, with no code at all.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fastapi import FastAPI
from prometheus_client import Gauge
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from polygym.environments.remote_session import CONTROL_ENDPOINTS, SESSION_COOKIE
from polygym.environments.tool import cut_text, is_own
from polygym.environments.wire_rows import RESOURCES
from polygym.errors import UsageError, nearest
from polygym.parsing.arguments import MismatchError, as_object
from polygym.parsing.strict_json import JsonError
from polygym.rollout import Cause
from polygym.serve.aggregate import aggregate
from polygym.serve.app import HttpError, create_app, encode_json, json_response, read_object
from polygym.serve.sessions import MAX_SESSIONS, TTL_SECONDS, Session, Sessions
from polygym.serve.typed import TOOL_MARK, TypedMethod, VerifyRequest, tool, validation_words
from polygym.serve.verdict import Verdict, as_verdict, broken_off, verify_reply

__all__ = ["ResourcesServer", "Session", "ToolReply", "Verdict", "VerifyRequest", "tool"]


@dataclass(frozen=True, slots=True)
class ToolReply:
    """What a policy reads of a call, with the status of the answer that carries it."""

    text: str
    status: int = 200
    media_type: str = "text/plain; charset=utf-8"


class ResourcesServer:
    """Subclass it: methods marked with `@tool`, and `verify`; where needed `seed_session` and `close_session`.

    Args:
        name: of the server.
        token: what requests must bring; see `create_app`.
        ttl_seconds: a session that no request has used for so long is closed.
        max_sessions: how many may be open at a time.
        parallel_tool_calls: whether calls of one session may run at the same time.
    """

    seed_first: ClassVar[bool] = False
    """Whether a tool can only be called in a session that was seeded; otherwise the first call opens one."""

    def __init__(
        self,
        name: str,
        *,
        token: str | None = None,
        ttl_seconds: float = TTL_SECONDS,
        max_sessions: int = MAX_SESSIONS,
        parallel_tool_calls: bool = False,
    ) -> None:
        self.name = name
        self.parallel_tool_calls = parallel_tool_calls
        self._token = token
        self._sessions = Sessions(ttl_seconds, max_sessions, self._expired)
        self._tools = self.find_tools()
        self._seeds, self._grades = TypedMethod(self.seed_session), TypedMethod(self.verify)
        for taken in sorted(set(self._tools) & set(CONTROL_ENDPOINTS)):
            raise UsageError(f"server {name!r}: a tool cannot be called {taken!r}, which is an endpoint; rename it")

    # What an author writes.

    async def seed_session(self, body: Any, session: Session) -> Mapping[str, Any] | None:
        """Prepare a session for a row, in `session.data` (a dict); what is returned goes to the agent.

        `body` is annotated as in a tool.
        """
        return None

    async def verify(self, body: Any, session: Session) -> Any:
        """Grade: a number, or a mapping or pydantic model with `reward` and whatever else is worth a record.

        `body` is annotated with `VerifyRequest`, a subclass of it, or `dict`; `session` may be left out.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how it grades; define `verify(self, body)`")

    async def close_session(self, session: Session) -> None:
        """Release what a session holds. Called once, after grading or when it is given up."""

    def aggregate_metrics(self, replies: list[dict[str, Any]]) -> dict[str, Any]:
        """Statistics of many verify replies."""
        return aggregate(replies)

    # What the servers of environments replace.

    def find_tools(self) -> dict[str, Any]:
        """The tools by name."""
        names = (name for cls in type(self).__mro__ for name, value in vars(cls).items() if hasattr(value, TOOL_MARK))
        return {name: TypedMethod(getattr(self, name)) for name in dict.fromkeys(names)}

    async def open(self, row: dict[str, Any]) -> tuple[Session, Mapping[str, Any]]:
        """A new session for a row, and what the agent is told of it."""
        try:
            body = self._seeds.read(row)
        except ValidationError as error:
            raise HttpError(422, "invalid_request", validation_words(error)) from error
        session = self._sessions.open({})
        try:
            return session, await self._seeds(body, session) or {}
        except Exception as error:  # other people's code
            self._sessions.close(session.id)
            if isinstance(error, HttpError):
                raise
            raise HttpError(500, "environment", f"seed_session raised {type(error).__name__}: {error}") from error

    async def run_tool(self, name: str, arguments: Any, session: Session) -> ToolReply:
        """What the policy reads of a call of a known tool; `arguments` is the body of the request."""
        method: TypedMethod = self._tools[name]
        try:
            body = method.read(as_object(arguments.decode("utf-8", "replace")))
        except (JsonError, MismatchError) as error:
            return ToolReply(f"Error: {name}: arguments are not a JSON object: {error}", 422)
        except ValidationError as error:
            return ToolReply(f"Error: {name}: {validation_words(error)}", 422)
        try:
            returned = await method(body, session)
        except BaseException as error:  # tools are other people's code: what they raise is for the policy to read
            if not is_own(error):
                raise
            return ToolReply(f"Error: {name} raised {type(error).__name__}: {error}")
        if isinstance(returned, str):
            return ToolReply(cut_text(returned))
        text = returned.model_dump_json() if isinstance(returned, BaseModel) else encode_json(returned).decode()
        return ToolReply(cut_text(text), media_type="application/json")

    async def judge(self, row: dict[str, Any], session: Session) -> Verdict:
        """Grade the response in `row` and clean up; every failure of the author's code is in the verdict."""
        try:
            body = self._grades.read(row)
        except ValidationError as error:
            raise HttpError(422, "invalid_request", validation_words(error)) from error
        try:
            verdict = as_verdict(await self._grades(body, session), row)
        except HttpError:
            raise
        except Exception as error:  # grading is other people's code
            verdict = Verdict(None, cause=Cause("reward", f"verify raised {type(error).__name__}: {error}"))
        cause = await self._close(session)
        return Verdict(None, verdict.rewards, verdict.metrics, verdict.cause or cause) if cause else verdict

    def without_session(self, row: dict[str, Any]) -> Cause | None:
        """Why a response cannot be graded that came without the session in which it was made; None where it can."""
        return None

    async def reply(self, body: dict[str, Any], session: Session) -> dict[str, Any]:
        """The environment's answer to what the policy said (`/env_response`)."""
        raise HttpError(404, "not_found", f"server {self.name!r} answers calls of its tools only")

    # The wire.

    def app(self) -> FastAPI:
        """The application to serve."""

        @contextlib.asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            sweeper = asyncio.create_task(self._sessions.expire_for_ever())
            try:
                yield
            finally:
                sweeper.cancel()
                await self._sessions.close_all()

        app = create_app(self.name, RESOURCES, token=self._token, lifespan=lifespan)
        app.add_route("/seed_session", self._seed, methods=["POST"])
        app.add_route("/verify", self._verify, methods=["POST"])
        app.add_route("/env_response", self._env_response, methods=["POST"])
        app.add_route("/close_session", self._close_session, methods=["POST"])
        app.add_route("/aggregate_metrics", self._aggregate, methods=["POST"])
        for name in self._tools:
            app.add_route(f"/{name}", self._tool, methods=["POST"])
        app.add_route("/{tool}", self._tool, methods=["POST"])
        gauge = Gauge("polygym_sessions", "Sessions that are open", registry=app.state.registry)
        gauge.set_function(lambda: len(self._sessions))
        return app

    async def _seed(self, request: Request) -> Response:
        session, told = await self.open(await read_object(request))
        # The texts of tools are cut here: an agent need not do it again.
        own = {"env_response": False, "parallel_tool_calls": self.parallel_tool_calls, "cuts_text": True}
        return self._named(json_response({**own, **told}), session)

    async def _tool(self, request: Request) -> Response:
        name = request.url.path[1:]
        if name not in self._tools:
            text = f"Error: unknown tool {name!r}; {nearest(name, self._tools)}"
            return Response(text, 404, media_type="text/plain")
        session = self._session(request)
        if session is None:
            if self.seed_first:
                raise HttpError(409, "no_session", f"tool {name!r} works in a session: POST /seed_session first")
            session, _ = await self.open({})
        async with session.request(alone=not self.parallel_tool_calls):
            reply = await self.run_tool(name, await request.body(), session)
        return self._named(Response(reply.text, reply.status, media_type=reply.media_type), session)

    async def _env_response(self, request: Request) -> Response:
        session = self._session(request)
        if session is None:
            raise HttpError(409, "no_session", "/env_response works in a session: POST /seed_session first")
        body = await read_object(request)
        async with session.request():
            told = await self.reply(body, session)
        return self._named(json_response(told), session)

    async def _verify(self, request: Request) -> Response:
        row = await read_object(request)
        known = self._session(request)
        session = known or (await self.open(row))[0]
        cause = broken_off(row) or (self.without_session(row) if known is None else None)
        try:
            async with session.request():
                if cause is None:
                    verdict = await self.judge(row, session)
                else:
                    await self._close(session)
                    verdict = Verdict(None, cause=cause)
                self._sessions.close(session.id)
        except HttpError:
            if known is None:
                self._sessions.close(session.id)
                await self._close(session)
            raise
        return json_response(verify_reply(row, verdict))

    async def _close_session(self, request: Request) -> Response:
        id = request.cookies.get(SESSION_COOKIE)
        session = self._sessions.close(id) if id else None
        cause = await self._close(session) if session else None
        told: dict[str, Any] = {"closed": session is not None, "failure_kind": None, "failure_reason": None}
        if cause is not None:
            told |= {"failure_kind": cause.kind, "failure_reason": cause.message}
        return json_response(told)

    async def _aggregate(self, request: Request) -> Response:
        replies = (await read_object(request)).get("verify_responses")
        if not isinstance(replies, list) or not all(isinstance(reply, dict) for reply in replies):
            raise HttpError(422, "invalid_request", "verify_responses must be a list of verify replies")
        return json_response(self.aggregate_metrics(replies))

    def _session(self, request: Request) -> Session | None:
        """The session that a request names, None when it names none."""
        id = request.cookies.get(SESSION_COOKIE)
        return self._sessions.get(id) if id else None

    @staticmethod
    def _named(response: Response, session: Session) -> Response:
        """An answer that names its session, as every one does: clients take their cookies from the last answer."""
        response.headers["set-cookie"] = f"{SESSION_COOKIE}={session.id}; Path=/; HttpOnly; SameSite=Strict"
        return response

    async def _close(self, session: Session) -> Cause | None:
        try:
            await self.close_session(session)
        except Exception as error:  # other people's code
            return Cause("environment", f"close_session raised {type(error).__name__}: {error}")
        return None

    async def _expired(self, session: Session) -> None:
        await self._close(session)
