"""Rubric: named, weighted reward functions, and what their failures mean.

The one idea: a reward is a number or it is absent. A function that raises, or returns None, NaN or an infinity, leaves
the rollout *unscored* with its cause, and is never paid 0; a function that returns no number at all is a mistake in the
code and stops the run.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
import numbers
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from types import MethodType
from typing import Any

from polygym.errors import GraderError, UsageError, nearest
from polygym.rollout import Cause

ARGUMENTS = ("completion", "messages", "answer", "info", "state", "task", "parser")
"""What a reward function may ask for by parameter name; `completion` is the text of the policy's turns, a line each."""

RewardFunction = Callable[..., Any]


class RubricError(UsageError):
    """Reward functions and weights that do not fit; `code` names the fault (`missing_weight`, `bad_weight`, ...)."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class BadRewardError(UsageError):
    """A reward function returned something that is no number (text, a list): its code has to be mended first."""

    code = "bad_reward"


@dataclass(slots=True)
class Score:
    """What a rubric says of one rollout.

    `reward` is None where the rollout is unscored, and `cause` then says why. `rewards` holds each function of non-zero
    weight, `metrics` those of weight 0, both unweighted, None where unscored.
    """

    reward: float | None
    rewards: dict[str, float | None] = field(default_factory=dict)
    metrics: dict[str, float | None] = field(default_factory=dict)
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class _Judge:
    """One reward function, with its signature read once."""

    name: str
    function: RewardFunction
    weight: float
    arguments: tuple[str, ...]


class Rubric:
    """Named reward functions and their weights.

    Args:
        funcs: functions, sync or async, that ask by parameter name for any of `ARGUMENTS` and return a number.
        weights: one finite number each, default 1. A function of weight 0 is only recorded, as a metric.
        parser: an object handed to the functions that ask for `parser`.

    >>> import asyncio
    >>> def exact(completion, answer): return completion == answer
    >>> asyncio.run(Rubric([exact]).score({"completion": "4", "answer": "4"})).reward
    1.0

    Raises:
        RubricError: unknown parameter names, equal function names, or weights that do not fit.
    """

    def __init__(
        self, funcs: Sequence[RewardFunction] | None = None, weights: Sequence[float] | None = None, parser: Any = None
    ) -> None:
        if callable(funcs):
            raise RubricError(f"funcs must be a list of functions: write Rubric([{_name(funcs)}])", "not_a_list")
        functions = list(funcs or ())
        if weights is not None and len(weights) != len(functions):
            raise RubricError(
                f"{len(weights)} weights were given for {len(functions)} reward functions; give one for each",
                "length_mismatch",
            )
        self.parser = parser
        self._judges: list[_Judge] = []
        for position, function in enumerate(functions):
            self.add_reward_func(function, 1.0 if weights is None else weights[position])

    def add_reward_func(self, function: RewardFunction, weight: float = 1.0) -> None:
        """Add one more reward function."""
        name = _name(function)
        if name in self.weights:
            raise RubricError(
                f"two reward functions are called {name!r}; their rewards are kept by name: rename one "
                "(a lambda can be written as a def)",
                "duplicate_name",
            )
        self._judges.append(_Judge(name, function, _weight(weight, name), _arguments(function, name)))

    def add_metric(self, function: RewardFunction) -> None:
        """Add a function that is recorded but not paid (weight 0)."""
        self.add_reward_func(function, 0.0)

    @property
    def funcs(self) -> list[RewardFunction]:
        """The reward functions in order."""
        return [judge.function for judge in self._judges]

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each function by name."""
        return {judge.name: judge.weight for judge in self._judges}

    @property
    def full_reward(self) -> float:
        """The reward when every function of positive weight gives 1 and every penalty gives 0."""
        return math.fsum(judge.weight for judge in self._judges if judge.weight > 0)

    def including(self, function: RewardFunction) -> Rubric:
        """A copy of this rubric with one more function of weight 1."""
        other = copy.copy(self)
        other._judges = list(self._judges)
        other.add_reward_func(function)
        return other

    def rebound(self, old: object, new: object) -> Rubric:
        """This rubric with the functions that are methods of `old` bound to `new`."""
        if all(getattr(judge.function, "__self__", None) is not old for judge in self._judges):
            return self
        other = copy.copy(self)
        other._judges = [
            replace(judge, function=MethodType(judge.function.__func__, new))
            if isinstance(judge.function, MethodType) and judge.function.__self__ is old
            else judge
            for judge in self._judges
        ]
        return other

    async def score(self, context: Mapping[str, Any]) -> Score:
        """Judge one rollout.

        Args:
            context: a value for each name of `ARGUMENTS` that the functions ask for.

        Raises:
            BadRewardError: when a function returns something that is no number.
        """
        score = Score(None)
        total = 0.0
        unscored = False
        parser = self.parser if self.parser is not None else context.get("parser")
        for judge in self._judges:
            arguments = {name: parser if name == "parser" else context.get(name) for name in judge.arguments}
            value, cause = await _ask(judge, arguments)
            if judge.weight == 0:
                score.metrics[judge.name] = value
                continue
            score.rewards[judge.name] = value
            if value is None:
                unscored = True
                score.cause = score.cause or cause
            else:
                total += judge.weight * value
        if unscored:
            return score
        if not math.isfinite(total):
            score.cause = Cause("reward", f"the weighted sum of {score.rewards} is {total}")
            return score
        score.reward = total
        return score


