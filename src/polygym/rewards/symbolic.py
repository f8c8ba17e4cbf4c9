"""Whether two expressions are equal, by math-verify and sympy. Runs in grader processes only: it may take for ever.

The one idea: decimals are turned into fractions before they are parsed, and numbers are compared exactly here; what
has variables, sets or relations in it is left to math-verify.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from polygym.rewards.notation import squash
from polygym.rewards.plain_numbers import MIN_PLACES, is_terminating, known_unit, plain_number

DECIMAL = re.compile(r"(?<![\d.])(\d*)\.(\d+)(?![\d.])")
IMAGINARY = re.compile(r"(?<=\d)i(?![A-Za-z])")
UNIT = re.compile(r"(?<=[\w})]) ([A-Za-z]{2,})(?:\s*\^\s*\{?\d\}?)?$")
JUXTAPOSED = re.compile(r"(?<![_^\\\w.])\d+(?:\.\d+)?\s+\d")
DIGITS = 60  # of a numeric comparison
AGREEMENT = 45  # digits that must agree before equality is looked into


def same_expression(gold: str, prediction: str) -> bool:
    """Whether two cleaned expressions are equal; text that cannot be parsed equals only the same text.

    Raises:
        Exception: whatever the libraries raise on strange input; the caller takes it as "not equal".
    """
    from math_verify import verify

    if JUXTAPOSED.search(gold) or JUXTAPOSED.search(prediction):
        return False  # sympy would read 1 2 as a product, and the normaliser as 12
    left, right = _parse(gold), _parse(prediction)
    if not left or not right:
        return False
    verdict = _same_number(left[0], right[0], gold, prediction)
    if verdict is not None:
        return verdict
    if (_is_number(left[0]) and isinstance(right[0], str)) or (isinstance(left[0], str) and _is_number(right[0])):
        return False
    return bool(verify(left, right, float_rounding=DIGITS, timeout_seconds=None))


def _parse(text: str) -> list[Any]:
    from math_verify import LatexExtractionConfig, parse

    unit = UNIT.search(text)
    if unit and known_unit(unit[1]):
        text = text[: unit.start()]
    exact = DECIMAL.sub(lambda match: rf"\frac{{{int(match[1] + match[2])}}}{{{10 ** len(match[2])}}}", text)
    exact = IMAGINARY.sub(r" i", exact)
    values = [_with_unit_i(value) for value in parse(f"${exact}$", [LatexExtractionConfig()], parsing_timeout=None)]
    return [_with_real_roots(value) for value in values] if r"\sqrt[" in exact else values


def _with_unit_i(value: Any) -> Any:
    """The imaginary unit where the parser took `i` for a complex number of that name."""
    from sympy import Basic, I

    if not isinstance(value, Basic):
        return value
    return value.xreplace(
        {symbol: I for symbol in value.free_symbols if str(symbol) == "i" and symbol.is_real is False}
    )


def _with_real_roots(value: Any) -> Any:
    """Odd roots of negative numbers as the negative numbers they are, where the parser took the complex ones."""
    from sympy import Basic, Pow

    if not isinstance(value, Basic):
        return value
    return value.replace(
        lambda part: part.is_Pow and part.base.is_negative and part.exp.is_Rational and part.exp.q % 2 == 1,
        lambda part: Pow(-1, part.exp.p) * Pow(-part.base, part.exp),
    )


def _is_number(value: Any) -> bool:
    from sympy import Expr

    return isinstance(value, Expr) and not value.free_symbols and bool(value.is_number)


def _same_number(gold: Any, prediction: Any, gold_text: str, text: str) -> bool | None:
    """Verdict on two constants; None when either is none."""
    from sympy import Float, Rational, nan, simplify, zoo

    if not _is_number(gold) or not _is_number(prediction):
        return None
    gold, prediction = gold.doit(), prediction.doit()
    if gold in (nan, zoo) or prediction in (nan, zoo):
        return False
    if gold.is_finite is False or prediction.is_finite is False:
        return bool(gold == prediction)
    if gold == prediction:
        return True
    if isinstance(gold, Rational) and isinstance(prediction, Rational):
        return False
    left, right = gold.evalf(DIGITS), prediction.evalf(DIGITS)
    gap, size = abs(left - right), abs(left)
    number = plain_number(text)
    if number and number.places >= MIN_PLACES and not _terminates(gold, gold_text):
        return bool(gap <= size * Rational(1, 10**6))
    if gap > size * Float(10, DIGITS) ** -AGREEMENT:
        return False
    difference = simplify(gold - prediction)
    return bool(difference.is_zero is not False or squash(str(difference)) == "0")


def _terminates(gold: Any, text: str) -> bool:
    """Whether gold has a finite decimal, so that a long decimal must be it exactly."""
    number = plain_number(text)
    if number:
        return is_terminating(number.value)
    return bool(gold.is_Rational) and is_terminating(Fraction(int(gold.p), int(gold.q)))
