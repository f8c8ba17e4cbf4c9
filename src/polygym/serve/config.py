"""The configuration of a stack: which servers, and what each is told.

The one idea: YAML files, names on the command line and values from outside are layers of one document. It is checked as
a whole before anything starts, and every problem is told at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from polygym.environments.names import agent_name
from polygym.errors import UsageError, nearest
from polygym.policies.endpoint import OPENAI_URL
from polygym.serve.catalog import (
    AGENTS,
    MODELS,
    POLICY_MODEL,
    POLICY_VALUES,
    RESOURCES,
    Block,
    agent_block,
    model_block,
    read_block,
    resources_block,
)
from polygym.serve.layers import NAMED_SERVERS, Layer, Place, merge, read_yaml, resolve
from polygym.serve.masking import redacted, secrets_of
from polygym.serve.settings import IMPLEMENTATIONS, Settings, settings_class
from polygym.serve.sockets import LOOPBACK
from polygym.serve.stack_checks import (
    check_environments,
    check_hosts,
    check_keys,
    check_names,
    check_references,
    check_top_level,
)
from polygym.train.config_file import Section, validate

ENV_YAML = "env.yaml"
HEAD_PORT = 11000


class HeadSettings(Section):
    """Where the head listens."""

    host: str | None = None
    port: int = Field(default=HEAD_PORT, ge=0, le=65535)


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


def load_config(configs: Sequence[str | Path] = (), **options: Any) -> StackConfig:
    """The checked configuration of a stack; arguments as of `survey`.

    Raises:
        UsageError: with every problem on its own line.
    """
    return _sound(*survey(configs, **options))


def survey(
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
) -> tuple[StackConfig, list[str]]:
    """Merge and check everything that describes a stack: what there is of it, and what is wrong with it.

    Plain values come, the first that is there: from the arguments, the configs (the later first), `env.yaml` of
    `directory`, and the environment variables.

    Args:
        configs: YAML files.
        resources_servers: ids of environments, or NAME=ID, each with a resources server and an agent.
        model_type: adds `policy_model` of that type.
        running: name and type of servers that run already, which new ones may refer to but not repeat.
        environ: environment variables: POLICY_BASE_URL, POLICY_API_KEY, POLICY_MODEL_NAME; OPENAI_BASE_URL and
            OPENAI_API_KEY where no other address is given; POLYGYM_TOKEN.

    Raises:
        UsageError: when a file cannot be read.
    """
    policy = policy or PolicyValues()
    shared = [read_yaml(path) for path in (Path(directory) / ENV_YAML,) if path.is_file()]
    own = [read_yaml(path) for path in configs]
    files = [*shared, *own]
    blocks = [Layer(NAMED_SERVERS, dict([resources_block(target)])) for target in resources_servers]
    if model_type is not None:
        blocks.append(Layer("--model-type", {POLICY_MODEL: model_block(model_type)}))
    layers = [*files, *blocks, policy.layer()]
    merged, problems = merge([_from_environment(environ, layers), *layers])
    for layers_of_files, strict in ((shared, False), (own, True)):
        for layer in layers_of_files:
            check_keys(layer.name, layer.content, str(merged), problems, strict=strict)
    _add_agents(merged, problems, running or {})
    for name in policy.layer().content:
        if f"${{{name}}}" not in str(merged):
            problems.append(f"{POLICY_VALUES[name].partition(',')[0]} is given, but no server takes it")
    document, unresolved, missing = resolve(merged)
    return _read(document, running or {}, host, head_port, token, problems + unresolved, missing)


def read_document(
    document: Mapping[str, Any], running: Mapping[str, str], *, host: str, token: str | None
) -> StackConfig:
    """Check a document that is merged and resolved already, of servers that join those that run.

    Raises:
        UsageError: with every problem on its own line.
    """
    return _sound(*_read(document, running, host, None, token, [], set()))


def _sound(config: StackConfig, problems: list[str]) -> StackConfig:
    if problems:
        raise UsageError("\n".join(problems))
    return config


def _read(
    document: Mapping[str, Any],
    running: Mapping[str, str],
    host: str | None,
    head_port: int | None,
    token: str | None,
    problems: list[str],
    missing: set[Place],
) -> tuple[StackConfig, list[str]]:
    check_top_level(document, problems)
    blocks = {name: block for name, value in document.items() if (block := read_block(value))}
    servers = _read_servers(blocks, problems, missing)
    check_environments(blocks, problems)
    head = _read_head(document, head_port, problems)
    stack_host = host or document.get("default_host") or LOOPBACK
    config = StackConfig(servers, dict(document), str(stack_host), head, token or document.get("token") or None)
    check_references(blocks, running, problems)
    check_names(blocks, running, problems)
    check_hosts(config, problems)
    if not problems and not servers:
        problems.append("no servers are given; name environments with --resources-server, or YAML files with --config")
    secrets = secrets_of(document)
    return config, [redacted(problem, secrets) for problem in problems]


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


def _add_agents(merged: dict[str, Any], problems: list[str], running: Mapping[str, str]) -> None:
    """Give every resources server that no agent plays an agent of its own."""
    blocks = {name: block for name, value in merged.items() if (block := read_block(value))}
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


def _read_servers(blocks: Mapping[str, Block], problems: list[str], missing: set[Place]) -> dict[str, ServerConfig]:
    """The servers whose blocks are whole and right; of a block that lacks values, the others are checked too."""
    servers = {}
    for name, (server_type, implementation, settings) in blocks.items():
        kind = settings_class(server_type, implementation)
        if kind is None:
            choices = IMPLEMENTATIONS[server_type]
            problems.append(f"{name}: {server_type} {implementation!r} is unknown; {nearest(implementation, choices)}")
            continue
        if server_type == AGENTS and "model_server" not in settings:
            settings = {**settings, "model_server": {"type": MODELS, "name": POLICY_MODEL}}
        inside = [place[3:] for place in missing if place[:3] == (name, server_type, implementation)]
        if () in inside or any(place[0] == name and len(place) < 3 for place in missing):
            continue
        absent = {str(place[0]) for place in inside}
        given = {key: value for key, value in settings.items() if key not in absent}
        try:
            server = ServerConfig(name, server_type, implementation, validate(kind, given, name))
        except UsageError as error:
            told = {f"{name}: {key!r} is missing" for key in absent}
            problems += [line for line in str(error).splitlines() if line not in told]
        else:
            if not absent:
                servers[name] = server
    return servers


def _read_head(document: Mapping[str, Any], port: int | None, problems: list[str]) -> HeadSettings:
    given = document.get("head_server") or {}
    if not isinstance(given, Mapping):
        problems.append(f"head_server={given!r:.80} must be a mapping of host and port")
        return HeadSettings()
    table = dict(given)
    if port is not None:
        table["port"] = port
    try:
        return validate(HeadSettings, table, "head_server")
    except UsageError as error:
        problems += str(error).splitlines()
        return HeadSettings()
