"""Checks of a stack as a whole: that its servers find each other, have usable names, and are reached by whom they may.

The one idea: each check adds what is wrong to one list, so that a person reads everything at once. Reading a config
imports no environment; `check_loaders`, which does, is for those who ask.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polygym.errors import UsageError, nearest
from polygym.serve.catalog import AGENTS, MODELS, OWN_ENTRYPOINT, POLICY_MODEL, RESOURCES, SERVER_TYPES, read_block
from polygym.serve.settings import AgentSettings, ResourcesSettings
from polygym.serve.sockets import is_loopback
from polygym.serve.spec import environment_id

if TYPE_CHECKING:
    from polygym.serve.config import ServerConfig, StackConfig

RESERVED_NAMES = ("head", "fork_server", "supervisor")
"""What a stack has of its own, each with a log."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)


def check_references(config: StackConfig, running: Mapping[str, str], problems: list[str]) -> None:
    """Every server that another refers to must be there."""
    blocks = {name: read_block(value) for name, value in config.document.items()}
    everything = {**{name: block[0] for name, block in blocks.items() if block}, **running}
    missing: dict[str, list[str]] = {}
    for name, server in config.of_type(AGENTS).items():
        assert isinstance(server.settings, AgentSettings)
        for reference in (server.settings.resources_server, server.settings.model_server):
            if everything.get(reference.name) == reference.type:
                continue
            if reference.name == POLICY_MODEL and MODELS not in everything.values():
                missing.setdefault(POLICY_MODEL, []).append(name)
                continue
            known = [other for other, kind in everything.items() if kind == reference.type]
            problems.append(
                f"{name}: there is no server {reference.name!r} in {reference.type}; {nearest(reference.name, known)}"
            )
    for agents in missing.values():
        problems.append(
            f"there is no model server, which {', '.join(agents)} need{'s' * (len(agents) == 1)}; give --model-type "
            "(oracle_model needs nothing), or a --config that defines policy_model"
        )


def check_names(config: StackConfig, running: Mapping[str, str], problems: list[str]) -> None:
    """Names are file names of logs and must differ as such."""
    seen: dict[str, str] = {}
    for name in config.servers:
        if not _NAME.fullmatch(name) or len(name) > 128:
            problems.append(f"server name {name!r} must be made of letters, digits, '_', '-' and '.'")
        elif name.lower() in RESERVED_NAMES:
            problems.append(f"server name {name!r} is reserved, as are {', '.join(RESERVED_NAMES)}; rename it")
        elif name in running:
            problems.append(f"{name!r} runs already; names must be unique: rename the new one, or leave it out")
        elif (other := seen.setdefault(name.lower(), name)) != name:
            problems.append(f"server names {other!r} and {name!r} differ only in case; rename one")


def check_hosts(config: StackConfig, problems: list[str]) -> None:
    """Whoever reaches a server can use it, so beyond this machine that takes a token."""
    if config.token:
        return
    hosts = {"the stack": config.host, "head_server": config.head.host}
    hosts |= {name: server.settings.host for name, server in config.servers.items()}
    open_to_all = [f"{name} ({host})" for name, host in hosts.items() if host and not is_loopback(host)]
    if open_to_all:
        problems.append(
            f"{', '.join(open_to_all)} would listen beyond this machine, which needs a token: give --token or set "
            "POLYGYM_TOKEN, or listen on 127.0.0.1"
        )


def check_top_level(document: Mapping[str, Any], problems: list[str]) -> None:
    """Refuse mappings that are meant as blocks and are none."""
    for name, value in document.items():
        if not isinstance(value, Mapping) or name == "head_server" or read_block(value):
            continue
        unknown = [str(key) for key in value if key not in SERVER_TYPES]
        if unknown:
            hint = f"unknown key {unknown[0]!r}; {nearest(unknown[0], SERVER_TYPES)}"
        else:
            hint = "it must hold one server type, which holds one implementation, which holds its settings"
        problems.append(f"{name!r} is no block of a server: {hint}")


def check_environments(servers: Mapping[str, ServerConfig], problems: list[str]) -> None:
    """The environments that are named by id must be there; nothing is imported for it."""
    from polygym.environments.registry import list_environments

    known = {entry.id for entry in list_environments()}
    for server in servers.values():
        named = server.settings.entrypoint in (None, OWN_ENTRYPOINT)
        if server.type == RESOURCES and named and server.implementation not in known:
            problems.append(
                f"{server.name}: there is no environment {server.implementation!r}; "
                f"{nearest(server.implementation, known)}; or give package.module:name, or a path"
            )


def check_loaders(config: StackConfig, problems: list[str]) -> None:
    """The code of the environments must be there and take the arguments that it is given; nothing is built for it."""
    from polygym.environments.registry import check_arguments, find_loader

    for name, server in config.of_type(RESOURCES).items():
        assert isinstance(server.settings, ResourcesSettings)
        target = environment_id(server.implementation, server.settings.entrypoint)
        try:
            loader = find_loader(target)
            if not isinstance(loader, type):
                check_arguments(loader, server.settings.args, target)
        except UsageError as error:
            problems.append(f"{name}: {error}")
