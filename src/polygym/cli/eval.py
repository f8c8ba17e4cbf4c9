"""`polygym eval`: ask a policy the held-out tasks of an environment and count what it earns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polygym.cli.values import print_json, read_arguments

if TYPE_CHECKING:
    from polygym.environments import Environment

app = typer.Typer(help="Evaluate a policy on environments.", rich_markup_mode=None)


@app.callback()
def _noun() -> None:
    """Evaluate a policy on environments."""


@app.command("run", epilog="Example: polygym eval run multi_env --model nano -n 50 -r 4 -o results/nano")
def run(
    environment: Annotated[
        str, typer.Argument(metavar="ENV_OR_CONFIG", help="Environment id, or a config whose environments to take.")
    ],
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m",
            help="nano, smollm2-135m, oracle, a URL, a folder, a Hugging Face id, or a model of OPENAI_BASE_URL.",
        ),
    ] = "nano",
    num_examples: Annotated[
        int | None, typer.Option("-n", "--num-examples", min=1, help="Tasks; on a group, of each environment.")
    ] = None,
    rollouts: Annotated[int, typer.Option("-r", "--rollouts-per-example", min=1, help="Rollouts of each task.")] = 4,
    total: Annotated[
        int | None, typer.Option("--total", min=1, help="Tasks altogether, split by the shares; instead of -n.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write OUT.jsonl, OUT_failures.jsonl and OUT_metrics.json.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy; 1 samples the policy itself.")] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", help="Keep the likeliest tokens of this mass.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Tokens of one turn at most.")] = None,
    seed: Annotated[int, typer.Option(help="Chooses the tasks and names every random stream.")] = 0,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Episodes under way at a time.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds of a rollout at most.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Argument of the environment, or key of the config."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Evaluate a model: a table of every environment and all combined, with 95 % intervals."""
    from polygym.collect.evaluate import evaluate
    from polygym.errors import UsageError
    from polygym.policies.base import Sampling
    from polygym.view.terminal import CollectionDisplay

    if total is not None and num_examples is not None:
        raise UsageError(f"-n {num_examples} and --total {total} exclude each other; give one of them")
    chosen = {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens}
    sampling = Sampling(**{key: value for key, value in chosen.items() if value is not None})  # type: ignore[arg-type]
    with CollectionDisplay(title="evaluating") as display:
        results = evaluate(
            find_environment(environment, settings or []),
            model=model,
            num_examples=num_examples,
            total=total,
            rollouts_per_example=rollouts,
            sampling=sampling,
            concurrency=concurrency,
            seed=seed,
            timeout=timeout,
            progress=display,
            output=output,
        )
    if as_json:
        print_json(results.to_dict())
    else:
        typer.echo(str(results))


def find_environment(name: str, settings: list[str]) -> Environment:
    """The environment behind an id, or the environments of a config as one.

    A shipped recipe's plain name is its environment; `NAME/VARIANT` and a path to a TOML file are configs.
    """
    from polygym.environments import load_environment

    if not is_config(name):
        return load_environment(name, **read_arguments(settings))
    from polygym.train.config import load_config
    from polygym.train.setup import build_environment

    return build_environment(load_config(name, settings).env)


def is_config(name: str) -> bool:
    """Whether a name means a config rather than an environment."""
    from polygym.train.config_file import recipe_configs

    return name.endswith(".toml") or ("/" in name and name in recipe_configs())
