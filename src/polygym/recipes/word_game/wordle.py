"""The rules of the word game: feedback, legality, and how an episode of guesses ends.

The one idea: a game is a pure function of the secret and the guesses, so the environment, the oracle and the tests
share one scorer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

MAX_GUESSES = 6
REWARD_BY_GUESS = (1.0, 0.90, 0.75, 0.60, 0.45, 0.30)  # of a game won at the first, second, ... guess; else 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a game stands: whether the secret was guessed, and the turns used so far."""

    solved: bool
    turns_used: int

    @property
    def reward(self) -> float:
        """What the game pays."""
        return REWARD_BY_GUESS[self.turns_used - 1] if self.solved else 0.0


def feedback(secret: str, guess: str) -> str:
    """One letter for each letter of the guess: G right place, Y elsewhere in the secret, B not in it.

    Greens are given first, then yellows from left to right while copies of the letter remain in the secret.

    >>> feedback("essay", "sease")
    'YYYYB'
    """
    secret, guess = secret.lower(), guess.lower()
    colours = ["G" if ours == theirs else "B" for ours, theirs in zip(guess, secret, strict=True)]
    left = Counter(theirs for ours, theirs in zip(guess, secret, strict=True) if ours != theirs)
    for slot, letter in enumerate(guess):
        if colours[slot] == "B" and left[letter]:
            colours[slot] = "Y"
            left[letter] -= 1
    return "".join(colours)


def fitting(words: Sequence[str], guess: str, colours: str) -> list[str]:
    """Those of `words` that could be the secret, given the feedback `colours` for `guess`.

    >>> fitting(["crane", "slate", "stage"], "shake", "GBGBG")
    ['slate', 'stage']
    """
    greens = [(slot, guess[slot]) for slot, colour in enumerate(colours) if colour == "G"]
    return [
        word
        for word in words
        if all(word[slot] == letter for slot, letter in greens) and feedback(word, guess) == colours
    ]


def play_out(
    secret: str,
    guesses: Sequence[str | None],
    legal: Collection[str],
    *,
    illegal_costs_turn: bool = True,
    end_after_illegal: int | None = None,
    max_guesses: int = MAX_GUESSES,
) -> Outcome:
    """The outcome of `guesses` in order; None stands for a reply without a guess, which is illegal too.

    The last allowed guess is judged like any other; what comes after it, or after a win, is ignored. The recipe charges
    a turn for an illegal guess; other rules do not (`illegal_costs_turn=False`), and some end the game after
    `end_after_illegal` of them.
    """
    turns_used = illegal = 0
    for guess in guesses:
        if turns_used == max_guesses or illegal == end_after_illegal:
            break
        is_legal = guess is not None and guess.lower() in legal
        turns_used += is_legal or illegal_costs_turn
        illegal += not is_legal
        if is_legal and guess is not None and guess.lower() == secret.lower():
            return Outcome(True, turns_used)
    return Outcome(False, turns_used)
