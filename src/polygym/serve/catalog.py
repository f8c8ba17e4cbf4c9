"""The servers there are, and the names they are given.

The one idea: a stack is made of three types of server that refer to each other by name, and most stacks follow from
the names of their environments alone: `X` is served by the resources server `X`, played by the agent
`X_simple_agent`, and answered by the model server `policy_model`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from polygym.environments.names import AGENT, agent_name, environment_of_agent, served_name
from polygym.environments.wire_rows import AGENTS, MODELS, RESOURCES
from polygym.errors import UsageError, nearest

SERVER_TYPES = (RESOURCES, AGENTS, MODELS)
POLICY_MODEL = "policy_model"
OWN_ENTRYPOINT = "app.py"
"""What published configs name as the entrypoint of every server: the implementation of that name, which is ours."""

_BASE_URL, _API_KEY, _NAME = "policy_base_url", "policy_api_key", "policy_model_name"
POLICY_VALUES = {
    _BASE_URL: "--model-url, the environment variable POLICY_BASE_URL, or policy_base_url in env.yaml",
    _API_KEY: "--model-api-key, the environment variable POLICY_API_KEY, or policy_api_key in env.yaml",
    _NAME: "--model, the environment variable POLICY_MODEL_NAME, or policy_model_name in env.yaml",
}
"""What model servers are told from outside their block, and where it may be given."""

MODEL_TYPES: dict[str, dict[str, Any]] = {
    "oracle_model": {},
    "openai_model": {
        "openai_base_url": f"${{{_BASE_URL}}}",
        "openai_api_key": f"${{{_API_KEY}}}",
        "openai_model": f"${{{_NAME}}}",
    },
    "vllm_model": {
        "base_url": f"${{{_BASE_URL}}}",
        "api_key": f"${{{_API_KEY}}}",
        "model": f"${{{_NAME}}}",
        "return_token_id_information": True,
    },
    "local_model": {"model": f"${{{_NAME}}}"},
}
"""The settings of each model type, as `--model-type` writes them."""


Block = tuple[str, str, Mapping[str, Any]]
"""Type, implementation and settings of a server."""
_NAMED = re.compile(r"([A-Za-z0-9_][\w.-]*)=(.+)", re.ASCII)


def resources_block(target: str) -> tuple[str, dict[str, Any]]:
    """Name and block of the resources server that `--resources-server TARGET` means.

    >>> resources_block("math_rl")
    ('math_rl', {'resources_servers': {'math_rl': {'entrypoint': 'app.py'}}})
    >>> resources_block("my_package.weather:WeatherServer")
    ('weather', {'resources_servers': {'weather': {'entrypoint': 'my_package.weather:WeatherServer'}}})
    >>> resources_block("easy=math_rl")
    ('easy', {'resources_servers': {'easy': {'entrypoint': 'math_rl'}}})
    """
    if named := _NAMED.fullmatch(target):
        return named[1], {RESOURCES: {named[1]: {"entrypoint": named[2]}}}
    name = served_name(target)
    return name, {RESOURCES: {name: {"entrypoint": OWN_ENTRYPOINT if target == name else target}}}


def model_block(model_type: str) -> dict[str, Any]:
    """The block of `policy_model` for a model type.

    Raises:
        UsageError: for a type that there is not.
    """
    if model_type not in MODEL_TYPES:
        raise UsageError(f"--model-type {model_type!r} is unknown; {nearest(model_type, MODEL_TYPES)}")
    return {MODELS: {model_type: {"entrypoint": OWN_ENTRYPOINT, **MODEL_TYPES[model_type]}}}


def agent_block(resources_server: str, model_server: str) -> dict[str, Any]:
    """The block of the agent that plays a resources server with a model server."""
    return {
        AGENTS: {
            AGENT: {
                "entrypoint": OWN_ENTRYPOINT,
                "resources_server": {"type": RESOURCES, "name": resources_server},
                "model_server": {"type": MODELS, "name": model_server},
            }
        }
    }


def read_block(value: Any) -> Block | None:
    """What a value says as the block of a server; None when it is none."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return None
    ((server_type, implementations),) = value.items()
    if server_type not in SERVER_TYPES or not isinstance(implementations, Mapping) or len(implementations) != 1:
        return None
    ((implementation, settings),) = implementations.items()
    if settings is not None and not isinstance(settings, Mapping):
        return None
    return server_type, str(implementation), settings or {}


def environments_of(agents: Iterable[str]) -> list[str]:
    """The environments that agents of these names play, each once: what has to be started for rows that name them.

    Raises:
        UsageError: for a name that says nothing of its environment.

    >>> environments_of(["math_rl_simple_agent", "word_game_simple_agent", "math_rl_simple_agent"])
    ['math_rl', 'word_game']
    """
    found: dict[str, None] = {}
    for agent in agents:
        environment = environment_of_agent(agent)
        if environment is None:
            raise UsageError(
                f"agent {agent!r} does not say which environment it plays, as {agent_name('math_rl')!r} does; give the "
                "config that defines it"
            )
        found[environment] = None
    return list(found)
