"""Wire rows of an environment.

The one idea: an environment comes with a few example rows, in `data/example.jsonl` beside its code, for a first try;
any number of rows more are its training tasks, written as rows.
"""

from __future__ import annotations

import inspect
from itertools import islice
from pathlib import Path
from typing import Any

from polygym.data.files import row_writer
from polygym.environments.base import Environment
from polygym.environments.registry import find_loader, load_environment
from polygym.environments.wire_rows import row_of
from polygym.errors import UsageError
from polygym.rows import Row, dump_row, read_wire_rows

EXAMPLES = 5
SPARE = 2
"""Tasks that are asked for beyond what the part that is held out makes necessary, which is rounded."""
EXAMPLE_FILE = Path("data", "example.jsonl")


def example_rows(id: str) -> list[Row]:
    """The example rows of an environment; the first tasks of one that comes with none."""
    shipped = _folder(id) / EXAMPLE_FILE
    return read_wire_rows(shipped)[0] if shipped.is_file() else generated_rows(id, EXAMPLES)


def generated_rows(id: str, num_examples: int, *, seed: int = 0, arguments: dict[str, Any] | None = None) -> list[Row]:
    """Training tasks of an environment as rows.

    Args:
        id: of the environment; see `find_loader`.
        num_examples: how many. A loader that takes the number, and holds out a part of so many, is asked for more.
        seed: chooses them, where the environment's loader takes a seed.
        arguments: others of the loader.

    Raises:
        UsageError: for a group, or when there are fewer.
    """
    if num_examples < 1:
        raise UsageError(f"num_examples={num_examples} must be an integer of at least 1")
    taken = inspect.signature(find_loader(id)).parameters
    own = {"num_examples": num_examples, "seed": seed}
    given = {key: value for key, value in own.items() if key in taken} | (arguments or {})
    environment = load_environment(id, **given)
    refuse_group(id, environment)
    tasks = environment.tasks("train")
    if len(tasks) < num_examples and given.get("num_examples") == num_examples and tasks:  # a part of them is held out
        environment = load_environment(id, **given | {"num_examples": -(-(num_examples**2) // len(tasks)) + SPARE})
        tasks = environment.tasks("train")
    if len(tasks) < num_examples:
        raise UsageError(
            f"environment {id!r} has {len(tasks)} training tasks, {num_examples} were asked for; give -n {len(tasks)} "
            "at most"
        )
    return [row_of(environment, task) for task in islice(tasks, num_examples)]


def write_rows(path: str | Path, rows: list[Row]) -> None:
    """Write rows as JSONL, gzip or Parquet, as the name says; see `row_writer`."""
    with row_writer(path) as writer:
        for row in rows:
            writer.write(dump_row(row).removesuffix(b"\n"))


def _folder(id: str) -> Path:
    """Where the code of an environment lies."""
    return Path(inspect.getfile(inspect.unwrap(find_loader(id)))).parent


def refuse_group(id: str, environment: Environment) -> None:
    """Refuse a group, whose rows would belong to several environments.

    Raises:
        UsageError: names them.
    """
    leaves = environment.leaves()
    if list(leaves.values()) != [environment]:
        raise UsageError(
            f"environment {id!r} is a group of {', '.join(leaves)}; rows belong to one environment: export each by its "
            "own id, and blend them"
        )
