"""majority@k: what a policy earns that is asked k times and gives the answer it gave most often.

The one idea: the vote is over answers, not over texts, and its worth is an expectation, like that of pass@k: over every
choice of k of a task's scored rollouts, without replacement. So it does not depend on their order, and majority@1 is
the mean reward.

The answer of a rollout is what its row says under `extracted_answer` (as servers of mathematics do), else the content
of the last complete `\\boxed{}` outside reasoning, else, where the task's own answer has a digit in it, the text after
`####` or the last number: the rules of `MathRubric`. Equal plain numbers are one answer (0.5, 1/2 and .50); anything
else is compared by its spelling, white space aside. The answer with the most votes wins, and stands for the mean reward
of the rollouts that gave it; those that tie share. A rollout without an answer is drawn but has no vote; where none of
the k has one, they stand for themselves.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polygym.parsing.boxed import extract_answer, last_boxed
from polygym.rewards.answers import MAX_LENGTH
from polygym.rewards.notation import clean, squash
from polygym.rewards.plain_numbers import plain_number
from polygym.statistics import Array, mean

LARGEST_K = 64
NO_VOTE = 0

Ballot = tuple[float, int]
"""Reward and vote of a scored rollout; a vote is an answer's number, or `NO_VOTE`."""


def vote_of(completion: str, answer: Any, stated: object = None) -> int:
    """The number of the answer that a rollout gives, or `NO_VOTE`.

    Args:
        completion: the text of the policy's turns.
        answer: the task's own, which only says whether numbers are asked for.
        stated: the answer, where somebody has extracted it already.

    >>> vote_of("So 0.5", 3) == vote_of(r"It is \\boxed{1/2}", None) != vote_of("So 0.6", 3)
    True
    """
    if isinstance(stated, (str, int, float)):
        text: str | None = str(stated)
    elif isinstance(answer, (str, int, float)) and any(map(str.isdigit, str(answer))):
        text = extract_answer(completion)
    else:
        text = last_boxed(completion) if "boxed" in completion else None
    if not text or len(text) > MAX_LENGTH:
        return NO_VOTE
    return _number_of(text)


@functools.lru_cache(maxsize=4096)
def _number_of(text: str) -> int:
    cleaned = clean(text)
    number = plain_number(cleaned)
    spelling = squash(cleaned) if number is None else f"{number.value}{'%' * number.percent} {number.unit}"
    # 63 bits, to fit an array: two answers of a task share a number once in 10^17 tasks of 16 rollouts
    digest = hashlib.blake2b(spelling.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return max(1, int.from_bytes(digest) >> 1)


def majority_at_k(ballots: Sequence[Ballot], k: int) -> float | None:
    """Expected reward of the majority answer of k of a task's scored rollouts; None if it has fewer.

    >>> round(majority_at_k([(1.0, 7), (1.0, 7), (0.0, 8)], 3), 6)
    1.0
    """
    if len(ballots) < k:
        return None
    rewards: dict[int, list[float]] = {}
    for reward, vote in ballots:
        rewards.setdefault(vote, []).append(reward)
    silent = rewards.pop(NO_VOTE, [])
    answers = sorted(rewards.values(), key=len)
    odds, odds_of_silence = _odds(tuple(map(len, answers)), len(silent), k)
    worth = [chance * (mean(given) or 0.0) for chance, given in zip(odds, answers, strict=True)]
    return math.fsum([*worth, odds_of_silence * (mean(silent) or 0.0)])


def mean_majority_at_k(ballots_by_task: Mapping[Any, Sequence[Ballot]], k: int) -> float | None:
    """Mean of majority@k over the tasks with at least k scored rollouts, None if there is none."""
    return mean(majority_at_k(ballots, k) for ballots in ballots_by_task.values())


@functools.lru_cache(maxsize=16384)
def _odds(counts: tuple[int, ...], silent: int, k: int) -> tuple[tuple[float, ...], float]:
    """The chance of each answer to win when k are drawn, and that nobody votes.

    Args:
        counts: how many rollouts gave each answer, ascending.
        silent: how many gave none.
    """
    draws = math.comb(sum(counts) + silent, k)
    by_count = {
        count: _ways_to_win(count, counts[:place] + counts[place + 1 :], silent, k)
        for place, count in enumerate(counts)
        if place == 0 or counts[place - 1] != count
    }
    return tuple(by_count[count] / draws for count in counts), math.comb(silent, k) / draws


def _ways_to_win(count: int, others: tuple[int, ...], silent: int, k: int) -> float:
    """How many choices of k an answer wins, a tie of t answers counted as 1 / t."""
    total = 0.0
    for votes in range(1, min(count, k) + 1):
        rest = k - votes
        ties = sum(other >= votes for other in others)
        ways: Array = np.zeros((min(ties, rest // votes) + 1, rest + 1))  # (further answers that tie, rollouts drawn)
        ways[0, : min(silent, rest) + 1] = [math.comb(silent, drawn) for drawn in range(min(silent, rest) + 1)]
        for other in others:
            longer = ways.copy()
            for drawn in range(1, min(votes - 1, other, rest) + 1):
                longer[:, drawn:] += math.comb(other, drawn) * ways[:, :-drawn]
            if other >= votes and rest >= votes:
                longer[1:, votes:] += math.comb(other, votes) * ways[:-1, :-votes]
            ways = longer
        total += math.comb(count, votes) * float((ways[:, rest] / np.arange(1, ways.shape[0] + 1)).sum())
    return total
