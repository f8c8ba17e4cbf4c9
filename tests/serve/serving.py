"""Real servers on loopback, in a thread or in a process that a test may kill."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from polygym.serve.run import server_config


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The address of `app`, served in a thread."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(server_config(app))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the server did not start"
                time.sleep(0.005)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


_SCRIPT = """
import socket, sys, uvicorn
{setup}
from polygym.serve.run import server_config
with socket.socket() as listening:
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", {port}))
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(server_config(app)).run(sockets=[listening])
"""


@contextmanager
def process(setup: str, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address and the process of a server whose code defines `app`."""
    child = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT.format(setup=setup, port=port)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    try:
        assert child.stdout is not None
        yield f"http://127.0.0.1:{int(child.stdout.readline())}", child
    finally:
        child.kill()
        child.communicate()
