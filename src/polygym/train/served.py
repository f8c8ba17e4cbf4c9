"""The environments of an `[[env]]` whose tasks are rows: at a server, or at each agent that the rows name.

The one idea: a row is played where it says. Where its agent does nothing of its own, the run plays it with the agent's
resources server; any other agent plays itself, and asks the run's policy.
"""

from __future__ import annotations

import os

from polygym.collect.agent_play import AgentEnvironment
from polygym.data.files import read_lines
from polygym.environments import EnvGroup, Environment, load_environment
from polygym.environments.names import environment_of_agent
from polygym.environments.remote import RemoteEnvironment
from polygym.environments.row_tasks import HELD_OUT, RowFile, split_rows
from polygym.environments.served import TOKEN, load_served
from polygym.environments.wire_rows import AGENTS
from polygym.errors import UsageError
from polygym.train.config import EnvEntry
from polygym.train.running_stack import SIMPLE_AGENT, RunningServer, RunningStack
from polygym.train.sft_config import SFTEnvConfig


def load_entry(entry: EnvEntry | SFTEnvConfig) -> Environment:
    """The environment, or the group of environments, that an entry means.

    Raises:
        UsageError: for what cannot be loaded, servers that are not there, and rows that are none.
    """
    if entry.id is not None:
        return load_environment(entry.id, **entry.args)
    assert isinstance(entry, EnvEntry)
    held_out = HELD_OUT if entry.held_out is None else entry.held_out
    files = [None if path is None else RowFile.read(path, read_lines(path)) for path in (entry.rows, entry.eval_rows)]
    if entry.url is not None or entry.server is not None:
        for file in files:
            _check_one_agent(file)
    if entry.url is not None:
        return load_served(entry.url, *files, held_out=held_out, name=entry.title)
    stack = RunningStack(entry.head_port)
    if entry.server is not None:
        return _environment(stack, stack.server(entry.server), entry, entry.title, files, held_out)
    by_agent = [{} if file is None else file.by_agent(stack.agents) for file in files]
    children, sizes = [], []
    for agent in dict.fromkeys([*by_agent[0], *by_agent[1]]):
        own = [None if files[side] is None else by_agent[side].get(agent, _NO_ROWS) for side in (0, 1)]
        name = environment_of_agent(agent) or agent
        children.append(_environment(stack, stack.server(agent), entry, name, own, held_out))
        sizes.append(float(len(own[0].rows if own[0] is not None else own[1].rows if own[1] is not None else ())))
    return EnvGroup(children, weights=sizes)  # a blend says the shares by what it holds


_NO_ROWS = RowFile("rows", [])


def _environment(
    stack: RunningStack,
    server: RunningServer,
    entry: EnvEntry,
    name: str,
    files: list[RowFile | None],
    held_out: float,
) -> Environment:
    """One environment: the rows of `files` (to train on, held out) at a resources server or an agent."""
    tasks = split_rows(*files, name=name, held_out=held_out)
    token = os.environ.get(TOKEN)
    if server.kind == AGENTS:
        if entry.play == "agent" or (entry.play is None and server.implementation != SIMPLE_AGENT):
            return AgentEnvironment(server.url, agent=server.name, name=name, tasks=tasks, token=token)
        server = stack.environment_of(server.name)
    elif entry.play == "agent":
        raise UsageError(f"{server.name!r} is no agent, and cannot play; give the name of one, or leave out play")
    return RemoteEnvironment(server.url, name=name, tasks=tasks, token=token)


def _check_one_agent(file: RowFile | None) -> None:
    """Refuse rows of several environments where one server is to hold them all."""
    if file is not None and len(named := sorted(file.agents)) > 1:
        raise UsageError(
            f"{file.path} holds rows of {len(named)} agents ({', '.join(named[:5])}), but all would go to one server; "
            "give rows alone, and each is played where it says"
        )
