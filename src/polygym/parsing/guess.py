"""A guessed word in a reply: the word, or what is wrong with it.

The one idea: letters are a to z. Other alphabets, full-width letters and characters that change length in lower case
are told apart before anything is folded or counted.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

from polygym.errors import UsageError
from polygym.parsing.reasoning import strip_reasoning
from polygym.parsing.tags import last_bracket, last_tag

GuessError = Literal["no_guess", "not_letters", "wrong_length", "not_in_list"]


@dataclass(frozen=True, slots=True)
class ParsedGuess:
    """A guess in lower case, or the error that forbids it; one of the two is None."""

    guess: str | None = None
    error: GuessError | None = None


def parse_guess(
    text: str,
    allowed: Container[str] | None = None,
    format: Literal["tag", "bracket"] = "tag",
    length: int = 5,
) -> ParsedGuess:
    """The last guess outside the reasoning block, written `<guess>crane</guess>` or, for `format="bracket"`, `[crane]`.

    `allowed` holds legal words in lower case; None allows every word of `length` letters.

    >>> parse_guess("<guess> Crane </guess>").guess
    'crane'
    >>> parse_guess("<guess>cranes</guess>").error
    'wrong_length'

    Raises:
        UsageError: for an unknown format.
    """
    if format not in ("tag", "bracket"):
        raise UsageError(f"guess format {format!r} is unknown; allowed: bracket, tag")
    visible, _ = strip_reasoning(text)
    word = last_tag(visible, "guess") if format == "tag" else last_bracket(visible)
    if not word:
        return ParsedGuess(error="no_guess")
    if not re.fullmatch("[A-Za-z]+", word):
        return ParsedGuess(error="not_letters")
    if len(word) != length:
        return ParsedGuess(error="wrong_length")
    guess = word.lower()
    if allowed is not None and guess not in allowed:
        return ParsedGuess(error="not_in_list")
    return ParsedGuess(guess=guess)
