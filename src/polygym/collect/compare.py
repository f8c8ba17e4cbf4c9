"""The comparison of two evaluations.

The one idea: two policies are compared on the same tasks, environment by environment, because tasks differ more than
policies do; what only one side has played says nothing about the other. It is left out, and that is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polygym.collect.results import COMBINED, Results, combined_interval, read_results
from polygym.collect.rewrite import metrics_beside, shares_of
from polygym.collect.rollout_rows import RolloutRows
from polygym.collect.summary import RewardsByTask
from polygym.errors import UsageError
from polygym.rollout import Rollout, TaskId
from polygym.statistics import Array, bootstrap_differences, group_rows, mean, scored, weighted_mean
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


def read_evaluation(path: str | Path) -> dict[str, Any]:
    """The rewards and shares of an evaluation, as `paired_difference` takes them.

    Args:
        path: OUT.jsonl (its shares are those of the OUT_metrics.json beside it, where that is there), OUT_metrics.json,
            or a file that `Results.save` wrote.

    Raises:
        UsageError: when there is no such file, or it holds something else.
    """
    if Path(path).suffix == ".jsonl":
        with RolloutRows(path) as rows:
            tasks_E: dict[str, dict[TaskId, list[float | None]]] = {name: {} for name in rows.counts_E}
            for (environment, task, _), reward in rows.rewards():
                tasks_E[environment].setdefault(task, []).append(reward)
            shares = shares_of([metrics_beside(path)], dict.fromkeys(rows.counts_E, 1))
        environments = {name: {"tasks": [list(task) for task in tasks.items()]} for name, tasks in tasks_E.items()}
        return {"environments": environments, COMBINED: {"shares": shares}}
    found = read_results(path)
    for name, of in found["environments"].items():
        if not isinstance(of, dict) or not isinstance(of.get("tasks"), list):
            raise UsageError(
                f"{str(path)!r} does not hold the rewards of each task of environment {name!r}: an older version wrote "
                "it; give its OUT.jsonl"
            )
    return found


def left_out(before: Evaluated, after: Evaluated) -> list[str]:
    """What a comparison leaves out, a line each: environments and tasks without a scored rollout on both sides."""
    old, new = _rewards(before), _rewards(after)
    lines = [f"{name}: only in the first, left out" for name in old if name not in new]
    lines += [f"{name}: only in the second, left out" for name in new if name not in old]
    for name in new:
        if name in old:
            scored_old, scored_new = ({task for task, of in side[name].items() if scored(of)} for side in (old, new))
            if alone := len(scored_old ^ scored_new):
                lines.append(f"{name}: {alone} tasks are scored on one side only, left out")
    return lines


def _rewards(evaluated: Evaluated) -> dict[str, RewardsByTask]:
    """Rewards by environment and task, from any form."""
    if isinstance(evaluated, Results):
        return {name: found.tasks for name, found in evaluated.environments.items()}
    if isinstance(evaluated, Mapping):
        return {name: dict(found["tasks"]) for name, found in evaluated["environments"].items()}
    rewards: dict[str, dict[TaskId, list[float | None]]] = {}
    for (name, task), of_task in group_rows(evaluated, key=_task_of, value=_reward_of).items():
        rewards.setdefault(name, {})[task] = of_task
    return dict(rewards)


def _task_of(row: Rollout | Mapping[str, Any]) -> tuple[str, TaskId]:
    return (row.environment, row.task_id) if isinstance(row, Rollout) else (row["environment"], row["task_id"])


def _reward_of(row: Rollout | Mapping[str, Any]) -> float | None:
    return row.reward if isinstance(row, Rollout) else row["reward"]


def _shares(evaluated: Evaluated) -> Mapping[str, float]:
    if isinstance(evaluated, Results):
        return evaluated.shares
    return evaluated[COMBINED]["shares"] if isinstance(evaluated, Mapping) else {}
