"""How much one token's loss counts (docs/training.md, step 4).

The one idea: an environment's weight in the loss is decided by its share, never by how long its answers are or how
many of its groups happened to arrive. The weights are fixed for a whole step, before it is cut into micro-batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from polygym.errors import UsageError, nearest

LOSS_SHARES = ("env", "tokens")
LossShare = Literal["env", "tokens"]


@dataclass(frozen=True, slots=True)
class Credit:
    """The weights of a step's token losses.

    `weights_S` has one number a sample: the factor of each of its trained tokens' losses. `tokens_per_group_E` is T_e.
    `loss_share_E` is measured: an environment's part of all weight times trained tokens; an environment that has no
    sample in the step is 0.
    """

    weights_S: tuple[float, ...]
    tokens_per_group_E: dict[str, float]
    loss_share_E: dict[str, float]


def assign_credit(
    environments_S: Sequence[str],
    tokens_S: Sequence[int],
    groups_E: Mapping[str, int],
    *,
    weights_E: Mapping[str, float],
    shares_E: Mapping[str, float],
    groups_per_step: int,
    loss_share: LossShare = "env",
    loss_weights_E: Mapping[str, float] | None = None,
) -> Credit:
    """Weights of the token losses of one step, whose loss is `sum of weight * token loss` over all trained tokens.

    With `loss_share="env"` a token of environment e counts w_e / (q_e G) / T_e, where T_e is the mean number of trained
    tokens in a scored group of e in this step. With `"tokens"` each token counts one over the number of tokens.

    >>> assign_credit(
    ...     ["math", "word"], [10, 1000], {"math": 1, "word": 1},
    ...     weights_E={"math": 0.5, "word": 0.5}, shares_E={"math": 0.5, "word": 0.5}, groups_per_step=2,
    ... ).loss_share_E
    {'math': 0.5, 'word': 0.5}

    Args:
        environments_S: environment of each sample of the step, those of groups without signal included.
        tokens_S: trained tokens of each sample.
        groups_E: scored groups of each environment in the step, those without signal or without tokens included.
        weights_E: w_e, which sum to 1.
        shares_E: q_e, the sampling shares.
        groups_per_step: G, the groups planned a step.
        loss_share: `env` or `tokens`.
        loss_weights_E: replaces w_e for the environments that it names.

    Raises:
        UsageError: for an unknown `loss_share`, a loss weight that is negative or of an unknown environment, or loss
            weights beside `loss_share="tokens"`, where they would do nothing.
        ValueError: when samples do not fit the environments and groups.
    """
    if loss_share not in LOSS_SHARES:
        raise UsageError(f"loss_share={loss_share!r} is unknown; {nearest(loss_share, LOSS_SHARES)}")
    loss_weights = dict(loss_weights_E or {})
    if loss_weights and loss_share == "tokens":
        raise UsageError(
            f"loss_weight of {', '.join(loss_weights)} does nothing with loss_share='tokens'; use loss_share='env'"
        )
    for environment, weight in loss_weights.items():
        if environment not in weights_E:
            raise UsageError(f"loss_weight of unknown environment {environment!r}; {nearest(environment, weights_E)}")
        if not 0 <= weight < float("inf"):
            raise UsageError(f"{environment}: loss_weight={weight!r} must be a finite number of at least 0")

    tokens_E = dict.fromkeys(weights_E, 0)
    for environment, tokens in zip(environments_S, tokens_S, strict=True):
        if environment not in tokens_E or groups_E.get(environment, 0) < 1:
            raise ValueError(
                f"a sample is of environment {environment!r}, which has no scored group in this step: "
                f"groups_E={dict(groups_E)}, environments {sorted(weights_E)}"
            )
        tokens_E[environment] += tokens
    total = sum(tokens_E.values())
    tokens_per_group_E = {
        environment: tokens_E[environment] / groups for environment, groups in groups_E.items() if groups > 0
    }

    weight_E: dict[str, float] = {}
    for environment, tokens in tokens_E.items():
        if tokens == 0:
            weight_E[environment] = 0.0
        elif loss_share == "tokens":
            weight_E[environment] = 1 / total
        else:
            weight = loss_weights.get(environment, weights_E[environment])
            planned_groups = shares_E[environment] * groups_per_step
            weight_E[environment] = weight / planned_groups / tokens_per_group_E[environment]

    mass_E = {environment: weight_E[environment] * tokens for environment, tokens in tokens_E.items()}
    mass = sum(mass_E.values())
    return Credit(
        weights_S=tuple(weight_E[environment] for environment in environments_S),
        tokens_per_group_E=tokens_per_group_E,
        loss_share_E={environment: (value / mass if mass else 0.0) for environment, value in mass_E.items()},
    )
