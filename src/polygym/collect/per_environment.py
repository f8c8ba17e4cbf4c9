"""Numbers that are given for all environments, or for each.

The one idea: a plain number holds for all; a mapping gives it by name, with `_default` for those it does not name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from polygym.collect.line import DEFAULT_CONCURRENCY, check_concurrency
from polygym.errors import UsageError, nearest

DEFAULT = "_default"
ALL = "all"

Counts = int | Mapping[str, int]


def counts_by_environment(
    name: str, value: Counts | None, environments: Iterable[str], default: int, agents: Mapping[str, str] | None = None
) -> dict[str, int]:
    """The number of each environment.

    Args:
        name: of the argument, in messages.
        value: what was given; None means `default`.
        environments: their names.
        default: of environments that a mapping leaves out, where it has no `_default`.
        agents: environments by further names that a mapping may use.

    >>> counts_by_environment("num_repeats", {"a": 4, "_default": 1}, ["a", "b"], 9)
    {'a': 4, 'b': 1}

    Raises:
        UsageError: for a name that is unknown, or a number below 1.
    """
    known = {environment: environment for environment in environments}
    if value is None or not isinstance(value, Mapping):
        return dict.fromkeys(known, check_count(name, default if value is None else value))
    names = {**(agents or {}), **known}
    for given, count in value.items():
        if given not in names and given != DEFAULT:
            raise UsageError(f"{name} is given for {given!r}, which is unknown; {nearest(given, [*names, DEFAULT])}")
        check_count(name, count)
    counts = dict.fromkeys(known, value.get(DEFAULT, default))
    return counts | {names[given]: count for given, count in value.items() if given != DEFAULT}


def concurrency_by_environment(
    value: Counts | None, environments: Iterable[str], agents: Mapping[str, str] | None = None
) -> tuple[int, dict[str, int]]:
    """How many rollouts are under way at a time: in all, and of each environment that has a limit.

    A mapping gives limits by environment, and under `all` how many there are in all.

    >>> concurrency_by_environment({"all": 64, "slow": 4}, ["slow", "fast"])
    (64, {'slow': 4})
    """
    if value is None or not isinstance(value, Mapping):
        return check_concurrency(DEFAULT_CONCURRENCY if value is None else value), {}
    rest = {name: count for name, count in value.items() if name != ALL}
    total = check_concurrency(value.get(ALL, DEFAULT_CONCURRENCY))
    limits = counts_by_environment("concurrency", rest, environments, total, agents)
    return total, {name: limit for name, limit in limits.items() if limit < total}


def check_count(name: str, count: object) -> int:
    """A number that is an integer of at least 1."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"{name}={count!r} must be an integer of at least 1")
    return count


def one_or_all(counts_E: Mapping[str, int]) -> int | dict[str, int]:
    """The number that is the same for all, else all of them."""
    values = set(counts_E.values())
    return values.pop() if len(values) == 1 else dict(counts_E)
