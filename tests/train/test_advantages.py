"""Advantages of one group, from plain lists of rewards."""

import math
import statistics

import pytest

from case_rows import parametrize
from polygym.errors import UsageError
from polygym.train.advantages import advantages, has_signal

METHODS = {"mean": "group_mean", "std": "group_std", "loo": "leave_one_out"}
NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def of_case(given):
    """Advantages of a case; `loo_std` (no method of ours) is leave-one-out over the group's sample deviation."""
    rewards_K = [NUMBERS.get(reward, reward) if isinstance(reward, str) else reward for reward in given["rewards"]]
    if given["method"] != "loo_std":
        return advantages(rewards_K, METHODS[given["method"]])
    found = advantages(rewards_K, "leave_one_out")
    if not found.signal:
        return found
    deviation = statistics.stdev(r for r in rewards_K if r is not None and math.isfinite(r))
    return type(found)(tuple(None if v is None else v / deviation for v in found.values_K), found.signal)


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
