"""What is known of an environment before a run: rewards and lengths of an evaluation.

The one idea: whether a group of K rollouts has signal is a property of its task, so the rewards are kept by task. With
at least K rollouts of every task the chance is counted exactly; beyond that, and from a summary, the tasks' chances of
success are taken to be spread like a beta distribution with the mean and the likeness within tasks that was seen.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polygym.errors import UsageError
from polygym.statistics import scored


@dataclass(frozen=True, slots=True)
class Evidence:
    """An evaluation of one environment.

    Args:
        mean_reward: over scored rollouts; None without any.
        attempts: scored rollouts.
        rewards_by_task: scored rewards of each task; empty where only a summary is known.
        best_of_two: expected better reward of two rollouts of a task (pass@2), where only a summary is known.
        completion_tokens: tokens that the policy writes in an episode, on average; None if unknown.
        max_tokens: the limit of a turn that they were written under; None if unknown.
    """

    mean_reward: float | None
    attempts: int
    rewards_by_task: tuple[tuple[float, ...], ...] = ()
    best_of_two: float | None = None
    completion_tokens: float | None = None
    max_tokens: int | None = None

    @property
    def success(self) -> float | None:
        """Share of rollouts with a reward above 0; the mean reward where only a summary is known."""
        if self.rewards_by_task:
            return sum(reward > 0 for task in self.rewards_by_task for reward in task) / self.attempts
        return self.mean_reward

    @property
    def likeness(self) -> float | None:
        """Part of the variance of success that lies between tasks, 0 to 1 (intraclass correlation); None if unknown."""
        if self.rewards_by_task:
            counts = [
                (sum(reward <= 0 for reward in task), len(task)) for task in self.rewards_by_task if len(task) > 1
            ]
            if not counts:
                return None
            rollouts = sum(n for _, n in counts)
            failure = sum(failed for failed, _ in counts) / rollouts
            both_fail = math.fsum(failed * (failed - 1) / (n - 1) for failed, n in counts) / rollouts
            return _part(both_fail - failure**2, failure * (1 - failure))
        if self.mean_reward is None or self.best_of_two is None:
            return None
        both_succeed = 2 * self.mean_reward - self.best_of_two
        return _part(both_succeed - self.mean_reward**2, self.mean_reward * (1 - self.mean_reward))

    def signal_fraction(self, rollouts_per_example: int) -> float | None:
        """Expected share of groups of K whose rewards are not all equal; None if too little is known.

        Where it has to be extrapolated, graded rewards are seen as success (above 0) or failure: a lower bound, since
        two different successes are signal too. It is never below what smaller groups would have.

        >>> Evidence(0.5, 8, rewards_by_task=((1.0, 0.0, 1.0, 0.0), (1.0, 1.0, 0.0, 0.0))).signal_fraction(2)
        0.6666666666666667
        """
        k = rollouts_per_example
        tasks = self.rewards_by_task
        counted = min(k, *map(len, tasks)) if tasks else 0
        equal = [
            sum(math.comb(n, counted) for n in Counter(task).values()) / math.comb(len(task), counted) for task in tasks
        ]
        exact = 1 - math.fsum(equal) / len(equal) if tasks else 0.0
        if counted == k:
            return exact
        likeness, success = self.likeness, self.success
        if likeness is None or success is None:
            return None
        return max(exact, 1 - _all_alike(success, likeness, k) - _all_alike(1 - success, likeness, k))

    def task_standard_error(self, rollouts_per_example: int) -> float | None:
        """Standard error of the mean reward of one task's K rollouts: how blurred a baseline is; None if unknown."""
        tasks = [task for task in self.rewards_by_task if len(task) > 1]
        if not tasks:
            return None
        means = [math.fsum(task) / len(task) for task in tasks]
        squares = math.fsum((reward - mean) ** 2 for task, mean in zip(tasks, means, strict=True) for reward in task)
        variance = squares / sum(len(task) - 1 for task in tasks)
        return math.sqrt(variance / rollouts_per_example)


def evidence_of_evaluation(evaluation: Mapping[str, Any]) -> dict[str, Evidence]:
    """Evidence by environment from the summary of an evaluation: the content of `eval/*.json` or OUT_metrics.json.

    Raises:
        UsageError: when it holds no environments.
    """
    environments = evaluation.get("environments")
    if not isinstance(environments, Mapping):
        given = ", ".join(map(str, evaluation)) or "nothing"
        raise UsageError(f"an evaluation holds 'environments', this has {given}; give OUT_metrics.json or eval/*.json")
    sampling_E = (evaluation.get("settings") or {}).get("sampling") or {}
    return {name: _evidence(summary, sampling_E.get(name) or {}) for name, summary in environments.items()}


def _evidence(summary: Mapping[str, Any], sampling: Mapping[str, Any]) -> Evidence:
    tasks = tuple(tuple(scored(rewards)) for _, rewards in summary.get("tasks") or ())
    tasks = tuple(rewards for rewards in tasks if rewards)
    return Evidence(
        mean_reward=summary.get("mean_reward"),
        attempts=sum(map(len, tasks)) or int(summary.get("rollouts") or 0) - int(summary.get("unscored") or 0),
        rewards_by_task=tasks,
        best_of_two=(summary.get("pass_at_k") or {}).get("2"),
        completion_tokens=summary.get("completion_tokens_mean"),
        max_tokens=sampling.get("max_tokens"),
    )


def _part(between: float, total: float) -> float:
    return min(1.0, max(0.0, between / total)) if total > 0 else 1.0


def _all_alike(success: float, likeness: float, k: int) -> float:
    """E[p^k] of a beta-distributed p with mean `success` and intraclass correlation `likeness`; right at 0 and at 1."""
    rest = math.prod(
        (success * (1 - likeness) + number * likeness) / (1 - likeness + number * likeness) for number in range(1, k)
    )
    return success * rest
