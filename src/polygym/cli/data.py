"""`polygym data`: rows for servers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from polygym.cli.values import print_json, read_arguments
from polygym.errors import PolygymError, UsageError

app = typer.Typer(
    help="Rows for servers: check, blend, count and split them, or write an environment's. Files are JSONL, gzip where "
    "their name ends in .gz, or Parquet where it ends in .parquet.",
    rich_markup_mode=None,
)
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="File to write.")]


@app.command("prepare", epilog="Example: polygym data prepare raw.jsonl --environment math_rl -o rows.jsonl")
def prepare(
    inputs: Annotated[list[Path], typer.Argument(metavar="FILE", help="Files of rows.")],
    output: Output,
    environment: Annotated[
        str | None, typer.Option("--environment", metavar="ID", help="Environment of the rows that name no agent.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Argument of that environment.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check every row and write the good ones; each bad one is told on standard error, and the exit code is 1 then.

    Where the environment of a row is known here, its episode is begun, and judged without an answer.
    """
    from polygym.data.prepare import prepare

    if settings and environment is None:
        raise UsageError("--set is an argument of an environment; give --environment ID")
    arguments = read_arguments(settings or [])
    done = prepare(inputs, output, _tell, environment=environment, arguments=arguments)
    if as_json:
        print_json({"output": str(output), "rows": done.rows, "bad": done.bad, "unchecked": done.unchecked})
    else:
        typer.echo(f"{done.rows} rows in {output}")
        if done.unchecked:
            typer.echo(
                f"checked for their shape only, as their environments are not known: {', '.join(done.unchecked)}"
            )
    if done.bad:
        raise PolygymError(f"{done.bad} of {done.rows + done.bad} rows are bad and were left out")


@app.command(
    "blend", epilog="Example: polygym data blend --add math_rl=0.7 --add tool_use=0.3 --count 100 -o blend.jsonl"
)
def blend(
    add: Annotated[
        list[str],
        typer.Option(
            metavar="NAME|FILE|NAME=FILE[=WEIGHT]",
            help="An environment's example rows, a file whose rows name their agents, or a file of an environment's "
            "rows; a weight for each --add, or none.",
        ),
    ],
    output: Output,
    count: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N|NAME=N",
            help="Rows in all, by the weights, which are equal where none are given; or rows of one source. A source "
            "that runs out is used again. Default: every row once, or as many as the weights allow.",
        ),
    ] = None,
    epochs: Annotated[
        list[str] | None,
        typer.Option(metavar="N|NAME=N", help="How often a row is used at most; default 1, with --count any number."),
    ] = None,
    interleave: Annotated[
        bool, typer.Option("--interleave", help="Any part of the file holds the shares: --order interleave.")
    ] = False,
    order: Annotated[
        str | None, typer.Option(help="interleave (default), or concat: one source after the other.")
    ] = None,
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Take each source's rows in a random order.")] = False,
    seed: Annotated[int, typer.Option(help="Names that order; goes with --shuffle.")] = 0,
    as_json: Json = False,
) -> None:
    """Write the rows of several environments to one file, and what it was made of to OUTPUT.manifest.json."""
    from polygym.data.blend import CONCAT, INTERLEAVE, blend
    from polygym.data.sources import read_source

    if interleave and order == CONCAT:
        raise UsageError("--interleave and --order concat contradict each other; give one")
    if seed and not shuffle:
        raise UsageError(f"--seed {seed} names a random order; give --shuffle too")
    done = blend(
        [read_source(text) for text in add],
        output,
        count=_amount("--count", count),
        epochs=_amount("--epochs", epochs),
        order=order or INTERLEAVE,
        shuffle=shuffle,
        seed=seed,
    )
    if as_json:
        print_json({"output": str(output), "rows": done.rows, "agents": done.agents, "manifest": str(done.manifest)})
    else:
        agents = ", ".join(f"{name} {number}" for name, number in done.agents.items())
        typer.echo(f"{done.rows} rows in {output}: {agents}")


