"""From a config to the parts of a run: the environments with their settings, the policy, the learner.

The one idea: an `[[env]]` may be a group, so what it says holds for every environment inside it; from here on only leaf
environments and their routes exist.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polygym.collect.agent_play import AgentEnvironment
from polygym.environments import EnvGroup, Environment
from polygym.errors import UsageError
from polygym.policies.base import Sampling
from polygym.train.checkpoint import reading
from polygym.train.config import EnvConfig, EnvEntry, RunConfig
from polygym.train.served import load_entry
from polygym.train.sft_config import SFTEnvConfig


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """One leaf environment of a run and what its config says about it."""

    environment: Environment
    sampling: Sampling
    rollouts_per_example: int
    max_turns: int | None
    timeout_seconds: float
    loss_weight: float | None


def build_environment(entries: Sequence[EnvEntry | SFTEnvConfig]) -> Environment:
    """The environments of `[[env]]` entries as one; a single entry that is a group is that group, with its own
    names."""
    names = [entry.title for entry in entries]
    for place, name in enumerate(names):
        if (first := names.index(name)) < place:
            raise UsageError(
                f"two environments are named {name!r} ([[env]] {first + 1} and {place + 1}); names must be unique: "
                f'give one of them another, such as name = "{name}_2"'
            )
    environments = [load_entry(entry) for entry in entries]
    if len(environments) == 1 and isinstance(environments[0], EnvGroup):
        return environments[0]
    weights = [entry.weight if isinstance(entry, EnvConfig) else 1.0 for entry in entries]
    return EnvGroup(environments, env_names=names, weights=weights)


def route_settings(environment: Environment, config: RunConfig) -> dict[str, RouteSettings]:
    """Settings of every leaf that has a share, by route."""
    shares_E = environment.shares()
    settings = {}
    for route, leaf in environment.leaves().items():
        if shares_E[route] == 0:
            continue
        entry = _entry_of(route, config)
        if isinstance(leaf, AgentEnvironment) and entry.max_turns is not None:
            raise UsageError(f"{route}: its agent plays, and limits the turns itself; leave out max_turns")
        settings[route] = RouteSettings(
            environment=leaf,
            sampling=config.sampling.override(entry.sampling).to_sampling(),
            rollouts_per_example=entry.rollouts_per_example or config.rollouts_per_example,
            max_turns=entry.max_turns,
            timeout_seconds=entry.timeout or config.timeout,
            loss_weight=entry.loss_weight,
        )
    return settings


def _entry_of(route: str, config: RunConfig) -> EnvConfig:
    for entry in config.env:
        name = entry.title
        if route == name or route.startswith(name + "/"):
            return entry
    return config.env[0]  # the only entry is a group, whose children carry their own names


def loss_weights(settings: Mapping[str, RouteSettings], weights_E: Mapping[str, float]) -> dict[str, float]:
    """Loss weights of the environments that were given one, on the scale of w_e.

    `loss_weight` and `weight` are relative numbers in the file; where any environment is given a loss weight, all of
    them together are normalised to sum to 1, those without one counting their w_e.
    """
    if all(setting.loss_weight is None for setting in settings.values()):
        return {}
    raw_E = {
        route: weights_E[route] if setting.loss_weight is None else setting.loss_weight
        for route, setting in settings.items()
    }
    total = sum(raw_E.values())
    if total == 0:
        raise UsageError("every loss_weight is 0, so nothing would be learned; give at least one above 0")
    return {route: value / total for route, value in raw_E.items()}


def groups_per_step(config: RunConfig, environments: int) -> int:
    """G: groups planned a step."""
    if config.groups_per_environment is not None:
        return config.groups_per_environment * environments
    assert config.batch_size is not None
    return config.batch_size // config.rollouts_per_example


def resolve_device(device: str) -> str:
    """`auto` as what this machine has: a CUDA GPU, else the CPU."""
    import torch

    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_trainable(config: RunConfig, checkpoint: Path | None) -> tuple[Any, Any]:
    """The model to train and its tokenizer: from `checkpoint` where given, else `config.model`; with adapters for LoRA.

    Raises:
        UsageError: when the model cannot be trained here (an endpoint, or a missing package), or the checkpoint is
            broken.
    """
    import torch

    from polygym.policies.load import load_model_and_tokenizer
    from polygym.policies.local import as_device
    from polygym.train.adapters import add_adapters

    torch.set_num_threads(config.threads or os.cpu_count() or 1)
    device = resolve_device(config.device)
    as_device(device)  # before anything is read, so that a missing GPU is not taken for a broken checkpoint
    with reading(checkpoint) if checkpoint and not config.lora_rank else nullcontext():
        name = config.model if config.lora_rank or not checkpoint else str(checkpoint / "model")
        model, tokenizer = load_model_and_tokenizer(name, device, config.dtype)
    if config.lora_rank:
        model = add_adapters(model, config, checkpoint)
    return model, tokenizer


def load_reference(config: RunConfig) -> Any:
    """The policy that the run began with, for the KL of a run that goes on; None where the KL needs no copy of it."""
    from polygym.policies.load import load_model_and_tokenizer

    if not config.kl_coef or config.lora_rank:
        return None
    return load_model_and_tokenizer(config.model, resolve_device(config.device), config.dtype)[0]
