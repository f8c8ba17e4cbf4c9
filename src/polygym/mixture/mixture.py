"""The mix of environments of a run: which tasks each step asks.

The one idea: a step is planned whole, before anything runs, from the schedule (how many groups of each environment) and
the cursors (which of its tasks). What happens to the rollouts cannot change what is asked next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polygym.errors import UsageError
from polygym.mixture.cursor import TaskCursor
from polygym.mixture.schedule import GroupSchedule
from polygym.mixture.shares import water_fill


class Mixture:
    """Plans steps of G groups over weighted environments.

    >>> mixture = Mixture({"math": 0.5, "word": 0.5}, {"math": 100, "word": 50}, groups_per_step=4, seed=0)
    >>> [environment for environment, task in mixture.plan_step()]
    ['math', 'math', 'word', 'word']

    Args:
        weights_E: how much each environment counts; normalised. 0 switches one off.
        sizes_E: training tasks of each environment.
        groups_per_step: G.
        seed: of the run; it decides the order of tasks.

    Raises:
        UsageError: for weights that give no mix, sizes that lack an environment or tasks, or fewer than one group.
    """

    def __init__(
        self, weights_E: Mapping[str, float], sizes_E: Mapping[str, int], groups_per_step: int, seed: int = 0
    ) -> None:
        self.shares = water_fill(weights_E, groups_per_step)
        self.groups_per_step = groups_per_step
        self._schedule = GroupSchedule(self.shares, groups_per_step)
        missing = [name for name, share in self.shares.items() if share > 0 and name not in sizes_E]
        if missing:
            raise UsageError(f"sizes_E lacks {', '.join(missing)}; give the number of tasks of each environment")
        self._cursors = {
            name: TaskCursor(seed, name, sizes_E[name]) for name, share in self.shares.items() if share > 0
        }
        self._counts_E = dict.fromkeys(self._cursors, 0)

    def plan_step(self) -> list[tuple[str, int]]:
        """The groups of the next step as (environment, task number), each environment's together, in order."""
        counts_E = self._schedule.next()
        self._counts_E = {environment: counts_E[environment] for environment in self._cursors}
        return [
            (environment, task)
            for environment, cursor in self._cursors.items()
            for task in cursor.draw(self._counts_E[environment])
        ]

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON: the schedule, and the cursor of each environment under its name."""
        return {
            "schedule": self._schedule.state_dict(),
            "cursors": {environment: cursor.state_dict() for environment, cursor in self._cursors.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> str:
        """Continue from a saved state, also of another set of environments: those that are in both keep their cursors.

        Returns:
            What has changed since, in words; an empty text where nothing has.
        """
        saved: Mapping[str, Any] = state["cursors"]
        changes = [f"{name} is new and starts at its first task" for name in self._cursors if name not in saved]
        changes += [f"{name} is gone" for name in saved if name not in self._cursors]
        for name, cursor in self._cursors.items():
            if name in saved and not cursor.load_state_dict(saved[name]):
                changes.append(
                    f"{name} has {cursor.size} tasks instead of {saved[name]['size']}: they come in a new order, "
                    f"from draw {cursor.position} on"
                )
        if not self._schedule.load_state_dict(state["schedule"]):
            shares = ", ".join(f"{name} {share:.3g}" for name, share in self.shares.items() if share > 0)
            changes.append(f"shares are counted anew: {shares} of {self.groups_per_step} groups a step")
        return f"the mix has changed: {'; '.join(changes)}" if changes else ""

    def metrics(self) -> dict[str, float]:
        """`<env>/share` (its sampling share) and `<env>/groups` (of the last planned step)."""
        return {
            f"{environment}/{name}": value
            for environment, groups in self._counts_E.items()
            for name, value in (("share", self.shares[environment]), ("groups", groups))
        }
