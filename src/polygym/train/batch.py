"""From the groups of a step to weighted token samples: normalise, take advantages, share out the loss.

The one idea: everything that decides how much a token counts is settled here, for the whole step, before anything is
skipped or cut into micro-batches (docs/training.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from polygym.errors import UsageError
from polygym.rollout import Rollout, RolloutGroup
from polygym.train.advantages import advantages
from polygym.train.config import RunConfig
from polygym.train.credit import Credit, assign_credit
from polygym.train.samples import TokenSample, join_turns
from polygym.train.scale import RewardScale


@dataclass(frozen=True, slots=True)
class TrainSample:
    """One token sequence to learn from. Every trained token of it has the same advantage, weight and temperature."""

    tokens: TokenSample
    environment: str
    advantage: float
    weight: float
    temperature: float


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The samples of a step and how their loss was shared out. `splits_E` counts histories that did not extend."""

    samples: list[TrainSample]
    credit: Credit
    splits_E: dict[str, int]


@dataclass(frozen=True, slots=True)
class StepShares:
    """What was planned for the step: w_e, q_e, G, loss weights where given, and temperatures."""

    weights_E: Mapping[str, float]
    shares_E: Mapping[str, float]
    groups_per_step: int
    loss_weights_E: Mapping[str, float]
    temperatures_E: Mapping[str, float]


def make_batch(
    groups_G: Sequence[RolloutGroup], scales_E: Mapping[str, RewardScale], planned: StepShares, config: RunConfig
) -> StepBatch:
    """Observe the reward scales, write each rollout's advantage into it, and return the weighted samples.

    Rollouts that are unscored (and, with `mask_truncated`, truncated ones) get no advantage and no sample.

    Raises:
        UsageError: when the policy told no token ids or log-probabilities, so that there is nothing to train on.
    """
    rewards_G_K = [[_reward(rollout, config) for rollout in group.rollouts] for group in groups_G]
    for name, scale in scales_E.items():
        scale.observe([row for row, group in zip(rewards_G_K, groups_G, strict=True) if group.environment == name])

    tokens_S: list[TokenSample] = []
    advantage_S: list[float] = []
    environment_S: list[str] = []
    groups_E = dict.fromkeys(scales_E, 0)
    splits_E = dict.fromkeys(scales_E, 0)
    for group, rewards_K in zip(groups_G, rewards_G_K, strict=True):
        name = group.environment
        if config.reward_normalization == "env":
            rewards_K = scales_E[name].normalize([rewards_K])[0]
        values_K = advantages(rewards_K, config.advantage).values_K
        groups_E[name] += any(value is not None for value in values_K)
        for rollout, value in zip(group.rollouts, values_K, strict=True):
            rollout.advantage = value
            if value is None:
                continue
            joined = join_turns(rollout.turns, config.max_seq_len)
            splits_E[name] += joined.splits
            for sample in joined.samples:
                if sample.logprobs_T is None:
                    raise UsageError(
                        f"{name}: the policy tells no log-probabilities of what it sampled; train a local model"
                    )
                tokens_S.append(sample)
                advantage_S.append(value)
                environment_S.append(name)

    credit = assign_credit(
        environment_S,
        [sample.trained_tokens for sample in tokens_S],
        groups_E,
        weights_E=planned.weights_E,
        shares_E=planned.shares_E,
        groups_per_step=planned.groups_per_step,
        loss_share=config.loss_share,
        loss_weights_E=planned.loss_weights_E,
    )
    samples = [
        TrainSample(tokens, name, advantage, weight, planned.temperatures_E[name])
        for tokens, name, advantage, weight in zip(tokens_S, environment_S, advantage_S, credit.weights_S, strict=True)
    ]
    return StepBatch(samples, credit, splits_E)


def _reward(rollout: Rollout, config: RunConfig) -> float | None:
    masked = not rollout.scored or (config.mask_truncated and rollout.truncated)
    return None if masked else rollout.reward
