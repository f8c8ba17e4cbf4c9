"""`polygym sft`: train a policy on demonstrations and good rollouts, the warm start of a reinforcement-learning run."""

from __future__ import annotations

from typing import Annotated

import typer

from polygym.cli.values import print_json

app = typer.Typer(help="Train a policy on demonstrations and good rollouts.", rich_markup_mode=None)


@app.callback()
def _noun() -> None:
    """Train a policy on demonstrations and good rollouts."""


@app.command("run", epilog="Example: polygym sft run multi_env/nano --set max_steps=20")
def run(
    config: Annotated[str, typer.Argument(help="A TOML file, or a shipped recipe's config.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a key, such as learning_rate=1e-3.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Train on the demonstrations of a config's [[env]], and on the rollouts of its [[data]] that earned enough."""
    from polygym.cli.watch import TrainingWatch
    from polygym.train import sft
    from polygym.train.sft_config import load_config

    with TrainingWatch() as display:
        summary = sft.run(load_config(config, settings or []), progress=display)
    if as_json:
        print_json(summary.to_dict())
    else:
        typer.echo(str(summary))
