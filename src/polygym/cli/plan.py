"""`polygym plan`: what a step of a config holds and costs, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer

from polygym.cli.values import print_json

if TYPE_CHECKING:
    from polygym.mixture import BatchPlan, PlannedEnvironment
    from polygym.train.config import RunConfig
    from polygym.train.setup import RouteSettings

TOKENS_PER_SECOND = {"nano": 7000.0, "smollm2-135m": 200.0}  # written by a full batch on two CPU cores
CHARACTERS_PER_TOKEN = 3.0  # of prompts: a guess, made without loading the model's tokenizer
PROMPTS_MEASURED = 50


def plan(
    config: Annotated[str, typer.Argument(help="A TOML file, or a shipped recipe: multi_env, math_rl/smollm2.")],
    evaluation: Annotated[
        Path | None,
        typer.Option("--eval", help="OUT_metrics.json of an evaluation: adds rewards, expected signal and warnings."),
    ] = None,
    tokens_per_second: Annotated[
        float | None,
        typer.Option(min=0.001, help="How fast the policy writes; default for shipped models: measured on two cores."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Replace a key: batch_size=512, env.math.weight=2."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Show what a step holds: groups per environment, tokens, seconds to write them, and what to watch out for."""
    from polygym.train.config import load_config

    found = make_plan(load_config(config, settings or []), evaluation, tokens_per_second)
    if as_json:
        print_json(found.to_dict())
    else:
        typer.echo(str(found))


def make_plan(config: RunConfig, evaluation: Path | None = None, tokens_per_second: float | None = None) -> BatchPlan:
    """The plan of a step of `config`; its environments are loaded, its model is not.

    Args:
        config: of the run.
        evaluation: a saved evaluation of the starting policy.
        tokens_per_second: how fast the policy writes; None takes what is known of a shipped model.
    """
    from polygym.collect.results import read_results
    from polygym.mixture import evidence_of_evaluation, plan_batch
    from polygym.train.setup import build_environment, groups_per_step, route_settings

    environment = build_environment(config.env)
    settings_E = route_settings(environment, config)
    total = sum(entry.weight for entry in config.env)
    weights_E = {name: share * total for name, share in environment.shares().items()}
    return plan_batch(
        [_planned(name, found, weights_E[name], config.max_seq_len) for name, found in settings_E.items()],
        groups_per_step=groups_per_step(config, len(settings_E)),
        rollouts_per_example=config.rollouts_per_example,
        groups_per_environment=config.groups_per_environment,
        updates_per_batch=config.updates_per_batch,
        micro_batch_tokens=config.micro_batch_tokens,
        max_seq_len=config.max_seq_len,
        max_steps=config.max_steps,
        tokens_per_second=tokens_per_second or TOKENS_PER_SECOND.get(config.model),
        evidence_E=evidence_of_evaluation(read_results(evaluation)) if evaluation else None,
    )


def _planned(name: str, settings: RouteSettings, weight: float, max_seq_len: int) -> PlannedEnvironment:
    from polygym.mixture import PlannedEnvironment

    leaf = settings.environment
    tasks = leaf.tasks("train")
    prompts = [leaf.prompt(task) for task in tasks[:PROMPTS_MEASURED]]
    turns = settings.max_turns or leaf.max_turns
    return PlannedEnvironment(
        name=name,
        weight=weight,
        tasks=len(tasks),
        max_completion_tokens=min(max_seq_len, settings.sampling.max_tokens * turns),
        rollouts_per_example=settings.rollouts_per_example,
        max_tokens=settings.sampling.max_tokens,
        prompt_tokens=fmean(sum(len(m.content) for m in messages) for messages in prompts) / CHARACTERS_PER_TOKEN,
    )
