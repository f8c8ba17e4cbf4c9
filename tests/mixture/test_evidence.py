"""What an evaluation tells of an environment before a run."""

import random

import pytest

from polygym.errors import UsageError
from polygym.mixture import Evidence, evidence_of_evaluation


def of_tasks(*tasks):
    rewards = [reward for task in tasks for reward in task]
    return Evidence(sum(rewards) / len(rewards), len(rewards), tuple(map(tuple, tasks)))


def test_with_enough_rollouts_the_share_with_signal_is_counted():
    # Of the 6 pairs of a task, 4 differ with two of four right, 3 with one of four, none with four of four.
    assert of_tasks([1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]).signal_fraction(2) == pytest.approx((4 + 3 + 0) / 6 / 3)


def test_two_different_successes_are_signal():
    assert of_tasks([1.0, 0.9, 0.75, 0.6]).signal_fraction(4) == 1.0


def test_beyond_the_rollouts_at_hand_the_share_is_extrapolated():
    chance = random.Random(0)
    spread = [chance.betavariate(1, 2) for _ in range(4000)]
    found = of_tasks(*([float(chance.random() < p) for _ in range(4)] for p in spread))
    # E[p^8] and E[(1 - p)^8] of Beta(1, 2): 2 / (9 * 10) and 2 / 10
    assert found.signal_fraction(8) == pytest.approx(1 - 2 / 90 - 2 / 10, abs=0.02)


def test_a_summary_tells_through_pass_at_one_and_two():
    # Beta(1, 1): mean 1/2, E[p^2] = 1/3, so pass@2 = 2/3; for K = 8, 1 - 2/9
    found = Evidence(0.5, 400, best_of_two=2 / 3)
    assert found.likeness == pytest.approx(1 / 3)
    assert found.signal_fraction(8) == pytest.approx(1 - 2 / 9)


def test_larger_groups_never_have_less_signal():
    found = of_tasks([1.0, 0.9, 0.0, 0.0], [0.6, 0.3, 0.0, 0.0])
    shares = [found.signal_fraction(k) for k in (2, 3, 4, 5, 8, 16)]
    assert shares == sorted(shares)


@pytest.mark.parametrize("rewards", [[0.0] * 4, [1.0] * 4])
def test_an_environment_that_never_or_always_rewards_has_no_signal(rewards):
    assert of_tasks(rewards, rewards).signal_fraction(16) == 0.0


def test_alike_tasks_behave_like_coins():
    assert Evidence(0.5, 400, best_of_two=0.75).signal_fraction(4) == pytest.approx(1 - 2 / 16)


def test_too_little_evidence_is_none_and_no_guess():
    assert Evidence(None, 0).signal_fraction(8) is None
    assert Evidence(0.5, 10).signal_fraction(8) is None
    assert of_tasks([1.0], [0.0]).signal_fraction(8) is None
    assert of_tasks([1.0], [0.0]).task_standard_error(8) is None


def test_the_standard_error_of_a_task_comes_from_the_spread_within_tasks():
    assert of_tasks([1, 0], [1, 0]).task_standard_error(8) == pytest.approx((0.5 / 8) ** 0.5)
    assert of_tasks([1, 1], [0, 0]).task_standard_error(8) == 0.0


def test_an_evaluation_is_read_by_environment_without_what_is_unscored():
    found = evidence_of_evaluation(
        {
            "settings": {"sampling": {"math": {"max_tokens": 40, "temperature": 1.0}}},
            "environments": {
                "math": {
                    "rollouts": 5,
                    "unscored": 2,
                    "mean_reward": 2 / 3,
                    "pass_at_k": {"1": 2 / 3, "2": 1.0},
                    "completion_tokens_mean": 12.5,
                    "tasks": [["a", [1.0, None, 0.0]], [7, [1.0]], ["b", [None]]],
                },
                "word": {"rollouts": 4, "unscored": 1, "mean_reward": 0.25, "pass_at_k": {"2": 0.4}},
                "none": {"rollouts": 0, "unscored": 0, "mean_reward": None},
            },
        }
    )
    assert found["math"] == Evidence(2 / 3, 3, ((1.0, 0.0), (1.0,)), 1.0, 12.5, max_tokens=40)
    assert found["word"] == Evidence(0.25, 3, (), 0.4, None)
    assert found["none"] == Evidence(None, 0)


def test_what_is_no_evaluation_is_refused_with_what_it_holds():
    with pytest.raises(UsageError, match="this has step, loss"):
        evidence_of_evaluation({"step": 1, "loss": 2})
