"""The two tools, and tasks: a message, and a list of synonyms among which those of one term count.

The one idea: a task is a number. It names the message and draws the list, so there are more tasks than anyone can use.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from polygym.recipes.example_multi_step.vocabulary import TERMS, Term
from polygym.recipes.task_space import is_held_out, shuffled_range
from polygym.seeds import derive_seed

MESSAGES = [(term, message) for term in TERMS for message in term.messages]
LISTS = 1_000_000  # lists for each message
FEWEST_TERMS, FEW_TERMS = 2, 3  # a list of one term leaves nothing to find
FEWEST_SYNONYMS, MOST_SYNONYMS = 1, min(len(term.synonyms) for term in TERMS)
INSTRUCTIONS = """\
Below is a list of synonyms. Find the one term of the list that fits the user's message. Get the value of each of its
synonyms with get_synonym_value, then hand in all these values in one call of extract_synonym_values, in the order in
which the synonyms stand in the list. The value of the term itself is not wanted.

"""


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A message, the list, and what has to be handed in; `number` names it among all puzzles."""

    number: int
    instructions: str
    message: str
    term: str
    synonyms: tuple[str, ...]

    @property
    def info(self) -> dict[str, object]:
        """The task as keys of a row."""
        return {
            "expected_synonyms": list(self.synonyms),
            "expected_synonym_values": [value_of(synonym) for synonym in self.synonyms],
            "minefield_label": self.term,
            "minefield_label_value": value_of(self.term),
        }


def puzzles(num_terms: int, synonyms_range: tuple[int, int], *, held_out: bool, seed: int) -> Iterator[Puzzle]:
    """Every puzzle of one split, each once, in an order that `seed` names.

    Of few terms there are fewer lists than numbers, so there a puzzle is its text: that says its split, and comes once.
    """
    seen: set[str] = set()
    for number in shuffled_range(len(MESSAGES) * LISTS, seed):
        if num_terms > FEW_TERMS:
            if is_held_out("example_multi_step", number) == held_out:
                yield _puzzle(number, num_terms, synonyms_range)
            continue
        puzzle = _puzzle(number, num_terms, synonyms_range)
        text = f"{puzzle.instructions}\n{puzzle.message}"
        if is_held_out("example_multi_step", text) == held_out and text not in seen:
            seen.add(text)
            yield puzzle


async def get_synonym_value(synonym: str) -> dict[str, int]:
    """Get the value of a synonym.

    Args:
        synonym: The synonym, written as in the list.
    """
    return {"synonym_value": value_of(synonym)}


async def extract_synonym_values(synonym_values: list[int]) -> dict[str, bool]:
    """Hand in the values of the synonyms of the term that fits the message.

    Args:
        synonym_values: The values, in the order in which the synonyms stand in the list.
    """
    return {"success": True}


def value_of(word: str) -> int:
    """The sum of the character codes.

    >>> value_of("Arid")
    384
    """
    return sum(map(ord, word))


def _puzzle(number: int, num_terms: int, synonyms_range: tuple[int, int]) -> Puzzle:
    term, message = MESSAGES[number % len(MESSAGES)]
    generator = random.Random(derive_seed("example_multi_step", number))
    others = generator.sample([other for other in TERMS if other is not term], num_terms - 1)
    lines = [(shown, synonym) for shown in (term, *others) for synonym in _drawn(shown, synonyms_range, generator)]
    generator.shuffle(lines)
    text = "\n".join(f"{synonym} is a synonym of {shown.name}." for shown, synonym in lines)
    wanted = tuple(synonym for shown, synonym in lines if shown is term)
    return Puzzle(number, INSTRUCTIONS + text, message, term.name, wanted)


def _drawn(term: Term, synonyms_range: tuple[int, int], generator: random.Random) -> list[str]:
    return generator.sample(term.synonyms, generator.randint(*synonyms_range))
