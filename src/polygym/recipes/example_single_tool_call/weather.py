"""The tool, and questions that name two cities and are about one of them.

The one idea: the weather of a city is a hash of its name, so it is the same in every process and nothing but the tool
tells it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from polygym.recipes.task_space import is_held_out, shuffled_range
from polygym.seeds import derive_seed

CONDITIONS = (
    "sunny", "cloudy", "rainy", "snowy", "windy", "foggy", "stormy", "hazy", "frosty", "humid", "icy", "mild",
)  # fmt: skip
# fmt: off
CITIES = (
    "Accra", "Amman", "Athens", "Baku", "Bergen", "Berlin", "Bogota", "Bristol", "Cairo", "Calgary", "Cork", "Dakar",
    "Delhi", "Denver", "Dublin", "Durban", "Fukuoka", "Geneva", "Ghent", "Glasgow", "Hanoi", "Havana", "Helsinki",
    "Hobart", "Jakarta", "Kigali", "Krakow", "Kyoto", "Lagos", "Lima", "Lisbon", "Lyon", "Madrid", "Malmo", "Manila",
    "Milan", "Montreal", "Nairobi", "Naples", "Osaka", "Oslo", "Perth", "Porto", "Prague", "Quito", "Riga", "Rome",
    "Salvador", "Santiago", "Seoul", "Seville", "Sofia", "Tallinn", "Tampa", "Tokyo", "Toronto", "Tunis", "Vienna",
    "Warsaw", "Zagreb",
)
# fmt: on
QUESTIONS = (
    "I have left {other} and am in {city} now. What is the weather here?",
    "My sister lives in {city} and I live in {other}. What is the weather at her place?",
    "I fly from {other} to {city} tonight. What is the weather where I land?",
    "The meeting was moved from {other} to {city}. What weather will we meet in?",
    "It was lovely in {other} yesterday. How is it in {city} today?",
)
_WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the city that it is about; `number` names it among all questions."""

    number: int
    text: str
    city: str


def questions(*, held_out: bool, seed: int) -> Iterator[Question]:
    """Every question of one split, each once, in an order that `seed` names."""
    size = len(QUESTIONS) * len(CITIES) * (len(CITIES) - 1)
    for number in shuffled_range(size, seed):
        question = _question(number)
        if is_held_out("example_single_tool_call", question.text) == held_out:
            yield question


async def get_weather(city: str) -> dict[str, str]:
    """Look up the weather of a city.

    Args:
        city: Name of the city, such as Oslo.
    """
    return {"city": city, "weather_description": description_of(city)}


def description_of(city: str) -> str:
    """The weather of a city in a sentence."""
    return f"The weather in {city} is {condition_of(city)}."


def condition_of(city: str) -> str:
    """The weather of a city in a word; case and blanks of the name do not matter.

    >>> condition_of("Oslo") == condition_of(" oslo ")
    True
    """
    return CONDITIONS[derive_seed("weather", same_city(city)) % len(CONDITIONS)]


def same_city(city: str) -> str:
    """A city's name as it is compared."""
    return " ".join(city.split()).casefold()


def conditions_in(text: str) -> set[str]:
    """The words for the weather that a text uses.

    >>> sorted(conditions_in("Foggy, not sunny."))
    ['foggy', 'sunny']
    """
    return set(_WORD.findall(text.lower())).intersection(CONDITIONS)


def _question(number: int) -> Question:
    pair, kind = divmod(number, len(QUESTIONS))
    place, offset = divmod(pair, len(CITIES) - 1)
    city, other = CITIES[place], CITIES[(place + 1 + offset) % len(CITIES)]
    return Question(number, QUESTIONS[kind].format(city=city, other=other), city)
