"""Rubric: a number or absent, never a made-up 0."""

from __future__ import annotations

import asyncio
import functools
import math
from decimal import Decimal
from typing import Any

import numpy
import pytest

from case_rows import parametrize
from polygym.errors import GraderError, UsageError
from polygym.rewards.rubric import BadRewardError, Rubric, RubricError, Score, combine

SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf, "raise": None}


def score(rubric: Rubric, **context: Any) -> Score:
    return asyncio.run(rubric.score(context))


def exact(completion: str, answer: str) -> bool:
    return completion == answer


def named(name: str, value: Any) -> Any:
    def function() -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    function.__name__ = name
    return function


@parametrize("reward_combine")
def test_reward_combine_case(case: dict[str, Any]) -> None:
    given, expected = case["input"], case["expected"]
    scores = {
        name: SPECIAL.get(value, value) if isinstance(value, str) else value for name, value in given["scores"].items()
    }
    weights = {
        name: SPECIAL.get(value, value) if isinstance(value, str) else value for name, value in given["weights"].items()
    }
    if "error" in expected:
        with pytest.raises((RubricError, BadRewardError)) as caught:
            combine(scores, weights)
        assert caught.value.code == expected["error"]
        return
    wanted = expected["reward"] if expected["reward"] is None else pytest.approx(expected["reward"], abs=1e-12)
    assert combine(scores, weights) == wanted
    if set(scores) != set(weights):
        return
    functions = [named(name, ValueError() if given["scores"][name] == "raise" else scores[name]) for name in scores]
    assert score(Rubric(functions, [weights[name] for name in scores])).reward == wanted


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_unscored_unless_its_weight_is_0(value: float) -> None:
    assert combine({"a": value, "b": 1.0}, {"a": 1.0, "b": 1.0}) is None
    assert combine({"a": value, "b": 1.0}, {"a": 0.0, "b": 1.0}) == 1.0
    assert combine({"b": 1.0}, {"a": 1.0, "b": 1.0}) is None
    assert combine({"b": 1.0}, {"a": 0, "b": 1.0}) == 1.0


def test_the_reward_is_the_weighted_sum_of_sync_and_async_functions() -> None:
    async def short(completion: str) -> float:
        await asyncio.sleep(0)
        return 0.5

    rubric = Rubric([exact, short], [1.0, 0.2])
    assert score(rubric, completion="4", answer="4") == Score(1.1, {"exact": 1.0, "short": 0.5})


def test_functions_ask_by_name_and_get_nothing_else() -> None:
    seen: dict[str, Any] = {}

    def picky(task: Any, state: Any, info: Any, tolerance: float = 0.1) -> float:
        seen.update(task=task, state=state, info=info, tolerance=tolerance)
        return 1

    def everything(**context: Any) -> float:
        seen["all"] = sorted(context)
        return 1

    score(Rubric([picky, everything], parser="p"), task="t", state="s", info="i", completion="c")
    assert seen == {
        "task": "t",
        "state": "s",
        "info": "i",
        "tolerance": 0.1,
        "all": ["answer", "completion", "info", "messages", "parser", "state", "task"],
    }


def test_the_rubrics_own_parser_goes_before_the_environments() -> None:
    def parsed(parser: str) -> float:
        return float(parser == "mine")

    assert score(Rubric([parsed], parser="mine"), parser="theirs").reward == 1.0
    assert score(Rubric([parsed]), parser="mine").reward == 1.0


