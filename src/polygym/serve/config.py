"""The configuration of a stack: which servers, and what each is told.

The one idea: YAML files, names on the command line and values from outside are layers of one document. It is checked as
a whole before anything starts, and every problem is told at once.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polygym.environments.names import agent_name
from polygym.errors import UsageError, nearest
from polygym.serve.catalog import (
    AGENTS,
    MODELS,
    OWN_ENTRYPOINT,
    POLICY_MODEL,
    POLICY_VALUES,
    RESOURCES,
    SERVER_TYPES,
    agent_block,
    model_block,
    resources_block,
)
from polygym.serve.layers import Layer, merge, read_yaml, resolve
from polygym.serve.settings import IMPLEMENTATIONS, AgentSettings, Settings, settings_class
from polygym.train.config_file import Section, validate

ENV_YAML = "env.yaml"
LOOPBACK = "127.0.0.1"
HEAD_PORT = 11000
OPENAI_URL = "https://api.openai.com/v1"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)


class HeadSettings(Section):
    """Where the head listens."""

    host: str | None = None
    port: int = HEAD_PORT


@dataclass(frozen=True)
class ServerConfig:
    """One server of a stack."""

    name: str
    type: str
    implementation: str
    settings: Settings


@dataclass(frozen=True)
class StackConfig:
    """A checked configuration. `document` is the merged YAML, which holds secrets; `host` is where servers listen."""

    servers: dict[str, ServerConfig]
    document: dict[str, Any] = field(repr=False)
    host: str = LOOPBACK
    head: HeadSettings = field(default_factory=HeadSettings)
    token: str | None = field(default=None, repr=False)

    def of_type(self, server_type: str) -> dict[str, ServerConfig]:
        """The servers of one type, by name."""
        return {name: server for name, server in self.servers.items() if server.type == server_type}


@dataclass(frozen=True)
class PolicyValues:
    """What the command line says of the model: `--model-url`, `--model-api-key`, `--model`."""

    url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None

    def layer(self) -> Layer:
        """The values that were given, by their names in a config."""
        given = zip(POLICY_VALUES, (self.url, self.api_key, self.model), strict=True)
        return Layer("the command line", {key: value for key, value in given if value is not None})


def load_config(
    configs: Sequence[str | Path] = (),
    *,
    resources_servers: Sequence[str] = (),
    model_type: str | None = None,
    policy: PolicyValues | None = None,
    host: str | None = None,
    head_port: int | None = None,
    token: str | None = None,
    running: Mapping[str, str] | None = None,
    directory: str | Path = ".",
    environ: Mapping[str, str] = os.environ,
) -> StackConfig:
    """Merge and check everything that describes a stack.

    Plain values come, the first that is there: from the arguments, the configs (the later first), `env.yaml` of
    `directory`, and the environment variables.

    Args:
        configs: YAML files.
        resources_servers: ids of environments, each with a resources server and an agent.
        model_type: adds `policy_model` of that type.
        running: name and type of servers that run already, which new ones may refer to but not repeat.
        environ: environment variables: POLICY_BASE_URL, POLICY_API_KEY, POLICY_MODEL_NAME; OPENAI_BASE_URL and
            OPENAI_API_KEY where no other address is given; POLYGYM_TOKEN.

    Raises:
        UsageError: with every problem on its own line.
    """
    policy = policy or PolicyValues()
    files = [read_yaml(path) for path in (Path(directory) / ENV_YAML,) if path.is_file()]
    files += [read_yaml(path) for path in configs]
    blocks = [Layer("--resources-server", dict([resources_block(target)])) for target in resources_servers]
    if model_type is not None:
        blocks.append(Layer("--model-type", {POLICY_MODEL: model_block(model_type)}))
    layers = [*files, *blocks, policy.layer()]
    merged, problems = merge([_from_environment(environ, layers), *layers])
    _add_agents(merged, problems, running or {})
    document, unresolved, incomplete = resolve(merged)
    return _read(document, running or {}, host, head_port, token, problems + unresolved, incomplete)


def read_document(
    document: Mapping[str, Any], running: Mapping[str, str], *, host: str, token: str | None
) -> StackConfig:
    """Check a document that is merged and resolved already, of servers that join those that run.

    Raises:
        UsageError: with every problem on its own line.
    """
    return _read(document, running, host, None, token, [], set())


def _read(
    document: Mapping[str, Any],
    running: Mapping[str, str],
    host: str | None,
    head_port: int | None,
    token: str | None,
    problems: list[str],
    incomplete: set[str],
) -> StackConfig:
    _check_top_level(document, problems)
    servers = _read_servers({name: value for name, value in document.items() if name not in incomplete}, problems)
    _check_environments(servers, problems)
    head = _read_head(document, head_port, problems)
    stack_host = host or document.get("default_host") or LOOPBACK
    config = StackConfig(servers, dict(document), stack_host, head, token or document.get("token") or None)
    _check_references(config, running, problems)
    _check_names(config, running, problems)
    _check_hosts(config, problems)
    if not problems and not servers:
        problems.append("no servers are given; name environments with --resources-server, or YAML files with --config")
    if problems:
        raise UsageError("\n".join(problems))
    return config


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens on `host`.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "gym.example")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _from_environment(environ: Mapping[str, str], others: Iterable[Layer]) -> Layer:
    values = {name: environ[name.upper()] for name in POLICY_VALUES if environ.get(name.upper())}
    url, key, _ = POLICY_VALUES
    # OpenAI's variables belong together: their key goes to no address that was given elsewhere.
    if url not in values and not any(url in layer.content for layer in others):
        if environ.get("OPENAI_BASE_URL"):
            values[url] = environ["OPENAI_BASE_URL"]
        elif environ.get("OPENAI_API_KEY"):
            values[url] = OPENAI_URL
        if environ.get("OPENAI_API_KEY"):
            values.setdefault(key, environ["OPENAI_API_KEY"])
    if environ.get("POLYGYM_TOKEN"):
        values["token"] = environ["POLYGYM_TOKEN"]
    return Layer("the environment variables", {key: None, **values})  # an endpoint may want no key


def _block(value: Any) -> tuple[str, str, Mapping[str, Any]] | None:
    """Type, implementation and settings of a server's block; None when it is none."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return None
    ((server_type, implementations),) = value.items()
    if server_type not in SERVER_TYPES or not isinstance(implementations, Mapping) or len(implementations) != 1:
        return None
    ((implementation, settings),) = implementations.items()
    if settings is not None and not isinstance(settings, Mapping):
        return None
    return server_type, str(implementation), settings or {}