def combine(scores: Mapping[str, float | None], weights: Mapping[str, float]) -> float | None:
    """The reward: the weighted sum of the scores, or None when one of non-zero weight is missing or not finite.

    >>> combine({"correct": 1.0, "fmt": 0.5}, {"correct": 1.0, "fmt": 0.2})
    1.1

    Raises:
        RubricError: for a score without a weight, or a weight that is no finite number.
        BadRewardError: for a score that is no number.
    """
    for name in scores:
        if name not in weights:
            raise RubricError(f"score {name!r} has no weight; {nearest(name, weights)}", "missing_weight")
    total = 0.0
    for name, weight in weights.items():
        value = as_reward(scores.get(name), name)
        factor = _weight(weight, name)
        if factor == 0:
            continue
        if value is None or not math.isfinite(value):
            return None
        total += factor * value
    return total if math.isfinite(total) else None


def as_reward(value: Any, name: str) -> float | None:
    """A reward as a float, None kept; NaN and infinities are returned as they are.

    Raises:
        BadRewardError: when it is no number.
    """
    kind = type(value)
    if kind is float or value is None:
        return value
    if isinstance(value, (numbers.Real, Decimal)):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    # Scalars of numpy and torch: one value, no axes.
    if getattr(value, "shape", None) == () and callable(getattr(value, "item", None)):
        return as_reward(value.item(), name)
    raise BadRewardError(
        f"reward function {name!r} returned {value!r:.80} ({kind.__name__}); "
        "it must return a number, or None for unscored"
    )


async def _ask(judge: _Judge, arguments: dict[str, Any]) -> tuple[float | None, Cause | None]:
    """Value of one function, or None and why there is none."""
    # Reward functions are other people's code: whatever they raise is recorded and the rollout stays unscored.
    try:
        returned = judge.function(**arguments)
        if hasattr(returned, "__await__"):
            returned = await returned
    except GraderError as error:
        return None, Cause("grader", f"reward function {judge.name!r}: {error}")
    except Exception as error:
        return None, Cause("reward", f"reward function {judge.name!r} raised {type(error).__name__}: {error}")
    value = as_reward(returned, judge.name)
    if value is None or not math.isfinite(value):
        return None, Cause("reward", f"reward function {judge.name!r} returned {value}")
    return value, None


def _name(function: RewardFunction) -> str:
    if not callable(function):
        raise RubricError(
            f"a reward function must be callable, got {type(function).__name__}: {function!r:.80}", "not_callable"
        )
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def _weight(weight: object, name: str) -> float:
    value = math.nan
    if isinstance(weight, (int, float)) and not isinstance(weight, bool):
        value = float(weight) if abs(weight) < sys.float_info.max else math.inf
    if not math.isfinite(value):
        raise RubricError(f"weight {weight!r:.40} of reward function {name!r} must be a finite number", "bad_weight")
    return value


def _arguments(function: RewardFunction, name: str) -> tuple[str, ...]:
    """Which of `ARGUMENTS` the function asks for; one that takes `**kwargs` gets them all."""
    asked = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            return ARGUMENTS
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.name in ARGUMENTS and parameter.kind is not parameter.POSITIONAL_ONLY:
            asked.append(parameter.name)
        elif parameter.default is parameter.empty:
            raise RubricError(
                f"reward function {name!r} asks for {parameter.name!r}, which it cannot be given; "
                f"{nearest(parameter.name, ARGUMENTS)}",
                "unknown_argument",
            )
    return tuple(asked)
