"""The weight of one token's loss."""

import pytest

from polygym.errors import UsageError
from polygym.train.credit import assign_credit

EVEN = {"math": 0.5, "word": 0.5}


def credit(environments_S, tokens_S, groups_E, **changes):
    settings = {"weights_E": EVEN, "shares_E": EVEN, "groups_per_step": 4} | changes
    return assign_credit(environments_S, tokens_S, groups_E, **settings)


def test_a_token_weighs_the_share_over_planned_groups_over_tokens_of_a_group():
    found = credit(["math", "math", "word"], [10, 30, 400], {"math": 2, "word": 2})
    assert found.tokens_per_group_E == {"math": 20.0, "word": 200.0}
    assert found.weights_S == pytest.approx((0.5 / 2 / 20, 0.5 / 2 / 20, 0.5 / 2 / 200))


def test_long_answers_do_not_buy_a_larger_share_of_the_loss():
    assert credit(["math", "word"], [10, 10_000], {"math": 2, "word": 2}).loss_share_E == pytest.approx(EVEN)
    found = credit(["math", "word"], [10, 10_000], {"math": 2, "word": 2}, loss_share="tokens")
    assert found.weights_S == (1 / 10_010, 1 / 10_010)
    assert found.loss_share_E == pytest.approx({"math": 10 / 10_010, "word": 10_000 / 10_010})


def test_groups_that_are_lost_change_no_token_weight_of_another_environment():
    whole = credit(["math", "math", "word", "word"], [20, 20, 30, 30], {"math": 2, "word": 2})
    late = credit(["math", "word", "word"], [20, 30, 30], {"math": 1, "word": 2})
    assert late.weights_S == whole.weights_S[1:]
    assert late.loss_share_E == pytest.approx({"math": 1 / 3, "word": 2 / 3})


def test_the_weight_not_the_sampling_share_decides_the_loss():
    found = credit(
        ["math"] * 3 + ["word"],
        [10] * 4,
        {"math": 3, "word": 1},
        weights_E={"math": 0.9, "word": 0.1},
        shares_E={"math": 0.75, "word": 0.25},
    )
    assert found.loss_share_E == pytest.approx({"math": 0.9, "word": 0.1})


def test_a_loss_weight_replaces_the_weight():
    found = credit(["math", "word"], [10, 10], {"math": 2, "word": 2}, loss_weights_E={"word": 1.5})
    assert found.loss_share_E == pytest.approx({"math": 0.25, "word": 0.75})
    assert credit(["math", "word"], [9, 9], {"math": 1, "word": 1}, loss_weights_E={"word": 0}).weights_S[1] == 0


def test_a_scored_group_without_tokens_counts_in_the_mean():
    assert credit(["math"], [30], {"math": 3, "word": 0}).tokens_per_group_E == {"math": 10.0}


def test_an_environment_without_a_sample_has_no_share_and_divides_by_nothing():
    found = credit(["math"], [30], {"math": 1})
    assert found.loss_share_E == {"math": 1.0, "word": 0.0}
    empty = credit([], [], {})
    assert (empty.weights_S, empty.loss_share_E) == ((), {"math": 0.0, "word": 0.0})


def test_a_sample_without_a_scored_group_is_refused():
    with pytest.raises(ValueError, match="'word', which has no scored group"):
        credit(["word"], [3], {"math": 1})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss_share": "envs"}, "did you mean 'env'"),
        ({"loss_weights_E": {"mth": 1.0}}, "did you mean 'math'"),
        ({"loss_weights_E": {"math": -1.0}}, "at least 0"),
        ({"loss_weights_E": {"math": float("nan")}}, "at least 0"),
        ({"loss_weights_E": {"math": 1.0}, "loss_share": "tokens"}, "does nothing"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        credit(["math"], [1], {"math": 1}, **changes)
