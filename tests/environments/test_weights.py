"""Weights of environments."""

from __future__ import annotations

import math
from typing import Any

import pytest

from case_rows import parametrize
from polygym.environments.weights import WeightError, normalize_weights

SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def code_of(weights: Any, counts: list[int]) -> str | None:
    try:
        normalize_weights(weights, counts)
    except WeightError as error:
        return error.code
    return None


@parametrize("env_mix")
def test_env_mix_case(case: dict[str, Any]) -> None:
    weights, counts, expected = case["input"]["weights"], case["input"]["rows"], case["expected"]
    if weights is not None:
        weights = [SPECIAL.get(weight, weight) if isinstance(weight, str) else weight for weight in weights]
    if "error" in expected:
        assert code_of(weights, counts) == expected["error"]
    else:
        assert normalize_weights(weights, counts) == pytest.approx(expected["probs"], abs=1e-12)


@pytest.mark.parametrize(
    ("weights", "code"),
    [
        (["1", 1], "bad_weight"),
        (["NaN", 1], "bad_weight"),
        ([None, 1], "bad_weight"),
        ([-math.inf, 1], "bad_weight"),
        ([10**400, 1], "bad_weight"),
        ([[1], 1], "bad_weight"),
        ("11", "bad_weight"),
        ({"a": 1, "b": 1}, "bad_weight"),
        ([0, 0], "all_zero"),
        ([0.0, -0.0], "all_zero"),
        ([1], "length_mismatch"),
        ([], "length_mismatch"),
    ],
)
def test_weights_that_give_no_mix(weights: Any, code: str) -> None:
    assert code_of(weights, [5, 5]) == code


def test_no_environments_give_no_mix() -> None:
    assert code_of([], []) == code_of(None, []) == "no_environments"


def test_an_environment_without_rows_must_be_switched_off() -> None:
    assert code_of([1, 1], [5, 0]) == "empty_dataset"
    assert code_of(None, [5, 0]) == "empty_dataset"
    assert normalize_weights([2, 0], [5, 0]) == [1.0, 0.0]


def test_shares_sum_to_1() -> None:
    shares = normalize_weights([0.1] * 7 + [1e-9], [1] * 8)
    assert math.fsum(shares) == pytest.approx(1.0, abs=1e-15)
