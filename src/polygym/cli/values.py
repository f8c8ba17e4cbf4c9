"""What commands share: reading `key=value`, writing JSON, the end of a run in which an environment was never scored.

The one idea: a value on the command line is read as TOML, as it would stand in a config, and as plain text otherwise.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from polygym.errors import PolygymError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from polygym.collect.results import Results
    from polygym.collect.unscored import Unscored


def read_value(text: str) -> Any:
    """The value of `key=value`.

    >>> read_value("20"), read_value("[1, 2]"), read_value("easy")
    (20, [1, 2], 'easy')
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def read_arguments(pairs: Sequence[str]) -> dict[str, Any]:
    """Arguments of an environment from `key=value` texts.

    Raises:
        UsageError: for a text of another form, or a key given twice.
    """
    arguments: dict[str, Any] = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not key.strip().isidentifier():
            raise UsageError(f"--set {pair!r} is not of the form key=value, for example --set num_examples=20")
        if key.strip() in arguments:
            raise UsageError(f"--set {key.strip()} is given twice: {arguments[key.strip()]!r} and {read_value(text)!r}")
        arguments[key.strip()] = read_value(text)
    return arguments


def read_counts(option: str, text: str | None) -> int | dict[str, int] | None:
    """A whole number, or one for each name: `{a: 4, _default: 1}`.

    >>> read_counts("-r", "4"), read_counts("-r", "{math: 4, _default: 1}")
    (4, {'math': 4, '_default': 1})

    Raises:
        UsageError: for a text of another form.
    """
    if text is None:
        return None
    inside = re.fullmatch(r"\s*\{(.*)\}\s*", text, re.DOTALL)
    try:
        if inside is None:
            return int(text)
        parts = [part.rpartition(":") for part in inside[1].split(",")]
        counts = {name.strip().strip("\"'"): int(count) for name, _, count in parts}
        if "" in counts or len(counts) < len(parts):
            raise ValueError
    except ValueError as error:
        raise UsageError(
            f"{option} {text!r} must be a whole number, or one for each name, each once: '{{a: 4, _default: 1}}'"
        ) from error
    return counts


def refuse(options: Mapping[str, Any], where: str) -> None:
    """Refuse options that say nothing in a place, where they were given.

    Raises:
        UsageError: names them.
    """
    given = [name for name, value in options.items() if value not in (None, False, (), [])]
    if given:
        raise UsageError(f"{where}, {', '.join(given)} {'means' if len(given) == 1 else 'mean'} nothing; leave it out")


def print_json(data: Any) -> None:
    """Data on standard output, for programs; escapes keep it free of control codes."""
    typer.echo(json.dumps(data, indent=2, allow_nan=False, default=str))


def check_complete(results: Results, output: Path | None) -> None:
    """End the command with exit code 1 when a rollout has no reward.

    Raises:
        PolygymError: says how many of which environment; the results that were printed before tell why.
    """
    found_E = results.environments
    if missing := sum(found.unscored for found in found_E.values()):
        counts = [f"{name} {found.unscored} of {found.rollouts}" for name, found in found_E.items() if found.unscored]
        total = sum(found.rollouts for found in found_E.values())
        again = (
            "" if output is None else "; --resume plays again those played fewer than 3 times, --overwrite begins anew"
        )
        raise PolygymError(
            f"no reward for {missing} of {total} rollouts ({', '.join(counts)}); "
            f"the causes stand with the results{again}"
        )


def check_scored(failures_E: Mapping[str, Unscored]) -> None:
    """End the command with exit code 1 when an environment was played and never scored.

    Raises:
        PolygymError: with the names of such environments; the results that were printed before tell why.
    """
    from polygym.collect.unscored import never_scored

    if names := never_scored(failures_E):
        raise PolygymError(f"no rollout of {', '.join(names)} was scored; the cause stands with the results")
