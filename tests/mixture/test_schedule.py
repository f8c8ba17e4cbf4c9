"""The guarantees of the schedule, over random shares and numbers of groups."""

import itertools
import json
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from polygym.errors import UsageError
from polygym.mixture import GroupSchedule, water_fill
from polygym.mixture.schedule import UNIT, quotas

WEIGHTS = st.lists(
    st.one_of(st.floats(1e-14, 1.0), st.sampled_from([0.1, 0.2, 1 / 3, 1 / 7, 1.0, 1e-9])), min_size=1, max_size=12
)
DRIFT = 1e-8  # groups by which 1,000 steps of quotas in units of 2**-40 may leave the share


def shares_of(weights, groups):
    return water_fill({str(place): weight for place, weight in enumerate(weights)}, groups)


def check_guarantees(shares_E, groups, steps):
    """Cumulative counts within one group of the share, windows within two, nobody absent; in exact arithmetic."""
    exact_E = {name: Fraction(share) * groups for name, share in shares_E.items()}
    schedule = GroupSchedule(shares_E, groups)
    counted_E, low_E, high_E = (dict.fromkeys(shares_E, 0) for _ in range(3))
    for step in range(1, steps + 1):
        counts_E = schedule.next()
        assert sum(counts_E.values()) == groups
        for name, count in counts_E.items():
            counted_E[name] += count
            ahead = counted_E[name] - exact_E[name] * step
            low_E[name], high_E[name] = min(low_E[name], ahead), max(high_E[name], ahead)
            assert abs(ahead) < 1
            assert high_E[name] - low_E[name] < 2
            if groups >= len(shares_E):
                assert count >= 1
            assert count >= int(exact_E[name] - Fraction(DRIFT))


@given(WEIGHTS, st.integers(1, 40))
@example([1 / 3, 1 / 3, 1 / 3], 3)
@example([0.1] * 10, 10)
@example([0.1, 0.2, 0.7], 10)
@example([0.55, 0.30, 0.15], 8)
@example([1.0, 1e-13, 1e-13], 2)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_every_environment_stays_within_one_group_of_its_share(weights, groups):
    check_guarantees(shares_of(weights, groups), groups, steps=60)


@pytest.mark.parametrize(
    ("weights", "groups"),
    [
        ([0.55, 0.30, 0.15], 8),
        ([1 / 3] * 3, 4),
        ([1 / 7, 2 / 7, 4 / 7], 5),
        ([0.9, 0.1 - 1e-9, 1e-9], 3),
        ([1, 2, 4, 8, 16], 2),
    ],
)
def test_the_guarantees_hold_over_a_thousand_steps(weights, groups):
    check_guarantees(shares_of(weights, groups), groups, steps=1000)


def test_shares_that_divide_evenly_give_the_same_counts_in_every_step():
    schedule = GroupSchedule({"a": 0.1, "b": 0.2, "c": 0.7}, groups=10)
    assert [tuple(schedule.next().values()) for _ in range(50)] == [(1, 2, 7)] * 50
    thirds = GroupSchedule({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}, groups=6)
    assert [tuple(thirds.next().values()) for _ in range(50)] == [(2, 2, 2)] * 50


def test_with_fewer_groups_than_environments_they_take_turns():
    schedule = GroupSchedule({"a": 0.25, "b": 0.25, "c": 0.25, "d": 0.25}, groups=2)
    steps = [[name for name, count in schedule.next().items() if count] for _ in range(4)]
    assert steps == [["a", "b"], ["c", "d"]] * 2


def test_a_rare_environment_is_asked_about_once_in_its_period():
    schedule = GroupSchedule({"a": 0.99, "rare": 0.01}, groups=1)
    asked = [step for step in range(1000) if schedule.next()["rare"]]
    assert len(asked) == 10
    assert {later - earlier for earlier, later in itertools.pairwise(asked)} == {100}


def test_an_environment_of_share_zero_is_never_asked():
    schedule = GroupSchedule(water_fill({"a": 1, "off": 0}, 3), groups=3)
    assert schedule.next() == {"a": 3, "off": 0}


def test_quotas_sum_to_the_groups_and_whole_ones_are_whole():
    assert quotas({"a": 0.1, "b": 0.2, "c": 0.7}, 10) == {"a": UNIT, "b": 2 * UNIT, "c": 7 * UNIT}
    quota_E = quotas({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}, 1)
    assert sum(quota_E.values()) == UNIT
    assert max(quota_E.values()) - min(quota_E.values()) == 1
    assert quotas({"a": 1 - 1e-20, "b": 1e-20}, 1)["b"] == 1


@pytest.mark.parametrize("taken", [0, 1, 7, 23])
def test_a_saved_schedule_continues_with_the_same_counts(taken):
    whole, first, resumed = (GroupSchedule(shares_of([0.5, 0.3, 0.17, 0.03], 7), groups=7) for _ in range(3))
    for _ in range(taken):
        whole.next()
        first.next()
    assert resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [whole.next() for _ in range(30)] == [resumed.next() for _ in range(30)]


def test_a_schedule_of_other_shares_starts_anew():
    saved = GroupSchedule({"a": 0.5, "b": 0.5}, groups=3)
    saved.next()
    other = GroupSchedule({"a": 0.6, "b": 0.4}, groups=3)
    before = other.state_dict()
    assert not other.load_state_dict(saved.state_dict())
    assert other.state_dict() == before


@pytest.mark.parametrize("shares_E", [{"a": 0.5, "b": 0.4}, {"a": 1.5, "b": -0.5}, {"a": float("nan")}, {}])
def test_shares_that_are_no_shares_are_refused(shares_E):
    with pytest.raises(UsageError, match="sum to 1"):
        GroupSchedule(shares_E, groups=2)
