"""Results of an evaluation, and the comparison of two.

The one idea: every environment is reported on its own; `combined` is their mean weighted by the shares, `all` the mean
over rollouts. A combined mean needs all its environments: without one of them it would be another quantity.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from polygym.collect.summary import EnvironmentSummary, RewardsByTask, summarize
from polygym.collect.unscored import Unscored, unscored_lines
from polygym.errors import UsageError
from polygym.rollout import Rollout, TaskId
from polygym.rows import dump_document, write_aside
from polygym.statistics import (
    Array,
    bootstrap_differences,
    bootstrap_means,
    group_rows,
    mean,
    percentile_interval,
    weighted_mean,
)
from polygym.statistics import paired_difference as difference_of_rewards
from polygym.tables import number, plain_table, span

_SCHEMA = 1
_COMBINED = "combined"


@dataclass(slots=True, repr=False)
class Results:
    """Rewards of one policy on environments.

    Args:
        model: name of the policy.
        settings: what was asked, as plain data.
        shares: weight of each environment in the combined mean.
        environments: a summary of each.
        rollouts: every rollout in the order of the tasks; empty where results were read from a file.
        complete: False where the evaluation was stopped before its end.
    """

    model: str
    settings: dict[str, Any]
    shares: dict[str, float]
    environments: dict[str, EnvironmentSummary]
    rollouts: list[Rollout] = field(default_factory=list)
    complete: bool = True

    @classmethod
    def of(
        cls,
        rollouts: Iterable[Rollout],
        *,
        model: str,
        settings: Mapping[str, Any],
        shares: Mapping[str, float],
        complete: bool = True,
        seed: int = 0,
    ) -> Results:
        """Sum up rollouts, those of each environment in `shares`, also where it has none."""
        kept = list(rollouts)
        by_environment = group_rows(kept, key=lambda rollout: rollout.environment, value=lambda rollout: rollout)
        environments = {name: summarize(by_environment.get(name, []), seed=seed) for name in shares}
        return cls(model, dict(settings), dict(shares), environments, kept, complete)

    @property
    def mean_reward(self) -> float | None:
        """The combined mean reward; None if an environment has no scored rollout."""
        return weighted_mean({name: found.mean_reward for name, found in self.environments.items()}, self.shares)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the combined mean reward."""
        draws = {name: bootstrap_means(found.tasks, seed=place) for place, (name, found) in enumerate(self._weighed())}
        return _combined_interval(draws, self.shares)

    @property
    def all_mean_reward(self) -> float | None:
        """Mean reward over the rollouts of all environments."""
        return mean(
            reward for found in self.environments.values() for rewards in found.tasks.values() for reward in rewards
        )

    @property
    def failures(self) -> dict[str, Unscored]:
        """The unscored rollouts of each environment."""
        return {name: found.failures for name, found in self.environments.items()}

    def to_dict(self) -> dict[str, Any]:
        """The results as JSON data: the content of `eval/*.json` and OUT_metrics.json."""
        return {
            "schema": _SCHEMA,
            "model": self.model,
            "settings": self.settings,
            "complete": self.complete,
            "environments": {name: found.to_dict() for name, found in self.environments.items()},
            _COMBINED: self._combined() | {"shares": self.shares},
            "all": {"mean_reward": self.all_mean_reward},
        }

    def save(self, path: str | Path) -> None:
        """Write `to_dict` to `path`, aside and renamed."""
        write_aside(path, dump_document(self.to_dict()))

    def metrics(self) -> dict[str, float]:
        """`<env>/mean_reward`, `<env>/pass@k`, ..., `combined/mean_reward`, `all/mean_reward`; no value, no key."""
        metrics = {
            f"{name}/{metric}": value
            for name, found in self.environments.items()
            for metric, value in found.numbers().items()
        }
        overall = {f"{_COMBINED}/mean_reward": self.mean_reward, "all/mean_reward": self.all_mean_reward}
        return metrics | {name: value for name, value in overall.items() if value is not None}

    def __repr__(self) -> str:
        means = ", ".join(f"{name}={number(found.mean_reward)}" for name, found in self.environments.items())
        return f"Results(model={self.model!r}, {means}, combined={number(self.mean_reward)})"

    def __str__(self) -> str:
        passes = sorted({k for found in self.environments.values() for k in found.pass_at_k if k > 1})
        header = ["environment", "tasks", "rollouts", "mean reward", "95 % interval"]
        header += [*(f"pass@{k}" for k in passes), "unscored"]
        rows = [
            [name, str(found.n), str(found.rollouts), number(found.mean_reward), span(found.interval)]
            for name, found in self.environments.items()
        ]
        for row, found in zip(rows, self.environments.values(), strict=True):
            row += [*(number(found.pass_at_k.get(k)) for k in passes), str(found.unscored)]
        if len(rows) > 1:
            total = self._combined()
            row = [
                _COMBINED,
                str(total["n"]),
                str(total["rollouts"]),
                number(total["mean_reward"]),
                span(total["interval"]),
            ]
            rows.append([*row, *("" for _ in passes), str(total["unscored"])])
        lines = [plain_table(header, rows), *unscored_lines(self.failures)]
        return "\n".join([*lines, *([] if self.complete else ["stopped before the end; what was collected is shown"])])

    def _combined(self) -> dict[str, Any]:
        found = self.environments.values()
        return {
            "n": sum(summary.n for summary in found),
            "rollouts": sum(summary.rollouts for summary in found),
            "unscored": sum(summary.unscored for summary in found),
            "mean_reward": self.mean_reward,
            "interval": self.interval,
        }

    def _weighed(self) -> list[tuple[str, EnvironmentSummary]]:
        return [(name, found) for name, found in self.environments.items() if self.shares.get(name, 0) > 0]


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
            _COMBINED: plain(self.combined),
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
        _COMBINED,
        sum(found.tasks for found in counted),
        sum(found.rollouts for found in counted),
        weighted_mean({found.environment: found.before for found in rows}, weights),
        weighted_mean({found.environment: found.after for found in rows}, weights),
        weighted_mean({found.environment: found.difference for found in rows}, weights),
        _combined_interval({name: drawn for name, drawn in draws.items() if weights[name] > 0}, weights),
    )
    return Comparison(environments, combined)


def read_results(path: str | Path) -> dict[str, Any]:
    """The saved form of results (`Results.save`), for `paired_difference` and for planning.

    Raises:
        UsageError: when there is no such file, or it holds something else.
    """
    try:
        found = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read results from {str(path)!r}: {error}; give a file that Results.save wrote"
        ) from error
    if not isinstance(found, dict) or not isinstance(found.get("environments"), dict):
        raise UsageError(f"{str(path)!r} holds no results: it has no environments; give a file that Results.save wrote")
    return found


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
    return evaluated[_COMBINED]["shares"] if isinstance(evaluated, Mapping) else {}


def _combined_interval(draws: Mapping[str, Array | None], weights: Mapping[str, float]) -> tuple[float, float] | None:
    """Interval of the weighted mean of environments that were drawn independently; None when one has no interval."""
    arrays: Sequence[Array] = [drawn for drawn in draws.values() if drawn is not None]
    if not arrays or len(arrays) < len(draws):
        return None
    return percentile_interval(np.average(np.stack(arrays), axis=0, weights=[weights[name] for name in draws]))
