"""The table of servers: live on a terminal, a line a change elsewhere, plain text for `status`."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from polygym.view.servers import ServersDisplay, servers_table


def server(name: str, status: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "server_type": "resources_servers",
        "impl": name,
        "url": "http://127.0.0.1:8001",
        "status": status,
        "restarts": 0,
        "uptime_seconds": None,
        **changes,
    }


def test_without_a_terminal_each_change_of_state_is_one_line():
    console = Console(file=io.StringIO(), width=200)
    with ServersDisplay(console) as display:
        display.update([server("math", "starting"), server("word", "starting")])
        display.update([server("math", "ready"), server("word", "starting")])
        display.update([server("math", "ready"), server("word", "ready")])
        display.update([server("math", "restarting", restarts=1), server("word", "ready")])
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "ready: math, http://127.0.0.1:8001",
        "ready: word, http://127.0.0.1:8001",
        "restarting, restarted once: math, http://127.0.0.1:8001",
    ]


def test_on_a_terminal_a_table_holds_the_newest_state():
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    with ServersDisplay(console) as display:
        display.update([server("math", "starting")])
        display.update([server("math", "ready", uptime_seconds=75.0)])
        console.print(display.render())
    last = console.file.getvalue().split("kind")[-1]  # type: ignore[attr-defined]
    assert "ready" in last and "starting" not in last and "1:15" not in last


def test_a_narrow_terminal_shortens_names_and_kinds_never_addresses_and_states():
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    display = ServersDisplay(console)
    agent = {"server_type": "responses_api_agents", "impl": "simple_agent"}
    display.update(
        [
            server("example_single_tool_call_simple_agent", "restarting", restarts=12, **agent),
            server("math", "ready", url="http://127.0.0.1:45555"),
        ]
    )
    console.print(display.render())
    lines = console.file.getvalue().splitlines()[-3:]  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("example_s") and "…" in lines[1]
    assert "http://127.0.0.1:8001" in lines[1] and "restarting, restarted 12 times" in lines[1]
    assert "http://127.0.0.1:45555" in lines[2] and "ready" in lines[2]


def test_as_plain_text_columns_line_up_and_names_are_cleaned():
    agent = server("bad\x1b[31m\nname", "ready", server_type="responses_api_agents", impl="simple_agent")
    assert servers_table([server("math", "ready", uptime_seconds=75.2), agent]).splitlines() == [
        "name      kind                  address                state",
        "math      resources             http://127.0.0.1:8001  ready, 1:15",
        "bad name  agent (simple_agent)  http://127.0.0.1:8001  ready",
    ]
