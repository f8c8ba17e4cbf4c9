"""Arithmetic problems: + - * and exact division of whole numbers in given ranges.

The one idea: an operation is a finite space of (left, right) pairs, so tasks are drawn without repeats and their number
is known. Division is the multiplication table read backwards, so it is always exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from polygym.errors import UsageError
from polygym.recipes.task_space import interleave, is_held_out, shuffled_range
from polygym.seeds import derive_seed

OPERATIONS = ("+", "-", "*", "/")


@dataclass(frozen=True, slots=True)
class Problem:
    """One arithmetic question and its exact answer."""

    left: int
    operation: str
    right: int

    @property
    def id(self) -> str:
        """The question, as it names the task: `12+7`."""
        return f"{self.left}{self.operation}{self.right}"

    @property
    def question(self) -> str:
        """The question, as it is asked.

        >>> Problem(12, "+", 7).question
        'What is 12 + 7?'
        """
        return f"What is {self.left} {self.operation} {self.right}?"

    @property
    def answer(self) -> int:
        """The exact result."""
        if self.operation == "+":
            return self.left + self.right
        if self.operation == "-":
            return self.left - self.right
        return self.left * self.right if self.operation == "*" else self.left // self.right

    @property
    def held_out(self) -> bool:
        """The split; a sum or a product shares it with its mirror image, so neither gives the other away."""
        pair = (self.left, self.right)
        low, high = sorted(pair) if self.operation in "+*" else pair
        return is_held_out("math_rl", self.operation, low, high)


def problems(
    operations: Sequence[str],
    addend_range: tuple[int, int],
    factor_range: tuple[int, int],
    *,
    held_out: bool,
    seed: int,
) -> Iterator[Problem]:
    """Every problem of one split, each once, in an order that `seed` names, the operations in turn.

    `addend_range` bounds both numbers of + and -, `factor_range` both factors of * and so divisor and quotient of /.
    """
    spaces = (
        _of_operation(operation, factor_range if operation in "*/" else addend_range, seed) for operation in operations
    )
    return interleave([filter(lambda problem: problem.held_out == held_out, space) for space in spaces])


def check_operations(operations: object) -> tuple[str, ...]:
    """The operations as a tuple.

    Raises:
        UsageError: for an unknown or repeated one, or none.
    """
    given = tuple(operations) if isinstance(operations, (str, list, tuple)) else (operations,)
    if not given or len(set(given)) != len(given) or not set(given) <= set(OPERATIONS):
        raise UsageError(
            f"math_rl: operations={operations!r} must be one or more of {' '.join(OPERATIONS)}, each once, such as '+-'"
        )
    return given


def _of_operation(operation: str, bounds: tuple[int, int], seed: int) -> Iterator[Problem]:
    low, high = bounds
    width = high - low + 1
    for index in shuffled_range(width * width, derive_seed(seed, "math_rl", operation)):
        first, second = low + index // width, low + index % width
        yield Problem(first * second, "/", second) if operation == "/" else Problem(first, operation, second)
