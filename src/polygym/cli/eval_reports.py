"""`polygym eval profile`, `reverify`, `aggregate` and `compare`: what can be said of rollouts that are there already.

The one idea: nothing here asks a model. Files of rollouts go in, and files of the same form, or a table, come out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polygym.cli.values import check_complete, print_json, refuse
from polygym.errors import PolygymError, UsageError
from polygym.text import printable

if TYPE_CHECKING:
    from polygym.collect.results import Results
    from polygym.collect.rollout_rows import RolloutRows
    from polygym.environments import Environment

Rollouts = Annotated[Path, typer.Argument(metavar="OUT.jsonl", help="Rollouts of an evaluation.")]
Output = Annotated[
    Path, typer.Option("-o", "--output", help="Write OUT.jsonl, OUT_failures.jsonl and OUT_metrics.json.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an earlier evaluation of that name.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]


def add_to(app: typer.Typer) -> None:
    """Put the commands into `polygym eval`."""
    app.command("profile", epilog="Example: polygym eval profile results/nano.jsonl -o results/profile.jsonl")(profile)
    app.command("reverify", epilog="Example: polygym eval reverify results/nano.jsonl math_rl -o results/again")(
        reverify
    )
    app.command("aggregate", epilog="Example: polygym eval aggregate shard_0.jsonl shard_1.jsonl -o results/all")(
        aggregate
    )
    app.command("compare", epilog="Example: polygym eval compare before_metrics.json after_metrics.json")(compare)


def profile(
    rollouts: Rollouts,
    output: Annotated[Path, typer.Option("-o", "--output", help="Write a JSON line for each task.")],
    solved: Annotated[
        float, typer.Option("--solved", metavar="REWARD", help="The reward from which a rollout has solved its task.")
    ] = 1.0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Tell how hard each task is: mean reward, pass@k, solved always, sometimes or never.

    A line holds environment, task_id, rollouts, unscored, solved, solved_fraction, mean_reward, pass_at_k and rewards;
    and row, the task's own row, where the rollouts were collected from rows: a filter of lines is a curriculum.
    """
    from polygym.collect.profile import Profile
    from polygym.collect.rollout_rows import RolloutRows
    from polygym.rows import dump_row, written_aside

    if output.resolve() == rollouts.resolve():
        raise UsageError(f"output {str(output)!r} is the file that is read; give another one (-o)")
    if output.exists() and not overwrite:
        raise UsageError(f"output {str(output)!r} is there already; give another one (-o), or replace it (--overwrite)")
    with RolloutRows(rollouts) as rows:
        found = Profile(rows, solved=solved)
        with written_aside(output) as file:
            for task in found.tasks():
                file.write(dump_row(task))
    if as_json:
        print_json(found.to_dict())
    else:
        typer.echo(printable(found))


def reverify(
    rollouts: Rollouts,
    output: Output,
    environment: Annotated[
        str | None,
        typer.Argument(
            metavar="ENV_OR_CONFIG",
            help="Environment or config that scores; default: each environment of the file, by its name.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Argument of the environment, or key of the config."),
    ] = None,
    head_port: Annotated[
        int | None,
        typer.Option("--head-port", help="Score with the resources servers that run there, not in process."),
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds of a rollout at most; default 1800.")] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Score stored rollouts again, without the model.

    Each episode is played again with what was said then. Where the environment now says something else, the rollout is
    unscored with the cause `diverged`; those that had failed stay as they are.
    """
    from polygym.cli.watch import CollectionWatch
    from polygym.collect.evaluate import DEFAULT_TIMEOUT_SECONDS
    from polygym.collect.reverify import reverify as score_again
    from polygym.collect.rollout_rows import RolloutRows

    with RolloutRows(rollouts) as rows:
        agents = {name: _agent(rows, name) for name in rows.counts_E}
    if head_port is not None:
        refuse({"ENV_OR_CONFIG": environment, "--set": settings}, "with --head-port")
        environments = _served(agents, head_port)
    else:
        environments = _in_process(list(agents), environment, settings or [])
    with CollectionWatch(title="scoring") as display:
        found = score_again(
            rollouts,
            environments,
            output,
            timeout=DEFAULT_TIMEOUT_SECONDS if timeout is None else timeout,
            overwrite=overwrite,
            progress=display,
        )
    _show(found.results, found.lines(), as_json)


def aggregate(
    files: Annotated[list[Path], typer.Argument(metavar="OUT.jsonl", help="Rollouts of collections.")],
    output: Output,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Merge the files of several collections, in any order, without servers.

    A rollout that stands in several files is taken once: a scored one before one that is not. Those that differ are
    told as conflicts.
    """
    from polygym.collect.aggregate import aggregate as merge

    merged = merge(files, output, overwrite=overwrite)
    _show(merged.results, merged.lines(), as_json)
    if merged.unfinished:
        raise PolygymError(
            f"{len(merged.unfinished)} of {len(files)} collections were stopped before their end; go on with them "
            "(polygym eval run --resume), and merge again"
        )


def compare(
    before: Annotated[Path, typer.Argument(metavar="A", help="OUT.jsonl or OUT_metrics.json of an evaluation.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="Another one of the same tasks.")],
    as_json: AsJson = False,
) -> None:
    """Compare two evaluations: how much more B earns than A on the same tasks, with 95 % intervals."""
    from polygym.collect.compare import left_out, paired_difference, read_evaluation

    old, new = read_evaluation(before), read_evaluation(after)
    found, lines = paired_difference(old, new), left_out(old, new)
    if as_json:
        print_json(found.to_dict() | {"left_out": lines})
    else:
        typer.echo("\n".join(map(printable, (found, *lines))))


def _show(results: Results, lines: Sequence[str], as_json: bool) -> None:
    if as_json:
        print_json(results.to_dict())
    else:
        typer.echo(printable(results))
        typer.echo(f"\n{printable(results.spread_table())}")
    for line in lines:
        typer.echo(printable(line), err=as_json)
    check_complete(results, None)


def _agent(rows: RolloutRows, environment: str) -> str | None:
    """The agent that has played an environment's rollouts, where their rows say."""
    first = next(name for name in rows.names() if name[0] == environment)
    reference = rows.row(first).get("agent_ref")
    return reference.get("name") if isinstance(reference, Mapping) else None


def _in_process(names: Sequence[str], environment: str | None, settings: list[str]) -> dict[str, Environment]:
    """The environments of the file, by name."""
    from polygym.cli.eval import find_subject
    from polygym.environments import load_environment

    if environment is not None:
        return find_subject(environment, settings, {}).environment.leaves()
    refuse({"--set": settings}, "without ENV_OR_CONFIG")
    found: dict[str, Environment] = {}
    for name in names:
        try:
            leaves = load_environment(name).leaves()
        except UsageError as error:
            raise UsageError(
                f"{error}; or give the environment or config that was evaluated, after the file"
            ) from error
        found |= {name: leaves[name]} if name in leaves else {}
    return found


def _served(agents: Mapping[str, str | None], port: int) -> dict[str, Environment]:
    """The environments of the file as the stack at a head serves them."""
    import os

    from polygym.environments.remote import RemoteEnvironment
    from polygym.environments.served import RESOURCES, TOKEN
    from polygym.train.running_stack import RunningStack

    stack = RunningStack(port)
    found: dict[str, Environment] = {}
    for name, agent in agents.items():
        own = stack.servers.get(name)
        server = own if own is not None and own.kind == RESOURCES else stack.environment_of(agent or name)
        found[name] = RemoteEnvironment(server.url, name=name, token=os.environ.get(TOKEN))
    return found
