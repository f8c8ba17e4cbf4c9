"""How many rows each source of a blend gives.

The one idea: a source has a supply, its rows times its epochs; weights and counts say how much of it is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from polygym.errors import UsageError, nearest

Amount = int | Mapping[str, int]
"""A number for all together (counts) or for each (epochs), or numbers by the name of the source."""

ROUNDING = 1e-9


def counts_of(
    rows_S: Mapping[str, int], weights_S: Mapping[str, float], count: Amount | None, epochs: Amount | None
) -> dict[str, int]:
    """Rows that each source gives.

    Without `count` every source gives its supply; with weights, as much of it as the shares allow. A total `count` is
    split by the weights, equal where there are none. One source's `count` is its own.

    Args:
        rows_S: rows that each source has.
        weights_S: of all sources, or of none.
        count: rows in all, or of some sources.
        epochs: how often a row is used at most; default once, and as often as needed where `count` says how many.

    >>> counts_of({"math": 100, "word": 20}, {}, None, {"word": 3})
    {'math': 100, 'word': 60}
    >>> counts_of({"math": 100, "word": 20}, {"math": 0.75, "word": 0.25}, 200, None)
    {'math': 150, 'word': 50}

    Raises:
        UsageError: when the numbers contradict each other, leave a source out, or ask for more than the supply.
    """
    _check("--count", count, rows_S)
    _check("--epochs", epochs, rows_S)
    times_S = dict(epochs) if isinstance(epochs, Mapping) else dict.fromkeys(rows_S, epochs or 1)
    supply_S = {name: rows * times_S.get(name, 1) for name, rows in rows_S.items()}
    if count is None:
        return _by_shares(supply_S, weights_S) if weights_S else supply_S
    if isinstance(count, int):
        counts_S = _split(count, weights_S or dict.fromkeys(rows_S, 1.0))
    elif weights_S:
        raise UsageError("weights and a --count of one source contradict each other; give one total --count, or none")
    else:
        counts_S = {name: count.get(name, supply) for name, supply in supply_S.items()}
    for name, number in counts_S.items():
        if epochs is not None and number > supply_S[name]:
            raise UsageError(
                f"{number} rows of {name!r} are more than its {rows_S[name]} rows in --epochs give, which is "
                f"{supply_S[name]}; lower --count, or leave --epochs out to use rows as often as needed"
            )
    return counts_S


def _by_shares(supply_S: Mapping[str, int], weights_S: Mapping[str, float]) -> dict[str, int]:
    """Rows of each source when the one that runs out first has given all."""
    scale = min(supply / weights_S[name] for name, supply in supply_S.items())
    counts_S = {name: math.floor(weights_S[name] * scale + ROUNDING) for name in supply_S}
    for name, count in counts_S.items():
        if not count:
            least = math.ceil(1 / weights_S[name] * max(weights_S.values()))
            raise UsageError(
                f"weights {dict(weights_S)} leave no row for {name!r}: with these rows the others run out first; "
                f"give them {least} rows or more, {name!r} a larger weight, or a --count, which uses rows again"
            )
    return counts_S


def _split(total: int, weights_S: Mapping[str, float]) -> dict[str, int]:
    """A total by shares: what is left after the whole parts goes to the largest remainders."""
    whole = math.fsum(weights_S.values())
    exact_S = {name: total * weight / whole for name, weight in weights_S.items()}
    counts_S = {name: math.floor(exact + ROUNDING) for name, exact in exact_S.items()}
    largest = sorted(counts_S, key=lambda name: counts_S[name] - exact_S[name])
    for name in largest[: total - sum(counts_S.values())]:
        counts_S[name] += 1
    if empty := [name for name, count in counts_S.items() if not count]:
        raise UsageError(f"--count {total} leaves no row for {', '.join(empty)}; give a larger one")
    return counts_S


def _check(option: str, amount: Amount | None, rows_S: Mapping[str, int]) -> None:
    for name, number in amount.items() if isinstance(amount, Mapping) else [("", amount)]:
        if name and name not in rows_S:
            raise UsageError(f"{option} names {name!r}, which is not added; {nearest(name, rows_S)}")
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise UsageError(f"{option} {number!r} must be an integer of at least 1")
