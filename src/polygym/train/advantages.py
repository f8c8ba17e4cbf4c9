"""Advantages of one group of rollouts.

The one idea: an estimator turns the rewards of one task's rollouts into as many numbers, and knows nothing else.
Rollouts without a score are masked: they get None, and no baseline sees them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Literal, get_args

from polygym.errors import UsageError, nearest

AdvantageMethod = Literal["group_mean", "group_std", "leave_one_out"]

# Rewards whose spread is below this part of the largest count as equal: it is rounding, and no method may blow it up.
EQUAL_WITHIN = 1e-12


@dataclass(frozen=True, slots=True)
class Advantages:
    """Advantages of a group, in rollout order; None where masked. Without `signal` all others are exactly 0."""

    values_K: tuple[float | None, ...]
    signal: bool


def scored_rewards(rewards_K: Sequence[float | None]) -> list[float | None]:
    """The rewards as floats, with None for what is unscored (None, NaN or infinite).

    Raises:
        UsageError: for a reward that is no number, such as text or a list.
    """
    return [_scored(position, reward) for position, reward in enumerate(rewards_K)]


def has_signal(rewards_K: Sequence[float | None]) -> bool:
    """Whether at least two scored rewards differ by more than rounding.

    >>> has_signal([1.0, 0.0, None]), has_signal([0.3, 0.1 + 0.2]), has_signal([1.0, None])
    (True, False, False)
    """
    scored = [reward for reward in scored_rewards(rewards_K) if reward is not None]
    if not scored:
        return False
    low, high = min(scored), max(scored)
    return high - low > EQUAL_WITHIN * max(abs(low), abs(high))


def advantages(rewards_K: Sequence[float | None], method: AdvantageMethod = "group_mean") -> Advantages:
    """Advantages of one group by `method`; K is any number, 0 included.

    | method | advantage of a rollout |
    |---|---|
    | `group_mean` | its reward minus the mean of the group (Dr. GRPO, arXiv 2503.20783) |
    | `group_std` | that, over the group's sample standard deviation, ddof 1 (GRPO, arXiv 2402.03300) |
    | `leave_one_out` | its reward minus the mean of the others (RLOO, arXiv 2402.14740): K / (K - 1) of `group_mean` |

    A group of equal rewards, of one scored rollout, or of none has no signal: exactly 0.

    >>> advantages([1, 0, None, 0, 0]).values_K
    (0.75, -0.25, None, -0.25, -0.25)

    Raises:
        UsageError: for an unknown method, or a reward that is no number.
    """
    if method not in _METHODS:
        raise UsageError(f"advantage={method!r} is unknown; {nearest(method, _METHODS)}")
    scored_K = scored_rewards(rewards_K)
    signal = has_signal(scored_K)
    if not signal:
        return Advantages(tuple(None if reward is None else 0.0 for reward in scored_K), signal)
    values = iter(_METHODS[method](centred([reward for reward in scored_K if reward is not None])))
    return Advantages(tuple(None if reward is None else next(values) for reward in scored_K), signal)


def centred(scored: Sequence[float]) -> list[float]:
    """Scored rewards minus their mean. They are moved to the first one before, so that equal ones give exactly 0."""
    moved = [reward - scored[0] for reward in scored]
    mean = math.fsum(moved) / len(moved)
    return [reward - mean for reward in moved]


def _scored(position: int, reward: object) -> float | None:
    if reward is None:
        return None
    if not isinstance(reward, Real):
        raise UsageError(
            f"reward {reward!r:.80} of rollout {position} is a {type(reward).__name__}; "
            "a reward is a number, or None where it could not be scored"
        )
    value = float(reward)
    return value if math.isfinite(value) else None


def _over_deviation(values: list[float]) -> list[float]:
    deviation = math.hypot(*values) / math.sqrt(len(values) - 1)
    return [value / deviation for value in values]


def _leave_one_out(values: list[float]) -> list[float]:
    return [value * len(values) / (len(values) - 1) for value in values]


def _unchanged(values: list[float]) -> list[float]:
    return values


_METHODS: dict[str, Callable[[list[float]], list[float]]] = {
    "group_mean": _unchanged,
    "group_std": _over_deviation,
    "leave_one_out": _leave_one_out,
}
assert set(_METHODS) == set(get_args(AdvantageMethod))
