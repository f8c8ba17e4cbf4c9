"""`polygym env`: find, look at, check and start environments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polygym.cli.env_servers import add_commands
from polygym.cli.values import print_json, read_arguments

if TYPE_CHECKING:
    from polygym.environments import Environment

app = typer.Typer(help="Environments: list, show, test, or start a new one.", rich_markup_mode=None)
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Argument of the environment, such as num_examples=20."),
]
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


@app.command("list", epilog="Example: polygym env list")
def list_all(as_json: Json = False) -> None:
    """Environments that can be loaded by a short id: shipped recipes and installed entry points."""
    from polygym.environments import list_environments

    found = list_environments()
    if as_json:
        print_json([item.to_dict() for item in found])
        return
    width = max((len(item.id) for item in found), default=0)
    for item in found:
        typer.echo(f"{item.id:{width}}  {item.description}")


@app.command("show", epilog="Example: polygym env show tool_use --set num_examples=10")
def show(
    environment: Annotated[str, typer.Argument(metavar="ID", help="Environment id, or package.module:function.")],
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """What an environment holds: tasks, tools, reward functions, and one task as the policy sees it."""
    from polygym.environments import load_environment

    loaded = load_environment(environment, **read_arguments(settings or []))
    shares = loaded.shares()
    leaves = [describe(route, leaf, shares[route]) for route, leaf in loaded.leaves().items()]
    if as_json:
        print_json({"id": environment, "environments": leaves})
        return
    for leaf in leaves:
        _print_leaf(leaf)


def describe(route: str, leaf: Environment, share: float) -> dict[str, Any]:
    """What `polygym env show` tells of one environment, as data."""
    held_out = leaf.tasks("held_out")
    example = next(iter(held_out or leaf.tasks("train")))
    return {
        "name": route,
        "share": share,
        "kind": type(leaf).__name__,
        "tasks": {"train": len(leaf.tasks("train")), "held_out": len(held_out)},
        "max_turns": leaf.max_turns,
        "rewards": leaf.rubric.weights,
        "demonstrated_reward": leaf.demonstrated_reward(example) if leaf.demonstrate(example) is not None else None,
        "tools": [tool.to_dict()["function"] for tool in leaf.tools],
        "example": {
            "task_id": example.id,
            "messages": [message.to_dict() for message in leaf.prompt(example)],
            "answer": example.answer,
        },
    }


def _print_leaf(leaf: dict[str, Any]) -> None:
    from polygym.text import one_line, printable

    tasks = leaf["tasks"]
    typer.echo(f"{leaf['name']}  ({leaf['kind']}, share {leaf['share']:.3f}, max_turns {leaf['max_turns']})")
    typer.echo(f"  tasks    {tasks['train']} train, {tasks['held_out']} held out")
    rewards = ", ".join(f"{name} x {weight:g}" for name, weight in leaf["rewards"].items())
    earned = leaf["demonstrated_reward"]
    shown = "no demonstration" if earned is None else f"the example's demonstration earns {earned:g}"
    typer.echo(f"  rewards  {rewards or '(none)'}; {shown}")
    for tool in leaf["tools"]:
        arguments = ", ".join(tool["parameters"].get("properties", {}))
        typer.echo(f"  tool     {tool['name']}({arguments}): {one_line(tool['description'], 80)}")
    typer.echo(f"  example  task {one_line(leaf['example']['task_id'])}, answer {one_line(leaf['example']['answer'])}")
    for message in leaf["example"]["messages"]:
        for number, line in enumerate(printable(message["content"]).split("\n")):
            typer.echo(f"    {message['role'] + ':' if number == 0 else '':10} {line}")
    typer.echo()


@app.command("test", epilog="Example: polygym env test word_game -n 20")
def check(
    environment: Annotated[str, typer.Argument(metavar="ID", help="Environment id, or package.module:function.")],
    num_examples: Annotated[
        int, typer.Option("-n", "--num-examples", min=1, help="Held-out tasks of each environment to play.")
    ] = 10,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Check an environment: splits, repeatability, demonstrations, scoring. Exit code 1 when a check fails."""
    from polygym.cli.checks import check_environment
    from polygym.environments import load_environment
    from polygym.text import one_line

    arguments = read_arguments(settings or [])
    checks = []
    marks = {True: "ok", False: "FAILED", None: "skipped"}
    for check in check_environment(lambda: load_environment(environment, **arguments), num_examples):
        checks.append(check)
        if not as_json:
            typer.echo(f"{marks[check.passed]:8} {check.environment}: {check.name} ({one_line(check.detail)})")
    passed = sum(check.passed is True for check in checks)
    failed = sum(check.passed is False for check in checks)
    if as_json:
        print_json({"id": environment, "passed": not failed, "checks": [check.to_dict() for check in checks]})
    else:
        typer.echo(f"{passed} passed, {failed} failed, {len(checks) - passed - failed} skipped")
    if failed:
        raise typer.Exit(1)


@app.command("init", epilog="Example: polygym env init my_env && cd my_env && python -m pytest")
def init(
    name: Annotated[str, typer.Argument(help="Name of the new environment, such as my_env.")],
    path: Annotated[Path, typer.Option("--path", help="Folder to make it in.")] = Path(),
    as_json: Json = False,
) -> None:
    """Start a new environment: a folder with a page of code, a README and a passing test."""
    from polygym.environments.scaffold import create

    files = create(name, path)
    if as_json:
        print_json({"name": name, "files": [str(file) for file in files]})
        return
    for file in files:
        typer.echo(f"made {file}")


add_commands(app)
