"""Where an `[[env]]` comes from: this process, a server, or the agents that rows name.

The one idea: every key says something about one of the three, and a key that says nothing is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OF_ROWS = ("eval_rows", "held_out", "head_port", "play")
SOURCES = ("id", "url", "server")


def check_source(entry: Mapping[str, Any]) -> None:
    """Check the keys of an entry against each other.

    Raises:
        ValueError: which pydantic tells with the other problems of the config.
    """
    given = {key for key, value in entry.items() if value is not None and value != {}}
    sources = [key for key in SOURCES if key in given]
    if len(sources) > 1:
        raise ValueError(f"{' and '.join(sources)} are given; an environment has one of them")
    if not sources and not given & {"rows", "eval_rows"}:
        raise ValueError(
            'has no id; write id = "math_rl" for an environment, url or server with rows for one that a server holds, '
            "or rows alone for what a running stack plays"
        )
    if "id" in given:
        _refuse(given, ("rows", *OF_ROWS), "beside id")
        return
    _refuse(given, ("args",), "without id: the server has its own")
    if not given & {"rows", "eval_rows"}:
        raise ValueError(f"{sources[0]} needs rows: the file of the tasks, as polygym data export writes it")
    if "url" in given:
        _refuse(given, ("head_port", "play"), "beside url: rows are played here, with that server")
    if "eval_rows" in given:
        _refuse(given, ("held_out",), "beside eval_rows, which are the held-out tasks")


def _refuse(given: set[str], keys: tuple[str, ...], where: str) -> None:
    if wrong := [key for key in keys if key in given]:
        raise ValueError(f"{', '.join(wrong)} {'says' if len(wrong) == 1 else 'say'} nothing {where}; leave it out")
