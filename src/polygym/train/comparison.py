"""The held-out rewards at the two ends of a run, environment by environment, also where a resume has changed the mix.

The one idea: every environment of the last evaluation has its line; one that cannot be paired has no difference, and a
note says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polygym.collect.compare import Comparison, Difference, paired_difference

Saved = Mapping[str, Any]


def before_and_after(before: Saved, after: Saved, shares: Mapping[str, float]) -> tuple[Comparison, tuple[str, ...]]:
    """Two saved evaluations compared on the same tasks, with the notes that their reader needs.

    An environment that only `after` has stands with its mean alone, outside the combined reward.

    Args:
        before: what `Results.save` wrote, read again.
        after: likewise.
        shares: weights of the combined reward.
    """
    old, new = before["environments"], after["environments"]
    if any(name in old for name in new):
        paired = paired_difference(before, after, shares=shares)
    else:
        paired = Comparison({}, Difference("combined", 0, 0, None, None, None, None))
    environments = {name: paired.environments.get(name) or _alone(name, found) for name, found in new.items()}
    return Comparison(environments, paired.combined), tuple(
        note for name, found in new.items() if (note := _note(name, old.get(name), found))
    )


def _alone(name: str, found: Saved) -> Difference:
    return Difference(name, found["n"], found["rollouts"], None, found["mean_reward"], None, None)


def _note(name: str, old: Saved | None, new: Saved) -> str:
    """Why an environment has no difference, or one on fewer tasks than were asked; empty where there is nothing."""
    if old is None:
        return f"{name} was added after the first evaluation: it has no reward before, and counts in no combined one"
    asked, before = ({task for task, _ in found["tasks"]} for found in (new, old))
    if asked == before:
        return ""
    return (
        f"{name}: {len(asked & before)} of the {len(asked)} held-out tasks of the last evaluation were asked in the "
        "first one too, since the config was changed between them; only those are compared"
    )
