"""Numerals with a base, such as 1010_2.

The one idea: a base is part of an answer, as a unit is. 1010_2 is another answer than 1010, and than 10 too: whoever is
asked for one base and writes the other has only repeated the question. A base of ten says nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NAMES = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11,
    "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16,
}  # fmt: skip
NUMERAL = re.compile(
    r"""(?P<sign>-?)\s*\(?\s*(?P<digits>[0-9][0-9A-Za-z]*(?:\.[0-9A-Za-z]+)?|[A-F]{2}[0-9A-F]*)\s*\)?\s*
    (?:_\s*\{?\s*\(?\s*(?:base\s*)?|\(?\s*(?:in\s+)?base[\s-]*)
    (?P<base>[0-9]{1,2}|[a-z]+)\s*\)?\s*\}?""",
    re.VERBOSE,
)
ANYWHERE = re.compile(r"[0-9]\s*\)?\s*_\s*\{?\s*\(?\s*(?:[0-9]|base|(?:" + "|".join(NAMES) + r")\b)")


@dataclass(frozen=True, slots=True)
class BaseNumeral:
    """A numeral as it was written: its digits without leading zeros, and its base."""

    digits: str
    base: int


def base_numeral(text: str) -> BaseNumeral | None:
    """The numeral that cleaned text is, or None when it is none with a base.

    >>> base_numeral("0101_{2}"), base_numeral("5_x")
    (BaseNumeral(digits='101', base=2), None)
    """
    found = NUMERAL.fullmatch(text.strip())
    if found is None:
        return None
    base = NAMES.get(found["base"]) or (int(found["base"]) if found["base"].isdigit() else 0)
    return BaseNumeral(found["sign"] + (found["digits"].upper().lstrip("0") or "0"), base) if base > 1 else None


def without_base_ten(text: str) -> str:
    """`text`, or the digits alone of a numeral whose base is ten."""
    numeral = base_numeral(text)
    return numeral.digits if numeral is not None and numeral.base == 10 else text


def has_base(text: str) -> bool:
    """Whether a numeral with a base stands anywhere in `text`."""
    return ANYWHERE.search(text) is not None or base_numeral(text) is not None
