"""What the block of a server may say.

The one idea: one frozen class for each kind of server, so that a misspelt key is refused with the nearest name. Keys of
published configs that describe a server without changing it are read and kept.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from polygym.policies.endpoint import http_address
from polygym.serve.catalog import AGENT, AGENTS, MODELS, RESOURCES
from polygym.train.config_file import Section


class Settings(Section):
    """What every server takes."""

    entrypoint: str | None = None
    """What runs: `app.py` (the implementation that the block names), `package.module:name`, or a path."""
    host: str | None = None
    """Address to listen on; default: that of the stack. Any but loopback needs a token."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """Port to listen on; default: a free one."""
    domain: str | None = None
    """What the server is about, for catalogues; it changes nothing."""
    verified: bool | None = None
    """Whether its author has trained on it; it changes nothing."""
    description: str | None = None
    """A sentence, for catalogues; it changes nothing."""
    value: str | None = None
    """What training on it is good for; it changes nothing."""
    datasets: list[dict[str, Any]] | None = None
    """Where rows for it are kept; it changes nothing."""


class ResourcesSettings(Settings):
    """Block of a resources server: an environment's tools and rewards."""

    args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the environment, as `--set` gives them elsewhere."""


class ResourcesReference(Section):
    """Names a resources server."""

    type: Literal["resources_servers"] = "resources_servers"
    name: str


class ModelReference(Section):
    """Names a model server."""

    type: Literal["responses_api_models"] = "responses_api_models"
    name: str


class AgentSettings(Settings):
    """Block of an agent server: the loop that plays an environment with a model."""

    resources_server: ResourcesReference
    model_server: ModelReference
    max_steps: int | None = Field(default=None, ge=1)
    """Model calls of one rollout at most; default: the agent's own limit."""
    max_total_tokens: int | None = Field(default=None, ge=1)
    """Tokens that the model may write in one rollout; default: the agent's own limit."""
    timeout_seconds: float | None = Field(default=None, gt=0)
    """Seconds of one rollout at most; default: the agent's own limit."""


def _endpoint_url(value: str) -> str:
    http_address(value, "a key goes into --model-api-key, POLICY_API_KEY, or the key of the block")
    return value


EndpointUrl = Annotated[str, AfterValidator(_endpoint_url)]


class OracleSettings(Settings):
    """Block of `oracle_model`: answers with the environments' own demonstrations."""


class OpenAISettings(Settings):
    """Block of `openai_model`: an OpenAI-compatible endpoint."""

    openai_base_url: EndpointUrl
    openai_api_key: str | None = Field(default=None, repr=False)
    openai_model: str
    timeout_seconds: float = Field(default=300.0, gt=0)
    """Seconds to an answer of the endpoint at most; who asked is told when it is over, and may ask again."""


class VLLMSettings(Settings):
    """Block of `vllm_model`: an endpoint that also returns token ids and log-probabilities."""

    base_url: EndpointUrl | list[EndpointUrl]
    api_key: str | None = Field(default=None, repr=False)
    model: str
    return_token_id_information: bool = True
    """Whether answers carry the token ids and log-probabilities of what was sampled."""
    uses_reasoning_parser: bool = True
    """Whether the endpoint separates reasoning itself; reasoning is found either way."""
    timeout_seconds: float = Field(default=300.0, gt=0)
    """Seconds to an answer of the endpoint at most; who asked is told when it is over, and may ask again."""


class LocalSettings(Settings):
    """Block of `local_model`: a policy that runs in the server."""

    model: str
    """`nano`, `smollm2-135m`, a folder, or a Hugging Face id."""
    return_token_id_information: bool = False
    """Whether answers carry the token ids and log-probabilities of what was sampled."""


MODEL_SETTINGS: dict[str, type[Settings]] = {
    "oracle_model": OracleSettings,
    "openai_model": OpenAISettings,
    "vllm_model": VLLMSettings,
    "local_model": LocalSettings,
}
IMPLEMENTATIONS: dict[str, dict[str, type[Settings]]] = {AGENTS: {AGENT: AgentSettings}, MODELS: MODEL_SETTINGS}
"""The implementations of each type of server that are ours; those of resources servers are the environments."""


def settings_class(server_type: str, implementation: str) -> type[Settings] | None:
    """The class of a block's settings; None for an implementation that there is not."""
    if server_type == RESOURCES:
        return ResourcesSettings
    return IMPLEMENTATIONS[server_type].get(implementation)
