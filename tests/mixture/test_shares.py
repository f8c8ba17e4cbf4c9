"""Water-filling of weights."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polygym.errors import UsageError
from polygym.mixture import water_fill

WEIGHTS = st.lists(
    st.one_of(st.just(0.0), st.floats(1e-12, 1e6), st.sampled_from([0.1, 1 / 3, 1.0])), min_size=1, max_size=30
).filter(any)


def test_enough_groups_leave_the_weights_as_they_are():
    assert water_fill({"a": 3, "b": 1}, 4) == {"a": 0.75, "b": 0.25}


def test_a_share_below_one_group_is_raised_and_the_others_pay_in_proportion():
    assert water_fill({"a": 0.6, "b": 0.35, "c": 0.05}, 4) == pytest.approx(
        {"a": 0.75 * 0.6 / 0.95, "b": 0.75 * 0.35 / 0.95, "c": 0.25}
    )


def test_raising_one_may_push_another_below_and_it_is_raised_too():
    shares = water_fill({"a": 0.7, "b": 0.26, "c": 0.02, "d": 0.02}, 4)
    assert shares == {"a": 0.25, "b": 0.25, "c": 0.25, "d": 0.25}
    shares = water_fill({"a": 0.62, "b": 0.21, "c": 0.16, "d": 0.01}, 5)
    assert (shares["c"], shares["d"]) == (0.2, 0.2)
    assert shares["b"] >= 0.2


def test_fewer_groups_than_environments_only_normalise():
    assert water_fill({"a": 8, "b": 1, "c": 1}, 2) == pytest.approx({"a": 0.8, "b": 0.1, "c": 0.1})


def test_a_weight_of_zero_stays_zero_and_needs_no_group():
    assert water_fill({"a": 1, "off": 0, "b": 1}, 2) == {"a": 0.5, "off": 0.0, "b": 0.5}


@given(WEIGHTS, st.integers(1, 200))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_shares_sum_to_one_keep_their_order_and_reach_one_group_where_groups_suffice(weights, groups):
    weights_E = {str(place): weight for place, weight in enumerate(weights)}
    shares_E = water_fill(weights_E, groups)
    active = [name for name, weight in weights_E.items() if weight > 0]
    assert sum(shares_E.values()) == pytest.approx(1, abs=1e-12)
    assert all(shares_E[name] == 0 for name in weights_E if name not in active)
    if groups >= len(active):
        assert min(shares_E[name] for name in active) >= 1 / groups * (1 - 1e-12)
    ordered = sorted(active, key=weights_E.__getitem__)
    assert all(shares_E[low] <= shares_E[high] * (1 + 1e-12) for low, high in itertools.pairwise(ordered))


@pytest.mark.parametrize("groups", [0, -1, 1.5, True, "8"])
def test_a_number_of_groups_that_is_no_positive_integer_is_refused(groups):
    with pytest.raises(UsageError, match="must be an integer of at least 1"):
        water_fill({"a": 1.0}, groups)
