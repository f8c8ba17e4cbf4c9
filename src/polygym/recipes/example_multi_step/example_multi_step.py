"""example_multi_step: look up the values of a term's synonyms, call by call, and hand them in in order.

The one idea: the reward looks at the last list that was handed in, and beside it stand the ways to miss: a part of the
values, the right values in another order, the value of the term itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polygym.environments import ToolEnv
from polygym.environments.base import State
from polygym.environments.tools import tool_from_function
from polygym.errors import UsageError
from polygym.messages import Message
from polygym.recipes.example_multi_step.synonyms import (
    FEWEST_SYNONYMS,
    FEWEST_TERMS,
    MOST_SYNONYMS,
    Puzzle,
    extract_synonym_values,
    get_synonym_value,
    puzzles,
    value_of,
)
from polygym.recipes.example_multi_step.vocabulary import TERMS
from polygym.recipes.task_space import check_range, take
from polygym.recipes.tool_call_record import Step, calls_of, demonstrated
from polygym.rewards.rubric import Rubric
from polygym.rollout import Task
from polygym.seeds import check_seed

NAME = "example_multi_step"
MAX_TURNS = 12
LOOK_UP, HAND_IN = (tool_from_function(function).spec for function in (get_synonym_value, extract_synonym_values))


def handed_in(messages: list[Message], info: dict[str, Any], state: State) -> float:
    """1 if the last list that was handed in is the expected one, else 0."""
    return float(extracted(messages, state) == info["expected_synonym_values"])


def accuracy(messages: list[Message], info: dict[str, Any], state: State) -> float:
    """The reward under the name that it has as a metric."""
    return handed_in(messages, info, state)


def set_overlap(messages: list[Message], info: dict[str, Any], state: State) -> float:
    """Fraction of the expected values that were handed in, in any order."""
    expected, given = set(info["expected_synonym_values"]), set(extracted(messages, state))
    return len(expected & given) / len(expected) if expected else float(not given)


def order_instruction_following_failure(messages: list[Message], info: dict[str, Any], state: State) -> float:
    """1 if exactly the expected values were handed in, but in another order, else 0."""
    expected, given = info["expected_synonym_values"], extracted(messages, state)
    return float(given != expected and sorted(given) == sorted(expected))


def original_term_minefield_hit(messages: list[Message], info: dict[str, Any], state: State) -> float:
    """1 if the value of the term itself was handed in, else 0."""
    return float(info.get("minefield_label_value") in extracted(messages, state))


def extracted(messages: list[Message], state: State) -> list[int]:
    """The last list that was handed in; empty when there is none, or that call was malformed."""
    calls = calls_of(HAND_IN, messages, state["prompt"])
    last = calls[-1] if calls else None
    return [] if last is None else last["synonym_values"]


class SynonymEnv(ToolEnv):
    """Find the term, look up its synonyms, hand in their values."""

    def demonstrate(self, task: Task) -> list[Message]:
        """A call for each synonym, the call that hands in, and a last word."""
        steps: list[Step] = [
            (LOOK_UP.name, {"synonym": synonym}, {"synonym_value": value_of(synonym)})
            for synonym in task.info["expected_synonyms"]
        ]
        values = list(task.info["expected_synonym_values"])
        return demonstrated([*steps, (HAND_IN.name, {"synonym_values": values}, {"success": True})], "Done.")


def load_environment(
    num_examples: int = 200,
    num_eval_examples: int | None = None,
    seed: int = 0,
    num_terms: int = 8,
    synonyms_range: Sequence[int] = (2, 4),
    max_turns: int = MAX_TURNS,
) -> SynonymEnv:
    """Messages that mean a term, each with a list of synonyms.

    Args:
        num_examples: training tasks.
        num_eval_examples: held-out tasks; default as many as `num_examples`.
        seed: chooses the tasks. The split of a task does not depend on it.
        num_terms: terms in a list.
        synonyms_range: [low, high] synonyms of each term in a list.
        max_turns: replies of the policy in one episode.

    Raises:
        UsageError: for a bad argument.
    """
    check_seed(seed)
    low, high = check_range(synonyms_range, environment=NAME, argument="synonyms_range", minimum=FEWEST_SYNONYMS)
    if high > MOST_SYNONYMS:
        raise UsageError(f"{NAME}: synonyms_range={synonyms_range!r} asks for more than the {MOST_SYNONYMS} that exist")
    if isinstance(num_terms, bool) or not isinstance(num_terms, int) or not FEWEST_TERMS <= num_terms <= len(TERMS):
        raise UsageError(f"{NAME}: num_terms={num_terms!r} must be an integer from {FEWEST_TERMS} to {len(TERMS)}")
    counts = {
        "num_examples": num_examples,
        "num_eval_examples": num_examples if num_eval_examples is None else num_eval_examples,
    }
    train, held_out = (
        take(puzzles(num_terms, (low, high), held_out=side, seed=seed), count, environment=NAME, argument=argument)
        for side, (argument, count) in zip((False, True), counts.items(), strict=True)
    )
    return SynonymEnv(
        [_row(puzzle) for puzzle in train],
        eval_dataset=[_row(puzzle) for puzzle in held_out],
        tools=[get_synonym_value, extract_synonym_values],
        rubric=Rubric(
            [handed_in, accuracy, set_overlap, order_instruction_following_failure, original_term_minefield_hit],
            [1, 0, 0, 0, 0],
        ),
        max_turns=max_turns,
        name=NAME,
    )


def _row(puzzle: Puzzle) -> dict[str, object]:
    prompt = [Message("system", puzzle.instructions), Message("user", puzzle.message)]
    return {"id": puzzle.number, "prompt": prompt, "info": puzzle.info}
