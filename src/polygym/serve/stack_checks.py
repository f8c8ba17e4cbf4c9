"""Checks of a stack as a whole: that its servers find each other, have usable names, and are reached by whom they may.

The one idea: each check adds what is wrong to one list, so that a person reads everything at once. Reading a config
imports no environment; `check_startable`, which builds them, is for those who ask.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polygym.errors import UsageError, nearest
from polygym.serve.catalog import (
    AGENTS,
    MODELS,
    POLICY_MODEL,
    POLICY_VALUES,
    RESOURCES,
    SERVER_TYPES,
    Block,
    read_block,
)
from polygym.serve.layers import is_referred_to
from polygym.serve.settings import LocalSettings, ResourcesSettings
from polygym.serve.sockets import is_loopback
from polygym.serve.spec import environment_id

if TYPE_CHECKING:
    from polygym.serve.config import StackConfig

RESERVED_NAMES = ("head", "fork_server", "supervisor")
"""What a stack has of its own, each with a log."""
TOP_LEVEL = (*POLICY_VALUES, "default_host", "head_server", "token")
"""The keys of a document that are no server."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)
_ALIKE = 0.85  # names of this likeness and more are one name and its misspelling


def check_references(blocks: Mapping[str, Block], running: Mapping[str, str], problems: list[str]) -> None:
    """Every server that another refers to must be there. Blocks are looked at as they are written, right or not."""
    everything = {**{name: kind for name, (kind, _, _) in blocks.items()}, **running}
    without_model = []
    for name, (server_type, _, settings) in blocks.items():
        if server_type != AGENTS:
            continue
        for key, kind in (("resources_server", RESOURCES), ("model_server", MODELS)):
            reference = settings.get(key, {"name": POLICY_MODEL} if kind == MODELS else None)
            wanted = reference.get("name") if isinstance(reference, Mapping) else None
            if not isinstance(wanted, str) or everything.get(wanted) == kind:
                continue  # what is no reference is told by the check of the settings
            if wanted == POLICY_MODEL and MODELS not in everything.values():
                without_model.append(name)
                continue
            known = [other for other, other_kind in everything.items() if other_kind == kind]
            problems.append(f"{name}: there is no server {wanted!r} in {kind}; {nearest(wanted, known)}")
    if without_model:
        problems.append(
            f"there is no model server, which {', '.join(without_model)} need{'s' * (len(without_model) == 1)}; give "
            "--model-type (oracle_model needs nothing), or a --config that defines policy_model"
        )


def check_names(blocks: Mapping[str, Block], running: Mapping[str, str], problems: list[str]) -> None:
    """Names are file names of logs and must differ as such."""
    seen: dict[str, str] = {}
    for name in blocks:
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


def check_keys(file: str, content: Mapping[str, Any], merged: str, problems: list[str], *, strict: bool) -> None:
    """Refuse values of a file that nothing reads. `env.yaml`, which is not strict, may hold those of other programs.

    Args:
        merged: the text of the whole document, in which a `${...}` may name a value.
    """
    for name, value in content.items():
        if name in TOP_LEVEL or isinstance(value, Mapping) or is_referred_to(name, merged):
            continue
        if name == "config_paths":
            problems.append(f"{file}: config_paths is not read; give each of its files with --config")
        elif strict or difflib.get_close_matches(name, TOP_LEVEL, cutoff=_ALIKE):
            problems.append(f"{file}: unknown key {name!r}, which no ${{{name}}} reads; {nearest(name, TOP_LEVEL)}")


def check_top_level(document: Mapping[str, Any], problems: list[str]) -> None:
    """Refuse mappings that are meant as blocks and are none, and settings of the stack that are no text."""
    for name in ("default_host", "token"):
        if document.get(name) is not None and not isinstance(document[name], str):
            problems.append(f"{name}={document[name]!r:.80} must be text in quotes")
    for name, value in document.items():
        if not isinstance(value, Mapping) or name == "head_server" or read_block(value):
            continue
        unknown = [str(key) for key in value if key not in SERVER_TYPES]
        if unknown:
            hint = f"unknown key {unknown[0]!r}; {nearest(unknown[0], SERVER_TYPES)}"
        else:
            hint = "it must hold one server type, which holds one implementation, which holds its settings"
        problems.append(f"{name!r} is no block of a server: {hint}")


def check_environments(blocks: Mapping[str, Block], problems: list[str]) -> None:
    """The environments that are named by id must be there; nothing is imported for it."""
    known = _known_environments()
    for name, (server_type, implementation, settings) in blocks.items():
        target = environment_id(implementation, settings.get("entrypoint"))
        if server_type == RESOURCES and _is_unknown(target, known):
            problems.append(
                f"{name}: there is no environment {target!r}; {nearest(target, known)}; or give package.module:name, "
                "or a path"
            )


def check_startable(config: StackConfig, problems: list[str]) -> None:
    """Each environment must come up with its arguments, and each model that runs here must be one: both are tried."""
    from polygym.environments.registry import check_arguments, find_loader, load_environment
    from polygym.policies.load import check_local
    from polygym.serve.resources import ResourcesServer

    known = _known_environments()
    for name, server in config.servers.items():
        settings = server.settings
        try:
            if isinstance(settings, ResourcesSettings):
                target = environment_id(server.implementation, settings.entrypoint)
                if _is_unknown(target, known):
                    continue  # as `check_environments` has told
                loader = find_loader(target)
                if isinstance(loader, type) and issubclass(loader, ResourcesServer):
                    check_arguments(loader, {**settings.args, "name": name}, target)
                else:
                    load_environment(target, **settings.args)
            elif isinstance(settings, LocalSettings):
                check_local(settings.model)
        except UsageError as error:
            problems.append(f"{name}: {error}")


def _known_environments() -> set[str]:
    from polygym.environments.registry import list_environments

    return {entry.id for entry in list_environments()}


def _is_unknown(target: str, known: set[str]) -> bool:
    """Whether a target is an id, and that of no environment."""
    return re.fullmatch(r"[\w-]+", target) is not None and target not in known and not Path(target).is_dir()
