"""The learner: one optimizer update, or a few, from the weighted samples of a step.

The one idea: every sample comes with its final weight, so an update is a plain sum over trained tokens, the same
whatever micro-batches it is cut into. Log-probabilities are those the sampler recorded; nothing is re-sampled or
re-encoded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from polygym.errors import UsageError
from polygym.seeds import derive_seed
from polygym.train.batch import TrainSample
from polygym.train.config import RunConfig
from polygym.train.forward import Packed, Row, has_plain_head, micro_batches, pack, plan_rows, trained_logits
from polygym.train.loss import entropy_and_logprobs, mismatch_kl, token_losses
from polygym.train.optimizer import learning_rate_at, make_optimizer, set_learning_rate


class Learner:
    """Trains `model` in place. With `kl_coef` above 0 it keeps a frozen copy of the starting policy, or turns
    adapters off.

    Args:
        model: a causal language model of transformers, or a peft model around one.
        config: the run's configuration.
        reference: the starting policy, where `model` is no longer at the start; None copies `model`.

    Raises:
        UsageError: for a model whose logits are more than its head applied to hidden states.
    """

    def __init__(self, model: Any, config: RunConfig, reference: Any = None) -> None:
        if not has_plain_head(model):
            raise UsageError(
                f"model {config.model!r} caps or scales its logits, which training does not do; choose another model"
            )
        self.model = model
        self.config = config
        self.optimizer = make_optimizer(model, config)
        self._adapters = hasattr(model, "disable_adapter")
        self._reference = None
        if config.kl_coef and not self._adapters:
            self._reference = (reference or deepcopy(model)).requires_grad_(False).eval()

    def update(self, samples: Sequence[TrainSample], step: int, environments: Iterable[str] = ()) -> dict[str, float]:
        """Learn from the samples of step 0, 1, ...; returns metrics, those of an environment under `<env>/`.

        `tokens` counts the trained tokens of all samples, `loss` is 0 where nothing adds to it, and both are there for
        every environment of the samples and of `environments`. `entropy`, `clip_fraction`, `mismatch_kl` and `kl` are
        means over the tokens that were computed; without any there is no mean.

        `updates_per_batch` parts, each with its share of every environment, make one optimizer step each; a part's
        weights are scaled up to those of the whole. Samples of advantage 0 are skipped when there is no KL term: they
        have no gradient, and the weights of the others were fixed before.
        """
        rate = learning_rate_at(step, self.config)
        set_learning_rate(self.optimizer, rate)
        torch.manual_seed(derive_seed(self.config.seed, "update", step))  # of dropout: a resumed run drops the same
        useful = [sample for sample in samples if sample.advantage != 0 or self.config.kl_coef]
        parts = stratify(useful, self.config.updates_per_batch)
        sums: dict[str, dict[str, float]] = {
            name: defaultdict(float) for name in (*environments, *(sample.environment for sample in samples))
        }
        for sample in samples:
            sums[sample.environment]["tokens"] += sample.tokens.trained_tokens
        norms = []
        skipped = 0
        self.model.train()
        for number, part in enumerate(parts):
            self.optimizer.zero_grad(set_to_none=True)
            tokens = [sample.tokens for sample in part]
            for rows in micro_batches(plan_rows(tokens), self.config.micro_batch_tokens):
                self._accumulate(part, rows, scale=len(parts), first=number == 0, sums=sums)
            norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm))
            if norm != norm or norm == float("inf"):
                skipped += 1  # a poisoned gradient is dropped, never applied
                continue
            norms.append(norm)
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.model.eval()
        return {
            "lr": rate,
            "grad_norm": sum(norms) / len(norms) if norms else 0.0,
            "updates_skipped": float(skipped),
        } | {f"{name}/{metric}": value for name, total in sums.items() for metric, value in _means(total).items()}

    def _accumulate(
        self,
        samples: Sequence[TrainSample],
        rows: Sequence[Row],
        scale: int,
        first: bool,
        sums: dict[str, dict[str, float]],
    ) -> None:
        """Add the gradient of one micro-batch: some rows of `samples`."""
        tokens = [sample.tokens for sample in samples]
        packed = pack(tokens, rows, next(self.model.parameters()).device)
        old_N = packed.per_token([sample.logprobs_T or () for sample in tokens], tokens)
        temperature_N = packed.spread([sample.temperature for sample in samples])
        weight_N = packed.spread([sample.weight * scale for sample in samples])

        logprobs_N, entropy_N = entropy_and_logprobs(trained_logits(self.model, packed), packed.ids_N, temperature_N)
        reference_N = self._reference_logprobs(packed, temperature_N)
        losses = token_losses(
            logprobs_N,
            old_N,
            packed.spread([sample.advantage for sample in samples]),
            clip_low=self.config.clip_low,
            clip_high=self.config.clip_high,
            kl_coef=self.config.kl_coef,
            reference_logprobs_N=reference_N,
        )
        weighted_N = losses.losses_N * weight_N
        weighted_N.sum().backward()

        measured = {
            "loss": weighted_N.detach() / scale,
            "computed": torch.ones_like(weight_N),
            "entropy": entropy_N,
            "clip_fraction": losses.clipped_N.float(),
        }
        if first:  # later parts see weights that have already moved: that is no mismatch of two implementations
            measured["mismatch_kl"] = mismatch_kl(old_N, logprobs_N.detach())
            measured["first_computed"] = measured["computed"]
        if losses.kl_N is not None:
            measured["kl"] = losses.kl_N.detach()
        names = sorted({sample.environment for sample in samples})
        owner_N = packed.spread([names.index(sample.environment) for sample in samples]).long()
        for metric, value_N in measured.items():
            total_E = torch.zeros(len(names), device=value_N.device).index_add_(0, owner_N, value_N)
            for name, value in zip(names, total_E.tolist(), strict=True):
                sums[name][metric] += value

    def _reference_logprobs(self, packed: Packed, temperature_N: Tensor) -> Tensor | None:
        if not self.config.kl_coef:
            return None
        with torch.no_grad(), self.model.disable_adapter() if self._adapters else nullcontext():
            logits_N_V = trained_logits(self._reference or self.model, packed)
            return entropy_and_logprobs(logits_N_V, packed.ids_N, temperature_N)[0]


def stratify(samples: Sequence[TrainSample], parts: int) -> list[list[TrainSample]]:
    """Deal the samples into `parts`, each environment's in turn, so that every part holds its share of each."""
    dealt: list[list[TrainSample]] = [[] for _ in range(parts)]
    seen: defaultdict[str, int] = defaultdict(int)
    for sample in samples:
        dealt[seen[sample.environment] % parts].append(sample)
        seen[sample.environment] += 1
    return [part for part in dealt if part]


def _means(total: dict[str, float]) -> dict[str, float]:
    """Sums over tokens as metrics: `loss`, weighted already, and counts stay sums; the others become means."""
    means = {"loss": total["loss"], "tokens": total["tokens"]}
    for metric in ("entropy", "clip_fraction", "kl"):
        if metric in total:
            means[metric] = total[metric] / total["computed"]
    if total.get("first_computed"):
        means["mismatch_kl"] = total["mismatch_kl"] / total["first_computed"]
    return means
