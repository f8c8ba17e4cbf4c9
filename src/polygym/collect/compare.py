"""The comparison of two evaluations.

The one idea: two policies are compared on the same tasks, environment by environment, because tasks differ more than
policies do; what only one side has played says nothing about the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from polygym.collect.results import COMBINED, Results, combined_interval
from polygym.collect.summary import RewardsByTask
from polygym.errors import UsageError
from polygym.rollout import Rollout, TaskId
from polygym.statistics import Array, bootstrap_differences, mean, weighted_mean
from polygym.statistics import paired_difference as difference_of_rewards
from polygym.tables import number, plain_table, span


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean reward before and after, on the tasks scored in both; `rollouts` counts those after."""

    environment: str
    tasks: int
    rollouts: int
    before: float | None
    after: float | None
    difference: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two evaluations of the same tasks, environment by environment and combined."""

    environments: dict[str, Difference]
    combined: Difference

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON data."""

        def plain(found: Difference) -> dict[str, Any]:
            row = {name: getattr(found, name) for name in Difference.__slots__ if name != "environment"}
            return row | {"interval": None if found.interval is None else list(found.interval)}

        return {
            "environments": {name: plain(found) for name, found in self.environments.items()},
            COMBINED: plain(self.combined),
        }

    def __str__(self) -> str:
        header = ["environment", "tasks", "rollouts", "before", "after", "difference", "95 % interval"]
        shown = [*self.environments.values(), *([self.combined] if len(self.environments) > 1 else [])]
        rows = [
            (
                found.environment,
                str(found.tasks),
                str(found.rollouts),
                number(found.before),
                number(found.after),
                number(found.difference, "+"),
                span(found.interval, "+"),
            )
            for found in shown
        ]
        return plain_table(header, rows)


Evaluated = Results | Mapping[str, Any] | Iterable[Rollout | Mapping[str, Any]]


def paired_difference(
    before: Evaluated, after: Evaluated, *, shares: Mapping[str, float] | None = None, seed: int = 0
) -> Comparison:
    """How rewards changed on the same tasks, with 95 % intervals (bootstrap clustered by task, pairs kept).

    Args:
        before: results, their `to_dict` form (the content of `eval/*.json`), or rollouts, or rows of a rollout file.
        after: likewise. Environments and tasks that only one side has are left out.
        shares: weights of the combined difference; default those of `after`, or equal ones.

    Raises:
        UsageError: when the two share no environment.
    """
    old, new = _rewards(before), _rewards(after)
    names = [name for name in new if name in old]
    if not names:
        raise UsageError(f"nothing to compare: environments before are {sorted(old)}, after {sorted(new)}")
    weights = shares if shares is not None else _shares(after)
    weights = {name: weights.get(name, 0.0) for name in names} if weights else dict.fromkeys(names, 1.0)
    environments: dict[str, Difference] = {}
    draws: dict[str, Array | None] = {}
    for place, name in enumerate(names):
        found = difference_of_rewards(old[name], new[name], seed=seed + place)
        both = [
            task
            for task in new[name]
            if mean(new[name][task]) is not None and mean(old[name].get(task, ())) is not None
        ]
        environments[name] = Difference(
            name,
            found.tasks,
            found.rollouts,
            mean(reward for task in both for reward in old[name][task]),
            mean(reward for task in both for reward in new[name][task]),
            found.value,
            found.interval,
        )
        draws[name] = bootstrap_differences(old[name], new[name], seed=seed + place)
    rows = environments.values()
    counted = [found for found in rows if weights[found.environment] > 0]
    combined = Difference(
        COMBINED,
        sum(found.tasks for found in counted),
        sum(found.rollouts for found in counted),
        weighted_mean({found.environment: found.before for found in rows}, weights),
        weighted_mean({found.environment: found.after for found in rows}, weights),
        weighted_mean({found.environment: found.difference for found in rows}, weights),
        combined_interval({name: drawn for name, drawn in draws.items() if weights[name] > 0}, weights),
    )
    return Comparison(environments, combined)


def _rewards(evaluated: Evaluated) -> dict[str, RewardsByTask]:
    """Rewards by environment and task, from any form."""
    if isinstance(evaluated, Results):
        return {name: found.tasks for name, found in evaluated.environments.items()}
    if isinstance(evaluated, Mapping):
        return {name: dict(found["tasks"]) for name, found in evaluated["environments"].items()}
    rewards: dict[str, dict[TaskId, list[float | None]]] = {}
    for row in evaluated:
        if isinstance(row, Rollout):
            name, task, reward = row.environment, row.task_id, row.reward
        else:
            name, task, reward = row["environment"], row["task_id"], row["reward"]
        rewards.setdefault(name, {}).setdefault(task, []).append(reward)
    return dict(rewards)


def _shares(evaluated: Evaluated) -> Mapping[str, float]:
    if isinstance(evaluated, Results):
        return evaluated.shares
    return evaluated[COMBINED]["shares"] if isinstance(evaluated, Mapping) else {}
