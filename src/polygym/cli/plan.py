"""`polygym plan`: what a step of a config holds and costs, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polygym.cli.values import print_json

if TYPE_CHECKING:
    from polygym.train.config import RunConfig


def plan(
    config: Annotated[str, typer.Argument(help="A TOML file, or a shipped recipe: multi_env, math_rl/smollm2.")],
    evaluation: Annotated[
        Path | None,
        typer.Option("--eval", help="OUT_metrics.json of an evaluation: adds warnings and the expected signal."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Replace a key: batch_size=512, env.math.weight=2."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Show what a step of a run holds: groups per environment, tokens, seconds, and what to watch out for."""
    from polygym.train.config import load_config

    show_plan(load_config(config, settings or []), evaluation, as_json=as_json)


def show_plan(config: RunConfig, evaluation: Path | None = None, *, as_json: bool) -> None:
    """Print the plan of a config."""
    raise NotImplementedError
