"""The configuration of a training run: frozen and typed; every key of its TOML file is a field here.

The one idea: the sentence beside a field is its documentation, its range is in its type, and the resolved config is
saved with the run. Reading files is `polygym.train.config_file`'s work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from polygym.policies.base import Sampling
from polygym.train.config_errors import entry_name
from polygym.train.config_file import Section, check_run_name, load, validate
from polygym.train.env_source import check_source


class SamplingConfig(Section):
    """How turns are sampled; an environment's own `sampling` table overrides single keys of it."""

    max_tokens: int = Field(512, ge=1, description="tokens of one turn at most")
    temperature: float = Field(1.0, ge=0, le=100, description="1 samples the policy itself; 0 is greedy")
    top_p: float = Field(1.0, gt=0, le=1, description="1 keeps every token; training wants 1")
    stop: tuple[str, ...] = Field((), strict=False, description="texts that end a turn")

    def override(self, values: Mapping[str, Any]) -> SamplingConfig:
        """This table with the keys of `values` replaced."""
        return validate(SamplingConfig, {**self.model_dump(), **values}, "sampling")

    def to_sampling(self) -> Sampling:
        """The form that policies take."""
        return Sampling(self.max_tokens, self.temperature, self.top_p, self.stop)


class NamedEntry(Section):
    """What every entry that means an environment has: its name in this run, and the arguments it is loaded with."""

    name: str = Field("", description="name in metrics and files; where empty, the last part of what it comes from")
    args: dict[str, Any] = Field(default_factory=dict, description="arguments of the environment's load_environment")

    @property
    def title(self) -> str:
        """Its name in this run."""
        return entry_name(self.__dict__)


class EnvEntry(NamedEntry):
    """Where an environment comes from.

    It is one of this process (`id`, `args`), one that a server holds (`url` or `server`, with `rows`), or each of those
    that play the rows of a file (`rows` alone).
    """

    id: str | None = Field(
        None, min_length=1, description="registry id, `package.module:function`, or an installed entry point"
    )
    url: str | None = Field(None, min_length=1, description="instead of `id`: address of a resources server")
    server: str | None = Field(
        None,
        min_length=1,
        description="instead of `id`: name of a resources server or an agent of a running stack",
    )
    rows: str | None = Field(
        None,
        min_length=1,
        description="JSONL file of the tasks of a server; alone: of several environments, by the agents that they name",
    )
    eval_rows: str | None = Field(None, min_length=1, description="JSONL file of held-out tasks beside `rows`")
    held_out: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="part of `rows` that is held out, where there are no `eval_rows`; else 0.2",
    )
    head_port: int | None = Field(
        None, ge=1, le=65535, description="port of the head of the running stack; 11000 where not given"
    )
    play: Literal["here", "agent"] | None = Field(
        None,
        description="who plays rows: `here` the run, `agent` the agent that they name, which asks the run's policy; "
        "where not given, here where that is a simple_agent",
    )

    @model_validator(mode="after")
    def _check_source(self) -> EnvEntry:
        check_source(self.__dict__)
        return self


class EnvConfig(EnvEntry):
    """One `[[env]]`: an environment of the mix."""

    weight: float = Field(
        1.0, ge=0, description="share of the groups, relative to the other environments; 0 switches it off"
    )
    sampling: dict[str, Any] = Field(default_factory=dict, description="keys of [sampling] that differ for it")
    rollouts_per_example: int | None = Field(None, ge=2, description="K of its groups, where it differs")
    max_turns: int | None = Field(None, ge=1, description="turns of an episode at most, where it differs")
    timeout: float | None = Field(None, gt=0, description="seconds of a rollout at most, where it differs")
    loss_weight: float | None = Field(None, ge=0, description="share of the loss, where it is not `weight`")

    @model_validator(mode="after")
    def _check_more(self) -> EnvConfig:
        SamplingConfig().override(self.sampling)
        if self.id is None and self.rows is None:
            raise ValueError("rows is missing: eval_rows are only evaluated; give rows to train on")
        return self


class EvalConfig(Section):
    """`[eval]`: held-out tasks, asked before, during and after training; the same tasks and seeds every time."""

    interval: int = Field(0, ge=0, description="steps between evaluations; 0 evaluates only before and after")
    num_examples: int | None = Field(
        None, ge=0, description="held-out tasks of each environment, 0 for none; 50 where not given, or all if fewer"
    )
    rollouts_per_example: int = Field(1, ge=1, description="rollouts of each task")
    env: tuple[EnvEntry, ...] = Field((), strict=False, description="environments that are only evaluated")


class LearningRateFactors(Section):
    """Learning rates by kind of parameter, as factors of `learning_rate`."""

    matrix: float = Field(1.0, ge=0, description="weight matrices of attention and feed-forward layers, and adapters")
    embedding: float = Field(1.0, ge=0, description="input and output embeddings")
    vector: float = Field(
        1.0, ge=0, description="norm gains and biases; small models gain from a much larger rate here"
    )


class TrainingConfig(Section):
    """What every way of training is told: which model, where, and how it is evaluated."""

    name: str = Field("", description="name of the run folder; the recipe's or the file's name where empty")
    output: str = Field("", description="run folder; `runs/NAME` where empty, with a number added while that exists")
    model: str = Field("nano", description="nano, smollm2-135m, a folder, or a Hugging Face id")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="names every random stream of the run")
    max_seq_len: int = Field(2048, ge=8, description="tokens of an episode at most; also the policy's context")
    micro_batch_tokens: int = Field(
        16384, ge=8, description="tokens of one forward and backward pass at most, padding included"
    )
    device: str = Field("auto", description="auto takes a GPU where there is one")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="type of weights and arithmetic")
    threads: int | None = Field(None, ge=1, description="CPU threads; all cores where not given; a resume keeps it")
    sampling: SamplingConfig = SamplingConfig()
    eval: EvalConfig = EvalConfig()

    @field_validator("device")
    @classmethod
    def _check_device(cls, device: str) -> str:
        if not re.fullmatch(r"auto|cpu|mps|cuda(:[0-9]+)?", device):
            raise ValueError("must be auto, cpu, mps, cuda, or one GPU of several by its number, such as cuda:0")
        return device

    @model_validator(mode="after")
    def _check_name(self) -> TrainingConfig:
        check_run_name(self.name)
        return self


