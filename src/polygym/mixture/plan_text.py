"""A batch plan as text for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polygym.tables import plain_table

if TYPE_CHECKING:
    from polygym.mixture.batch_plan import BatchPlan


def plan_text(plan: BatchPlan) -> str:
    """The whole plan: the batch, a table by environment, a table by group size, advice, warnings."""
    sizes = sorted(size.rollouts_per_example for size in plan.group_sizes)
    environments = plain_table(
        [
            "environment",
            "weight",
            "share",
            "groups a step",
            "K",
            "rollouts",
            "tokens",
            "epochs",
            "missed by draws",
            "start reward",
        ],
        [
            [
                env.name,
                f"{env.weight:.3f}",
                f"{env.share:.3f}",
                f"{env.groups:.2f} ({_range(env.groups_least, env.groups_most)})",
                str(env.rollouts_per_example),
                f"{env.rollouts:.4g}",
                _tokens(env.tokens, env.tokens_are_a_limit),
                f"{env.epochs:.2g}",
                _percent(env.missed_by_independent_draws),
                _number(env.mean_reward, 3),
            ]
            for env in plan.environments
        ],
    )
    limit = any(env.tokens_are_a_limit for env in plan.environments)
    by_size = plain_table(
        ["K", "rollouts a step", "tokens", "seconds to write", "error of a task's mean", "groups with signal"],
        [
            [
                str(size.rollouts_per_example),
                str(size.rollouts),
                _tokens(size.tokens, limit),
                _seconds(size.writing_seconds),
                f"{size.standard_error:.3f}",
                _percent(size.signal),
            ]
            for size in plan.group_sizes
        ],
    )
    measured = [env for env in plan.environments if any(value is not None for value in env.signal_by_K.values())]
    signal = plain_table(
        ["groups with signal", *(f"K = {k}" for k in sizes)],
        [[env.name, *(_percent(env.signal_by_K[k]) for k in sizes)] for env in measured],
    )
    if plan.tokens_per_second:
        by_size += (
            f"\nseconds to write: tokens at {plan.tokens_per_second:,.0f} a second, as full batches are written;\n"
            "small batches take longer; prompts, grading and learning come on top"
        )
    parts = [_batch(plan), environments, by_size, *([signal] if measured else []), _reward(plan)]
    parts += ["\n".join([plan.advice, *(f"warning: {warning}" for warning in plan.warnings)])]
    return "\n\n".join(parts)


def _batch(plan: BatchPlan) -> str:
    per_prompt = {env.rollouts_per_example for env in plan.environments}
    responses = str(per_prompt.pop()) if len(per_prompt) == 1 else "their own number of"
    updates = f"{plan.updates_per_batch} update{'s' if plan.updates_per_batch > 1 else ''} a batch"
    pieces = f"{plan.micro_batches_per_update} micro-batch{'es' if plan.micro_batches_per_update > 1 else ''}"
    accumulation = f"gradients of about {pieces} of at most {plan.micro_batch_tokens} tokens are accumulated"
    lines = [
        f"global batch: {plan.prompts_per_step} prompts x {responses} responses = {plan.batch_size} rollouts a step",
        f"{updates} of {plan.rollouts_per_update} rollouts; in each, {accumulation}",
    ]
    if len(plan.environments) > 1:
        planned = "the environments take turns here" if plan.rotates else "none is left out here"
        lines.append(
            f"independent draws would leave some environment out of {_percent(plan.missed_any)} of steps; {planned}"
        )
    return "\n".join(lines)


def _reward(plan: BatchPlan) -> str:
    if plan.combined_reward is None:
        return "combined starting reward: unknown; give an evaluation of every environment to see signal and warnings"
    return f"combined starting reward: {plan.combined_reward:.3f} (runs learn best from .25 to .45)"


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


def _tokens(value: float, limit: bool) -> str:
    return f"{'<= ' if limit else ''}{value:,.0f}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _seconds(value: float | None) -> str:
    return "< 0.1" if value is not None and value < 0.05 else _number(value, 1)


def _percent(value: float | None) -> str:
    if value is None:
        return "-"
    return "< 0.1 %" if 0 < value < 0.001 else f"{100 * value:.1f} %"
