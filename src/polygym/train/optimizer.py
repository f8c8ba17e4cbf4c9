"""AdamW with a rate for each kind of parameter, and the schedule of the rate.

The one idea: norm gains, embeddings and matrices live on different scales, so each kind has its own factor of one
`learning_rate`; halving or doubling that one number then moves all of them together.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from polygym.train.config import LearningRateFactors, RunConfig

if TYPE_CHECKING:
    import torch


def kind_of(name: str, parameter: torch.Tensor) -> str:
    """`vector` for norm gains and biases, `embedding` for token tables and output heads, else `matrix`."""
    if parameter.ndim < 2:
        return "vector"
    return "embedding" if "embed" in name or "lm_head" in name or "wte" in name else "matrix"


def parameter_groups(model: torch.nn.Module, factors: LearningRateFactors, weight_decay: float) -> list[dict[str, Any]]:
    """The parameters that require a gradient by `kind`, each with its `factor`; decay is applied to matrices only."""
    kinds: dict[str, list[torch.Tensor]] = {kind: [] for kind in type(factors).model_fields}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            kinds[kind_of(name, parameter)].append(parameter)
    return [
        {
            "params": parameters,
            "kind": kind,
            "factor": getattr(factors, kind),
            "weight_decay": weight_decay if kind == "matrix" else 0.0,
        }
        for kind, parameters in kinds.items()
        if parameters
    ]


def make_optimizer(model: torch.nn.Module, config: RunConfig) -> torch.optim.AdamW:
    """AdamW over the parameters that require a gradient."""
    import torch

    groups = parameter_groups(model, config.learning_rate_factors, config.weight_decay)
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.adam_betas)


def learning_rate_at(step: int, config: RunConfig) -> float:
    """Rate of step 0, 1, ..., `max_steps` - 1: linear warm-up, then the schedule's shape.

    `linear` and `cosine` hold the peak until `lr_decay_from` of the run and fall to `lr_final_fraction` of it at the
    end.
    """
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / (config.warmup_steps + 1)
    start = config.lr_decay_from * config.max_steps
    if config.lr_schedule == "constant" or step < start:
        return config.learning_rate
    progress = min(1.0, (step - start) / max(1.0, config.max_steps - 1 - start))
    fall = progress if config.lr_schedule == "linear" else (1 - math.cos(math.pi * progress)) / 2
    return config.learning_rate * (1 - (1 - config.lr_final_fraction) * fall)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every parameter group `rate` times its factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["factor"]