class RunConfig(TrainingConfig):
    """A GRPO run. `batch_size` = groups a step * `rollouts_per_example`."""

    alternatives = ("batch_size", "groups_per_environment")

    max_steps: int = Field(100, ge=1, description="batches of rollouts to train on")
    batch_size: int | None = Field(
        None, ge=2, le=10**6, description="rollouts a step; a multiple of rollouts_per_example"
    )
    groups_per_environment: int | None = Field(
        None, ge=1, le=10**5, description="instead of batch_size: groups a step, times environments"
    )
    rollouts_per_example: int = Field(8, ge=2, description="K, the rollouts of a group; a baseline needs at least 2")
    updates_per_batch: int = Field(1, ge=1, description="optimizer updates on each batch, stratified by environment")
    learning_rate: float = Field(1e-5, gt=0, description="peak rate of AdamW")
    learning_rate_factors: LearningRateFactors = LearningRateFactors()
    lr_schedule: Literal["constant", "linear", "cosine"] = Field("constant", description="shape after warm-up")
    warmup_steps: int = Field(0, ge=0, description="steps of linear warm-up")
    lr_decay_from: float = Field(
        0.0, ge=0, lt=1, description="fraction of the run after which linear or cosine decay starts"
    )
    lr_final_fraction: float = Field(
        0.1, ge=0, le=1, description="rate at the end of the decay, as a fraction of the peak"
    )
    weight_decay: float = Field(0.0, ge=0, description="AdamW's decay, on matrices only")
    adam_betas: tuple[float, float] = Field((0.9, 0.99), strict=False, description="AdamW's moving averages")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are clipped to this norm")
    kl_coef: float = Field(0.0, ge=0, description="weight of the KL to the starting policy")
    clip_low: float = Field(0.2, ge=0, lt=1, description="ratios below 1 - clip_low are clipped")
    clip_high: float = Field(0.28, ge=0, description="ratios above 1 + clip_high are clipped")
    reward_normalization: Literal["env", "none"] = Field(
        "env", description="divide rewards by their environment's own scale"
    )
    reward_scale_decay: float = Field(0.9, ge=0, lt=1, description="memory of that scale, per step")
    advantage: Literal["group_mean", "leave_one_out", "group_std"] = Field(
        "group_mean", description="baseline of a group"
    )
    loss_share: Literal["env", "tokens"] = Field(
        "env", description="each environment its share, or each token the same"
    )
    mask_truncated: bool = Field(False, description="leave rollouts cut by a limit out of baseline and loss")
    lora_rank: int = Field(0, ge=0, description="rank of LoRA adapters; 0 trains every weight")
    lora_alpha: int = Field(16, ge=1, description="LoRA's scale")
    lora_dropout: float = Field(0.0, ge=0, lt=1, description="LoRA's dropout")
    lora_target_modules: tuple[str, ...] = Field(
        (), strict=False, description="modules that get adapters; every linear layer where empty"
    )
    concurrency: int = Field(1024, ge=1, description="episodes under way at a time")
    timeout: float = Field(120.0, gt=0, description="seconds of a rollout at most")
    policy_port: int | None = Field(
        None, ge=1, le=65535, description="port at which agents that play find the run's policy; 11001 where not given"
    )
    checkpoint_interval: int = Field(25, ge=1, description="steps between checkpoints; the last step always writes one")
    keep_checkpoints: int = Field(2, ge=1, description="newest checkpoints to keep")
    env: tuple[EnvConfig, ...] = Field(min_length=1, strict=False, description="environments of the mix")

    @model_validator(mode="after")
    def _check(self) -> RunConfig:
        if (self.batch_size is None) == (self.groups_per_environment is None):
            given = "both were" if self.batch_size is not None else "neither was"
            raise ValueError(f"give one of batch_size (rollouts a step) and groups_per_environment; {given} given")
        if self.batch_size is not None and self.batch_size % self.rollouts_per_example:
            fix = max(1, round(self.batch_size / self.rollouts_per_example)) * self.rollouts_per_example
            raise ValueError(
                f"batch_size={self.batch_size} is no multiple of rollouts_per_example="
                f"{self.rollouts_per_example}; try {fix}"
            )
        if self.advantage == "group_std" and self.reward_normalization == "env":
            raise ValueError(
                'advantage="group_std" divides by the group\'s deviation and would cancel reward_normalization="env"; '
                'set reward_normalization="none" or another advantage'
            )
        weighted = [entry.title for entry in self.env if entry.loss_weight is not None]
        if weighted and self.loss_share == "tokens":
            raise ValueError(
                f'loss_weight of {", ".join(weighted)} does nothing with loss_share="tokens"; use loss_share="env"'
            )
        if self.sampling.temperature == 0:
            raise ValueError(
                "sampling.temperature=0 is greedy: the rollouts of a group would all be the same; give one above 0"
            )
        return self


def load_config(source: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The config of a run, from a path or a shipped recipe's name, with `key=value` overrides applied.

    Raises:
        UsageError: with every problem of the file on its own line.
    """
    from polygym.train.sft_config import SFTConfig

    return load(RunConfig, source, overrides, others={"polygym sft run": SFTConfig})
