"""What to change in a batch plan: advice, and warnings about environments that cannot teach.

The one idea: a warning says the figure, the bound that it breaks and what to do about it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from polygym.mixture.evidence import Evidence
from polygym.mixture.shares import water_fill

if TYPE_CHECKING:
    from polygym.mixture.batch_plan import EnvironmentPlan

NEW = "\0"  # no environment's name
TOO_EASY = 0.8  # mean reward above which most groups have no signal
HOPELESS_ATTEMPTS = 10  # attempts without any reward after which an environment is called hopeless
START_RANGE = (0.25, 0.45)  # combined starting reward from which runs learn well
UNBALANCED_SHARES = 4.0  # largest over smallest sampling share
UNBALANCED_EPOCHS = 10.0  # most over least passes through the tasks, where the most is above 1


def groups_with_one_more(weights_E: Mapping[str, float], groups: int) -> int:
    """Fewest groups a step in which every environment keeps its groups beside a new one of weight 1.

    >>> groups_with_one_more({"math": 1.0, "word": 2.0}, groups=12)
    16

    Args:
        weights_E: as the config gives them: 1 where it gives none.
        groups: G as it is.
    """
    had_E = {name: share * groups for name, share in water_fill(weights_E, groups).items()}
    more_E = {**weights_E, NEW: 1.0}

    def kept(raised: int) -> bool:
        shares_E = water_fill(more_E, raised)
        return all(shares_E[name] * raised > had - 1e-9 for name, had in had_E.items())

    most = groups + 1
    while not kept(most):
        most *= 2
    return bisect_left(range(most), True, lo=groups + 1, key=kept)


def advice(
    weights_E: Mapping[str, float], groups: int, k: int, *, own_k: bool, raised: int, per_environment: int | None
) -> str:
    """What to give when an environment is added, so that those that are there lose nothing.

    Args:
        weights_E: as the config gives them.
        groups: G as it is.
        k: K of an environment that has no own.
        own_k: whether an environment has its own.
        raised: what `groups_with_one_more` says.
        per_environment: `groups_per_environment` of the config; None where it gives a batch size.
    """
    if per_environment is None:
        counted = f"; it counts {k} rollouts a group, also where an environment has its own number" if own_k else ""
        return (
            f"when an environment is added with the default weight of 1: the others keep their groups with {raised} "
            f"groups a step, which is batch_size = {raised * k} (now {groups * k}{counted})"
        )
    follow = f"groups_per_environment = {per_environment} makes it {groups + per_environment} groups a step"
    fair = sum(weights_E.values()) / len(weights_E)
    if fair > 1 - 1e-9:
        return f"when an environment is added with the default weight of 1: {follow}, and the others keep theirs"
    return (
        f"when an environment is added: {follow}; give it weight = {fair:.3g}, the mean of the others, or less, and "
        "they keep theirs (the default weight of 1 would take from them)"
    )


def warnings(
    plans: Sequence[EnvironmentPlan], evidence: Mapping[str, Evidence], groups: int, combined: float | None
) -> list[str]:
    found = []
    if groups < len(plans):
        found.append(
            f"{groups} groups a step are fewer than the {len(plans)} environments: they take turns, and a step does "
            f"not hold each of them; give at least {len(plans)} groups a step"
        )
    for plan in plans:
        limit = evidence[plan.name].max_tokens
        if None not in (limit, plan.max_tokens) and limit != plan.max_tokens:
            found.append(
                f"{plan.name} was evaluated with max_tokens = {limit}, the run has {plan.max_tokens}: its reward, "
                "tokens and seconds are those of the evaluation and may differ here; evaluate the config itself "
                f"(polygym eval run CONFIG), or with --max-tokens {plan.max_tokens}"
            )
        if plan.mean_reward is not None and plan.mean_reward > TOO_EASY:
            found.append(
                f"{plan.name} is too easy: mean reward {plan.mean_reward:.2f} is above {TOO_EASY:g}, so few groups "
                "have signal; give harder tasks or a lower weight"
            )
        if plan.attempts >= HOPELESS_ATTEMPTS and not evidence[plan.name].success:
            found.append(
                f"{plan.name} is hopeless: no reward in {plan.attempts} attempts, so nothing can be learned from it; "
                "give easier tasks, worked examples (few_shot) or a warm start (polygym sft run)"
            )
    found += _unbalanced(plans)
    low, high = START_RANGE
    if combined is not None and not low <= round(combined, 9) <= high:
        where, change = ("below", "easier") if combined < low else ("above", "harder")
        found.append(
            f"the combined starting reward {combined:.2f} is {where} {low:g} to {high:g}, where runs learn best; "
            f"make the tasks {change}"
        )
    return found


def _unbalanced(plans: Sequence[EnvironmentPlan]) -> list[str]:
    found = []
    most, least = max(plans, key=lambda plan: plan.share), min(plans, key=lambda plan: plan.share)
    if most.share > UNBALANCED_SHARES * least.share:
        found.append(
            f"the shares are unbalanced: {most.name} gets {most.share / least.share:.1f} times the groups of "
            f"{least.name}; bring their weights closer if both matter"
        )
    most, least = max(plans, key=lambda plan: plan.epochs), min(plans, key=lambda plan: plan.epochs)
    if most.epochs > max(1.0, UNBALANCED_EPOCHS * least.epochs):
        found.append(
            f"the task counts are unbalanced: the run passes {most.epochs:.1f} times through the {most.tasks} tasks of "
            f"{most.name} and {least.epochs:.1f} times through the {least.tasks} of {least.name}; "
            f"give {most.name} more tasks"
        )
    return found
