"""Weights of environments: what people write becomes shares that sum to 1.

The one idea: an environment counts as much as its weight says, whatever the size of its dataset; weights that are not
given are equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from polygym.errors import UsageError


class WeightError(UsageError):
    """Weights that give no mix.

    `code` is `length_mismatch`, `no_environments`, `bad_weight`, `all_zero` or `empty_dataset`.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def normalize_weights(weights: Sequence[float] | None, counts: Sequence[int]) -> list[float]:
    """Shares that sum to 1, one for each environment.

    Args:
        weights: one finite number of at least 0 for each environment; None means equal. 0 switches an environment off.
        counts: rows of each environment. Only a switched-off environment may have none.

    >>> normalize_weights([3, 1], [10, 1000])
    [0.75, 0.25]

    Raises:
        WeightError: for weights that are missing, extra, negative, not finite, not numbers, or all 0.
    """
    if weights is None:
        weights = [1.0] * len(counts)
    if isinstance(weights, (str, bytes)) or not isinstance(weights, Sequence):
        raise WeightError(f"weights={weights!r} must be a list of numbers, one for each environment", "bad_weight")
    if len(weights) != len(counts):
        raise WeightError(
            f"{len(weights)} weights were given for {len(counts)} environments; give one for each", "length_mismatch"
        )
    if not counts:
        raise WeightError("no environments were given; give at least one", "no_environments")
    values = [_check(weight, position) for position, weight in enumerate(weights)]
    largest = max(values, default=0.0)
    if largest == 0:
        raise WeightError(
            f"weights={list(weights)} are all 0, which switches every environment off; raise one", "all_zero"
        )
    for position, (value, count) in enumerate(zip(values, counts, strict=True)):
        if value > 0 and count < 1:
            raise WeightError(
                f"environment at position {position} has weight {value} but no rows; give it rows or weight 0",
                "empty_dataset",
            )
    # Scaled by the largest first: the sum of huge weights overflows, and that of tiny ones loses all its digits.
    scaled = [value / largest for value in values]
    total = math.fsum(scaled)
    return [value / total for value in scaled]


def _check(weight: object, position: int) -> float:
    """The weight as a float, if it is a finite number of at least 0."""
    allowed = "a weight is a finite number of at least 0 (0 switches the environment off)"
    if isinstance(weight, bool) or not isinstance(weight, (int, float)):
        raise WeightError(
            f"weight {weight!r} (position {position}) is a {type(weight).__name__}; {allowed}", "bad_weight"
        )
    try:
        value = float(weight)
    except OverflowError:
        value = math.inf
    if not (math.isfinite(value) and value >= 0):
        raise WeightError(f"weight {weight!r:.40} (position {position}) is not allowed; {allowed}", "bad_weight")
    return value
