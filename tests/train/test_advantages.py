"""Advantages of one group, from plain lists of rewards."""

import math
import statistics

import pytest

from case_rows import parametrize
from polygym.errors import UsageError
from polygym.train.advantages import Advantages, advantages, has_signal, scored_rewards

METHODS = {"mean": "group_mean", "std": "group_std", "loo": "leave_one_out", "loo_std": "leave_one_out"}
NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def of_case(given):
    """Advantages of a case. Two readings are no methods of ours and are worked out here from those that are.

    `std` with `ddof` 0 divides by the population deviation. `loo_std` divides each leave-one-out advantage by the
    deviation of the other rewards, as its baseline is their mean; where the others are equal it is left undivided.
    """
    rewards_K = [NUMBERS.get(reward, reward) if isinstance(reward, str) else reward for reward in given["rewards"]]
    method, ddof = given["method"], given.get("ddof", 1)
    found = advantages(rewards_K, METHODS[method])
    if not found.signal or (method, ddof) not in {("std", 0), ("loo_std", 0), ("loo_std", 1)}:
        return found
    scored_K = scored_rewards(rewards_K)
    count = sum(reward is not None for reward in scored_K)
    if method == "std":
        divisors_K = [math.sqrt((count - 1) / count)] * len(scored_K)
    else:
        spread = statistics.pstdev if ddof == 0 else statistics.stdev
        others_K = [
            [other for place, other in enumerate(scored_K) if place != position and other is not None]
            for position in range(len(scored_K))
        ]
        divisors_K = [spread(others) if has_signal(others) else 1.0 for others in others_K]
    values_K = [v if v is None else v / divisor for v, divisor in zip(found.values_K, divisors_K, strict=True)]
    return Advantages(tuple(values_K), found.signal)


@parametrize("advantages")
def test_advantages_case(case):
    if "error" in case["expected"]:
        with pytest.raises(UsageError, match="reward"):
            of_case(case["input"])
        return
    found = of_case(case["input"])
    assert found.signal is case["expected"]["signal"]
    assert [v is None for v in found.values_K] == [v is None for v in case["expected"]["adv"]]
    assert [v for v in found.values_K if v is not None] == pytest.approx(
        [v for v in case["expected"]["adv"] if v is not None], abs=1e-6
    )


@pytest.mark.parametrize(
    ("rewards", "method", "ddof", "expected"),
    [
        ([1, 0], "std", 0, [1, -1]),
        ([1, 0, 0, 0], "std", 0, [3**0.5, -(3**-0.5), -(3**-0.5), -(3**-0.5)]),
        ([True, False, None], "std", 1, [0.5**0.5, -(0.5**0.5), None]),
        ([1, 0, 0, 0], "loo", 1, [1, -1 / 3, -1 / 3, -1 / 3]),
        ([1, 1, 1, 0, 0, 0, 0, 0], "loo", 1, [5 / 7] * 3 + [-3 / 7] * 5),
        ([1, 1, 1, 0, 0, 0, 0, 0], "mean", 1, [5 / 8] * 3 + [-3 / 8] * 5),
        ([1, 0, 0, 0], "loo_std", 1, [1, -(3**-0.5), -(3**-0.5), -(3**-0.5)]),
        ([1, 0, 0, 0], "loo_std", 0, [1, -(0.5**0.5), -(0.5**0.5), -(0.5**0.5)]),
        ([0.4, 0.1, None, 0.1, 0.1], "loo_std", 1, [0.3, -(3**-0.5), None, -(3**-0.5), -(3**-0.5)]),
        ([1, 0], "loo_std", 1, [1, -1]),
    ],
)
def test_more_advantages_in_the_form_of_the_cases(rewards, method, ddof, expected):
    found = of_case({"rewards": rewards, "method": method, "ddof": ddof})
    assert found.values_K == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("method", ["std", "mean", "loo", "loo_std"])
@pytest.mark.parametrize("rewards", [[], [0.7], [None, None], [math.nan, math.inf], [0.1] * 8, [0, 0], [None, 1.0]])
@pytest.mark.parametrize("ddof", [0, 1])
def test_no_method_makes_signal_of_a_group_without(rewards, method, ddof):
    found = of_case({"rewards": rewards, "method": method, "ddof": ddof})
    assert not found.signal
    assert set(found.values_K) <= {0.0, None}


def test_leave_one_out_is_the_reward_minus_the_mean_of_the_others():
    assert advantages([1, 0, 0, 0], "leave_one_out").values_K == pytest.approx((1.0, -1 / 3, -1 / 3, -1 / 3))


@pytest.mark.parametrize("method", ["group_mean", "group_std", "leave_one_out"])
@pytest.mark.parametrize("rewards_K", [[0.1] * 3, [0.3, 0.1 + 0.2, 0.3], [1e9 + 0.1] * 7, [-0.7] * 5])
def test_equal_rewards_give_exactly_zero(method, rewards_K):
    found = advantages(rewards_K, method)
    assert not found.signal
    assert set(found.values_K) == {0.0}


def test_a_tiny_but_real_difference_is_signal():
    assert has_signal([1e-9, 2e-9])
    assert advantages([1e-9, 2e-9], "group_std").values_K == pytest.approx((-(0.5**0.5), 0.5**0.5))


@pytest.mark.parametrize("reward", ["1.0", [1.0], {}, object()])
def test_a_reward_that_is_no_number_is_refused_with_its_position(reward):
    with pytest.raises(UsageError, match="rollout 1"):
        advantages([0.0, reward])


def test_an_unknown_method_names_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'group_std'"):
        advantages([0.0, 1.0], "group_sdt")