@app.command("stats", epilog="Example: polygym data stats rows.train.jsonl --held-out rows.held_out.jsonl")
def stats(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="File of rows.")],
    held_out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Count the tasks that this file of held-out rows has too.")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Count tokens of this local model, such as nano; default words."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Count rows, tasks, duplicates, tokens, tools and turns of each environment."""
    from polygym.data.stats import stats
    from polygym.tables import plain_table

    found_E = stats(path, held_out, tokenizer)
    if as_json:
        environments = {name: found.to_dict() for name, found in found_E.items()}
        print_json({"file": str(path), "tokenizer": tokenizer or "words", "environments": environments})
        return
    unit = "words" if tokenizer is None else "tokens"
    header = ["environment", "rows", "tasks", "duplicates", unit, "most", "tools", "turns"]
    if held_out is not None:
        header.append("in held-out")
    table = []
    for name, found in found_E.items():
        counts = [found.rows, found.tasks, found.duplicates]
        means = [f"{spread.mean:.1f}" for spread in (found.tokens, found.tools, found.turns)]
        means.insert(1, str(found.tokens.max))
        shared = [] if found.held_out is None else [str(found.held_out)]
        table.append([name, *map(str, counts), *means, *shared])
    typer.echo(plain_table(header, table))


@app.command("split", epilog="Example: polygym data split rows.jsonl --held-out 0.1 --seed 0")
def split(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="File of rows.")],
    held_out: Annotated[
        float, typer.Option(metavar="F|N", help="Fraction of each environment's tasks, or how many of each.")
    ] = 0.2,
    seed: Annotated[int, typer.Option(help="Names which tasks are held out.")] = 0,
    folder: Annotated[
        Path | None, typer.Option("-o", "--output-dir", help="Folder of the two files; default that of FILE.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write FILE's rows to NAME.train.jsonl and NAME.held_out.jsonl, each task whole on one side."""
    from polygym.data.split import split
    from polygym.tables import plain_table

    stem, dot, suffix = path.name.partition(".")
    train, kept = ((folder or path.parent) / f"{stem}.{side}{dot}{suffix}" for side in ("train", "held_out"))
    sides_E = split(path, train, kept, held_out, seed)
    if as_json:
        environments = {name: asdict(sides) for name, sides in sides_E.items()}
        print_json({"train": str(train), "held_out": str(kept), "environments": environments})
        return
    typer.echo(f"{train}\n{kept}")
    header = ["environment", "train rows", "train tasks", "held-out rows", "held-out tasks"]
    typer.echo(plain_table(header, [[name, *map(str, asdict(sides).values())] for name, sides in sides_E.items()]))


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
        typer.Option("-o", "--output", help="File to write; default resources_servers/ID/data/example.jsonl."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the tasks of an environment as rows."""
    from polygym.data.export import EXAMPLE_FILE, example_rows, generated_rows, write_rows
    from polygym.environments.names import served_name

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


def _tell(bad: Any) -> None:
    from polygym.text import printable

    typer.echo(printable(str(bad)), err=True)


def _amount(option: str, texts: list[str] | None) -> int | dict[str, int] | None:
    """A number for all, or numbers by name.

    >>> _amount("--count", ["math=3", "word=2"]), _amount("--count", ["5"])
    ({'math': 3, 'word': 2}, 5)
    """
    amounts: dict[str, int] = {}
    for text in texts or ():
        name, _, number = text.rpartition("=")
        if not number.isdecimal() or int(number) < 1:
            raise UsageError(f"{option} {text!r} must be an integer of at least 1, or NAME=INTEGER")
        if name in amounts:
            raise UsageError(f"{option} is given twice{f' for {name!r}' if name else ''}; give it once")
        amounts[name] = int(number)
    if "" in amounts and len(amounts) > 1:
        raise UsageError(f"{option} is given for all and for {max(amounts)!r}; give one number, or one for each name")
    return amounts.get("", amounts) if amounts else None
