"""The four tools of tool_use, as plain functions: their type hints and docstrings are what a policy is told.

Limits: `calculate` reads numbers, + - * /, parentheses and unary minus, nothing else, and never calls `eval`; a bad
expression or unit raises ValueError, which the policy reads as text.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from fractions import Fraction

MAX_EXPRESSION_CHARACTERS = 200

_BINARY: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}

# Units of one dimension, each with its size in that dimension's smallest unit.
UNITS: dict[str, dict[str, int]] = {
    "length": {"millimeters": 1, "centimeters": 10, "meters": 1_000, "kilometers": 1_000_000},
    "mass": {"milligrams": 1, "grams": 1_000, "kilograms": 1_000_000},
    "time": {"seconds": 1, "minutes": 60, "hours": 3_600, "days": 86_400},
}


def calculate(expression: str) -> str:
    """Work out an arithmetic expression such as 12 * (3 + 4).

    Args:
        expression: Numbers, + - * / and parentheses.
    """
    if len(expression) > MAX_EXPRESSION_CHARACTERS:
        raise ValueError(
            f"the expression has {len(expression)} characters; at most {MAX_EXPRESSION_CHARACTERS} are read"
        )
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{expression!r} is no arithmetic expression") from error
    try:
        return format_number(_value(tree))
    except ZeroDivisionError as error:
        raise ValueError(f"{expression!r} divides by zero") from error


def count_words(text: str) -> int:
    """Count the words of a text.

    Args:
        text: The text; words are separated by spaces.
    """
    return len(text.split())


def reverse_string(text: str) -> str:
    """Reverse the characters of a text.

    Args:
        text: The text to reverse.
    """
    return text[::-1]


def convert_units(value: float, from_unit: str, to_unit: str) -> str:
    """Convert a value between units of length, mass or time.

    Args:
        value: The number to convert.
        from_unit: Its unit, such as kilometers.
        to_unit: The unit wanted, such as meters.
    """
    for units in UNITS.values():
        if from_unit in units and to_unit in units:
            return format_number(Fraction(str(value)) * units[from_unit] / units[to_unit])
    known = "; ".join(", ".join(units) for units in UNITS.values())
    raise ValueError(f"cannot convert {from_unit!r} to {to_unit!r}; units that go together: {known}")


def format_number(value: Fraction) -> str:
    """A whole number as it is, any other as a decimal of at most 10 significant digits.

    >>> format_number(Fraction(6, 4))
    '1.5'
    """
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.10g}"


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return Fraction(str(node.value))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    raise ValueError(f"{ast.unparse(node)!r} is not allowed; use numbers, + - * / and parentheses")


TOOLS = (calculate, count_words, reverse_string, convert_units)
