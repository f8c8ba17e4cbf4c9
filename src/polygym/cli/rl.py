"""`polygym rl`: train a policy on a mix of environments with GRPO."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated

import typer

from polygym.cli.values import check_scored, print_json

if TYPE_CHECKING:
    from polygym.mixture import BatchPlan
    from polygym.policies.base import Policy
    from polygym.train.summary import Summary

app = typer.Typer(help="Train a policy with reinforcement learning.", rich_markup_mode=None)


@app.callback()
def _noun() -> None:
    """Train a policy with reinforcement learning."""


@app.command("run", epilog="Example: polygym rl run multi_env --set max_steps=20")
def run(
    config: Annotated[str, typer.Argument(help="A TOML file, or a shipped recipe: multi_env, math_rl/smollm2.")],
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue this config's newest run from its last checkpoint.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Replace a key: learning_rate=1e-5, env.math.weight=2."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check what can be checked without training, and print the plan.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Train one policy on the environments of a config; ends with each one's held-out reward before and after.

    Exit code 1 when no rollout of an environment could be scored.
    """
    from polygym.train.config import load_config

    loaded = load_config(config, settings or [])
    if dry_run:
        from polygym.cli.plan import make_plan
        from polygym.train.dry_run import check_run
        from polygym.train.evaluation import fewer_examples, held_out_environment
        from polygym.train.setup import build_environment

        trained = build_environment(loaded.env)
        notes = [fewer_examples(held_out_environment(trained, loaded), loaded)]
        notes += check_run(loaded, trained, resume=resume)
        _print(make_plan(loaded), as_json)
        typer.echo("\n".join(filter(None, notes)), err=True)
        return
    from polygym.cli.tracker import TensorBoardTracker
    from polygym.cli.watch import TrainingWatch
    from polygym.train import loop

    with TrainingWatch() as display:
        summary = loop.run(loaded, resume=resume, progress=display, tracker=TensorBoardTracker(), model_server=_serving)
    _print(summary, as_json)
    check_scored(summary.failures)


def _serving(policy: Policy, port: int) -> AbstractAsyncContextManager[object]:
    """The policy behind a model server, for agents that play themselves."""
    from polygym.serve.beside import serving

    return serving(policy, port)


def _print(result: BatchPlan | Summary, as_json: bool) -> None:
    if as_json:
        print_json(result.to_dict())
    else:
        typer.echo(str(result))
