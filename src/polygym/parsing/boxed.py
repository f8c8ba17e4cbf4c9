"""The final answer of a mathematical reply.

The one idea: the answer is the last complete box outside the reasoning block, else the text after `####`, else the last
number. A box that was opened and cut, with no complete one, means that no answer was given. Work is linear in the text.
"""

from __future__ import annotations

import re

from polygym.parsing.reasoning import strip_reasoning

BOX = re.compile(r"\\(?:boxed|fbox|framebox)\b\s*\{")
# A box (after a line break, or with its backslash escaped once more), any other escaped character (an escaped brace is
# no brace), or a brace.
TOKEN = re.compile(r"\\{1,3}(?:boxed|fbox|framebox)\b\s*\{|\\.|[{}]", re.DOTALL)
# The TeX form without braces: `$\boxed 7$`. A word after it is prose about boxes, not an answer.
BARE_BOX = re.compile(r"\\(?:boxed|fbox)(?:[ \t]+(?=[-+−.\d\\(])|[ \t]*(?=\d)|[ \t]+(?=[A-Za-z](?![A-Za-z])))")
BARE_END = re.compile(r"\$|\\\)|\\\]|\n")
BARE_NUMBER = re.compile(r"[-+−]?[\d.]+(?:[,/][\d.]+)*")
MARKER = "####"
DIGITS = r"(?:[1-9]\d{0,2}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
NUMBER = re.compile(
    rf"""(?:(?<![\w)}}\].])[-+−])?            # a sign, unless it subtracts
    (?:\d*\s?\\[dt]?frac\{{\d+\}}\{{\d+\}}    # \frac{{1}}{{2}}, 1\frac{{1}}{{2}}
    |\d+\ \d+/\d+                             # 1 1/2
    |(?<!\w)\d[0-9A-F]*+_(?:\d|\{{\w{{1,8}}\}})   # 1010_2
    |(?<![\d_])(?<!_\{{)                        # no index, as in x_2
     (?:{DIGITS})(?:/\d+|[eE][-+]?\d+\b)?)   # 1,000.5 or 1/2 or 1e3
    (?:\s?\\?%)?""",
    re.VERBOSE,
)


def last_boxed(text: str) -> str | None:
    r"""Content of the last complete box outside the reasoning block, trimmed; None when there is none.

    Of nested boxes the innermost counts. An empty box gives "".

    >>> last_boxed(r"First \boxed{1}, then \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    """
    return _last_boxed(strip_reasoning(text)[0])


def extract_answer(text: str) -> str | None:
    """The final answer of a reply, or None when it gives none.

    >>> extract_answer("The total is 72 clips, altogether.")
    '72'
    """
    visible = strip_reasoning(text)[0]
    boxed = _last_boxed(visible)
    if boxed is not None:
        return boxed
    if BOX.search(visible):
        return None
    if MARKER in visible:
        lines = visible.rpartition(MARKER)[2].strip().splitlines()
        return lines[0].strip() if lines else None
    number = None
    for found in NUMBER.finditer(visible):
        number = found[0].strip()
    return number


def _last_boxed(text: str) -> str | None:
    opened: list[int] = []  # where the content of each open brace starts; -1 for a brace that is no box
    best = (-1, "")
    for token in TOKEN.finditer(text):
        if token[0] == "{":
            opened.append(-1)
        elif token[0] == "}":
            start = opened.pop() if opened else -1
            if start > best[0]:
                best = (start, text[start : token.start()])
        elif token[0].endswith("{") and len(token[0]) > 2:
            opened.append(token.end())
    for box in BARE_BOX.finditer(text, max(best[0], 0)):
        content = _bare(text, box.end())
        if content:
            best = (box.end(), content)
    return best[1].strip() if best[0] >= 0 else None


def _bare(text: str, start: int) -> str:
    """Answer of a box without braces: up to the end of its formula, or else the number that follows."""
    end = BARE_END.search(text, start, start + 200)
    if end and end[0] != "\n":
        return text[start : end.start()]
    number = BARE_NUMBER.match(text, start)
    return number[0].rstrip(".") if number else ""
