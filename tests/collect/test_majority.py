from __future__ import annotations

import itertools
import random

import pytest

from polygym.collect.majority import NO_VOTE, Ballot, majority_at_k, mean_majority_at_k, vote_of


def by_counting(ballots: list[Ballot], k: int) -> float:
    """The definition, choice by choice."""
    worth = []
    for drawn in itertools.combinations(ballots, k):
        votes = [vote for _, vote in drawn if vote != NO_VOTE]
        if not votes:
            worth.append(sum(reward for reward, _ in drawn) / k)
            continue
        most = max(map(votes.count, votes))
        winners = [vote for vote in set(votes) if votes.count(vote) == most]
        means = []
        for winner in winners:
            given = [reward for reward, vote in ballots if vote == winner]
            means.append(sum(given) / len(given))
        worth.append(sum(means) / len(means))
    return sum(worth) / len(worth)


def test_the_expectation_is_that_of_every_choice_of_k_rollouts() -> None:
    chance = random.Random(0)
    for _ in range(200):
        ballots = [(chance.random(), chance.randint(0, 3)) for _ in range(chance.randint(1, 8))]
        for k in range(1, len(ballots) + 1):
            assert majority_at_k(ballots, k) == pytest.approx(by_counting(ballots, k), abs=1e-12)


def test_a_majority_is_right_more_often_than_one_answer() -> None:
    ballots = [(1.0, 7), (1.0, 7), (1.0, 7), (0.0, 8), (0.0, 9)]
    assert majority_at_k(ballots, 1) == pytest.approx(0.6)
    assert majority_at_k(ballots, 5) == pytest.approx(1.0)
    assert majority_at_k(ballots, 6) is None


def test_ties_share_and_rollouts_without_an_answer_have_no_vote() -> None:
    assert majority_at_k([(1.0, 7), (0.0, 8)], 2) == pytest.approx(0.5)
    assert majority_at_k([(1.0, 7), (0.0, NO_VOTE), (0.0, NO_VOTE)], 3) == pytest.approx(1.0)
    assert majority_at_k([(0.5, NO_VOTE), (0.0, NO_VOTE)], 2) == pytest.approx(0.25)


def test_the_mean_is_over_tasks_with_enough_rollouts() -> None:
    ballots = {1: [(1.0, 7), (1.0, 7)], 2: [(0.0, 7)]}
    assert mean_majority_at_k(ballots, 2) == pytest.approx(1.0)
    assert mean_majority_at_k(ballots, 1) == pytest.approx(0.5)
    assert mean_majority_at_k(ballots, 3) is None


def test_answers_are_equal_as_numbers_or_by_their_spelling() -> None:
    half = vote_of("It is 0.5", 3)
    assert half == vote_of(r"so \boxed{\frac{1}{2}}", None) == vote_of("", 3, stated="1/2") != NO_VOTE
    assert vote_of(r"\boxed{x + 1}", None) == vote_of(r"\boxed{x+1}", None) != vote_of(r"\boxed{x-1}", None)
    assert vote_of(r"\boxed{5 cm}", None) != vote_of(r"\boxed{5 m}", None)


@pytest.mark.parametrize(
    ("completion", "answer"),
    [("I guess crane, of 5 letters", "slate"), ("no number at all", 7), ("4", None), (r"\boxed{1", 1), ("", 1)],
)
def test_a_reply_without_an_answer_has_no_vote(completion: str, answer: object) -> None:
    assert vote_of(completion, answer) == NO_VOTE


def test_many_rollouts_of_a_task_are_counted_in_little_time() -> None:
    import time

    chance = random.Random(1)
    ballots = [(chance.random(), chance.randint(1, 12)) for _ in range(256)]
    started = time.process_time()
    found = [majority_at_k(ballots, 1 << power) for power in range(7)]
    assert time.process_time() - started < 3
    assert found[0] == pytest.approx(sum(reward for reward, _ in ballots) / 256)
