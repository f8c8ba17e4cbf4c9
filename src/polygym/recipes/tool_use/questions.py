"""Questions that one call of one tool answers, with that call.

The one idea: the space of each tool's questions is indexed by one integer, so questions are drawn without repeats, and
the answer is what the tool itself returns.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polygym.errors import UsageError, nearest
from polygym.recipes.task_space import interleave, is_held_out, shuffled_range
from polygym.recipes.tool_use.tools import TOOLS, UNITS
from polygym.seeds import derive_seed

Range = tuple[int, int]
FUNCTIONS: dict[str, Callable[..., Any]] = {function.__name__: function for function in TOOLS}
# fmt: off
WORDS = (
    "apple", "bird", "boat", "book", "bread", "car", "cat", "chair", "cloud", "cup", "dog", "door", "fish",
    "flower", "garden", "glass", "hat", "horse", "house", "key", "lamp", "leaf", "milk", "moon", "mouse", "paper",
    "pen", "rain", "river", "road", "rock", "salt", "ship", "shoe", "snow", "star", "stone", "sun", "table", "tree",
    "water", "wind",
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the tool that answers it, and the tool's arguments."""

    text: str
    tool: str
    arguments: Mapping[str, Any]

    @property
    def answer(self) -> str:
        """What the tool returns, as text."""
        return str(FUNCTIONS[self.tool](**self.arguments))

    @property
    def held_out(self) -> bool:
        """The split."""
        return is_held_out("tool_use", self.text)


@dataclass(frozen=True, slots=True)
class Difficulty:
    """Inclusive ranges of what the questions are made of."""

    left_range: Range = (10, 999)  # calculate: the first number
    right_range: Range = (10, 99)  # calculate: the second number
    word_range: Range = (2, 5)  # count_words: words in the text
    letter_range: Range = (3, 7)  # reverse_string: letters in the text
    value_range: Range = (2, 99)  # convert_units: the number, in the larger unit


def questions(tools: Sequence[str], difficulty: Difficulty, *, held_out: bool, seed: int) -> Iterator[Question]:
    """Every question of one split, each once, in an order that `seed` names, the tools in turn."""
    spaces = (_SPACES[tool](difficulty, derive_seed(seed, "tool_use", tool)) for tool in tools)
    return interleave([filter(lambda question: question.held_out == held_out, space) for space in spaces])


def check_tools(tools: object) -> tuple[str, ...]:
    """The tools' names as a tuple.

    Raises:
        UsageError: for an unknown or repeated one, or none.
    """
    given = tuple(tools) if isinstance(tools, (list, tuple)) else (tools,)
    for name in given:
        if name not in FUNCTIONS:
            raise UsageError(f"tool_use: tool {name!r} is unknown; {nearest(name, FUNCTIONS)}")
    if not given or len(set(given)) != len(given):
        raise UsageError(f"tool_use: tools={tools!r} must name one or more tools, each once: {', '.join(FUNCTIONS)}")
    return given


def _calculate(difficulty: Difficulty, seed: int) -> Iterator[Question]:
    (left_low, left_high), (right_low, right_high) = difficulty.left_range, difficulty.right_range
    width = right_high - right_low + 1
    operations = "+-*"
    for index in shuffled_range(len(operations) * (left_high - left_low + 1) * width, seed):
        pair, operation = divmod(index, len(operations))
        expression = f"{left_low + pair // width} {operations[operation]} {right_low + pair % width}"
        yield Question(f"What is {expression}?", "calculate", {"expression": expression})


def _count_words(difficulty: Difficulty, seed: int) -> Iterator[Question]:
    for text in _texts(WORDS, difficulty.word_range, " ", seed):
        yield Question(f'How many words are in "{text}"?', "count_words", {"text": text})


def _reverse_string(difficulty: Difficulty, seed: int) -> Iterator[Question]:
    for text in _texts(string.ascii_lowercase, difficulty.letter_range, "", seed):
        yield Question(f'Reverse the string "{text}".', "reverse_string", {"text": text})


def _convert_units(difficulty: Difficulty, seed: int) -> Iterator[Question]:
    low, high = difficulty.value_range
    width = high - low + 1
    pairs = [
        (larger, smaller)
        for units in UNITS.values()
        for larger, larger_size in units.items()
        for smaller, smaller_size in units.items()
        if larger_size > smaller_size
    ]
    for index in shuffled_range(len(pairs) * width, seed):
        (larger, smaller), value = pairs[index // width], low + index % width
        yield Question(
            f"Convert {value} {larger} to {smaller}.",
            "convert_units",
            {"value": value, "from_unit": larger, "to_unit": smaller},
        )


def _texts(items: Sequence[str], length_range: Range, separator: str, seed: int) -> Iterator[str]:
    """Texts of `items`, the lengths in turn, so that the many long texts do not crowd out the short ones."""
    low, high = length_range
    return interleave([_texts_of_length(items, length, separator, seed) for length in range(low, high + 1)])


def _texts_of_length(items: Sequence[str], length: int, separator: str, seed: int) -> Iterator[str]:
    for index in shuffled_range(len(items) ** length, derive_seed(seed, length)):
        chosen = []
        for _ in range(length):
            index, item = divmod(index, len(items))
            chosen.append(items[item])
        yield separator.join(chosen)


_SPACES: dict[str, Callable[[Difficulty, int], Iterator[Question]]] = {
    "calculate": _calculate,
    "count_words": _count_words,
    "reverse_string": _reverse_string,
    "convert_units": _convert_units,
}
