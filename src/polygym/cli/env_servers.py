"""`polygym env start|status|stop|resolve|validate`: environments over HTTP.

The one idea: what describes a stack is given in one way to every command that needs it, so that `resolve` and
`validate` speak of exactly what `start` would start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polygym.cli.values import print_json
from polygym.errors import PolygymError, UsageError

if TYPE_CHECKING:
    from polygym.serve.config import StackConfig
    from polygym.serve.stacks import Stack

Configs = Annotated[
    list[Path] | None,
    typer.Option("--config", metavar="FILE", help="YAML file with servers; may be given several times."),
]
ResourcesServers = Annotated[
    list[str] | None,
    typer.Option(
        "--resources-server",
        metavar="ENV",
        help="Environment to serve, with an agent: an id, package.module:name, or a path; NAME=ENV names the server; "
        "may be given several times.",
    ),
]
ModelType = Annotated[
    str | None,
    typer.Option("--model-type", help="Model server: oracle_model, openai_model, vllm_model or local_model."),
]
ModelUrl = Annotated[
    str | None, typer.Option("--model-url", help="Endpoint of openai_model and vllm_model [env: POLICY_BASE_URL].")
]
Model = Annotated[
    str | None,
    typer.Option("--model", "-m", help="Model of the endpoint, or of local_model [env: POLICY_MODEL_NAME]."),
]
ModelApiKey = Annotated[
    str | None,
    typer.Option(
        "--model-api-key", help="Key of the endpoint [env: POLICY_API_KEY, which nobody else on the machine sees]."
    ),
]
HostOption = Annotated[str | None, typer.Option("--host", help="Address to listen on; any but loopback needs a token.")]
Token = Annotated[str | None, typer.Option("--token", help="What requests must bring [env: POLYGYM_TOKEN].")]
HeadPort = Annotated[
    int | None,
    typer.Option("--head-port", min=0, max=65535, help="Port of the head, by which a stack is found; default 11000."),
]
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


def add_commands(app: typer.Typer) -> None:
    """Add the commands for servers to those of `polygym env`."""
    example = "Example: polygym env start --model-type oracle_model --resources-server example_multi_step"
    app.command("start", epilog=example)(start)
    app.command("status", epilog="Example: polygym env status")(status)
    app.command("stop", epilog="Example: polygym env stop --head-port 11000")(stop)
    app.command("resolve", epilog="Example: polygym env resolve --config servers.yaml")(resolve)
    app.command("validate", epilog="Example: polygym env validate --config servers.yaml --input rows.jsonl")(validate)


def start(
    configs: Configs = None,
    resources_servers: ResourcesServers = None,
    model_type: ModelType = None,
    model_url: ModelUrl = None,
    model: Model = None,
    model_api_key: ModelApiKey = None,
    host: HostOption = None,
    token: Token = None,
    head_port: HeadPort = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Go on in the background once all is ready.")] = False,
    join: Annotated[
        bool, typer.Option("--join", help="Add the servers to the stack that runs at the head port.")
    ] = False,
    single_process: Annotated[
        bool,
        typer.Option("--single-process", help="All servers in one process: less memory, no protection of each other."),
    ] = False,
    log_dir: Annotated[
        Path | None, typer.Option("--log-dir", help="Folder of the servers' logs; default: in the user's state folder.")
    ] = None,
) -> None:
    """Start the servers of environments and a model, and keep them up until Ctrl-C.

    A server alone is started by naming it alone: its model first, then with --join the environments, or each stack with
    a --head-port of its own. Values for a model also come from an env.yaml in the working directory.
    """
    from polygym.cli.stacks import keep_up, keep_up_detached
    from polygym.serve.masking import hide_arguments

    hide_arguments(model_api_key, token)
    given = _Given(configs, resources_servers, model_type, model_url, model, model_api_key, host, token, head_port)
    if join:
        _join(given, detach or single_process or bool(log_dir or host or token))
    else:
        (keep_up_detached if detach else keep_up)(given.load(), log_dir, single_process)


def status(head_port: HeadPort = None, as_json: Json = False) -> None:
    """The stacks that run: what runs where, and its state. Exit code 1 when none runs."""
    import asyncio

    from polygym.serve.stacks import running_stacks
    from polygym.view.servers import servers_table

    stacks = [stack for stack in running_stacks() if head_port in (None, stack.port)]
    told = []
    for stack in stacks:
        try:
            told.append((stack, asyncio.run(stack.instances())))
        except PolygymError as error:
            typer.echo(f"process {stack.pid}: {error}; polygym env stop --head-port {stack.port} ends it", err=True)
    if as_json:
        print_json([{**_public(stack), "servers": instances} for stack, instances in told])
    for stack, instances in told if not as_json else []:
        typer.echo(f"head {stack.url}, process {stack.pid}, logs in {stack.logs}")
        typer.echo(servers_table(instances) + "\n")
    if not told:
        raise PolygymError(f"no stack runs{f' at head port {head_port}' if head_port is not None else ''}")


def stop(
    head_port: HeadPort = None,
    everything: Annotated[bool, typer.Option("--all", help="Stop every stack of this user.")] = False,
) -> None:
    """Stop a stack, whoever started it."""
    import asyncio

    from polygym.serve.stacks import running_stacks

    running = running_stacks()
    all_of_them = everything or (head_port is None and len(running) == 1)
    for stack in running if all_of_them else [_stack_at(head_port)]:
        asyncio.run(stack.stop())
        typer.echo(f"stopped the stack at head port {stack.port}")


def resolve(
    configs: Configs = None,
    resources_servers: ResourcesServers = None,
    model_type: ModelType = None,
    model_url: ModelUrl = None,
    model: Model = None,
    model_api_key: ModelApiKey = None,
    host: HostOption = None,
    token: Token = None,
    head_port: HeadPort = None,
) -> None:
    """Print the merged configuration, values filled in and secrets hidden, without starting anything."""
    import yaml

    from polygym.serve.masking import hide_arguments, masked
    from polygym.serve.stack_checks import TOP_LEVEL

    hide_arguments(model_api_key, token)
    given = _Given(configs, resources_servers, model_type, model_url, model, model_api_key, host, token, head_port)
    document = given.load().document
    read = {name: value for name, value in document.items() if name in TOP_LEVEL or isinstance(value, Mapping)}
    typer.echo(yaml.safe_dump(masked(read), sort_keys=False, allow_unicode=True), nl=False)


def validate(
    configs: Configs = None,
    resources_servers: ResourcesServers = None,
    model_type: ModelType = None,
    model_url: ModelUrl = None,
    model: Model = None,
    model_api_key: ModelApiKey = None,
    host: HostOption = None,
    token: Token = None,
    head_port: HeadPort = None,
    rows: Annotated[
        list[Path] | None, typer.Option("--input", "-i", metavar="ROWS", help="JSONL rows that are to be played.")
    ] = None,
) -> None:
    """Check a configuration and the rows for it, without starting a server; all problems are told.

    Environments are built with their arguments.

    With no configuration, rows are checked against the stack that runs at the head port.
    """
    import asyncio

    from polygym.serve.catalog import AGENTS, read_block
    from polygym.serve.masking import hide_arguments
    from polygym.serve.row_checks import check_rows
    from polygym.serve.stack_checks import check_startable

    hide_arguments(model_api_key, token)
    given = _Given(configs, resources_servers, model_type, model_url, model, model_api_key, host, token, head_port)
    problems: list[str] = []
    agents: list[str] | None = None
    servers = 0
    if given.describes_servers or not rows:
        config, problems = given.survey()
        check_startable(config, problems)
        blocks = {name: block for name, value in config.document.items() if (block := read_block(value))}
        agents, servers = [name for name, (kind, _, _) in blocks.items() if kind == AGENTS], len(blocks)
    else:
        instances = asyncio.run(_stack_at(head_port).instances())
        agents = [instance["name"] for instance in instances if instance["server_type"] == AGENTS]
        servers = len(instances)
    for path in rows or []:
        problems += check_rows(path, agents)
    if problems:
        raise UsageError("\n".join(problems))
    typer.echo(f"all is well: {servers} servers" + "".join(f", {path}" for path in rows or []))


@dataclass(frozen=True)
class _Given:
    """What the command line says of a stack."""

    configs: list[Path] | None
    resources_servers: list[str] | None
    model_type: str | None
    model_url: str | None
    model: str | None
    model_api_key: str | None = field(repr=False)
    host: str | None
    token: str | None = field(repr=False)
    head_port: int | None

    @property
    def describes_servers(self) -> bool:
        """Whether it names any."""
        return bool(self.configs or self.resources_servers or self.model_type)

    def load(self, running: Mapping[str, str] | None = None, token: str | None = None) -> StackConfig:
        """The checked configuration; of a stack that runs already, with its servers and its token."""
        from polygym.serve.config import load_config

        return load_config(self.configs or (), **self._options(running, token))

    def survey(self) -> tuple[StackConfig, list[str]]:
        """What there is of the configuration, and what is wrong with it."""
        from polygym.serve.config import survey

        return survey(self.configs or (), **self._options(None, None))

    def _options(self, running: Mapping[str, str] | None, token: str | None) -> dict[str, Any]:
        from polygym.serve.config import PolicyValues

        return {
            "resources_servers": self.resources_servers or (),
            "model_type": self.model_type,
            "policy": PolicyValues(self.model_url, self.model_api_key, self.model),
            "host": self.host,
            "head_port": self.head_port,
            "token": token or self.token,
            "running": running,
        }


def _public(stack: Stack) -> dict[str, Any]:
    return {"head_port": stack.port, "url": stack.url, "pid": stack.pid, "logs": stack.logs, "started": stack.started}


def _stack_at(head_port: int | None) -> Stack:
    """The stack that runs at a head port."""
    from polygym.serve.config import HEAD_PORT
    from polygym.serve.stacks import find_stack, running_stacks

    port = HEAD_PORT if head_port is None else head_port
    stack = find_stack(port)
    if stack is None:
        ports = ", ".join(str(other.port) for other in running_stacks()) or "none"
        raise UsageError(f"no stack runs at head port {port}; head ports of the stacks that run: {ports}")
    return stack


def _join(given: _Given, other_options: bool) -> None:
    import asyncio

    from polygym.view.servers import servers_table

    if other_options:
        raise UsageError(
            "--join adds to a stack that runs: --detach, --single-process, --log-dir, --host and --token are "
            "that stack's"
        )
    stack = _stack_at(given.head_port)
    running = {instance["name"]: instance["server_type"] for instance in asyncio.run(stack.instances())}
    added = asyncio.run(stack.join(given.load(running, stack.token)))
    typer.echo(servers_table(added))
    typer.echo(f"joined the stack at {stack.url}")
