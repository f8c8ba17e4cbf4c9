"""word_game: find the secret five-letter word in six guesses (the game known as Wordle).

The one idea: the reward falls with the number of guesses used (1.0 .90 .75 .60 .45 .30, else 0), and the words that
open a game count as guesses: they make it shorter and better informed, which sets the difficulty.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count
from typing import Any

from polygym.environments import MultiTurnEnv, State, stop
from polygym.errors import UsageError
from polygym.messages import Message
from polygym.parsing.guess import parse_guess
from polygym.recipes.task_space import take, take_up_to
from polygym.recipes.word_game.wordle import MAX_GUESSES, REWARD_BY_GUESS, feedback, fitting, play_out
from polygym.recipes.word_game.words import Game, answers, games, legal_words
from polygym.rewards.rubric import Rubric
from polygym.rollout import Task
from polygym.seeds import check_seed, derive_seed

SYSTEM_PROMPT = (
    "Find the secret five-letter word. Write a guess as <guess>word</guess>. Each guess is answered with its letters by"
    " place: G is right, Y is elsewhere in the word, B is not in it."
)
FIRST_PROMPT = "Make your first guess."
OPENING_PROMPT = "Guesses so far:"
ERRORS = {
    "no_guess": "No guess found: write <guess>word</guess>.",
    "not_letters": "A guess has letters a to z only.",
    "wrong_length": "A guess has five letters.",
    "not_in_list": "Not in the word list.",
}
DEFAULT_NUM_EXAMPLES = 2000
MIN_ANSWERS = 20  # fewer would leave a split with next to no secrets


def feedback_text(secret: str, guess: str) -> str:
    """Feedback as a policy reads it.

    >>> feedback_text("essay", "sease")
    '1sY 2eY 3aY 4sY 5eB'
    """
    colours = feedback(secret, guess)
    return " ".join(
        f"{slot}{letter}{colour}" for slot, (letter, colour) in enumerate(zip(guess, colours, strict=True), 1)
    )


def by_guess(state: State) -> float:
    """1.0 .90 .75 .60 .45 .30 for the secret at the first to the sixth guess, openings included; 0 without it."""
    return state["outcome"].reward


class WordGameEnv(MultiTurnEnv):
    """A guess a turn; an illegal guess costs one too.

    Args:
        candidates: the answer words in play, from which demonstrations guess.
        arguments: those of `Environment`.
    """

    def __init__(self, dataset: Any = None, *, candidates: Sequence[str], **arguments: Any) -> None:
        super().__init__(dataset, max_turns=MAX_GUESSES, **arguments)
        self.candidates = tuple(candidates)

    def setup_state(self, state: State) -> None:
        """Start with the openings as guesses."""
        state["guesses"] = list(state["info"]["openings"])
        _judge(state)

    def env_response(self, messages: list[Message], state: State) -> str:
        """Feedback for a legal guess; else what is wrong with it."""
        parsed = parse_guess(messages[-1].content, legal_words())
        state["guesses"].append(parsed.guess)
        _judge(state)
        if parsed.guess is not None:
            return feedback_text(state["answer"], parsed.guess)
        return ERRORS[parsed.error or "no_guess"]

    @stop
    def solved(self, state: State) -> bool:
        """The secret was guessed."""
        return state["outcome"].solved

    @stop
    def out_of_guesses(self, state: State) -> bool:
        """All guesses are used."""
        return state["outcome"].turns_used >= MAX_GUESSES

    def demonstrate(self, task: Task) -> list[Message]:
        """A game won by a player who picks at random among the answer words that fit all feedback so far.

        The random choices belong to the task. A game lost is played again with others.
        """
        for attempt in count():
            guesses = self._play(task, attempt)
            if guesses[-1] == task.answer:
                break
        messages = []
        for guess in guesses:
            messages.append(Message("assistant", f"<guess>{guess}</guess>"))
            messages.append(Message("user", feedback_text(task.answer, guess)))
        return messages[:-1]

    def demonstrated_reward(self, task: Task) -> float:
        """What the demonstrated game earns: nobody can know the secret at the first guess."""
        turns = sum(message.role == "assistant" for message in self.demonstrate(task))
        return REWARD_BY_GUESS[len(task.info["openings"]) + turns - 1]

    def _play(self, task: Task, attempt: int) -> list[str]:
        choose = random.Random(derive_seed("word_game", str(task.id), attempt)).choice
        candidates = list(self.candidates)
        guesses: list[str] = []
        for opening in task.info["openings"]:
            candidates = fitting(candidates, opening, feedback(task.answer, opening))
        for _ in range(MAX_GUESSES - len(task.info["openings"])):
            guesses.append(choose(candidates))
            if guesses[-1] == task.answer:
                break
            candidates = fitting(candidates, guesses[-1], feedback(task.answer, guesses[-1]))
        return guesses


def load_environment(
    num_examples: int | None = None,
    num_eval_examples: int | None = None,
    seed: int = 0,
    openings: int = 0,
    num_answers: int | None = None,
) -> WordGameEnv:
    """The word game.

    Args:
        num_examples: training tasks; default 2000, or as many as there are.
        num_eval_examples: held-out tasks; default as many as `num_examples`, or as many as there are.
        seed: chooses the tasks and their openings. The split of a secret does not depend on it.
        openings: random first guesses, 0 to 5, shown with their feedback in the prompt; they count as guesses.
        num_answers: secrets are among the first so many answer words, the most common ones; default all.

    Raises:
        UsageError: for a bad argument, or more examples than exist; it names the maximum.
    """
    check_seed(seed)
    if isinstance(openings, bool) or not isinstance(openings, int) or not 0 <= openings < MAX_GUESSES:
        raise UsageError(f"word_game: openings={openings!r} must be an integer from 0 to {MAX_GUESSES - 1}")
    words = answers()
    number = len(words) if num_answers is None else num_answers
    if isinstance(number, bool) or not isinstance(number, int) or not MIN_ANSWERS <= number <= len(words):
        raise UsageError(f"word_game: num_answers={number!r} must be an integer from {MIN_ANSWERS} to {len(words)}")
    train, held_out = (games(words[:number], openings, held_out=side, seed=seed) for side in (False, True))
    if num_examples is None:
        train_games = take_up_to(train, DEFAULT_NUM_EXAMPLES)
    else:
        train_games = take(train, num_examples, environment="word_game", argument="num_examples")
    if num_eval_examples is None:
        held_out_games = take_up_to(held_out, len(train_games))
    else:
        held_out_games = take(held_out, num_eval_examples, environment="word_game", argument="num_eval_examples")
    return WordGameEnv(
        [_row(game) for game in train_games],
        eval_dataset=[_row(game) for game in held_out_games],
        candidates=words[:number],
        system_prompt=SYSTEM_PROMPT,
        rubric=Rubric([by_guess]),
        name="word_game",
    )


def _judge(state: State) -> None:
    outcome = play_out(state["answer"], state["guesses"], legal_words())
    state["outcome"] = outcome
    state["metrics"]["solved"] = float(outcome.solved)
    state["metrics"]["guesses"] = float(outcome.turns_used)


def _row(game: Game) -> dict[str, Any]:
    lines = [OPENING_PROMPT, *(feedback_text(game.secret, opening) for opening in game.openings)]
    return {
        "id": game.id,
        "question": "\n".join(lines) if game.openings else FIRST_PROMPT,
        "answer": game.secret,
        "info": {"openings": list(game.openings)},
    }
