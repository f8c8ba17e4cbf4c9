"""The head: tells what runs where, and takes orders from whoever started it.

The one idea: it runs in the supervisor's process and only reads its state. Whoever may reach it may ask; adding servers
and stopping the stack takes the secret of the stack's state file, which only its owner can read.
"""

from __future__ import annotations

import hmac
from socket import socket
from typing import TYPE_CHECKING

import yaml
from starlette.requests import Request
from starlette.responses import Response

from polygym.errors import PolygymError, UsageError
from polygym.serve.app import HttpError, create_app, json_response, read_object
from polygym.serve.run import TaskServer
from polygym.serve.sockets import url_of
from polygym.serve.stacks import CONTROL_HEADER

if TYPE_CHECKING:
    from polygym.serve.supervisor import Supervisor

GRACE_SECONDS = 1


class Head:
    """The head server of a stack."""

    def __init__(self, supervisor: Supervisor, listening: socket) -> None:
        self.host, self.port = listening.getsockname()[:2]
        self.url = url_of(listening)
        self._supervisor = supervisor
        self._listening = listening
        app = create_app("head", "head_server", token=supervisor.config.token)
        app.add_route("/server_instances", self._instances, methods=["GET"])
        app.add_route("/global_config_dict_yaml", self._document, methods=["GET"])
        app.add_route("/join", self._join, methods=["POST"])
        app.add_route("/stop", self._stop, methods=["POST"])
        self._server = TaskServer(app, GRACE_SECONDS)

    async def start(self) -> None:
        """Begin to answer."""
        await self._server.start(self._listening)

    async def stop(self) -> None:
        """Answer no more."""
        await self._server.stop()
        self._listening.close()

    async def _instances(self, request: Request) -> Response:
        return json_response(self._supervisor.instances())

    async def _document(self, request: Request) -> Response:
        text = yaml.safe_dump(self._supervisor.document(), sort_keys=False, allow_unicode=True)
        return json_response(self._supervisor.redacted(text))  # YAML as one JSON string, as clients of the wire expect

    async def _join(self, request: Request) -> Response:
        self._check(request)
        document = (await read_object(request)).get("document")
        supervisor = self._supervisor
        if not isinstance(document, dict):
            raise HttpError(422, "invalid_body", "document must hold the blocks of the servers to add")
        try:
            return json_response(await supervisor.add(document))
        except UsageError as error:
            raise HttpError(422, "invalid_config", supervisor.redacted(str(error))) from error
        except PolygymError as error:
            raise HttpError(500, "not_started", supervisor.redacted(str(error))) from error

    async def _stop(self, request: Request) -> Response:
        self._check(request)
        self._supervisor.stop_asked.set()
        return json_response({"stopping": len(self._supervisor.servers)})

    def _check(self, request: Request) -> None:
        given = request.headers.get(CONTROL_HEADER, "")
        if not hmac.compare_digest(given.encode(), self._supervisor.control.encode()):
            raise HttpError(403, "forbidden", f"this takes the secret of the stack's state file, in {CONTROL_HEADER}")
