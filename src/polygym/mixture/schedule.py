"""How many groups each environment gets in each step.

The one idea: every slot has a last moment by which an environment must be served to stay on its share, and serving the
earliest first keeps all of them within one group of it, for ever. This is Tijdeman's rule for the chairman assignment
problem (R. Tijdeman, "The chairman assignment problem", Discrete Mathematics 32, 1980, 323-330).

A step gives every environment the whole part of its quota q_e G. What is left of the quotas is a whole number R of
slots a step, and environment e is owed f_e of them, its fractional part. Over n environments that are owed something,
slot k may serve e for the (x + 1)-th time from slot

    release  = ceil((x + 1/m) R / f_e)      to slot      deadline = floor((x + 1 - 1/m) R / f_e)      with m = 2 n - 2,

and serving the released one of the earliest deadline keeps |served - owed| <= 1 - 1/m after every slot. All of it is
integer arithmetic in units of 2**-40 groups, so rounding never adds up: a share is met to 1e-12 groups a step.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

from polygym.errors import UsageError
from polygym.mixture.shares import check_groups

UNIT = 2**40  # parts of a group in which quotas are counted


class GroupSchedule:
    """Groups of each environment, step by step: `next()` for ever.

    After every step the groups that an environment was given since the start differ by less than one from its share of
    all, so over any window of steps by less than two; a share of at least one group a step is served in every step.

    >>> schedule = GroupSchedule({"math": 0.5, "tools": 0.3, "word": 0.2}, groups=4)
    >>> [tuple(schedule.next().values()) for _ in range(5)]
    [(2, 1, 1), (2, 1, 1), (2, 2, 0), (2, 1, 1), (2, 1, 1)]

    Args:
        shares_E: q_e, at least 0, which sum to 1. Pass weights through `water_fill` to have each served in every step.
        groups: G, the groups of a step.

    Raises:
        UsageError: for shares that do not sum to 1, a negative one, or fewer than one group.
    """

    def __init__(self, shares_E: Mapping[str, float], groups: int) -> None:
        check_groups(groups)
        total = sum(shares_E.values())
        if not abs(total - 1) < 1e-9 or min(shares_E.values()) < 0:
            raise UsageError(f"shares {dict(shares_E)} must be at least 0 and sum to 1, not {total!r}")
        self.groups = groups
        self._quota_E = quotas(shares_E, groups)
        self._slots = 0
        self._extra_E = dict.fromkeys(self._quota_E, 0)  # slots served beyond the whole parts of the quotas
        self._fill_queues()

    def next(self) -> dict[str, int]:
        """Groups of each environment in the next step; they sum to G."""
        counts_E = {environment: quota // UNIT for environment, quota in self._quota_E.items()}
        for _ in range(self._slots_per_step):
            environment = self._serve()
            counts_E[environment] += 1
        return counts_E

    def state_dict(self) -> dict[str, Any]:
        """What moves, and the quotas that it belongs to."""
        return {"quota": dict(self._quota_E), "slots": self._slots, "extra": dict(self._extra_E)}

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Continue a saved schedule if it had the same quotas.

        Returns:
            Whether it did. Where shares, environments or G have changed the schedule starts anew: what is owed under
            old shares says nothing about the new ones.
        """
        if dict(state["quota"]) != self._quota_E:
            return False
        self._slots = int(state["slots"])
        self._extra_E = {environment: int(state["extra"][environment]) for environment in self._quota_E}
        self._fill_queues()
        return True

    def _fill_queues(self) -> None:
        """Rebuild what follows from quotas, slots and extra: who waits for its release, who for its deadline."""
        self._owed_E = {environment: quota % UNIT for environment, quota in self._quota_E.items() if quota % UNIT}
        self._rank_E = {environment: rank for rank, environment in enumerate(self._owed_E)}
        self._slots_per_step = sum(self._owed_E.values()) // UNIT
        self._waiting: list[tuple[int, int, int, str]] = []  # (release, deadline, rank, environment)
        self._released: list[tuple[int, int, str]] = []  # (deadline, rank, environment)
        for environment in self._owed_E:
            self._enqueue(environment)

    def _enqueue(self, environment: str) -> None:
        owed = self._owed_E[environment] * (m := 2 * len(self._owed_E) - 2)
        served = m * self._extra_E[environment] * (slots := self._slots_per_step * UNIT)
        release = -(-(served + slots) // owed)
        deadline = (served + (m - 1) * slots) // owed
        heapq.heappush(self._waiting, (release, deadline, self._rank_E[environment], environment))

    def _serve(self) -> str:
        self._slots += 1
        while self._waiting and self._waiting[0][0] <= self._slots:
            heapq.heappush(self._released, heapq.heappop(self._waiting)[1:])
        environment = heapq.heappop(self._released)[2]
        self._extra_E[environment] += 1
        self._enqueue(environment)
        return environment


def quotas(shares_E: Mapping[str, float], groups: int) -> dict[str, int]:
    """Groups of each environment a step in units of 2**-40, summing to exactly G.

    Shares come from divisions and are off by some 1e-16, far less than a unit: 0.1 of 10 groups becomes exactly 1
    group, in every step. A share that is not 0 keeps at least one unit.
    """
    quota_E = {name: max(round(share * groups * UNIT), int(share > 0)) for name, share in shares_E.items()}
    missing = groups * UNIT - sum(quota_E.values())
    if missing:
        # A few units, for the largest one that will not notice; whole quotas stay whole where another can bear it.
        fractional = [name for name, quota in quota_E.items() if quota % UNIT and quota > 1000 * abs(missing)]
        quota_E[max(fractional or quota_E, key=lambda name: quota_E[name])] += missing
    return quota_E
