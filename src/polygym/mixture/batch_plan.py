"""What a step of a run will hold and cost, before anything runs: the data behind `polygym plan`.

The one idea: every figure that decides whether a mix can learn (groups, tokens, noise, signal) follows from the config
and one evaluation, so it is worked out beforehand, and the advice stands beside the figure that it is about.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from polygym.environments.weights import normalize_weights
from polygym.errors import UsageError
from polygym.mixture.evidence import Evidence
from polygym.mixture.plan_advice import advice, groups_with_one_more, warnings
from polygym.mixture.plan_text import plan_text
from polygym.mixture.schedule import GroupSchedule
from polygym.mixture.shares import water_fill

GROUP_SIZES = (4, 8, 16)
WORST_DEVIATION = 0.5  # of a reward of 0 or 1: the most there is, where nothing was measured
STEPS_TRIED = 1000  # steps of the schedule that are looked at for its smallest and largest count


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEnvironment:
    """What a config says of one environment.

    `max_completion_tokens` bounds what the policy writes in one episode, `max_tokens` what it writes in one turn.
    """

    name: str
    weight: float
    tasks: int
    max_completion_tokens: int
    rollouts_per_example: int | None = None
    prompt_tokens: float | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class EnvironmentPlan:
    """One environment of a step. Figures by K are None where the evaluation does not tell."""

    name: str
    weight: float
    share: float
    groups: float
    groups_least: int
    groups_most: int
    rollouts_per_example: int
    rollouts: float
    tokens: float
    tokens_are_a_limit: bool
    max_tokens: int | None
    tasks: int
    epochs: float
    missed_by_independent_draws: float
    mean_reward: float | None
    attempts: int
    standard_error_by_K: dict[int, float | None]
    signal_by_K: dict[int, float | None]


@dataclass(frozen=True, slots=True)
class GroupSizePlan:
    """A step with K rollouts of each of its G prompts.

    `writing_seconds` are those in which the policy writes the tokens: grading, environments and learning come on top.
    `standard_error` is of a task's mean, the worst of the mix.
    """

    rollouts_per_example: int
    rollouts: int
    tokens: float
    writing_seconds: float | None
    standard_error: float
    signal: float | None


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A step of a run, worked out; `to_dict()` for programs, `str()` for people.

    Tokens are those that the policy writes: as many as in the evaluation, or the limit of an environment without one.
    `groups_with_one_more` is G after an environment is added: what `groups_per_environment` makes it where the config
    gives that, else what leaves the others their groups beside one of weight 1, with `batch_size_with_one_more`, which
    is that in the unit of the config's key and None beside `groups_per_environment`.
    """

    prompts_per_step: int
    rollouts_per_example: int
    batch_size: int
    updates_per_batch: int
    rollouts_per_update: int
    micro_batch_tokens: int
    micro_batches_per_update: int
    rotates: bool
    missed_any: float
    environments: tuple[EnvironmentPlan, ...]
    group_sizes: tuple[GroupSizePlan, ...]
    tokens_per_second: float | None
    groups_per_environment: int | None
    groups_with_one_more: int
    batch_size_with_one_more: int | None
    combined_reward: float | None
    advice: str
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON data; K becomes text where it is a key."""
        row = asdict(self)
        for environment in row["environments"]:
            for name in ("standard_error_by_K", "signal_by_K"):
                environment[name] = {str(k): value for k, value in environment[name].items()}
        return row

    def __str__(self) -> str:
        return plan_text(self)


def plan_batch(
    environments: Sequence[PlannedEnvironment],
    *,
    groups_per_step: int,
    rollouts_per_example: int,
    groups_per_environment: int | None = None,
    updates_per_batch: int = 1,
    micro_batch_tokens: int,
    max_seq_len: int,
    max_steps: int,
    tokens_per_second: float | None = None,
    evidence_E: Mapping[str, Evidence] | None = None,
) -> BatchPlan:
    """Work out a step.

    Args:
        environments: those of the mix, with their weights as the config gives them; a weight of 0 leaves one out.
        groups_per_step: G, the prompts of a step.
        groups_per_environment: where the config gives G by it.
        rollouts_per_example: K, the responses to a prompt, where an environment has no own.
        updates_per_batch: optimizer updates on each batch.
        micro_batch_tokens: tokens of one forward and backward pass at most.
        max_seq_len: tokens of an episode at most, prompt included.
        max_steps: steps of the run.
        tokens_per_second: how fast the policy writes, measured or guessed.
        evidence_E: an evaluation of the starting policy, by environment (`evidence_of_evaluation`).

    Raises:
        UsageError: for weights that give no mix, or fewer than one group.
    """
    normalized = normalize_weights([env.weight for env in environments], [env.tasks for env in environments])
    mix = [(env, weight) for env, weight in zip(environments, normalized, strict=True) if weight > 0]
    weights_E = {env.name: weight for env, weight in mix}
    if len(weights_E) < len(mix):
        raise UsageError(f"environment names must be unique, got {', '.join(env.name for env, _ in mix)}")
    shares_E = water_fill(weights_E, groups_per_step)
    evidence = {name: (evidence_E or {}).get(name) or Evidence(None, 0) for name in weights_E}
    least_E, most_E = _count_range(shares_E, groups_per_step, max_steps)

    plans = []
    for env, weight in mix:
        known = evidence[env.name]
        groups = shares_E[env.name] * groups_per_step
        k = env.rollouts_per_example or rollouts_per_example
        written = _written(env, known)
        plans.append(
            EnvironmentPlan(
                name=env.name,
                weight=weight,
                share=shares_E[env.name],
                groups=groups,
                groups_least=least_E[env.name],
                groups_most=most_E[env.name],
                rollouts_per_example=k,
                rollouts=groups * k,
                tokens=groups * k * written,
                tokens_are_a_limit=known.completion_tokens is None,
                max_tokens=env.max_tokens,
                tasks=env.tasks,
                epochs=groups * max_steps / env.tasks,
                missed_by_independent_draws=(1 - weight) ** groups_per_step,
                mean_reward=known.mean_reward,
                attempts=known.attempts,
                standard_error_by_K={size: known.task_standard_error(size) for size in GROUP_SIZES},
                signal_by_K={size: known.signal_fraction(size) for size in GROUP_SIZES},
            )
        )

    batch_size = round(sum(plan.rollouts for plan in plans))
    sequence_tokens = sum(
        plan.rollouts * _sequence_tokens(env, plan, max_seq_len) for (env, _), plan in zip(mix, plans, strict=True)
    )
    given_E = {env.name: env.weight for env, _ in mix}
    per_environment = groups_per_environment
    raised = groups_with_one_more(given_E, groups_per_step)
    combined = _combined(plans)
    return BatchPlan(
        prompts_per_step=groups_per_step,
        rollouts_per_example=rollouts_per_example,
        batch_size=batch_size,
        updates_per_batch=updates_per_batch,
        rollouts_per_update=math.ceil(batch_size / updates_per_batch),
        micro_batch_tokens=micro_batch_tokens,
        micro_batches_per_update=max(1, math.ceil(sequence_tokens / updates_per_batch / micro_batch_tokens)),
        rotates=groups_per_step < len(mix),
        missed_any=missed_any(list(weights_E.values()), groups_per_step),
        environments=tuple(plans),
        group_sizes=tuple(_group_size(size, plans, groups_per_step, tokens_per_second) for size in GROUP_SIZES),
        tokens_per_second=tokens_per_second,
        groups_per_environment=per_environment,
        groups_with_one_more=raised if per_environment is None else groups_per_step + per_environment,
        batch_size_with_one_more=raised * rollouts_per_example if per_environment is None else None,
        combined_reward=combined,
        advice=advice(
            given_E,
            groups_per_step,
            rollouts_per_example,
            own_k=any(plan.rollouts_per_example != rollouts_per_example for plan in plans),
            raised=raised,
            per_environment=per_environment,
        ),
        warnings=tuple(warnings(plans, evidence, groups_per_step, combined)),
    )


def missed_any(weights: Sequence[float], groups: int) -> float:
    """Chance that `groups` independent draws by `weights` leave at least one environment out.

    Counts of Poisson draws, given that they sum to G, are the counts of G independent draws; so the chance that none is
    0 is a convolution of Poisson probabilities without their first, over the probability of the sum.

    >>> round(missed_any([0.55, 0.30, 0.15], 8), 2)
    0.32
    """
    import numpy as np

    counts = np.arange(1, groups + 1)
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(counts))])

    def poisson(mean: float) -> Any:
        return np.exp(np.arange(groups + 1) * math.log(mean) - mean - log_factorials)

    present = np.zeros(groups + 1)
    present[0] = 1.0
    for weight in weights:
        probabilities = poisson(weight * groups)
        probabilities[0] = 0.0
        present = np.convolve(present, probabilities)[: groups + 1]
    chance = float(1 - present[groups] / poisson(groups)[groups])
    # The difference is rounded to about 1e-11; these bounds keep what is smaller right.
    missed = [(1 - weight) ** groups for weight in weights]
    return min(1.0, math.fsum(missed), max(chance, *missed, 0.0))


def _count_range(shares_E: Mapping[str, float], groups: int, max_steps: int) -> tuple[dict[str, int], dict[str, int]]:
    """Fewest and most groups of each environment in a step, as the schedule will give them."""
    schedule = GroupSchedule(shares_E, groups)
    steps = [schedule.next() for _ in range(max(1, min(max_steps, STEPS_TRIED)))]
    return (
        {name: min(counts[name] for counts in steps) for name in shares_E},
        {name: max(counts[name] for counts in steps) for name in shares_E},
    )


def _written(env: PlannedEnvironment, known: Evidence) -> float:
    return env.max_completion_tokens if known.completion_tokens is None else known.completion_tokens


def _sequence_tokens(env: PlannedEnvironment, plan: EnvironmentPlan, max_seq_len: int) -> float:
    """Tokens of an episode, prompt included; an unknown prompt may fill all that is allowed."""
    if env.prompt_tokens is None:
        return max_seq_len
    return min(max_seq_len, env.prompt_tokens + plan.tokens / plan.rollouts)


def _group_size(
    k: int, plans: Sequence[EnvironmentPlan], groups: int, tokens_per_second: float | None
) -> GroupSizePlan:
    tokens = sum(plan.tokens / plan.rollouts_per_example * k for plan in plans)
    errors = [plan.standard_error_by_K[k] for plan in plans]
    worst = max(WORST_DEVIATION / math.sqrt(k) if error is None else error for error in errors)
    signals = [plan.share * signal for plan in plans if (signal := plan.signal_by_K[k]) is not None]
    return GroupSizePlan(
        rollouts_per_example=k,
        rollouts=groups * k,
        tokens=tokens,
        writing_seconds=tokens / tokens_per_second if tokens_per_second else None,
        standard_error=worst,
        signal=math.fsum(signals) if len(signals) == len(plans) else None,
    )


def _combined(plans: Sequence[EnvironmentPlan]) -> float | None:
    """Mean reward weighted by w_e; None when one is missing, because the rest would be another quantity."""
    weighted = [plan.weight * plan.mean_reward for plan in plans if plan.mean_reward is not None]
    return math.fsum(weighted) if len(weighted) == len(plans) else None
