"""Guesses in replies."""

from __future__ import annotations

from typing import Any

import pytest

from case_rows import parametrize
from polygym.errors import UsageError
from polygym.parsing.guess import parse_guess


@parametrize("wordle_parse")
def test_guess_case(case: dict[str, Any]) -> None:
    given = case["input"]
    parsed = parse_guess(given["text"], given.get("allowed"), given.get("format", "tag"), given.get("length", 5))
    assert (parsed.guess, parsed.error) == (case["expected"].get("guess"), case["expected"].get("error"))


@pytest.mark.parametrize(
    ("text", "guess", "error"),
    [
        ("<guess>crane</guess>", "crane", None),
        ("crane", None, "no_guess"),
        ("", None, "no_guess"),
        ("<think><guess>slate</guess></think><guess>crane</guess>", "crane", None),
        ("<think><guess>slate</guess></think>", None, "no_guess"),
        ("<guess>slate</guess></think>\n<guess>crane</guess>", "crane", None),
        ("<guess>cran</guess>", None, "wrong_length"),
        ("<guess>cranes</guess>", None, "wrong_length"),
        ("<guess>zzzzz</guess>", None, "not_in_list"),
        ("<guess>cra-ne</guess>", None, "not_letters"),
        ("<guess>cr_ne</guess>", None, "not_letters"),
        ("<guess>crane</guess></guess>", "crane", None),
        ("<guess>crane</guess> <guess>sla", "crane", None),
        ("[crane]", None, "no_guess"),
    ],
)
def test_a_guess_is_the_last_complete_tag_outside_the_reasoning(
    text: str, guess: str | None, error: str | None
) -> None:
    parsed = parse_guess(text, {"crane", "slate"})
    assert (parsed.guess, parsed.error) == (guess, error)


@pytest.mark.parametrize(
    ("text", "guess"),
    [("[[crane]]", "crane"), ("[crane", None), ("] [crane] ]", "crane"), ("[]", None), ("[ CRANE ]", "crane")],
)
def test_the_last_complete_bracket_holds_the_guess(text: str, guess: str | None) -> None:
    assert parse_guess(text, format="bracket").guess == guess


def test_the_length_of_a_word_can_be_given() -> None:
    assert parse_guess("<guess>cats</guess>", length=4).guess == "cats"


def test_an_unknown_guess_format_is_refused() -> None:
    with pytest.raises(UsageError, match="'xml' is unknown; allowed: bracket, tag"):
        parse_guess("x", format="xml")  # type: ignore[arg-type]
