"""The kinds of model server: from the settings of a block to the policy behind it.

The one idea: a kind is a policy and nothing else; everything on the wire is the same for all of them.

    oracle_model   the environments' own demonstrations; needs the task, so its agents send it
    openai_model   an OpenAI-compatible endpoint
    vllm_model     the same, asked for token ids and log-probabilities, and given back those of the last answer
    local_model    a model that runs in the server
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polygym.errors import UsageError
from polygym.policies.base import Policy
from polygym.policies.load import check_local, load_policy
from polygym.policies.openai import OpenAIPolicy
from polygym.serve.oracle import RowOracle
from polygym.serve.settings import LocalSettings, OpenAISettings, OracleSettings, Settings, VLLMSettings

GATHER_SECONDS = 0.02
"""How long a wave of a local model waits for clients that have just been answered."""
RETRIES = 0
"""Further tries of a server at its endpoint. Whoever asked the server knows how long an answer is worth waiting for."""
VLLM_FIELDS = {"logprobs": True, "return_token_ids": True, "return_tokens_as_token_ids": True}


def build_policy(settings: Settings, environments: Mapping[str, tuple[str, Mapping[str, Any]]] | None = None) -> Policy:
    """The policy that a model server's settings describe.

    Args:
        environments: for the oracle; see `RowOracle`.

    Raises:
        UsageError: when it cannot be had.
    """
    if isinstance(settings, OracleSettings):
        return RowOracle(environments)
    if isinstance(settings, OpenAISettings):
        return _endpoint(settings, settings.openai_model, settings.openai_base_url, settings.openai_api_key)
    if isinstance(settings, VLLMSettings):
        fields = VLLM_FIELDS if settings.return_token_id_information else {}
        return _endpoint(settings, settings.model, _one_address(settings.base_url), settings.api_key, fields)
    if isinstance(settings, LocalSettings):
        check_local(settings.model)
        return load_policy(settings.model, gather_seconds=GATHER_SECONDS)
    raise UsageError(f"{type(settings).__name__} describes no model server")


def serve_policy(name: str, **options: Any) -> Policy:
    """The policy that `polygym model serve NAME` serves: `oracle`, or what `load_policy` knows by that name.

    Raises:
        UsageError: as `load_policy`.
    """
    if name == "oracle":
        return RowOracle()
    return load_policy(name, retries=RETRIES, gather_seconds=GATHER_SECONDS, **options)


def _endpoint(
    settings: OpenAISettings | VLLMSettings,
    model: str,
    url: str,
    key: str | None,
    fields: Mapping[str, Any] | None = None,
) -> OpenAIPolicy:
    return OpenAIPolicy(
        model,
        url,
        key=lambda: key,
        retries=RETRIES,
        timeout_seconds=settings.timeout_seconds,
        deadline_seconds=settings.timeout_seconds,
        extra_body=fields,
        echo_token_ids=bool(fields),
    )


def _one_address(base_url: str | list[str]) -> str:
    addresses = [base_url] if isinstance(base_url, str) else base_url
    if len(addresses) != 1:
        raise UsageError(f"base_url lists {len(addresses)} addresses; give one, which may be a load balancer's")
    return addresses[0]
