"""The metrics of a step, per environment and overall (docs/training.md).

The one idea: every environment is measured on its own, over the groups as they were planned, before anything is
filtered; the prefix is added here and nowhere else. An environment with no sample has a count of 0 and no mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev

from polygym.rollout import Rollout, RolloutGroup
from polygym.train.advantages import has_signal
from polygym.train.batch import StepBatch


def step_metrics(
    groups_G: Sequence[RolloutGroup],
    planned_E: Mapping[str, int],
    weights_E: Mapping[str, float],
    batch: StepBatch,
    step: int,
) -> dict[str, float]:
    """Metrics of one step's groups.

    Args:
        groups_G: the groups that arrived; a dropped group is not among them.
        planned_E: groups planned for each environment of the run, 0 where it has to wait for its turn.
        weights_E: w_e, the weights of `combined/mean_reward`.
        batch: the weighted samples made from the groups.
        step: number of updates before this step, to measure how old each rollout's policy is.
    """
    metrics: dict[str, float] = {}
    means_E: dict[str, float] = {}
    arrived = len(groups_G)
    for name, planned in planned_E.items():
        own = [group for group in groups_G if group.environment == name]
        of_environment = environment_metrics(own, step)
        of_environment["share"] = len(own) / arrived if arrived else 0.0
        of_environment["absent"] = float(planned - len(own))
        of_environment["loss_share"] = batch.credit.loss_share_E[name]
        of_environment["splits"] = float(batch.splits_E[name])
        if "mean_reward" in of_environment:
            means_E[name] = of_environment["mean_reward"]
        metrics |= {f"{name}/{metric}": value for metric, value in of_environment.items()}
    rewards = [reward for group in groups_G for reward in group.rewards_K if reward is not None]
    if rewards:
        metrics["all/mean_reward"] = fmean(rewards)
    total = sum(weights_E[name] for name in means_E)
    if total:
        metrics["combined/mean_reward"] = sum(weights_E[name] * mean for name, mean in means_E.items()) / total
    return metrics


def environment_metrics(groups_G: Sequence[RolloutGroup], step: int) -> dict[str, float]:
    """Metrics of one environment, without its prefix.

    `solved_all` and `solved_none` are the fractions of groups without signal whose equal reward is above 0, or is not.
    """
    rollouts = [rollout for group in groups_G for rollout in group.rollouts]
    rewards = [rollout.reward for rollout in rollouts if rollout.scored and rollout.reward is not None]
    metrics: dict[str, float] = {
        "groups": float(len(groups_G)),
        "rollouts": float(len(rollouts)),
        "unscored": float(sum(not rollout.scored for rollout in rollouts)),
        "errors": float(sum(rollout.cause is not None for rollout in rollouts)),
    }
    if rewards:
        metrics |= {"mean_reward": fmean(rewards), "reward_std": pstdev(rewards)}
        metrics |= _function_means(rollouts)
    if groups_G:
        flat = [
            next((reward for reward in group.rewards_K if reward is not None), 0.0)
            for group in groups_G
            if not has_signal(group.rewards_K)
        ]
        metrics["signal_fraction"] = 1 - len(flat) / len(groups_G)
        metrics["solved_all"] = sum(reward > 0 for reward in flat) / len(groups_G)
        metrics["solved_none"] = sum(reward <= 0 for reward in flat) / len(groups_G)
    if rollouts:
        metrics |= {
            "completion_tokens_mean": fmean(rollout.usage.completion_tokens for rollout in rollouts),
            "truncated_fraction": fmean(rollout.truncated for rollout in rollouts),
            "turns_mean": fmean(len(rollout.turns) for rollout in rollouts),
            "seconds_mean": fmean(rollout.seconds.get("total", 0.0) for rollout in rollouts),
            "staleness": fmean(step - rollout.policy_version for rollout in rollouts),
        }
    values = [abs(rollout.advantage) for rollout in rollouts if rollout.advantage is not None]
    if values:
        metrics["advantage_abs_mean"] = fmean(values)
    return metrics


def _function_means(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """`reward/<function>`: each reward function's mean over the rollouts that it scored."""
    names = dict.fromkeys(name for rollout in rollouts for name in rollout.rewards)
    means = {}
    for name in names:
        values = [value for rollout in rollouts if (value := rollout.rewards.get(name)) is not None]
        if values:
            means[f"reward/{name}"] = fmean(values)
    return means
