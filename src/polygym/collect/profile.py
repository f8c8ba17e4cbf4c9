"""A profile: how hard each task is for a policy, from rollouts that it has played.

The one idea: a task that is always solved, or never, teaches nothing where rewards are compared within a group, and the
rollouts of an evaluation already say which those are. A line a task, so that a curriculum is a filter of lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from polygym.collect.rollout_rows import RolloutKey, RolloutRows, own_keys
from polygym.errors import UsageError
from polygym.rows import Row
from polygym.statistics import mean, pass_at_k, powers_of_two, scored
from polygym.tables import number, plain_table

SOLVED_REWARD = 1.0
ALWAYS, SOMETIMES, NEVER, UNSCORED = "always", "sometimes", "never", "unscored"
HOW_OFTEN = (ALWAYS, SOMETIMES, NEVER, UNSCORED)


@dataclass(slots=True)
class _Counts:
    """The tasks of one environment by how often they are solved, and the mean reward of each that has one."""

    of: dict[str, int]
    means: list[float]


class Profile:
    """The tasks of a file of rollouts.

    Args:
        rows: the file, opened.
        solved: the reward from which a rollout has solved its task.

    Raises:
        UsageError: when `solved` is no number.
    """

    def __init__(self, rows: RolloutRows, *, solved: float = SOLVED_REWARD) -> None:
        if not isinstance(solved, (int, float)) or solved != solved:
            raise UsageError(f"solved={solved!r} must be a number: the reward from which a task counts as solved")
        self.rows = rows
        self.solved = solved
        self._counts_E = {name: _Counts(dict.fromkeys(HOW_OFTEN, 0), []) for name in rows.counts_E}

    def tasks(self) -> Iterator[Row]:
        """A row a task, environment by environment and in the order of the ids. To be gone through once.

        `solved` is `always`, `sometimes`, `never` or, without a scored rollout, `unscored`. Where the rollouts were
        collected from rows, `row` is the task's own, to be played or trained on again.
        """
        for (environment, _), keys in groupby(self.rows.names(), key=lambda key: key[:2]):
            found = self._task(list(keys))
            counts = self._counts_E[environment]
            counts.of[found["solved"]] += 1
            if found["mean_reward"] is not None:
                counts.means.append(found["mean_reward"])
            yield found

    def to_dict(self) -> dict[str, Any]:
        """How many tasks of each environment are solved how often."""
        return {
            name: {"tasks": sum(counts.of.values()), **counts.of, "mean_reward": mean(counts.means)}
            for name, counts in self._counts_E.items()
        }

    def __str__(self) -> str:
        rows = [
            [name, *(str(found[key]) for key in ("tasks", *HOW_OFTEN)), number(found["mean_reward"])]
            for name, found in self.to_dict().items()
        ]
        return plain_table(["environment", "tasks", *HOW_OFTEN, "mean of tasks"], rows)

    def _task(self, keys: list[RolloutKey]) -> Row:
        rows = [self.rows.row(key) for key in keys]
        rewards = [row["reward"] for row in rows]
        finite = scored(rewards)
        solved = sum(reward >= self.solved for reward in finite)
        how_often = ALWAYS if solved == len(finite) else SOMETIMES if solved else NEVER
        row: Row = {
            "environment": rows[0]["environment"],
            "task_id": rows[0]["task_id"],
            "rollouts": len(rows),
            "unscored": len(rows) - len(finite),
            "solved": how_often if finite else UNSCORED,
            "solved_fraction": solved / len(finite) if finite else None,
            "mean_reward": mean(finite),
            "pass_at_k": {str(k): pass_at_k(finite, k) for k in powers_of_two(len(finite))},
            "rewards": rewards,
        }
        if "responses_create_params" in rows[0]:
            row["row"] = own_keys(rows[0])
        return row