def _add_agents(merged: dict[str, Any], problems: list[str], running: Mapping[str, str]) -> None:
    """Give every resources server that no agent plays an agent of its own."""
    blocks = {name: block for name, value in merged.items() if (block := _block(value))}
    played = set()
    for server_type, _, settings in blocks.values():
        reference = settings.get("resources_server") if server_type == AGENTS else None
        if isinstance(reference, Mapping):
            played.add(reference.get("name"))
    alone = {name: impl for name, (kind, impl, _) in blocks.items() if kind == RESOURCES and name not in played}
    models = [name for name, (kind, _, _) in blocks.items() if kind == MODELS]
    models += [name for name, kind in running.items() if kind == MODELS]
    model = models[0] if len(models) == 1 else POLICY_MODEL
    for name, implementation in alone.items():
        shared = list(alone.values()).count(implementation) > 1
        agent = agent_name(name if shared else implementation)
        if agent in merged:
            problems.append(
                f"{agent!r} is the name of the agent of {name!r} and defined for something else; names must be unique: "
                "rename one"
            )
        else:
            merged[agent] = agent_block(name, model)


def _check_top_level(document: Mapping[str, Any], problems: list[str]) -> None:
    """Refuse mappings that are meant as blocks and are none."""
    for name, value in document.items():
        if not isinstance(value, Mapping) or name == "head_server" or _block(value):
            continue
        unknown = [str(key) for key in value if key not in SERVER_TYPES]
        if unknown:
            hint = f"unknown key {unknown[0]!r}; {nearest(unknown[0], SERVER_TYPES)}"
        else:
            hint = "it must hold one server type, which holds one implementation, which holds its settings"
        problems.append(f"{name!r} is no block of a server: {hint}")


def _read_servers(document: Mapping[str, Any], problems: list[str]) -> dict[str, ServerConfig]:
    servers = {}
    for name, value in document.items():
        block = _block(value)
        if block is None:
            continue
        server_type, implementation, settings = block
        kind = settings_class(server_type, implementation)
        if kind is None:
            choices = IMPLEMENTATIONS[server_type]
            problems.append(f"{name}: {server_type} {implementation!r} is unknown; {nearest(implementation, choices)}")
            continue
        if server_type == AGENTS and "model_server" not in settings:
            settings = {**settings, "model_server": {"type": MODELS, "name": POLICY_MODEL}}
        try:
            servers[name] = ServerConfig(name, server_type, implementation, validate(kind, settings, name))
        except UsageError as error:
            problems += str(error).splitlines()
    return servers


def _check_environments(servers: Mapping[str, ServerConfig], problems: list[str]) -> None:
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


def _read_head(document: Mapping[str, Any], port: int | None, problems: list[str]) -> HeadSettings:
    table = dict(document.get("head_server") or {})
    if port is not None:
        table["port"] = port
    try:
        return validate(HeadSettings, table, "head_server")
    except UsageError as error:
        problems += str(error).splitlines()
        return HeadSettings()


def _check_references(config: StackConfig, running: Mapping[str, str], problems: list[str]) -> None:
    """Every server that another refers to must be there."""
    everything = {**{name: block[0] for name, value in config.document.items() if (block := _block(value))}, **running}
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


def _check_names(config: StackConfig, running: Mapping[str, str], problems: list[str]) -> None:
    """Names are file names of logs and must differ as such."""
    seen: dict[str, str] = {}
    for name in config.servers:
        if not _NAME.fullmatch(name) or len(name) > 128:
            problems.append(f"server name {name!r} must be made of letters, digits, '_', '-' and '.'")
        elif name in running:
            problems.append(f"{name!r} runs already; names must be unique: rename the new one, or leave it out")
        elif (other := seen.setdefault(name.lower(), name)) != name:
            problems.append(f"server names {other!r} and {name!r} differ only in case; rename one")


def _check_hosts(config: StackConfig, problems: list[str]) -> None:
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
