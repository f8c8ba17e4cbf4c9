"""The word lists, and the tasks made of them.

The one idea: a task is a secret and the random guesses that open the game, so there are far more tasks than secrets,
and the split is by secret. A held-out secret is a legal guess, and may open a training game, but is never its secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from polygym.recipes.task_space import interleave, is_held_out, shuffled_range
from polygym.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class Game:
    """One task: the secret, and the guesses already made."""

    secret: str
    openings: tuple[str, ...]

    @property
    def id(self) -> str:
        """The name of the task; a policy never sees it."""
        return "/".join((self.secret, *self.openings))


@cache
def answers() -> tuple[str, ...]:
    """Common five-letter words, the most frequent first: the secrets."""
    return _read("answers.txt")


@cache
def legal_words() -> frozenset[str]:
    """Every word that may be guessed; it includes the answers."""
    return frozenset(_read("legal.txt"))


def games(secrets: Sequence[str], openings: int, *, held_out: bool, seed: int) -> Iterator[Game]:
    """Every game of one split, each once, in an order that `seed` names, the secrets in turn.

    Opening words are drawn from `secrets` too (both splits of it), all different and none the secret itself.
    """
    ours = [secret for secret in secrets if is_held_out("word_game", secret) == held_out]
    order = shuffled_range(len(ours), derive_seed(seed, "word_game", "secrets"))
    return interleave([_games_of(ours[position], secrets, openings, seed) for position in order])


def _games_of(secret: str, words: Sequence[str], openings: int, seed: int) -> Iterator[Game]:
    others = [word for word in words if word != secret]
    for index in shuffled_range(len(others) ** openings, derive_seed(seed, "word_game", secret)):
        opening = []
        for _ in range(openings):
            index, position = divmod(index, len(others))
            opening.append(others[position])
        if len(set(opening)) == openings:
            yield Game(secret, tuple(opening))


def _read(name: str) -> tuple[str, ...]:
    return tuple(files(__package__).joinpath(name).read_text("utf-8").split())
