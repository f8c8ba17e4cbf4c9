"""Plain numbers, compared exactly and at once.

The one idea: most answers are an integer, a decimal, a fraction or a mixed number, perhaps with a percent sign, a
currency or a unit. They are read as fractions, so nothing is rounded and no algebra system is woken.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from fractions import Fraction

MAX_DIGITS = 4000  # Python converts at most 4,300; what is longer is compared as text
MAX_EXPONENT = 1000
RELATIVE_TOLERANCE = Fraction(1, 10**6)
MIN_PLACES = 6  # a prediction of fewer decimal places is taken as exact

NATURAL = r"(?:[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d{0,2}(?:\ \d{3})+|\d+)"
DECIMAL = rf"(?:{NATURAL}(?:\.\d*)?|\.\d+)"
GROUP = rf"(?:\{{\s*([-+]?\s*{DECIMAL})\s*\}}|(\d))"
NUMERAL = re.compile(
    rf"""(?P<sign>[-+]?)\s*(?:
      (?P<whole>\d+)\s*(?:\ (?P<over>\d+)\s*/\s*(?P<under>\d+)|\\frac\s*{GROUP}\s*{GROUP})   # 1 1/4, 2\frac{{1}}{{2}}
    | \\frac\s*{GROUP}\s*{GROUP}
    | \(?(?P<left>[-+]?\s*{DECIMAL})\)?\s*/\s*\(?(?P<right>[-+]?\s*{DECIMAL})\)?
    | (?P<stem>\d*\.\d*)\\(?:overline|bar|dot)\s*\{{(?P<repeat>\d+)\}}
    | (?P<decimal>{DECIMAL})
      (?:\s*(?:\\times|\\cdot|\*)\s*10\s*\^\s*(?:\{{\s*(?P<power>[-+]?\d+)\s*\}}|(?P<power1>\d))|[eE](?P<e>[-+]?\d+))?
    )""",
    re.VERBOSE,
)
TEN = re.compile(r"(?P<sign>[-+]?)\s*10\s*\^\s*(?:\{\s*([-+]?\d+)\s*\}|(\d))(?![\d^])")
POWER = re.compile(r"\s*\^\s*\{?\s*-?\d\s*\}?")
SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
# Spellings of one unit; two answers in different ones of these are different. Any other word after a number is dropped.
UNITS = {
    spelling: names.split()[0]
    for names in (
        "mm millimeter millimetre", "cm centimeter centimetre", "m meter metre", "km kilometer kilometre",
        "in inch inche", "ft foot feet", "yd yard", "mi mile", "mg milligram", "g gram", "kg kilogram", "lb pound lbs",
        "oz ounce", "ml milliliter millilitre", "l liter litre L", "s sec second", "min minute", "h hr hour", "day",
        "week", "month", "year", "mph", "N newton", "J joule", "W watt", "V volt", "K kelvin", "C", "F",
        "cent", "dollar USD usd buck", "degree deg", "radian rad", "Hz hertz", "Pa pascal", "mol",
    )
    for spelling in names.split()
}  # fmt: skip
NO_UNITS = frozenset(
    {"pi", "e", "i", "x", "y", "z", "sqrt", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "inf",
     "infty", "or", "and", "mod", "to", "over", "times", "frac"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlainNumber:
    """A number as it was written. `places` counts the digits after the point of a decimal, else it is 0."""

    value: Fraction
    percent: bool = False
    places: int = 0
    unit: str = ""


@functools.lru_cache(maxsize=1024)
def plain_number(text: str) -> PlainNumber | None:
    """The number that cleaned text is, or None when it is more than a number.

    >>> plain_number("-1,234.5").value
    Fraction(-2469, 2)
    >>> plain_number("50%").percent
    True
    """
    text = text.strip()
    if not text or len(text) > MAX_DIGITS:
        return None
    if text[0] + text[-1] in ("()", "{}") and text.count(text[0]) == 1 and (text[0] == "(" or "," not in text):
        text = text[1:-1].strip()
    if ten := TEN.match(text):
        value, end, places = _power_of_ten(ten[2] or ten[3]), ten.end(), 0
        if value is not None and ten["sign"] == "-":
            value = -value
    elif numeral := NUMERAL.match(text):
        value, end, places = _value(numeral), numeral.end(), 0
        if numeral["decimal"] and not numeral["e"] and not (numeral["power"] or numeral["power1"]):
            places = len(numeral["decimal"].partition(".")[2])
    else:
        return None
    suffix = _suffix(text[end:])
    if value is None or suffix is None:
        return None
    percent, scale, unit = suffix
    return PlainNumber(value * scale, percent, places if scale == 1 else 0, unit)


def equal_numbers(gold: PlainNumber, prediction: PlainNumber) -> bool:
    """Whether the prediction is the gold number.

    Exact, but for a prediction that is a decimal of at least 6 places where gold has no finite decimal. A percentage
    equals both its value and its numeral, since the sign is often left out. Units that are known must agree.
    """
    if gold.unit != prediction.unit and gold.unit in UNITS and prediction.unit in UNITS:
        return False
    pairs = [(gold.value, prediction.value)]
    if gold.percent and not prediction.percent:
        pairs.append((gold.value / 100, prediction.value))
    elif prediction.percent and not gold.percent:
        pairs.append((gold.value, prediction.value / 100))
    return any(_equal(left, right, prediction.places) for left, right in pairs)


def _equal(gold: Fraction, prediction: Fraction, places: int) -> bool:
    if gold == prediction:
        return True
    if places < MIN_PLACES or is_terminating(gold):
        return False
    return abs(gold - prediction) <= abs(gold) * RELATIVE_TOLERANCE


def is_terminating(value: Fraction) -> bool:
    """Whether the value has a finite decimal expansion: its denominator has no prime factors but 2 and 5."""
    denominator = value.denominator
    while denominator % 10 == 0:
        denominator //= 10
    while denominator % 2 == 0:
        denominator //= 2
    while denominator % 5 == 0:
        denominator //= 5
    return denominator == 1


def known_unit(word: str) -> str | None:
    """The one spelling of a unit: `cm` for `centimetres`; None for a word that is no unit we know."""
    return UNITS.get(word) or UNITS.get(word.lower().removesuffix("s"))


def _value(numeral: re.Match[str]) -> Fraction | None:
    sign = -1 if numeral["sign"] == "-" else 1
    groups = [group for group in numeral.groups() if group is not None]
    if (decimal := numeral["decimal"]) is not None:
        exponent = numeral["power"] or numeral["power1"] or numeral["e"] or "0"
        factor = _power_of_ten(exponent)
        return None if factor is None else sign * _decimal(decimal) * factor
    if (stem := numeral["stem"]) is not None:
        repeat = numeral["repeat"]
        places = len(stem.partition(".")[2])
        tail = Fraction(int(repeat), (10 ** len(repeat) - 1) * 10**places)
        return sign * ((_decimal(stem) if stem != "." else Fraction(0)) + tail)
    if numeral["left"] is not None:
        over, under = _decimal(numeral["left"]), _decimal(numeral["right"])
    else:
        over, under = _decimal(groups[-2]), _decimal(groups[-1])
    if under == 0:
        return None
    if (whole := numeral["whole"]) is None:
        return sign * over / under
    if not 0 <= over < under or over.denominator != 1 or under.denominator != 1:
        return None  # 2\frac{3}{2} is no mixed number
    return sign * (int(whole) + over / under)


def _decimal(text: str) -> Fraction:
    digits = text.replace(",", "").replace(" ", "")
    return Fraction(f"{digits}0" if digits.endswith(".") else digits)


def _power_of_ten(exponent: str) -> Fraction | None:
    return Fraction(10) ** int(exponent) if len(exponent) < 6 and abs(int(exponent)) <= MAX_EXPONENT else None


def _suffix(text: str) -> tuple[bool, int, str] | None:
    """What follows a numeral: percent or not, scale, unit. None when it is more than a unit."""
    percent = False
    rest = text.strip()
    if rest.startswith("%"):
        percent, rest = True, rest[1:].strip()
    if not rest:
        return percent, 1, ""
    if not rest[0].isalpha():
        return None
    letters = POWER.sub("", rest)
    if not re.fullmatch(r"[A-Za-z ./*·()-]*", letters):
        return None
    words = re.findall("[A-Za-z]+", letters)
    first = words[0].lower()
    if first in ("percent", "pct"):
        return (True, 1, "") if len(words) == 1 else None
    scale = SCALES.get(first.removesuffix("s"), 1)
    if scale != 1:
        words = words[1:]
    if any(word in NO_UNITS for word in words):
        return None
    known = [known_unit(word) for word in words]
    spaced = text[:1] == " "
    for word, unit in zip(words, known, strict=True):
        if unit is None and (len(word) < 3 or not spaced):
            return None  # 5x and 5 xy are products
        if unit is not None and len(word) == 1 and not spaced:
            return None
    single = known[0] if len(words) == 1 and known[0] and POWER.search(rest) is None else None
    return percent, scale, single or " ".join(words)
