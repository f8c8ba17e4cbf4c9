"""The application that every server is built on: liveness, metrics, errors, and who may ask.

The one idea: the hot endpoints are plain Starlette routes that read and write JSON with orjson (`app.add_route`), and
what all servers share sits in front of them in one place: a bearer token where one is set, else only this machine (the
`Host` and `Origin` of a request name it, which a web page that was led here by DNS cannot bring about); a limit on the
size of a body; counters for Prometheus.

An error is `{"error": {"class": ..., "message": ...}}`, never a traceback.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import orjson
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from polygym.errors import PolygymError, UsageError
from polygym.rows import dump_row
from polygym.serve.sockets import is_loopback

_log = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 << 20
_LONG_NUMBER = re.compile(rb"[0-9]{20}")  # orjson reads an integer beyond 64 bits as a float, which is another number


class HttpError(PolygymError):
    """An answer with an error status: `kind` is its class, for programs; the message is for people."""

    def __init__(self, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.headers = dict(headers or {})


def create_app(
    name: str,
    kind: str,
    *,
    token: str | None = None,
    about: Mapping[str, Any] | None = None,
    lifespan: Callable[[FastAPI], Any] | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> FastAPI:
    """An application with `GET /` (liveness) and `GET /metrics`; its registry of metrics is `app.state.registry`.

    Args:
        name: of the server, such as `math_rl`.
        kind: `resources_servers`, `responses_api_agents`, `responses_api_models` or `head_server`.
        token: what a request must bring as `Authorization: Bearer TOKEN`; liveness alone is open. Without one, only
            requests that name this machine as their host are answered.
        about: more for liveness to say, such as `{"wants_task": True}`.
        lifespan: as in FastAPI.
    """
    app = FastAPI(title=name, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    registry = CollectorRegistry()
    app.state.registry = registry
    alive = encode_json({"polygym": True, "name": name, "kind": kind, "status": "ok", **(about or {})})

    async def liveness(request: Request) -> Response:
        return Response(alive, media_type="application/json")

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    app.add_route("/", liveness, methods=["GET"])
    app.add_route("/metrics", metrics, methods=["GET"])
    app.add_exception_handler(HttpError, _http_error)
    app.add_exception_handler(UsageError, _usage_error)
    app.add_exception_handler(HTTPException, _framework_error)
    app.add_middleware(_Gate, token=token, max_body_bytes=max_body_bytes, metrics=_Metrics(registry), routes=app)
    return app


# ------------------------------------------------------------------------------------------------------ bodies, answers


def encode_json(value: Any) -> bytes:
    """JSON of a value; NaN and infinities become null, foreign objects their text."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return dump_row({"value": value})[len(b'{"value":') : -len(b"}\n")]


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(encode_json(value), status, headers, "application/json")


def error_response(status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """An answer with an error status."""
    return json_response({"error": {"class": kind, "message": message}}, status, headers)


async def read_object(request: Request) -> dict[str, Any]:
    """The JSON object in a request's body.

    Raises:
        HttpError: 400 when it is no JSON, 422 when it is no object.
    """
    body = await request.body()
    try:
        value = json.loads(body) if _LONG_NUMBER.search(body) else orjson.loads(body)
    except (ValueError, RecursionError) as error:
        raise HttpError(400, "invalid_json", f"the body is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise HttpError(422, "invalid_body", f"the body must be a JSON object, got {type(value).__name__}")
    return value


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpError)
    return error_response(error.status, error.kind, str(error), error.headers)


async def _usage_error(request: Request, error: Exception) -> Response:
    return error_response(422, "invalid_request", str(error))


async def _framework_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http")
    return error_response(error.status_code, kind, f"{request.method} {request.url.path}: {error.detail}")


# --------------------------------------------------------------------------------------------------- in front of it all


class _Metrics:
    """Requests by path and status, and how long they took."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter("polygym_requests", "Requests answered", ["path", "status"], registry=registry)
        self._seconds = Histogram("polygym_request_seconds", "Time to the answer", ["path"], registry=registry)
        self._children: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def observe(self, path: str, status: int, seconds: float) -> None:
        children = self._children.get((path, status))
        if children is None:
            children = (self._requests.labels(path, str(status)), self._seconds.labels(path))
            self._children[path, status] = children
        children[0].inc()
        children[1].observe(seconds)


class _Gate:
    """Refuses who may not ask and what is too large, and counts the rest."""

    def __init__(
        self, app: ASGIApp, token: str | None, max_body_bytes: int, metrics: _Metrics, routes: FastAPI
    ) -> None:
        self.app = app
        self.token = None if token is None else f"Bearer {token}".encode()
        self.max_body_bytes = max_body_bytes
        self.metrics = metrics
        self.routes = routes
        self._paths: frozenset[str] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = perf_counter(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            headers = dict(scope["headers"])
            refusal = self._refusal(scope["path"], headers)
            if refusal is not None:
                await error_response(*refusal)(scope, receive, noting)
                return
            if b"content-length" not in headers and b"transfer-encoding" in headers:
                receive = self._counted(receive)
            await self.app(scope, receive, noting)
        except Exception as error:  # a fault of ours, or of the code that is served
            # Raised further it would end the connection, and with it the next request of somebody else.
            _log.exception("%s %s", scope["method"], scope["path"])
            if status:
                raise
            await error_response(500, "internal", f"{type(error).__name__}: {error}")(scope, receive, noting)
        finally:
            self.metrics.observe(self._label(scope["path"]), status, perf_counter() - started)

    def _refusal(self, path: str, headers: dict[bytes, bytes]) -> tuple[int, str, str] | None:
        """(status, class, message) of a request that is not let through."""
        if self.token is None:
            for header in (b"host", b"origin"):
                value = headers.get(header)
                if value is not None and not _is_this_machine(value):
                    return 403, "forbidden", f"{header.decode()} {value.decode('latin-1')!r} is not this machine"
        elif path != "/" and not hmac.compare_digest(headers.get(b"authorization", b""), self.token):
            return 401, "unauthorized", "this server needs a token: send the header Authorization: Bearer TOKEN"
        length = headers.get(b"content-length", b"0")
        if int(length if length.isdigit() else 0) > self.max_body_bytes:
            return 413, "too_large", f"the body has {length.decode()} bytes, the limit is {self.max_body_bytes}"
        return None

    def _counted(self, receive: Receive) -> Receive:
        """`receive` for a body of unknown length, with its limit."""
        seen = 0

        async def counting() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.max_body_bytes:
                raise HttpError(413, "too_large", f"the body is longer than the limit of {self.max_body_bytes} bytes")
            return message

        return counting

    def _label(self, path: str) -> str:
        """The path as metrics name it: whatever is asked for and is no route shares one name."""
        if self._paths is None:
            self._paths = frozenset(getattr(route, "path", "") for route in self.routes.routes)
        return path if path in self._paths else "other"


@lru_cache(maxsize=256)
def _is_this_machine(value: bytes) -> bool:
    """Whether a Host or Origin header names the machine itself."""
    text = value.decode("latin-1")
    try:
        host = urlsplit(text if "://" in text else f"//{text}").hostname or ""
    except ValueError:  # half an IPv6 address
        return False
    return is_loopback(host)
