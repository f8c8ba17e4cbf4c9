"""An environment that a server holds, by the server's address: `load_environment("http://127.0.0.1:8000", rows=...)`.

The one idea: whoever loads it is told at once where nobody answers, or another kind of server does, and not by the
first rollout.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from polygym.environments.remote import RemoteEnvironment
from polygym.environments.row_tasks import HELD_OUT, RowFile, split_rows
from polygym.environments.wire_rows import RESOURCES
from polygym.errors import UsageError
from polygym.policies.endpoint import http_address

ASK_SECONDS = 10.0
TOKEN = "POLYGYM_TOKEN"
"""Environment variable with what servers want to be sent."""


class NoAnswer(UsageError):
    """Nobody answers at an address."""


def is_address(id: str) -> bool:
    """Whether the id of an environment is the address of a server."""
    return id.startswith(("http://", "https://"))


def load_served(
    url: str,
    rows: str | Path | RowFile | None = None,
    eval_rows: str | Path | RowFile | None = None,
    *,
    held_out: float = HELD_OUT,
    seed: int = 0,
    name: str | None = None,
) -> RemoteEnvironment:
    """The environment of a resources server.

    Args:
        url: address of the server; the environment variable POLYGYM_TOKEN holds its token, where it wants one.
        rows: JSONL file of its tasks, as `polygym data export` writes it.
        eval_rows: file of its held-out tasks; without it the part `held_out` of `rows` is held out.
        seed: of the held-out split.
        name: default what the server is called, else what the file is.

    Raises:
        UsageError: for rows that are none, and where no resources server answers.
    """
    if rows is None and eval_rows is None:
        raise UsageError(
            f"the environment at {url} needs its tasks: give rows=FILE, as polygym data export NAME --output FILE "
            "writes them"
        )
    told = ask(url, "/")
    told = told if isinstance(told, Mapping) and told.get("polygym") is True else {}
    kind = told.get("kind", RESOURCES)
    if kind != RESOURCES:
        raise UsageError(
            f"{url} is one of the {kind}, no environment; give the address of its resources server (polygym env status)"
        )
    files = [RowFile.read(file) if isinstance(file, (str, Path)) else file for file in (rows, eval_rows)]
    if name is None:
        name = str(told.get("name") or next(Path(file.path).stem for file in files if file is not None))
    tasks = split_rows(*files, name=name, held_out=held_out, seed=seed)
    return RemoteEnvironment(url, name=name, tasks=tasks, token=os.environ.get(TOKEN))


def ask(url: str, path: str) -> Any:
    """What a server says at `path`: its JSON, or None where it answers something else.

    Raises:
        NoAnswer: when nobody is there.
        UsageError: when it wants another token, or the address is none.
    """
    token = os.environ.get(TOKEN)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = Request(http_address(url, f"give a token in {TOKEN} instead") + path, headers=headers)
    try:
        with build_opener(ProxyHandler({}), _NoRedirects).open(request, timeout=ASK_SECONDS) as answer:
            return json.loads(answer.read())
    except HTTPError as error:
        if error.code in (401, 403):
            raise UsageError(f"the server at {url} wants another token; set {TOKEN}") from error
        return None
    except (OSError, TimeoutError) as error:
        raise NoAnswer(
            f"no server answers at {url}: {getattr(error, 'reason', error)}; start it (polygym env start), or mend the "
            "address"
        ) from error
    except ValueError:
        return None


class _NoRedirects(HTTPRedirectHandler):
    """The token is for this server, and for no other that it may name."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""