def test_an_unknown_parameter_is_refused_with_the_nearest() -> None:
    def typo(completion: str, anwser: str) -> float:
        return 1.0

    with pytest.raises(UsageError, match=r"'typo' asks for 'anwser'.*did you mean 'answer'") as caught:
        Rubric([typo])
    assert isinstance(caught.value, RubricError)
    assert caught.value.code == "unknown_argument"


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (None, "reward", "reward function 'bad' returned None"),
        (math.nan, "reward", "reward function 'bad' returned nan"),
        (math.inf, "reward", "reward function 'bad' returned inf"),
        (10**400, "reward", "reward function 'bad' returned inf"),
        (KeyError("x"), "reward", "reward function 'bad' raised KeyError: 'x'"),
        (GraderError("no grader"), "grader", "reward function 'bad': no grader"),
    ],
)
def test_a_function_that_fails_leaves_the_rollout_unscored_with_its_cause(value: Any, kind: str, message: str) -> None:
    result = score(Rubric([named("good", 1.0), named("bad", value)]))
    assert (result.reward, result.rewards) == (None, {"good": 1.0, "bad": None})
    assert result.cause is not None
    assert (result.cause.kind, result.cause.message) == (kind, message)


def test_a_function_of_weight_0_is_a_metric_and_its_failure_costs_nothing() -> None:
    rubric = Rubric([named("good", 1.0)])
    rubric.add_metric(named("length", 7))
    rubric.add_metric(named("broken", ValueError()))
    assert score(rubric) == Score(1.0, {"good": 1.0}, {"length": 7.0, "broken": None})
    assert rubric.weights == {"good": 1.0, "length": 0.0, "broken": 0.0}


@pytest.mark.parametrize("value", ["1.0", [1.0], {"reward": 1.0}, (1,), 1j, numpy.ones(1), b"1"])
@pytest.mark.parametrize("weight", [1.0, 0.0])
def test_a_reward_that_is_no_number_is_an_error(value: Any, weight: float) -> None:
    with pytest.raises(BadRewardError, match=r"reward function 'bad' returned .* must return a number"):
        score(Rubric([named("bad", value)], [weight]))


@pytest.mark.parametrize(
    "value", [True, 1, 1.0, numpy.float32(1), numpy.int64(1), numpy.bool_(True), numpy.array(1.0), Decimal(1)]
)
def test_every_kind_of_number_is_a_reward(value: Any) -> None:
    reward = score(Rubric([named("good", value)])).reward
    assert reward == 1.0
    assert type(reward) is float


def test_a_sum_that_overflows_is_unscored() -> None:
    result = score(Rubric([named("a", 1e308), named("b", 1e308)]))
    assert result.reward is None
    assert result.cause is not None
    assert "is inf" in result.cause.message


def test_cancellation_passes_through() -> None:
    async def slow() -> float:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        score(Rubric([slow]))


@pytest.mark.parametrize("weight", [True, "1", math.nan, math.inf, None, 10**400])
def test_weights_must_be_finite_numbers(weight: Any) -> None:
    with pytest.raises(RubricError, match="of reward function 'exact' must be a finite number"):
        Rubric([exact], [weight])


def test_functions_and_weights_must_fit() -> None:
    with pytest.raises(RubricError, match="2 weights were given for 1 reward functions"):
        Rubric([exact], [1, 2])
    with pytest.raises(RubricError, match="two reward functions are called 'exact'"):
        Rubric([exact, exact])
    with pytest.raises(RubricError, match="must be callable, got str"):
        Rubric(["exact"])  # type: ignore[list-item]
    with pytest.raises(RubricError, match=r"write Rubric\(\[exact\]\)"):
        Rubric(exact)  # type: ignore[arg-type]


def test_partials_and_callable_objects_have_names_too() -> None:
    def near(completion: str, answer: str, tolerance: float) -> float:
        return float(abs(float(completion) - float(answer)) <= tolerance)

    class Judge:
        def __call__(self, completion: str) -> float:
            return 0.5

    rubric = Rubric([functools.partial(near, tolerance=0.5), Judge()])
    assert score(rubric, completion="1.4", answer="1").rewards == {"near": 1.0, "Judge": 0.5}


def test_negative_weights_are_penalties() -> None:
    rubric = Rubric([named("good", 1.0), named("rude", 1.0)], [1.0, -0.25])
    assert score(rubric).reward == 0.75
    assert rubric.full_reward == 1.0
