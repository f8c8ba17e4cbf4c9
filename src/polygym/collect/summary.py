"""What the rollouts of one environment come to.

The one idea: a mean is over scored rollouts and stands beside the count of those that were not; the rewards of each
task are kept, because only they allow another evaluation to be compared task by task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from polygym.collect.unscored import Unscored
from polygym.rollout import TaskId
from polygym.statistics import Spread, mean_pass_at_k, powers_of_two, scored

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
    majority_at_k: dict[int, float | None] = field(default_factory=dict)
    """Of the answers that rollouts gave (collect/majority.py); empty where none gave one."""
    rewards: dict[str, float | None] = field(default_factory=dict)
    """Mean of each reward function."""
    metrics: dict[str, float | None] = field(default_factory=dict)
    causes: dict[str, int] = field(default_factory=dict)
    """How often each class of cause left a rollout unscored."""
    messages: dict[str, str] = field(default_factory=dict)
    """A message of each class."""
    truncated_fraction: float | None = None
    turns_mean: float | None = None
    reward_spread: Spread | None = None
    """Of the rewards of rollouts, those unscored left out."""
    prompt_tokens: Spread | None = None
    """Read in a rollout, every turn its whole prompt."""
    completion_tokens: Spread | None = None
    """Written in a rollout."""
    seconds: Spread | None = None
    """Of a rollout, from its begin to its grading."""
    seconds_p99: float | None = None
    tasks: dict[TaskId, list[float | None]] = field(default_factory=dict)
    """Rewards of each task's rollouts, None where unscored."""

    @property
    def completion_tokens_mean(self) -> float | None:
        """Mean number of tokens written in a rollout."""
        return self.completion_tokens.mean if self.completion_tokens else None

    @property
    def seconds_mean(self) -> float | None:
        """Mean time of a rollout."""
        return self.seconds.mean if self.seconds else None

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
            "majority_at_k": {str(k): value for k, value in self.majority_at_k.items()},
            "rewards": self.rewards,
            "metrics": self.metrics,
            "causes": self.causes,
            "messages": self.messages,
            "truncated_fraction": self.truncated_fraction,
            "turns_mean": self.turns_mean,
            "completion_tokens_mean": self.completion_tokens_mean,
            "seconds_mean": self.seconds_mean,
            **{name: found.to_dict() if found else None for name, found in self._spreads().items()},
            "seconds_p99": self.seconds_p99,
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
            "seconds_p99": self.seconds_p99,
        }
        for name, found in self._spreads().items():
            numbers = found.to_dict() if found else {}
            if name == "reward_spread":
                name, numbers = "reward", {number: value for number, value in numbers.items() if number != "mean"}
            named |= {f"{name}_{number}": value for number, value in numbers.items()}
        named |= {f"pass@{k}": value for k, value in self.pass_at_k.items()}
        named |= {f"majority@{k}": value for k, value in self.majority_at_k.items()}
        named |= {f"reward/{name}": value for name, value in self.rewards.items()}
        return {name: value for name, value in named.items() if value is not None}

    def _spreads(self) -> dict[str, Spread | None]:
        return {
            "reward_spread": self.reward_spread,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "seconds": self.seconds,
        }


def passes(tasks: RewardsByTask) -> dict[int, float | None]:
    """Mean pass@k for k = 1, 2, 4, ... up to the largest number of scored rollouts of a task."""
    largest = max((len(scored(rewards)) for rewards in tasks.values()), default=0)
    return {k: mean_pass_at_k(tasks, k) for k in powers_of_two(largest)}
