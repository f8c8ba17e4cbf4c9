"""Mathematical notation without its typography.

The one idea: what only changes how an answer looks (dollar signs, sizing, spacing, fonts, full-width digits, the many
minus signs) is taken off once, before anything is compared.
"""

from __future__ import annotations

import functools
import re
import unicodedata

CHARACTERS = str.maketrans(
    {
        "−": "-", "–": "-", "—": "-", "﹣": "-", "×": r"\times ", "·": r"\cdot ", "÷": "/", "∕": "/", "⁄": "/",
        "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "±": r"\pm ", "∓": r"\mp ",
        "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "√": r"\sqrt ", "°": r"^\circ ",
        "≈": r"\approx ",
        "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "′": "'", "’": "'", "“": '"', "”": '"', "$": "",
        "€": "", "£": "", "¥": "", "￡": "", "￥": "", "＄": "", "，": ",", "％": "%", "\u200b": "", "\ufeff": "",
    }
)  # fmt: skip
SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-", strict=True))
SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
SUBSCRIPT = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|mathrm|mathbf|mathit|mathsf|mbox|hbox|rm|bf)\s*\{([^{}]*)\}"
)
CURRENCY = re.compile(r"\\(?:\$|pounds\b|euro\b|yen\b)")
SIZING = re.compile(
    r"\\(?:left|right|big[lr]?|Big[lr]?|bigg[lr]?|Bigg[lr]?|displaystyle|textstyle|limits|nolimits)(?![A-Za-z])"
    r"|(?<!\\)\\[!,()\[\]]|\\(?:text)?color\s*\{[^{}]*\}|\\\\\s*$"
)
SPACING = re.compile(r"\\[:;> \n]|\\(?:quad|qquad|thinspace|enspace|newline)(?![A-Za-z])|~|\s+")
DEGREE = re.compile(r"\s*\^\s*(?:\\(?:circ|degree)(?![A-Za-z])|\{\s*\\circ\s*\})|\\(?:degree|textdegree)(?![A-Za-z])")
ANGLE = re.compile(rf"(\\(?:sin|cos|tan|cot|sec|csc))\s*[({{]?\s*(-?\d+(?:\.\d+)?)\s*(?:{DEGREE.pattern})\s*[)}}]?")
SYNONYMS = (
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\lbrace(?![A-Za-z])"), r"\\{"),
    (re.compile(r"\\rbrace(?![A-Za-z])"), r"\\}"),
    (re.compile(r"\\leq(?:slant)?(?![A-Za-z])"), r"\\le "),
    (re.compile(r"\\geq(?:slant)?(?![A-Za-z])"), r"\\ge "),
    (re.compile(r"\\neq(?![A-Za-z])"), r"\\ne "),
    (re.compile(r"\\varnothing(?![A-Za-z])|\\\{\s*\\\}"), r"\\emptyset "),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\%"), "%"),
    (re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])"), r"\\pi "),
    (re.compile(r"\\?(?<![A-Za-z])sqrt\s*\(([^(){}]*)\)"), r"\\sqrt{\1}"),
    (re.compile(r"(?<=[\w)}])\*\*(?=[\w(])"), "^"),
)
DIGIT_SPACE = re.compile(r"(?<=\d)\s+(?=\d)")
LEADING = re.compile(
    r"^(?:(?:\\approx|\\therefore|=|approximately|about|roughly|(?:the )?(?:final )?answer(?: is|:))\s*)+",
    re.IGNORECASE,
)


@functools.lru_cache(maxsize=1024)
def clean(text: str) -> str:
    """`text` in one typography: ASCII digits and signs, single spaces, no dollars, degrees, fonts, sizing or end stop.

    >>> clean(r"$\\left(−１{,}０００,\\ \\dfrac12\\right)$")
    '(-1,000, \\\\frac12)'
    """
    text = CURRENCY.sub("", " ".join(text.split()))
    text = text.replace("$", "") if text.isascii() else _to_ascii(text)
    for _ in range(3):  # fonts nest, seldom and not deeply
        text, count = TEXT.subn(r" \1 ", text)
        if not count:
            break
    text = ANGLE.sub(r"\1(\2\\cdot\\frac{\\pi}{180})", text)
    text = DEGREE.sub(" ", text)
    text = SIZING.sub("", text)
    text = SPACING.sub(" ", text)
    for pattern, replacement in SYNONYMS:
        text = pattern.sub(replacement, text)
    text = text.strip().strip("*").strip()
    text = LEADING.sub("", text)
    return re.sub(r"(?<=[^.\\])[.,;]$", "", text).strip()


def squash(text: str) -> str:
    """`text` without white space, to compare spellings. Space between digits stays: 1 2 is not 12."""
    return "".join(DIGIT_SPACE.sub("~", text).split())


def _to_ascii(text: str) -> str:
    pieces = []
    for character in SUBSCRIPT.sub(_index, SUPERSCRIPT.sub(_power, text)):
        kind = unicodedata.category(character)
        if kind == "Nd":
            pieces.append(str(unicodedata.digit(character)))
        elif kind == "No" and "⁄" in unicodedata.normalize("NFKC", character):  # ½ after a number makes a mixed one
            space = " " if pieces and pieces[-1][-1:].isdigit() else ""
            pieces.append(space + unicodedata.normalize("NFKC", character).replace("⁄", "/"))
        elif "\uff01" <= character <= "\uff5e":  # full-width forms
            pieces.append(unicodedata.normalize("NFKC", character))
        else:
            pieces.append(character)
    return "".join(pieces).translate(CHARACTERS)


def _power(match: re.Match[str]) -> str:
    return "^{" + "".join(SUPERSCRIPTS[character] for character in match[0]) + "}"


def _index(match: re.Match[str]) -> str:
    return "_{" + "".join(SUBSCRIPTS[character] for character in match[0]) + "}"
