"""MathRubric: is the final answer of a reply equal to the right one?

The one idea: the answer is found by our own extraction (`polygym.parsing.boxed`), plain numbers are compared exactly
and at once, and only what needs algebra goes to math-verify, in a grader process that can be killed.
"""

from __future__ import annotations

import asyncio
from typing import Any

from polygym.errors import UsageError
from polygym.parsing.boxed import MARKER, extract_answer, last_boxed
from polygym.rewards.answers import MAX_LENGTH, same_answer
from polygym.rewards.grader import shared_grader
from polygym.rewards.rubric import Rubric

QUICK_LENGTH = 400  # characters of both answers; longer ones are taken apart in a grader process too


class MathRubric(Rubric):
    """Rubric of one function, `correct_answer`: 1.0 for an answer equal to the task's, else 0.0.

    The answer is the last complete `\\boxed{}` outside the reasoning block, else the text after `####`, else the last
    number. More functions can be added with `add_reward_func`.
    """

    def __init__(self) -> None:
        super().__init__([correct_answer])


async def correct_answer(completion: str, answer: Any) -> float:
    """1.0 if the final answer of `completion` equals `answer`, else 0.0.

    Raises:
        GraderError: when the graders fail for another reason than the answer.
        UsageError: when the task has no answer.
    """
    if answer is None or isinstance(answer, (list, tuple, dict, set)):
        raise UsageError(f"a mathematical answer must be text or a number, got {answer!r:.80}")
    return float(await equivalent(str(answer), completion))


async def equivalent(gold: str, completion: str) -> bool:
    """Whether the final answer of `completion` equals `gold` (an answer, or a solution that ends in a box or `####`).

    >>> asyncio.run(equivalent("0.5", r"So it is \\boxed{\\frac{1}{2}}."))
    True

    Raises:
        GraderError: when the graders fail for another reason than the answer.
    """
    prediction = extract_answer(completion)
    if prediction is None:
        return False
    right = gold_answer(gold)
    if len(prediction) > MAX_LENGTH:
        return prediction.strip() == right.strip()
    if len(right) + len(prediction) <= QUICK_LENGTH:
        try:
            return same_answer(right, prediction, _needs_algebra)
        except _AlgebraNeededError:
            pass
    return await asyncio.wrap_future(shared_grader().submit(right, prediction))


def gold_answer(gold: str) -> str:
    """The answer in a dataset's answer column, which may hold a whole solution."""
    boxed = last_boxed(gold) if "boxed" in gold else None
    if boxed is not None:
        return boxed
    return gold.rpartition(MARKER)[2].strip() if MARKER in gold else gold


class _AlgebraNeededError(Exception):
    """The answers are no plain numbers."""


def _needs_algebra(gold: str, prediction: str) -> bool:
    raise _AlgebraNeededError
