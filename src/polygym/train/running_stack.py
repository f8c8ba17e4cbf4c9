"""The stack of servers that a run trains on, as its head tells it.

The one idea: a config names servers, the head knows where they are. It is asked once, before anything is loaded, so
that a name which is none is told with those that are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polygym.collect.agents import HEAD_PORT
from polygym.environments.served import NoAnswer, ask
from polygym.environments.wire_rows import AGENTS, RESOURCES
from polygym.errors import UsageError, nearest

SIMPLE_AGENT = "simple_agent"
"""The agent that does nothing of its own: it passes on between an environment and a model, as a run does itself."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """One server of a stack."""

    name: str
    kind: str
    implementation: str
    url: str


class RunningStack:
    """What runs where.

    Args:
        port: of the head, on this machine.

    Raises:
        UsageError: when no head answers there.
    """

    def __init__(self, port: int | None) -> None:
        self.url = f"http://127.0.0.1:{HEAD_PORT if port is None else port}"
        try:
            told = ask(self.url, "/server_instances")
        except NoAnswer as error:
            raise UsageError(
                f"no head server answers at {self.url}: start servers with `polygym env start`, or give its port as "
                "head_port"
            ) from error
        if not isinstance(told, list):
            raise UsageError(f"{self.url} is no head of a stack: it tells of no servers; give its port as head_port")
        self.servers: dict[str, RunningServer] = {}
        for row in told:
            if isinstance(row, Mapping) and row.get("url"):
                found = RunningServer(*(str(row.get(key)) for key in ("name", "server_type", "impl", "url")))
                self.servers[found.name] = found
        self._document: Any = None

    @property
    def agents(self) -> list[str]:
        """Names of the agent servers."""
        return [name for name, server in self.servers.items() if server.kind == AGENTS]

    def server(self, name: str) -> RunningServer:
        """The resources server or agent of that name.

        Raises:
            UsageError: when there is none.
        """
        known = [other for other, server in self.servers.items() if server.kind in (AGENTS, RESOURCES)]
        if name not in known:
            raise UsageError(
                f"the stack at {self.url} has no environment or agent {name!r}; {nearest(name, known) if known else ''}"
            )
        return self.servers[name]

    def environment_of(self, agent: str) -> RunningServer:
        """The resources server that an agent plays with.

        Raises:
            UsageError: when the stack's configuration does not say, or names one that does not run.
        """
        block = self._config().get(agent)
        kinds = block.get(AGENTS) if isinstance(block, Mapping) else None
        settings = next(iter(kinds.values()), None) if isinstance(kinds, Mapping) else None
        reference = settings.get("resources_server") if isinstance(settings, Mapping) else None
        name = reference.get("name") if isinstance(reference, Mapping) else None
        if name is None:
            raise UsageError(
                f'agent {agent!r} says no resources server that it plays with; let it play itself: play = "agent"'
            )
        return self.server(str(name))

    def _config(self) -> Mapping[str, Any]:
        """The configuration of the stack."""
        if self._document is None:
            import yaml  # comes with transformers, and with the servers

            text = ask(self.url, "/global_config_dict_yaml")
            found = yaml.safe_load(text) if isinstance(text, str) else None
            self._document = found if isinstance(found, Mapping) else {}
        return self._document if isinstance(self._document, Mapping) else {}
