"""What a person sees of servers that are started together.

The one idea: one line a server with what it takes to use it (name, kind, address) and its state; on a terminal the
table is live, elsewhere each change of a state is a line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from polygym.text import clock, one_line
from polygym.view.terminal import Display

KINDS = {
    "resources_servers": "resources",
    "responses_api_agents": "agent",
    "responses_api_models": "model",
    "head_server": "head",
}
COLUMNS = ("name", "kind", "address", "state")
_SHORTENED = COLUMNS[:2]
"""What gives way where a terminal is narrow; an address or a state that is cut is of no use."""
_NARROW = 110
STYLES = {"ready": "green", "starting": "yellow", "stopped": "dim"}
ALARM = "bold red"

Instances = Sequence[Mapping[str, Any]]


class ServersDisplay(Display):
    """The servers of a stack while they start, run and stop."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self._instances: Instances = ()
        self._states: dict[str, str] = {}

    def update(self, instances: Instances) -> None:
        """The state of a server has changed; all are given."""
        self._instances = instances
        for instance in instances:
            name, state = str(instance["name"]), state_of(instance)
            if self._states.get(name) != state:
                self._states[name] = state
                if not self.live and state != "starting":
                    self.message(f"{state}: {name}, {instance['url']}")

    def render(self) -> RenderableType:
        """A line a server."""
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for column in COLUMNS:
            table.add_column(column, no_wrap=column not in _SHORTENED)
        for instance in self._instances:
            name, kind, address, _ = cells_of(instance)  # without the uptime, which stands still between two changes
            if self.console.width < _NARROW:
                kind = kind.partition(" (")[0]
            shortened = (Text(cell, no_wrap=True, overflow="ellipsis") for cell in (name, kind))
            style = STYLES.get(str(instance["status"]), ALARM)
            table.add_row(*shortened, Text(address), Text(state_of(instance), style=style))
        return table


def servers_table(instances: Instances) -> str:
    """The servers as plain text."""
    header, *rows = (COLUMNS, *map(cells_of, instances))
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in (header, *rows))


def cells_of(instance: Mapping[str, Any]) -> tuple[str, ...]:
    """Name, kind, address and state of a server as they are shown."""
    kind = KINDS.get(str(instance["server_type"]), str(instance["server_type"]))
    implementation = instance["impl"]
    shown = kind if implementation in (None, instance["name"]) else f"{kind} ({implementation})"
    uptime = instance.get("uptime_seconds")
    state = state_of(instance)
    return (
        one_line(instance["name"], 60),
        one_line(shown, 60),
        one_line(instance["url"], 60),
        state if uptime is None or uptime < 1 else f"{state}, {clock(uptime)}",
    )


def state_of(instance: Mapping[str, Any]) -> str:
    """The state in words.

    >>> state_of({"status": "ready", "restarts": 2})
    'ready, restarted 2 times'
    """
    restarts = instance.get("restarts") or 0
    times = "" if not restarts else f", restarted {f'{restarts} times' if restarts > 1 else 'once'}"
    return f"{instance['status']}{times}"
