"""Means, spreads, 95 % intervals, paired differences and pass@k of rewards.

The one idea: the task is the unit of chance. The rollouts of one task are alike, so intervals resample whole tasks, and
two policies are compared on the same tasks. A reward that is None, NaN or infinite is unscored: outside every mean, but
counted. An environment with no sample has a count of 0 and no mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polygym.errors import UsageError, nearest

Reward = float | None
RewardsByTask = Mapping[Any, Sequence[Reward]]
Array = NDArray[np.float64]

RESAMPLES = 2000
_TAIL_PERCENT = 2.5  # on each side: a 95 % interval
_ALIKE = 4  # tasks of a kind, from which counting kinds is the faster way
_CHUNK = 1 << 20  # numbers drawn at once, to bound the memory of large evaluations


@dataclass(frozen=True)
class Estimate:
    """A mean or a difference of means: `value` is None without a scored sample, `interval` below two tasks."""

    value: float | None
    interval: tuple[float, float] | None
    tasks: int
    rollouts: int


@dataclass(frozen=True, slots=True)
class Spread:
    """How numbers lie. `std` is that of a sample (n - 1 below the sum), None for one number alone."""

    mean: float
    std: float | None
    min: float
    median: float
    max: float

    def to_dict(self) -> dict[str, float | None]:
        """The spread as JSON data."""
        return {"mean": self.mean, "std": self.std, "min": self.min, "median": self.median, "max": self.max}


class ExactMean:
    """Mean of numbers that come one by one, the same in any order: the sum is kept without rounding (Shewchuk, 1997).

    What is no finite number is passed over.

    >>> tenths = ExactMean()
    >>> for _ in range(10): tenths.add(0.1)
    >>> tenths.value
    0.1
    """

    __slots__ = ("_count", "_partials")

    def __init__(self) -> None:
        self._partials: list[float] = []  # they do not overlap, and sum to the sum
        self._count = 0

    def add(self, value: object) -> None:
        """Take in one more number."""
        high = finite_number(value)
        if high is None:
            return
        self._count += 1
        kept = 0
        for partial in self._partials:
            if abs(high) < abs(partial):
                high, partial = partial, high
            total = high + partial
            low = partial - (total - high)
            if low:
                self._partials[kept] = low
                kept += 1
            high = total
        self._partials[kept:] = [high]

    @property
    def value(self) -> float | None:
        """The mean; None without a number."""
        return math.fsum(self._partials) / self._count if self._count else None


def finite_number(value: object) -> float | None:
    """What others wrote where a number should stand, as a number; None for anything else, and beyond all floats.

    >>> finite_number(2), finite_number(float("nan")), finite_number("2"), finite_number(10**400)
    (2.0, None, None, None)
    """
    if not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def scored(rewards: Iterable[Reward]) -> list[float]:
    """The finite rewards, in order."""
    return [reward for reward in rewards if reward is not None and math.isfinite(reward)]


def mean(values: Iterable[Reward]) -> float | None:
    """Mean of the finite values, None if there is none.

    >>> mean([1.0, None, 0.5])
    0.75
    """
    finite = scored(values)
    return math.fsum(finite) / len(finite) if finite else None


def spread(values: Iterable[Reward]) -> Spread | None:
    """How the finite values lie, None if there is none.

    >>> spread([1.0, None, 0.0, 0.5])
    Spread(mean=0.5, std=0.5, min=0.0, median=0.5, max=1.0)
    """
    finite = sorted(scored(values))
    if not finite:
        return None
    average, middle = math.fsum(finite) / len(finite), len(finite) // 2
    squares = math.fsum((value - average) ** 2 for value in finite)
    return Spread(
        mean=average,
        std=math.sqrt(squares / (len(finite) - 1)) if len(finite) > 1 else None,
        min=finite[0],
        median=finite[middle] if len(finite) % 2 else (finite[middle - 1] + finite[middle]) / 2,
        max=finite[-1],
    )


def percentile(values: Iterable[Reward], percent: float) -> float | None:
    """The smallest of the finite values that at least `percent` of them do not exceed; None if there is none.

    >>> percentile(range(1, 201), 99)
    198
    """
    finite = sorted(scored(values))
    return finite[max(0, math.ceil(len(finite) * percent / 100) - 1)] if finite else None


def group_rows(
    rows: Iterable[Any], key: Callable[[Any], Hashable], value: Callable[[Any], Any]
) -> dict[Any, list[Any]]:
    """The `value` of rows collected by `key`, in the order of first sight.

    Rollouts are grouped by (environment, task id), never by their text or by an id of their own.

    >>> rows = [("math", 7, 1.0), ("math", 7, 0.0), ("word", 7, 1.0)]
    >>> group_rows(rows, key=lambda row: row[:2], value=lambda row: row[2])
    {('math', 7): [1.0, 0.0], ('word', 7): [1.0]}
    """
    groups: dict[Any, list[Any]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(value(row))
    return groups


def estimate(rewards: RewardsByTask, *, seed: int = 0) -> Estimate:
    """Mean reward over rollouts with its 95 % interval."""
    sums, counts = _sums_and_counts(rewards)
    value = float(sums.sum() / counts.sum()) if counts.size else None
    return Estimate(value, interval(rewards, seed=seed), counts.size, int(counts.sum()))


def interval(rewards: RewardsByTask, *, seed: int = 0) -> tuple[float, float] | None:
    """95 % percentile interval of the mean reward; None with fewer than two tasks with a scored rollout."""
    means = bootstrap_means(rewards, seed=seed)
    return None if means is None else percentile_interval(means)


def bootstrap_means(rewards: RewardsByTask, *, seed: int = 0, resamples: int = RESAMPLES) -> Array | None:
    """Mean rewards over `resamples` draws of whole tasks with replacement (Cameron, Gelbach and Miller, 2008)."""
    sums, counts = _sums_and_counts(rewards)
    if counts.size < 2:
        return None
    drawn = _resampled_sums(np.stack([sums, counts]), seed, resamples)
    return drawn[0] / drawn[1]


def paired_difference(before: RewardsByTask, after: RewardsByTask, *, seed: int = 0) -> Estimate:
    """How much the mean reward rose from `before` to `after`, on the tasks that have a scored rollout in both.

    >>> paired_difference({1: [0.0, 1.0], 2: [0.0, 0.0]}, {1: [1.0, 1.0], 2: [0.5, 0.5]}).value
    0.5
    """
    pairs = _paired(before, after)
    value = float(_difference(pairs.sum(axis=1, keepdims=True))[0]) if pairs.shape[1] else None
    differences = bootstrap_differences(before, after, seed=seed)
    return Estimate(
        value, None if differences is None else percentile_interval(differences), pairs.shape[1], int(pairs[3].sum())
    )


def bootstrap_differences(
    before: RewardsByTask, after: RewardsByTask, *, seed: int = 0, resamples: int = RESAMPLES
) -> Array | None:
    """Differences of mean reward over draws of whole tasks, each with its rollouts of both sides."""
    pairs = _paired(before, after)
    if pairs.shape[1] < 2:
        return None
    return _difference(_resampled_sums(pairs, seed, resamples))


def percentile_interval(draws: Array) -> tuple[float, float]:
    """The middle 95 % of bootstrap draws."""
    low, high = np.percentile(draws, [_TAIL_PERCENT, 100 - _TAIL_PERCENT])
    return float(low), float(high)


def pass_at_k(rewards: Sequence[Reward], k: int) -> float | None:
    """Expected best reward of k rollouts, drawn without replacement from the n scored ones of a task; None if n < k.

    For rewards of 0 and 1 this is the unbiased pass@k of Chen et al. (2021), 1 - C(n - c, k) / C(n, k): the chance that
    at least one of k is right. Graded rewards need no threshold, and pass@1 is always the mean.

    >>> pass_at_k([1.0, 0.0, 0.0, 0.0], 2)
    0.5
    """
    if k < 1:
        raise UsageError(f"k={k!r} must be at least 1")
    ordered = sorted(scored(rewards))
    if len(ordered) < k:
        return None
    subsets = math.comb(len(ordered), k)
    return math.fsum(reward * (math.comb(rank, k - 1) / subsets) for rank, reward in enumerate(ordered))


def mean_pass_at_k(rewards: RewardsByTask, k: int) -> float | None:
    """Mean of pass@k over the tasks with at least k scored rollouts, None if there is none."""
    return mean(pass_at_k(task_rewards, k) for task_rewards in rewards.values())


def powers_of_two(largest: int) -> list[int]:
    """1, 2, 4, ... up to `largest`: the k of pass@k that are shown."""
    return [1 << power for power in range(largest.bit_length())]


def environment_metrics(
    environments: Iterable[str], rows: Iterable[tuple[str, Reward]], weights: Mapping[str, float] | None = None
) -> dict[str, float]:
    """`<env>/rollouts`, `<env>/unscored`, `<env>/mean_reward` and `all/mean_reward` of (environment, reward) rows.

    `all/mean_reward` is over rollouts; `combined/mean_reward`, only with `weights`, is the weighted mean of those of
    the environments. A mean of nothing is left out, and so is a combined one that passes over an environment of weight.

    Raises:
        UsageError: for a row of an environment that is not in `environments`.
    """
    rewards: dict[str, list[Reward]] = {name: [] for name in environments}
    for name, reward in rows:
        if name not in rewards:
            raise UsageError(f"environment {name!r} of a rollout is unknown; {nearest(name, rewards)}")
        rewards[name].append(reward)
    metrics: dict[str, float] = {}
    means: dict[str, float | None] = {}
    for name, of_environment in rewards.items():
        metrics[f"{name}/rollouts"] = len(of_environment)
        metrics[f"{name}/unscored"] = len(of_environment) - len(scored(of_environment))
        means[name] = value = mean(of_environment)
        if value is not None:
            metrics[f"{name}/mean_reward"] = value
    overall = mean(reward for of_environment in rewards.values() for reward in of_environment)
    if overall is not None:
        metrics["all/mean_reward"] = overall
    combined = None if weights is None else weighted_mean(means, weights)
    if combined is not None:
        metrics["combined/mean_reward"] = combined
    return metrics


def weighted_mean(values: Mapping[str, float | None], weights: Mapping[str, float]) -> float | None:
    """Mean of `values` by `weights`; None when one that has weight is missing: the rest would be another quantity."""
    total = math.fsum(weights.values())
    parts = [(weight, values.get(name)) for name, weight in weights.items() if weight > 0]
    if total <= 0 or any(value is None for _, value in parts):
        return None
    return math.fsum(weight * value for weight, value in parts if value is not None) / total


def _sums_and_counts(rewards: RewardsByTask) -> tuple[Array, Array]:
    """Sum and number of the scored rewards of each task that has one."""
    by_task = [finite for finite in map(scored, rewards.values()) if finite]
    sums = np.array([math.fsum(finite) for finite in by_task], dtype=np.float64)
    return sums, np.array([len(finite) for finite in by_task], dtype=np.float64)


def _paired(before: RewardsByTask, after: RewardsByTask) -> Array:
    """(4, tasks): sums and counts before, sums and counts after, of the tasks scored in both."""
    both = [
        (math.fsum(old), len(old), math.fsum(new), len(new))
        for task, rewards in before.items()
        if (old := scored(rewards)) and (new := scored(after.get(task, ())))
    ]
    return np.array(both, dtype=np.float64).reshape(-1, 4).T


def _difference(sums: Array) -> Array:
    difference: Array = sums[2] / sums[3] - sums[0] / sums[1]
    return difference


def _resampled_sums(columns: Array, seed: int, resamples: int) -> Array:
    """(columns, resamples): each column summed over a draw of as many tasks as there are, with replacement.

    Where most tasks are like others, as with rewards of 0 and 1, how often each kind is drawn is drawn at once.
    """
    tasks = columns.shape[1]
    random = np.random.default_rng(seed)
    kinds, counts = np.unique(columns, axis=1, return_counts=True)
    alike = kinds.shape[1] * _ALIKE <= tasks
    at_once = max(1, _CHUNK // (kinds.shape[1] if alike else tasks))
    parts = []
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        if alike:
            parts.append(kinds @ random.multinomial(tasks, counts / tasks, size=size).T)
        else:
            parts.append(columns[:, random.integers(0, tasks, size=(size, tasks))].sum(axis=2))
    return np.concatenate(parts, axis=1)
