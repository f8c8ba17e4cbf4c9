"""Groups of rollouts that share a baseline.

The one idea: a group in which too few rollouts could be scored has no baseline. Its unscored rollouts are played once
more; if that does not help, it is dropped and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from polygym.collect.collector import Assignment, Collector
from polygym.rollout import RolloutGroup
from polygym.seeds import derive_seed


@dataclass(slots=True)
class CollectedGroups:
    """What a collection of groups brought. `retried_E` counts groups played a second time, helped by it or not."""

    groups: list[RolloutGroup]
    dropped: list[RolloutGroup] = field(default_factory=list)
    retried_E: dict[str, int] = field(default_factory=dict)


async def collect_groups(collector: Collector, assignments: Sequence[Sequence[Assignment]]) -> CollectedGroups:
    """Play groups of assignments, each the K rollouts of one task.

    A group with fewer than max(2, K / 2) scored rollouts is retried once: its unscored rollouts are played again with
    other seeds. Groups and their rollouts come in the order of `assignments`.
    """
    wanted = [list(group) for group in assignments if group]
    rollouts = iter(await collector.collect([assignment for group in wanted for assignment in group]))
    groups = [
        RolloutGroup(first.task.environment, first.task.id, first.group_id, [next(rollouts) for _ in group])
        for group in wanted
        for first in group[:1]
    ]
    weak = [position for position, group in enumerate(groups) if not _has_baseline(group)]
    if not weak:
        return CollectedGroups(groups)
    again = [
        (position, index, replace(assignment, seed=derive_seed(assignment.seed, "retry")))
        for position in weak
        for index, assignment in enumerate(wanted[position])
        if not groups[position].rollouts[index].scored
    ]
    retried = await collector.collect([assignment for _, _, assignment in again])
    for (position, index, _), rollout in zip(again, retried, strict=True):
        groups[position].rollouts[index] = rollout
    return CollectedGroups(
        groups=[group for group in groups if _has_baseline(group)],
        dropped=[group for group in groups if not _has_baseline(group)],
        retried_E=dict(Counter(groups[position].environment for position in weak)),
    )


def _has_baseline(group: RolloutGroup) -> bool:
    scored = sum(rollout.scored for rollout in group.rollouts)
    return scored >= max(2, len(group.rollouts) / 2)
