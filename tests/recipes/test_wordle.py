"""The rules of the word game."""

from __future__ import annotations

from typing import Any

import pytest
from tests.case_rows import parametrize

from polygym.parsing.guess import parse_guess
from polygym.recipes.word_game.wordle import Outcome, feedback, fitting, play_out
from polygym.recipes.word_game.words import answers, games, legal_words


@parametrize("wordle_feedback")
def test_feedback_case(case: dict[str, Any]) -> None:
    given = case["input"]
    assert feedback(given["secret"], given["guess"]) == case["expected"].replace("X", "B")


@parametrize("wordle_episode")
def test_episode_case(case: dict[str, Any]) -> None:
    given = case["input"]
    guesses = [None if guess is None else parse_guess(f"<guess>{guess}</guess>").guess for guess in given["guesses"]]
    outcome = play_out(
        given["secret"],
        guesses,
        legal_words(),
        illegal_costs_turn=False,
        end_after_illegal=given.get("end_after_invalid"),
        max_guesses=given.get("max_turns", 6),
    )
    assert outcome == Outcome(case["expected"]["solved"], case["expected"]["turns_used"])


@pytest.mark.parametrize(("turn", "reward"), list(enumerate([1.0, 0.90, 0.75, 0.60, 0.45, 0.30, 0.0], start=1)))
def test_the_reward_falls_with_the_guess_and_the_seventh_is_too_late(turn: int, reward: float) -> None:
    assert play_out("crane", ["slate"] * (turn - 1) + ["crane"], legal_words()).reward == reward


def test_an_illegal_guess_costs_a_turn_unless_told_otherwise() -> None:
    guesses = [None, "zzzzz", "crane"]
    assert play_out("crane", guesses, legal_words()) == Outcome(True, 3)
    assert play_out("crane", guesses, legal_words(), illegal_costs_turn=False) == Outcome(True, 1)
    assert play_out("crane", guesses, legal_words(), end_after_illegal=2) == Outcome(False, 2)
    assert play_out("CRANE", ["Slate", "Crane"], legal_words()) == Outcome(True, 2)


def test_fitting_words_are_those_that_would_give_the_same_feedback() -> None:
    words = answers()[:300]
    for guess, secret in [("about", "their"), ("level", "never"), ("those", "these")]:
        colours = feedback(secret, guess)
        assert fitting(words, guess, colours) == [word for word in words if feedback(word, guess) == colours]


def test_the_answers_are_common_legal_five_letter_words_each_once() -> None:
    assert len(answers()) == len(set(answers())) == 800
    assert set(answers()) <= legal_words()
    assert all(len(word) == 5 and word.isascii() and word.islower() and word.isalpha() for word in legal_words())


def test_held_out_secrets_are_never_training_secrets_whatever_the_arguments() -> None:
    sides = {
        held_out: {
            game.secret
            for openings, number in [(0, 800), (1, 60)]
            for game in games(answers()[:number], openings, held_out=held_out, seed=openings)
        }
        for held_out in (False, True)
    }
    assert sides[True].isdisjoint(sides[False])
    assert sides[True] | sides[False] == set(answers())
