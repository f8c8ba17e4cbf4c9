"""What a server is built from, and building it.

The one idea: a `ServerSpec` is plain data and all there is, so a server is the same in a child of the fork server, in
the supervisor's own process (`--single-process`) and in a test. What a server needs is imported when it is built.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from polygym.serve.catalog import AGENTS, OWN_ENTRYPOINT, RESOURCES
from polygym.serve.settings import MODEL_SETTINGS, AgentSettings, ResourcesSettings

if TYPE_CHECKING:
    from starlette.types import ASGIApp

USAGE, NOT_STARTED = 2, 3
"""Exit codes of a server: its settings cannot be used; it did not come up."""


@dataclass(frozen=True)
class ServerSpec:
    """All that a server is built from. It holds secrets, and travels by pipe only."""

    name: str
    type: str
    implementation: str
    settings: dict[str, Any] = field(repr=False)
    urls: dict[str, str]
    """Address of each server of the stack, by name."""
    environments: dict[str, dict[str, Any]]
    """What each resources server of the stack serves, by its name: `name` of the environment, `implementation`,
    `entrypoint` and `args`."""
    token: str | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The spec as data."""
        return asdict(self)


def environment_id(implementation: str, entrypoint: str | None) -> str:
    """What the registry knows an environment by: the implementation's name, unless its entrypoint is somewhere else."""
    return implementation if entrypoint in (None, OWN_ENTRYPOINT) else str(entrypoint)


def build_app(spec: ServerSpec) -> ASGIApp:
    """The application that a spec describes.

    Raises:
        UsageError: for settings that cannot be used, such as an environment's unknown argument.
    """
    if spec.type == RESOURCES:
        return _resources_app(spec)
    if spec.type == AGENTS:
        return _agent_app(spec)
    return _model_app(spec)


def _resources_app(spec: ServerSpec) -> ASGIApp:
    from polygym.environments.registry import check_arguments, find_loader, load_environment
    from polygym.serve.environment_server import EnvironmentServer
    from polygym.serve.resources import ResourcesServer

    settings = ResourcesSettings(**spec.settings)
    target = environment_id(spec.implementation, settings.entrypoint)
    loader = find_loader(target)
    if isinstance(loader, type) and issubclass(loader, ResourcesServer):  # written directly, without an environment
        own = {"name": spec.name, "token": spec.token}
        check_arguments(loader, {**settings.args, **own}, target)
        return loader(**{**settings.args, **own}).app()
    environment = load_environment(target, **settings.args)
    return EnvironmentServer(environment, name=spec.name, token=spec.token).app()


def _agent_app(spec: ServerSpec) -> ASGIApp:
    from polygym.serve.agent import AgentServer

    settings = AgentSettings(**spec.settings)
    limits = {name: getattr(settings, name) for name in ("max_steps", "max_total_tokens", "timeout_seconds")}
    return AgentServer(
        spec.name,
        spec.urls[settings.resources_server.name],
        spec.urls[settings.model_server.name],
        environment=spec.environments[settings.resources_server.name]["name"],
        token=spec.token,
        **{name: limit for name, limit in limits.items() if limit is not None},
    ).app()


def _model_app(spec: ServerSpec) -> ASGIApp:
    from polygym.serve.model import ModelServer
    from polygym.serve.model_kinds import build_policy

    settings = MODEL_SETTINGS[spec.implementation](**spec.settings)
    environments = {
        served["name"]: (environment_id(served["implementation"], served["entrypoint"]), served["args"])
        for served in spec.environments.values()
    }
    return ModelServer(
        build_policy(settings, environments),
        name=spec.name,
        return_token_ids=getattr(settings, "return_token_id_information", False),
        token=spec.token,
    ).app()
