"""Listening sockets, and the few lines of HTTP that the supervisor speaks itself.

The one idea: the supervisor binds every socket before anything starts and keeps it. So there is no race for ports, a
server that is started again has the port it had, and whoever connects meanwhile waits or is told to come back.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from polygym.errors import UsageError

LOOPBACK = "127.0.0.1"
BACKLOG = 2048
_HEAD_SECONDS = 5.0


class PortInUseError(UsageError):
    """Somebody else listens there."""


def bind(host: str, port: int, user: str) -> socket.socket:
    """A socket that listens on `host` and `port` (0: a free one) for `user`, who is named in errors.

    Raises:
        PortInUseError: when the port is taken.
        UsageError: when the address cannot be had.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(f"{user}: host {host!r} is no address of this machine: {error.strerror}") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ports of connections that have just ended
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"{user}: port {port} of {host} is in use; give another port, or none to have a free one"
            ) from error
        raise UsageError(f"{user}: cannot listen on {host}, port {port}: {error.strerror}") from error
    listening.setblocking(False)
    return listening


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens on `host`.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "gym.example")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url_of(listening: socket.socket) -> str:
    """The address at which this machine reaches a socket.

    >>> with bind("127.0.0.1", 0, "doctest") as listening:
    ...     url_of(listening) == f"http://127.0.0.1:{listening.getsockname()[1]}"
    True
    """
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def request(
    url: str, path: str = "/", *, method: str = "GET", body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """Status and JSON (else text) of one request to a server on this machine.

    Raises:
        OSError: when there is no answer; asyncio.IncompleteReadError and ValueError when it is no HTTP.
    """
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    content = b"" if body is None else json.dumps(body).encode()
    fields = {"Host": f"{host}:{port}", "Connection": "close", "Content-Length": str(len(content)), **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    try:
        writer.write(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + content)
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        data = await reader.read()
    finally:
        writer.close()
    status = int(head.split(None, 2)[1])
    if b"transfer-encoding: chunked" in head.lower():
        raise ValueError("the answer is chunked")
    try:
        return status, json.loads(data)
    except ValueError:
        return status, data.decode("utf-8", "replace")


@asynccontextmanager
async def turned_away(listening: socket.socket, name: str, seconds: float) -> AsyncIterator[None]:
    """While this lasts, whoever connects is told that the server is down, rather than left waiting."""
    body = json.dumps(
        {"error": {"class": "server_down", "message": f"server {name!r} is being started again"}}
    ).encode()
    answer = (
        f"HTTP/1.1 503 Service Unavailable\r\nRetry-After: {max(1, round(seconds))}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode() + body

    async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer)
                await writer.drain()
                writer.write_eof()
                while await reader.read(1 << 16):  # closing on unread data would reset the connection
                    pass
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever it was has left
        finally:
            writer.close()

    server = await asyncio.start_server(tell, sock=listening.dup(), backlog=BACKLOG)
    try:
        yield
    finally:
        server.close()
