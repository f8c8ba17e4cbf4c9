"""Reward scale of one environment."""

import pytest

from polygym.errors import UsageError
from polygym.train.scale import RewardScale


def test_the_first_step_gives_its_own_root_mean_square():
    scale = RewardScale("math", decay=0.9)
    scale.observe([[1.0, 0.0, 0.0, 0.0]])  # centred: .75, -.25 three times; mean square .1875
    assert scale.value == pytest.approx(0.1875**0.5)


def test_the_average_over_steps_is_bias_corrected():
    scale = RewardScale("math", decay=0.5)
    scale.observe([[1.0, 0.0]])  # .5
    scale.observe([[3.0, 0.0]])  # 1.5
    assert scale.value == pytest.approx((0.5 * 0.5 * 0.5 + 0.5 * 1.5) / (1 - 0.5**2))


def test_the_root_mean_square_is_over_all_rollouts_of_groups_with_signal():
    scale = RewardScale("math", decay=0.0)
    scale.observe([[1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [1.0, 1.0], [0.0, None], []])
    assert scale.value == pytest.approx(((2 * 0.25 + 0.75) / 6) ** 0.5)


def test_a_step_without_signal_leaves_the_scale_as_it_was():
    scale = RewardScale("math", decay=0.9)
    assert scale.value is None
    assert scale.metrics() == {}
    assert scale.normalize([[1.0, None]]) == [[1.0, None]]
    scale.observe([[1.0, 0.0]])
    before = scale.state_dict()
    scale.observe([[1.0, 1.0], [0.5, None]])
    assert scale.state_dict() == before


@pytest.mark.parametrize("factor", [100.0, 0.001, 2.0**20])
def test_rewards_times_a_constant_normalise_to_the_same(factor):
    steps = [[[1.0, 0.0, 0.3]], [[0.2, 0.9], [0.4, 0.4]], [[0.0, None, 0.6]]]
    plain, scaled = RewardScale("a", 0.9), RewardScale("b", 0.9)
    for rewards_G_K in steps:
        larger_G_K = [[None if r is None else r * factor for r in rewards_K] for rewards_K in rewards_G_K]
        plain.observe(rewards_G_K)
        scaled.observe(larger_G_K)
        for ours, theirs in zip(plain.normalize(rewards_G_K), scaled.normalize(larger_G_K), strict=True):
            assert theirs == [None if r is None else pytest.approx(r, rel=1e-14) for r in ours]


def test_a_saved_scale_continues_to_the_last_digit():
    whole, first = RewardScale("math", 0.9), RewardScale("math", 0.9)
    for scale in (whole, first):
        scale.observe([[1.0, 0.0]])
        scale.observe([[0.3, 0.0]])
    resumed = RewardScale("math", 0.9)
    resumed.load_state_dict(first.state_dict())
    whole.observe([[0.7, 0.1]])
    resumed.observe([[0.7, 0.1]])
    assert resumed.metrics() == whole.metrics()


def test_a_state_of_another_shape_is_refused():
    with pytest.raises(UsageError, match="average and correction"):
        RewardScale("math", 0.9).load_state_dict({"mean": 1.0})


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_a_decay_outside_its_range_is_refused(decay):
    with pytest.raises(UsageError, match="math: decay="):
        RewardScale("math", decay)
