"""The configuration of supervised training on demonstrations and good rollouts: the warm start before a GRPO run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from polygym.train.config import LearningRateFactors, NamedEntry, RunConfig, TrainingConfig
from polygym.train.config_file import Section, load


class SFTEnvConfig(NamedEntry):
    """One `[[env]]`: an environment whose demonstrations are learned."""

    id: str = Field(min_length=1, description="registry id, `package.module:function`, or an installed entry point")
    batch_size: int = Field(32, ge=1, description="its demonstrations a step")
    loss_weight: float = Field(1.0, gt=0, description="share of the loss, relative to the other environments")
    target: float | None = Field(
        None, description="held-out reward that is enough: from there on its batch is a quarter, so as not to overshoot"
    )


class SFTDataConfig(Section):
    """One `[[data]]`: collected rollouts that are learned."""

    path: str = Field(min_length=1, description="OUT.jsonl of an evaluation or a collection, or a run's rollouts")
    name: str = Field("", description="put before the environment's name in metrics: NAME/ENVIRONMENT")
    environments: tuple[str, ...] = Field(
        (), strict=False, description="environments whose rollouts are taken; all where empty"
    )
    min_reward: float = Field(1.0, description="rollouts that earned less are left out")
    batch_size: int = Field(32, ge=1, description="rollouts of each environment a step")
    loss_weight: float = Field(1.0, gt=0, description="share of the loss of each environment, relative to the others")


class SFTConfig(TrainingConfig):
    """Next-token training on what environments' `demonstrate` gives, and on rollouts that earned enough; only the
    policy's own tokens carry loss."""

    from_scratch: bool = Field(
        False, description="keep only the model's shape and tokenizer; start from random weights"
    )
    max_steps: int = Field(1000, ge=1, description="steps at most; a run ends earlier when every target is reached")
    optimizer: Literal["adamw", "muon"] = Field("adamw", description="muon takes the matrices, AdamW the rest")
    learning_rate: float = Field(1e-4, gt=0, description="peak rate of AdamW")
    learning_rate_factors: LearningRateFactors = Field(
        LearningRateFactors(), description="rates by kind of parameter, as in a GRPO run; muon has its own for matrices"
    )
    matrix_learning_rate: float = Field(0.02, gt=0, description='peak rate of Muon, with optimizer = "muon"')
    warmup_steps: int = Field(0, ge=0, description="steps of linear warm-up")
    lr_decay_from: float = Field(0.7, ge=0, lt=1, description="fraction of the run after which the rate falls linearly")
    lr_final_fraction: float = Field(0.05, ge=0, le=1, description="rate at the end, as a fraction of the peak")
    adam_betas: tuple[float, float] = Field((0.9, 0.98), strict=False, description="AdamW's moving averages")
    weight_decay: float = Field(0.0, ge=0, description="decay of matrices")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are clipped to this norm")
    env: tuple[SFTEnvConfig, ...] = Field((), strict=False, description="environments to learn from by demonstrations")
    data: tuple[SFTDataConfig, ...] = Field((), strict=False, description="files of rollouts to learn from")

    @model_validator(mode="after")
    def _check_learns(self) -> SFTConfig:
        if not self.env and not self.data:
            raise ValueError(
                'there is nothing to learn from; write [[env]] with id = "math_rl" for demonstrations, or [[data]] '
                'with path = "OUT.jsonl" for rollouts'
            )
        if not self.env and not self.eval.env and self.eval.num_examples:
            raise ValueError(
                f"eval.num_examples={self.eval.num_examples}: there is no environment to evaluate; write [[eval.env]] "
                'with id = "math_rl"'
            )
        return self


def load_config(source: str | Path, overrides: Sequence[str] = ()) -> SFTConfig:
    """The config of a supervised run, from a path or a shipped recipe's name, with `key=value` overrides applied.

    Raises:
        UsageError: with every problem of the file on its own line.
    """
    return load(SFTConfig, source, overrides, others={"polygym rl run": RunConfig})
