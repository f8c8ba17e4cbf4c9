"""The loss of trained tokens, and what is measured beside it.

The one idea: everything is a flat vector of the N trained tokens of a micro-batch, each with its own weight, so that
how tokens are padded, packed or cut into micro-batches cannot change the sum.

    loss = sum over tokens of  weight * (-min(ratio A, clip(ratio, 1 - low, 1 + high) A) + beta * KL)

with ratio = exp(log-probability now - log-probability when sampled), and the k3 estimate of the KL divergence to a
reference policy (Schulman 2020, "Approximating KL divergence"). docs/training.md, steps 3 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Log-ratios beyond this are cut before exp: e^20 is far outside any clip range, and float32 would reach infinity at 88.
LOG_RATIO_LIMIT = 20.0


@dataclass(frozen=True, slots=True)
class TokenLosses:
    """Losses of N trained tokens, before their weights.

    Shapes: all (N,). `losses_N` and `kl_N` carry gradients; `clipped_N` (bool) marks where the clip stops the gradient.
    `kl_N` is None without a reference.
    """

    losses_N: Tensor
    clipped_N: Tensor
    kl_N: Tensor | None


def entropy_and_logprobs(logits_N_V: Tensor, ids_N: Tensor, temperature: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
    """Log-probabilities of `ids_N` and entropies in nats, both (N,) and float32: `(logprobs_N, entropy_N)`.

    Shapes: logits (N, vocabulary), ids (N,), temperature a number or (N,): the sampler's own, above 0. Only the
    log-probabilities carry gradients.
    """
    scale = temperature.unsqueeze(-1) if isinstance(temperature, Tensor) else temperature
    scaled_N_V = logits_N_V.float() / scale
    normalizer_N = scaled_N_V.logsumexp(dim=-1)
    logprobs_N = scaled_N_V.gather(-1, ids_N.unsqueeze(-1)).squeeze(-1) - normalizer_N
    with torch.no_grad():
        log_probs_N_V = scaled_N_V - normalizer_N.unsqueeze(-1)
        # 0 * -inf of a masked vocabulary entry is NaN; its part of the entropy is 0.
        entropy_N = -(log_probs_N_V.exp() * log_probs_N_V).nan_to_num(0.0).sum(dim=-1)
    return logprobs_N, entropy_N


def k3(log_ratio_N: Tensor) -> Tensor:
    """Estimate exp(x) - x - 1 (N,) of KL(p || q) from tokens sampled by p, with x = log q - log p; never negative."""
    x_N = log_ratio_N.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return torch.expm1(x_N) - x_N


def token_losses(
    logprobs_N: Tensor,
    old_logprobs_N: Tensor,
    advantages_N: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    kl_coef: float = 0.0,
    reference_logprobs_N: Tensor | None = None,
) -> TokenLosses:
    """Clipped token losses, plus `kl_coef` times the KL to the reference where one is given.

    Shapes: all tensors (N,). Only `logprobs_N` carries gradients.

    Args:
        logprobs_N: of the sampled ids under the policy that is trained.
        old_logprobs_N: of the sampled ids when they were sampled.
        advantages_N: each token's rollout's advantage.
        clip_low: the ratio is clipped below at 1 - clip_low.
        clip_high: the ratio is clipped above at 1 + clip_high.
        kl_coef: beta; with 0 a reference is only measured.
        reference_logprobs_N: of the sampled ids under the reference policy.

    Raises:
        ValueError: when shapes differ, or `kl_coef` has no reference.
    """
    given = {
        "old_logprobs_N": old_logprobs_N,
        "advantages_N": advantages_N,
        "reference_logprobs_N": reference_logprobs_N,
    }
    for name, tensor in given.items():
        if tensor is not None and tensor.shape != logprobs_N.shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, logprobs_N has {tuple(logprobs_N.shape)}")
    if kl_coef and reference_logprobs_N is None:
        raise ValueError(f"kl_coef={kl_coef!r} needs reference_logprobs_N")

    log_ratio_N = (logprobs_N - old_logprobs_N).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    ratio_N = log_ratio_N.exp()
    clipped_ratio_N = ratio_N.clamp(1 - clip_low, 1 + clip_high)
    losses_N = -torch.minimum(ratio_N * advantages_N, clipped_ratio_N * advantages_N)
    # The clip acts only on the side where the advantage would push the ratio further out.
    clipped_N = ((advantages_N > 0) & (ratio_N > 1 + clip_high)) | ((advantages_N < 0) & (ratio_N < 1 - clip_low))
    kl_N = None if reference_logprobs_N is None else k3(reference_logprobs_N - logprobs_N)
    if kl_coef and kl_N is not None:
        losses_N = losses_N + kl_coef * kl_N
    return TokenLosses(losses_N, clipped_N, kl_N)


def mismatch_kl(sampler_logprobs_N: Tensor, learner_logprobs_N: Tensor) -> Tensor:
    """k3 estimate (N,) of KL(sampler || learner) for one set of weights: what the two implementations disagree by."""
    return k3(learner_logprobs_N - sampler_logprobs_N)
