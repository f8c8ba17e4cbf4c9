"""Reward scale of one environment.

The one idea: the unit of a reward belongs to its environment, so its scale is kept per environment and saved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from polygym.errors import UsageError
from polygym.train.advantages import centred, has_signal, scored_rewards


class RewardScale:
    """Bias-corrected moving root mean square of group-centred rewards (docs/training.md, step 1); decay is per step.

    A step without a group with signal says nothing about the scale and leaves it as it was.

    >>> scale = RewardScale("math", decay=0.9)
    >>> scale.observe([[1.0, 0.0], [1.0, 1.0]])
    >>> scale.normalize([[1.0, 0.0]])
    [[2.0, 0.0]]

    Args:
        environment: whose rewards these are; it stands in messages.
        decay: how much of the average is kept a step, in [0, 1).

    Raises:
        UsageError: for a decay outside [0, 1).
    """

    def __init__(self, environment: str, decay: float = 0.9) -> None:
        if not 0 <= decay < 1:
            raise UsageError(f"{environment}: decay={decay!r} is outside [0, 1); use 0 to follow only the last step")
        self.environment = environment
        self.decay = decay
        self._average = 0.0
        self._correction = 0.0  # weight seen so far, 1 - decay**steps: an average that starts at 0 is too small by this

    @property
    def value(self) -> float | None:
        """The scale, or None before the first group with signal."""
        return self._average / self._correction if self._correction else None

    def observe(self, rewards_G_K: Sequence[Sequence[float | None]]) -> None:
        """Take in the groups of one step, before any filtering or refill."""
        squares: list[float] = []
        for rewards_K in rewards_G_K:
            if has_signal(rewards_K):
                scored = [reward for reward in scored_rewards(rewards_K) if reward is not None]
                squares.extend(value * value for value in centred(scored))
        if not squares:
            return
        root_mean_square = math.sqrt(math.fsum(squares) / len(squares))
        self._average = self.decay * self._average + (1 - self.decay) * root_mean_square
        self._correction = self.decay * self._correction + (1 - self.decay)

    def normalize(self, rewards_G_K: Sequence[Sequence[float | None]]) -> list[list[float | None]]:
        """Rewards over the scale; None stays None. Before the first signal they are returned as they are."""
        scale = self.value or 1.0
        return [
            [None if reward is None else reward / scale for reward in scored_rewards(rewards_K)]
            for rewards_K in rewards_G_K
        ]

    def state_dict(self) -> dict[str, float]:
        """What moves; the decay is configuration."""
        return {"average": self._average, "correction": self._correction}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state.

        Raises:
            UsageError: when the state lacks a key or has one too many.
        """
        if set(state) != {"average", "correction"}:
            raise UsageError(
                f"{self.environment}: a saved reward scale has the keys average and correction, got {sorted(state)}"
            )
        self._average, self._correction = float(state["average"]), float(state["correction"])

    def metrics(self) -> dict[str, float]:
        """`reward_scale`, once there is one."""
        return {} if self.value is None else {"reward_scale": self.value}
