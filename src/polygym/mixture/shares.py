"""Sampling shares: weights raised so that each environment gets a group in every step.

The one idea: a share below one group a step is filled up to it like a vessel with water, and the others pay in
proportion to their weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from polygym.environments.weights import normalize_weights
from polygym.errors import UsageError


def water_fill(weights_E: Mapping[str, float], groups: int) -> dict[str, float]:
    """Sampling shares q_e, which sum to 1: the weights, each raised to at least 1 / groups where groups suffice.

    With fewer groups a step than environments the weights are only normalised; environments then take turns. A weight
    of 0 stays 0 and does not count as an environment.

    >>> water_fill({"math": 0.9, "word": 0.06, "tools": 0.04}, groups=10)
    {'math': 0.8, 'word': 0.1, 'tools': 0.1}

    Args:
        weights_E: finite numbers of at least 0; they need not sum to 1.
        groups: G, the groups planned a step.

    Raises:
        UsageError: for weights that give no mix, or fewer than one group.
    """
    check_groups(groups)
    weights = normalize_weights(list(weights_E.values()), [1] * len(weights_E))
    shares_E = dict(zip(weights_E, weights, strict=True))
    poor: set[str] = set()  # environments that are held at one group a step
    active = [environment for environment, weight in shares_E.items() if weight > 0]
    if groups < len(active):
        return shares_E
    while True:
        rich = math.fsum(shares_E[environment] for environment in active if environment not in poor)
        left = (groups - len(poor)) / groups
        filled_E = {
            environment: 1 / groups if environment in poor else weight / rich * left if weight else 0.0
            for environment, weight in shares_E.items()
        }
        below = {
            environment for environment in active if environment not in poor and filled_E[environment] < 1 / groups
        }
        if not below:
            return filled_E
        if len(poor) + len(below) == len(active):  # rounding: with G = E all are equal
            return {environment: 1 / groups if weight else 0.0 for environment, weight in shares_E.items()}
        poor |= below


def check_groups(groups: int) -> None:
    """Refuse a number of groups that is no positive integer."""
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1:
        raise UsageError(f"groups={groups!r} a step must be an integer of at least 1; raise batch_size")
