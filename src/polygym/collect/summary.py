"""What the rollouts of one environment come to.

The one idea: a mean is over scored rollouts and stands beside the count of those that were not; the rewards of each
task are kept, because only they allow another evaluation to be compared task by task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from polygym.collect.unscored import Unscored
from polygym.rollout import Rollout, TaskId
from polygym.statistics import estimate, group_rows, mean, mean_pass_at_k, powers_of_two, scored

RewardsByTask = Mapping[TaskId, Sequence[float | None]]


@dataclass(slots=True)
class EnvironmentSummary:
    """One environment of an evaluation. A mean is None where nothing was scored, `interval` below two tasks."""

    n: int
    """Tasks that were played."""
    rollouts: int
    unscored: int
    mean_reward: float | None
    interval: tuple[float, float] | None
    """95 % interval of the mean reward, bootstrap clustered by task."""
    pass_at_k: dict[int, float | None]
    rewards: dict[str, float | None] = field(default_factory=dict)
    """Mean of each reward function."""
    metrics: dict[str, float | None] = field(default_factory=dict)
    causes: dict[str, int] = field(default_factory=dict)
    """How often each class of cause left a rollout unscored."""
    messages: dict[str, str] = field(default_factory=dict)
    """A message of each class."""
    truncated_fraction: float | None = None
    turns_mean: float | None = None
    completion_tokens_mean: float | None = None
    seconds_mean: float | None = None
    tasks: dict[TaskId, list[float | None]] = field(default_factory=dict)
    """Rewards of each task's rollouts, None where unscored."""

    @property
    def failures(self) -> Unscored:
        """The unscored rollouts."""
        return Unscored(self.rollouts, self.unscored, self.causes, self.messages)

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON data; `tasks` becomes a list, because ids 1 and "1" would be one key of an object."""
        return {
            "n": self.n,
            "rollouts": self.rollouts,
            "unscored": self.unscored,
            "mean_reward": self.mean_reward,
            "interval": None if self.interval is None else list(self.interval),
            "pass_at_k": {str(k): value for k, value in self.pass_at_k.items()},
            "rewards": self.rewards,
            "metrics": self.metrics,
            "causes": self.causes,
            "messages": self.messages,
            "truncated_fraction": self.truncated_fraction,
            "turns_mean": self.turns_mean,
            "completion_tokens_mean": self.completion_tokens_mean,
            "seconds_mean": self.seconds_mean,
            "tasks": [[task_id, rewards] for task_id, rewards in self.tasks.items()],
        }

    def numbers(self) -> dict[str, float]:
        """The summary as metrics, named relative to the environment; what has no value is left out."""
        low, high = self.interval or (None, None)
        named: dict[str, float | None] = {
            "rollouts": self.rollouts,
            "unscored": self.unscored,
            "mean_reward": self.mean_reward,
            "interval_low": low,
            "interval_high": high,
            "truncated_fraction": self.truncated_fraction,
            "turns_mean": self.turns_mean,
            "completion_tokens_mean": self.completion_tokens_mean,
            "seconds_mean": self.seconds_mean,
        }
        named |= {f"pass@{k}": value for k, value in self.pass_at_k.items()}
        named |= {f"reward/{name}": value for name, value in self.rewards.items()}
        return {name: value for name, value in named.items() if value is not None}


def summarize(rollouts: Sequence[Rollout], *, seed: int = 0) -> EnvironmentSummary:
    """Sum up the rollouts of one environment; `seed` is that of the bootstrap."""
    tasks: dict[TaskId, list[float | None]] = group_rows(
        rollouts, key=lambda rollout: rollout.task_id, value=lambda rollout: rollout.reward if rollout.scored else None
    )
    of_mean = estimate(tasks, seed=seed)
    failures = Unscored()
    for rollout in rollouts:
        failures.count(rollout)
    return EnvironmentSummary(
        n=len(tasks),
        rollouts=len(rollouts),
        unscored=failures.unscored,
        mean_reward=of_mean.value,
        interval=of_mean.interval,
        pass_at_k=passes(tasks),
        rewards=_means(rollout.rewards for rollout in rollouts if rollout.scored),
        metrics=_means(rollout.metrics for rollout in rollouts if rollout.scored),
        causes=failures.causes,
        messages=failures.messages,
        truncated_fraction=mean(float(rollout.truncated) for rollout in rollouts),
        turns_mean=mean(len(rollout.turns) for rollout in rollouts),
        completion_tokens_mean=mean(
            sum(turn.usage.completion_tokens for turn in rollout.turns) for rollout in rollouts
        ),
        seconds_mean=mean(rollout.seconds.get("total") for rollout in rollouts),
        tasks=tasks,
    )


def passes(tasks: RewardsByTask) -> dict[int, float | None]:
    """Mean pass@k for k = 1, 2, 4, ... up to the largest number of scored rollouts of a task."""
    largest = max((len(scored(rewards)) for rewards in tasks.values()), default=0)
    return {k: mean_pass_at_k(tasks, k) for k in powers_of_two(largest)}


def _means(named: Iterable[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Mean of each name over those that have it."""
    values: dict[str, list[float | None]] = {}
    for row in named:
        for name, value in row.items():
            values.setdefault(name, []).append(value)
    return {name: mean(of_name) for name, of_name in values.items()}
