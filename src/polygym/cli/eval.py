"""`polygym eval`: ask a policy the held-out tasks of an environment and count what it earns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polygym.cli.eval_rows import Servers, evaluate_input, metrics_tables
from polygym.cli.values import check_complete, print_json, read_arguments, read_counts, refuse
from polygym.errors import UsageError
from polygym.text import printable

if TYPE_CHECKING:
    from polygym.collect.resume import Resume
    from polygym.environments import Environment
    from polygym.policies.base import Sampling

app = typer.Typer(help="Evaluate a policy on environments.", rich_markup_mode=None)


@app.callback()
def _noun() -> None:
    """Evaluate a policy on environments."""


@app.command("run", epilog="Example: polygym eval run multi_env --model nano -n 50 -r 4 -o results/nano")
def run(
    environment: Annotated[
        str | None,
        typer.Argument(
            metavar="ENV_OR_CONFIG", help="Environment id, or a config whose environments to take: multi_env/config."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="nano, smollm2-135m, oracle, a URL, a folder, a Hugging Face id, or a model of OPENAI_BASE_URL; "
            "default: the config's, else nano.",
        ),
    ] = None,
    num_examples: Annotated[
        int | None, typer.Option("-n", "--num-examples", help="Tasks; on a group, of each environment.")
    ] = None,
    num_repeats: Annotated[
        str | None,
        typer.Option(
            "-r",
            "--num-repeats",
            "--rollouts-per-example",
            metavar="N|{NAME: N}",
            help="Rollouts of each task (default 4) or row of --input (default 1): for all, or '{a: 4, _default: 1}' "
            "by environment or agent.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "--total", help="Tasks in all, split by the shares, instead of -n; rows of --input."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write OUT.jsonl, OUT_failures.jsonl and OUT_metrics.json.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier evaluation of that name.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with it: play what is missing, and again what failed.")
    ] = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="With --resume: although input or settings are not the same.")
    ] = False,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy; 1 samples the policy itself.")] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", help="Keep the likeliest tokens of this mass.")] = None,
    max_output_tokens: Annotated[
        int | None, typer.Option("--max-output-tokens", "--max-tokens", help="Tokens of one turn at most.")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Chooses the tasks and names every random stream of the model and the environment.")
    ] = 0,
    concurrency: Annotated[
        str | None,
        typer.Option(
            metavar="N|{NAME: N}",
            help="Rollouts under way at a time (default 128), or '{all: 256, slow_env: 8}' with limits by environment.",
        ),
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds of a rollout at most; default 1800.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Argument of the environment, or key of the config."),
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(
            "-i",
            "--input",
            metavar="ROWS",
            help="Play these rows (JSONL, .gz or Parquet) through servers, not an environment.",
        ),
    ] = None,
    no_serve: Annotated[
        bool, typer.Option("--no-serve", help="With --input: the servers run already (polygym env start).")
    ] = False,
    head_port: Annotated[
        int | None, typer.Option("--head-port", help="With --input: port of the servers' head; default 11000.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", help="With --input: the agent server of rows that name none.")
    ] = None,
    configs: Annotated[
        list[Path] | None,
        typer.Option("--config", metavar="FILE", help="With --input: YAML file of the servers to start."),
    ] = None,
    model_type: Annotated[
        str | None,
        typer.Option("--model-type", help="With --input: oracle_model, openai_model, vllm_model or local_model."),
    ] = None,
    model_url: Annotated[str | None, typer.Option("--model-url", help="With --input: endpoint of the model.")] = None,
    model_api_key: Annotated[
        str | None, typer.Option("--model-api-key", help="With --input: key of the endpoint [env: POLICY_API_KEY].")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Evaluate a model: a table of every environment and all combined, with 95 % intervals.

    With --input, rows are played by the servers that they name; without --no-serve these are started for it.
    Exit code 1 when a rollout has no reward; what has one is kept, and --resume plays the others again, up to
    three times in all.
    """
    from polygym.cli.watch import CollectionWatch
    from polygym.collect.evaluate import evaluate

    servers = Servers(no_serve, head_port, configs or (), model_type, model, model_url, model_api_key)
    repeats, at_once = read_counts("--num-repeats", num_repeats), read_counts("--concurrency", concurrency)
    refuse({"--changed": changed and not resume}, "without --resume")
    going_on: Resume = "changed" if changed else resume
    if rows is not None:
        refuse({"ENV_OR_CONFIG": environment, "-n": num_examples, "--set": settings}, "with --input")
        params = {"temperature": temperature, "top_p": top_p, "max_output_tokens": max_output_tokens}
        with CollectionWatch(title="collecting") as display:
            results = evaluate_input(
                rows,
                servers,
                agent=agent,
                limit=limit,
                num_repeats=1 if repeats is None else repeats,
                params={key: value for key, value in params.items() if value is not None},
                concurrency=at_once,
                seed=seed,
                timeout=timeout,
                progress=display,
                output=output,
                overwrite=overwrite,
                resume=going_on,
            )
    else:
        refuse({**servers.options(), "--agent": agent}, "without --input")
        chosen = {"temperature": temperature, "top_p": top_p, "max_tokens": max_output_tokens}
        given = {key: value for key, value in chosen.items() if value is not None}
        subject = find_subject(environment, settings or [], given)
        with CollectionWatch(title="evaluating") as display:
            results = evaluate(
                subject.environment,
                model or subject.model,
                num_examples=num_examples,
                total=limit,
                rollouts_per_example=4 if repeats is None else repeats,
                sampling=subject.sampling_E,
                max_turns=subject.max_turns_E,
                concurrency=at_once,
                seed=seed,
                timeout=timeout if timeout is not None else subject.timeout_E,
                progress=display,
                output=output,
                overwrite=overwrite,
                resume=going_on,
                keep_rollouts=False,
            )
    if as_json:
        print_json(results.to_dict())
    else:
        typer.echo(printable(results))
        if rows is not None:
            typer.echo(f"\n{printable(metrics_tables(results))}")
    check_complete(results, output)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is evaluated, with the settings of its config where it comes from one."""

    environment: Environment
    model: str
    sampling_E: dict[str, Sampling]
    max_turns_E: dict[str, int] | None = None
    timeout_E: dict[str, float] | None = None


def find_subject(name: str | None, settings: list[str], sampling: dict[str, Any]) -> Subject:
    """The environment behind an id, or the environments of a config as one.

    A shipped recipe's plain name is its environment; `NAME/config`, `NAME/VARIANT` and a path to a TOML file are
    configs.

    Args:
        name: id, path of a config, or a shipped config's name.
        settings: `key=value` texts: arguments of the environment, or keys of the config.
        sampling: fields of `Sampling` that replace those of the config.
    """
    from polygym.environments import load_environment
    from polygym.policies.base import Sampling

    if name is None:
        raise UsageError("what is to be evaluated? Give an environment id or a config, or rows with --input")
    if not is_config(name):
        environment = load_environment(name, **read_arguments(settings))
        return Subject(environment, "nano", dict.fromkeys(environment.leaves(), Sampling(**sampling)))
    from polygym.train.config import load_config
    from polygym.train.setup import build_environment, route_settings

    config = load_config(name, settings)
    environment = build_environment(config.env)
    settings_E = route_settings(environment, config)
    return Subject(
        environment,
        config.model,
        {route: replace(found.sampling, **sampling) for route, found in settings_E.items()},
        {route: found.max_turns for route, found in settings_E.items() if found.max_turns is not None},
        {route: found.timeout_seconds for route, found in settings_E.items()},
    )


def is_config(name: str) -> bool:
    """Whether a name means a config rather than an environment."""
    from polygym.train.config_file import recipe_configs

    return name.endswith(".toml") or ("/" in name and name in recipe_configs())
