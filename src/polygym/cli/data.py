"""`polygym data`: rows for servers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from polygym.cli.values import print_json, read_arguments

app = typer.Typer(help="Rows for servers: write an environment's, blend several.", rich_markup_mode=None)
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


@app.command("blend", epilog="Example: polygym data blend --add math_rl --add tool_use -o results/blend.jsonl")
def blend(
    add: Annotated[
        list[str],
        typer.Option(
            metavar="NAME[=WEIGHT|PATH]",
            help="An environment: its example rows, or those of a JSONL file; a weight for each --add, or none.",
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="JSONL file to write.")],
    as_json: Json = False,
) -> None:
    """Write the rows of several environments to one file, interleaved by their shares."""
    from polygym.data.blend import blend, read_source
    from polygym.data.export import write_rows

    rows = blend([read_source(text) for text in add])
    write_rows(output, rows)
    counts = Counter(row["agent_ref"]["name"] for row in rows)
    if as_json:
        print_json({"output": str(output), "rows": len(rows), "agents": counts})
    else:
        typer.echo(f"{len(rows)} rows in {output}: {', '.join(f'{name} {count}' for name, count in counts.items())}")


@app.command("export", epilog="Example: polygym data export word_game -n 100")
def export(
    environment: Annotated[str, typer.Argument(metavar="ID", help="Environment id, or package.module:function.")],
    num_examples: Annotated[
        int | None, typer.Option("-n", "--num-examples", min=1, help="Training tasks; default: its example rows.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Chooses the tasks.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Argument of the environment; goes with -n.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="JSONL file; default resources_servers/ID/data/example.jsonl."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the tasks of an environment as rows."""
    from polygym.data.export import EXAMPLE_FILE, example_rows, generated_rows, write_rows
    from polygym.environments.names import served_name
    from polygym.errors import UsageError

    if num_examples is None and (settings or seed):
        raise UsageError("the example rows are what they are; give -n NUMBER to write others with --set or --seed")
    if num_examples is None:
        rows = example_rows(environment)
    else:
        rows = generated_rows(environment, num_examples, seed=seed, arguments=read_arguments(settings or []))
    path = output or Path("resources_servers", served_name(environment)) / EXAMPLE_FILE
    write_rows(path, rows)
    if as_json:
        print_json({"output": str(path), "rows": len(rows)})
    else:
        typer.echo(f"{len(rows)} rows in {path}")
