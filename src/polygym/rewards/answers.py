"""Whether two mathematical answers are equal: lists, tuples, intervals, sets and assignments, part by part.

The one idea: the shape of an answer is read from its text, so each part is compared by the exact rules of plain numbers
where it is one; only what is left, an expression, needs algebra, and goes to `compare`.

Decisions: a bare comma list and a set have no order, a tuple and an interval do; `\\pm a` is the list a, -a; `x = 5`
answers 5; a comma inside brackets may separate thousands or elements, and either reading may match, while a bare 1,000
is the number; `[5]` is no number, and neither is `--5`, printed as a dash and a 5; a base is part of an answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from polygym.rewards.bases import base_numeral, has_base, without_base_ten
from polygym.rewards.notation import clean, squash
from polygym.rewards.plain_numbers import NO_UNITS, equal_numbers, plain_number

MAX_LENGTH = 10_000  # no answer is longer, in characters
MAX_PARTS = 200
MAX_DEPTH = 8
THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?!\d|,\d{3}(?!\d))")
UNSPACED = re.compile(r",\S")
ZERO_GROUP = re.compile(r",0\d")
TWO_SIGNS = re.compile(r"(?:^|[({\[,;=])\s*[-+]\s*[-+]")
CONJUNCTION = re.compile(r"\s*,?\s+(?:or|and)\s+|\s*\\(?:lor|vee)(?![A-Za-z])\s*")
RELATION = re.compile(r"[<>]|\\(?:le|ge|ne|lt|gt|equiv|subset|cup|cap|setminus)(?![A-Za-z])|!=|\|\s*[A-Za-z]+\s*[<>=]")
EQUALS = re.compile(r"(?<![<>!:=])=(?!=)|\\in(?![A-Za-z])|:=|\\Rightarrow|\\implies|\\to(?![A-Za-z])")
SYMBOL = re.compile(r"(?:\\?[A-Za-z]+|[A-Za-z][A-Za-z ]*)'*(?:_(?:\w|\{[^{}]*\}))?(?:\^\{-1\})?(?:\([\w, ]*\))?")
PLUS_MINUS = re.compile(r"\\(pm|mp)(?![A-Za-z])")
WORDS = re.compile(r"\(?[A-Za-z][A-Za-z' -]*\)?")
CHOICE = re.compile(r"\(?([A-Z])(?:\)\s*|[.:]\s+)\S.*")  # the letter of a choice and what it says, as in (C) 12
LETTER = re.compile(r"(?<!\w)[A-Z](?!\w)")
BUILDER = re.compile(r"^\\\{\s*[A-Za-z]\s*(?:\||:|\\mid|\\vert)\s*([^|{}]+?)\s*\\\}$")
OPENING = {"(": ")]", "[": "])"}

Compare = Callable[[str, str], bool]


@dataclass(frozen=True, slots=True)
class Shape:
    """An answer's parts. `kind` is `list` (bare, no order), `set` (no order, no repeats), or the two brackets."""

    kind: str
    parts: tuple[str, ...]


def same_answer(gold: str, prediction: str, compare: Compare) -> bool:
    """Whether `prediction` answers what `gold` does.

    Args:
        gold: the right answer, as text or LaTeX.
        prediction: the answer given, likewise.
        compare: decides about two expressions that are no plain numbers; gold comes first.

    >>> same_answer("(1,000)", "(1,0)", compare=lambda gold, prediction: False)
    True
    """
    if len(gold) > MAX_LENGTH or len(prediction) > MAX_LENGTH:
        return False
    return _same(clean(gold), clean(prediction), compare, 0)


def _same(gold: str, prediction: str, compare: Compare, depth: int) -> bool:
    gold, prediction = BUILDER.sub(r"\1", gold), BUILDER.sub(r"\1", prediction)
    if not gold or not prediction or depth > MAX_DEPTH:
        return False
    if squash(gold) == squash(prediction):
        return True
    if TWO_SIGNS.search(gold) or TWO_SIGNS.search(prediction):
        return False
    gold, prediction = without_base_ten(gold), without_base_ten(prediction)
    if (based := base_numeral(gold)) and base_numeral(prediction):
        return based == base_numeral(prediction)
    gold_number, number = plain_number(gold), plain_number(prediction)
    if gold_number and number and equal_numbers(gold_number, number):
        return True
    if (verdict := _same_words(gold, prediction)) is not None:
        return verdict
    gold, prediction = _unwrapped(gold), _unwrapped(prediction)
    gold_shapes, shapes = _shapes(gold), _shapes(prediction)
    for single in _singles(gold_shapes):
        if _same(single, prediction, compare, depth + 1):
            return True
    for single in _singles(shapes):
        if _same(gold, single, compare, depth + 1):
            return True
    if any(_same_shape(left, right, compare, depth) for left in gold_shapes for right in shapes):
        return True
    gold_assigned, assigned = _assignment(gold), _assignment(prediction)
    if gold_assigned and assigned:
        if squash(gold_assigned[0]) == squash(assigned[0]):
            return _same(gold_assigned[1], assigned[1], compare, depth + 1)
        return compare(gold, prediction)
    if assigned and (not RELATION.search(gold) or r"\in" in prediction):
        return _same(gold, assigned[1], compare, depth + 1)
    if gold_assigned and SYMBOL.fullmatch(gold_assigned[0].strip()):
        return _same(gold_assigned[1], prediction, compare, depth + 1)
    if (gold_number or gold_shapes) and (number or shapes):
        return False
    if any(len(shape.parts) == 1 for shape in (*gold_shapes, *shapes)) or has_base(gold) or has_base(prediction):
        return False
    return compare(gold, prediction)


def _same_words(gold: str, prediction: str) -> bool | None:
    """Verdict where gold is a word or a choice's letter; None where it is mathematics."""
    left, right = (text.strip("() .") for text in (gold, prediction))
    if not WORDS.fullmatch(gold) or left.lower() in NO_UNITS:
        return None
    if len(left) == 1:  # the letter of a choice, or a variable
        if CHOICE.fullmatch(prediction) and LETTER.findall(prediction) == [left]:
            return True
        return left == right if len(right) == 1 else None
    if len(left) == 2 and left.lower() != "no":
        return None  # a product of two variables
    if WORDS.fullmatch(prediction):
        return left.casefold().split() == right.casefold().split()
    return None if "=" in prediction else False


def _same_shape(gold: Shape, prediction: Shape, compare: Compare, depth: int) -> bool:
    if len(gold.parts) > MAX_PARTS or len(prediction.parts) > MAX_PARTS:
        return False

    def equal(left: str, right: str) -> bool:
        return _same(left, right, compare, depth + 1)

    unordered = {"list", "set"}
    if gold.kind in unordered and prediction.kind in unordered:
        if "set" in (gold.kind, prediction.kind):
            return all(any(equal(left, right) for right in prediction.parts) for left in gold.parts) and all(
                any(equal(left, right) for left in gold.parts) for right in prediction.parts
            )
        return _match(gold.parts, prediction.parts, equal)
    # A tuple may be written without its brackets; its order then still counts.
    loose = {gold.kind, prediction.kind} == {"list", "()"}
    if not loose and gold.kind != prediction.kind:
        return False
    return len(gold.parts) == len(prediction.parts) and all(map(equal, gold.parts, prediction.parts))


def _match(gold: Sequence[str], prediction: Sequence[str], equal: Compare) -> bool:
    """Whether the parts can be paired off."""
    if len(gold) != len(prediction):
        return False
    left_over = list(prediction)
    for part in gold:
        found = next((other for other in left_over if equal(part, other)), None)
        if found is None:
            return False
        left_over.remove(found)
    return True


def _shapes(text: str) -> list[Shape]:
    """The ways to read `text` as several parts; none when it is one expression."""
    if len(text) > 1 and text.startswith(r"\{") and text.endswith(r"\}") and _encloses(text, 2):
        inner, kind = text[2:-2], "set"
    elif len(text) > 1 and text[0] == "{" and text[-1] == "}" and "," in text and _encloses(text, 1):
        inner, kind = text[1:-1], "set"
    elif text.startswith(r"\langle") and text.endswith(r"\rangle"):
        inner, kind = text[7:-7], "()"
    elif len(text) > 1 and text[-1] in OPENING.get(text[0], ()) and _encloses(text, 1):
        inner, kind = text[1:-1], text[0] + text[-1]
    else:
        inner, kind = text, "list"
    if RELATION.search(inner):
        return []
    grouped = THOUSANDS.sub(lambda match: match[0].replace(",", ""), inner)
    readings = []
    for reading in dict.fromkeys((grouped, grouped if kind == "list" and _only_thousands(inner) else inner)):
        parts = _expand(_split(reading)) if kind in ("list", "set") else _split(reading)
        if len(parts) > 1 or kind not in ("list", "()"):
            readings.append(Shape(kind, tuple(parts)))
    return readings


def _only_thousands(text: str) -> bool:
    """Whether the commas of a bare `text` group digits wherever they can: 1,000, 2,000 but not 10,200,3."""
    rest = THOUSANDS.sub("0", text)
    return rest != text and (not UNSPACED.search(rest) or ZERO_GROUP.search(text) is not None)


def _singles(shapes: list[Shape]) -> list[str]:
    """The element of a set of one, in each reading: it is as good as the set."""
    return [shape.parts[0] for shape in shapes if shape.kind == "set" and len(shape.parts) == 1]


def _unwrapped(text: str) -> str:
    """`text` without round brackets about the whole of it."""
    for _ in range(MAX_DEPTH):
        if text[:1] != "(" or text[-1:] != ")" or not _encloses(text, 1) or len(_split(text[1:-1])) > 1:
            break
        text = text[1:-1].strip()
    return text


def _expand(parts: list[str]) -> list[str]:
    """Parts with `\\pm` written out; `x = 1, 2` gives its name to none of them."""
    names = [_assignment(part) for part in parts]
    if len(parts) > 1 and names[0] and not any(names[1:]):
        parts = [names[0][1], *parts[1:]]
    expanded = []
    for part in parts:
        if len(PLUS_MINUS.findall(part)) == 1:
            upper = PLUS_MINUS.sub(lambda sign: "+" if sign[1] == "pm" else "-", part)
            lower = PLUS_MINUS.sub(lambda sign: "-" if sign[1] == "pm" else "+", part)
            expanded += [clean(upper).removeprefix("+").strip(), clean(lower).removeprefix("+").strip()]
        else:
            expanded.append(part)
    return expanded


def _split(text: str) -> list[str]:
    """Parts between commas, semicolons, `or` and `and` that stand outside brackets."""
    parts = []
    begin = 0
    joined = CONJUNCTION.sub(lambda match: ";" + " " * (len(match[0]) - 1), text)
    for position in _outside(joined):
        if joined[position] in ",;":
            parts.append(text[begin:position])
            begin = position + 1
    parts.append(text[begin:])
    parts = [re.sub(r"^\s*(?:or|and)\s+|^\s*\\(?:lor|vee)(?![A-Za-z])", "", part).strip() for part in parts]
    return [part for part in parts if part] if all(parts) or len(parts) > 2 else [text.strip()]


def _outside(text: str) -> list[int]:
    """Positions of `text` outside all brackets; the shape of a bracket does not matter (intervals mix them)."""
    depth = 0
    positions = []
    for position, character in enumerate(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif depth == 0:
            positions.append(position)
    return positions


def _encloses(text: str, width: int) -> bool:
    """Whether the first bracket is closed by the last."""
    depth = 0
    last = len(text) - 1
    for position, character in enumerate(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth == 0 and position < last:
                return False
    return depth == 0 and len(text) >= 2 * width


def _assignment(text: str) -> tuple[str, str] | None:
    """Left side and right side of `x = 5`, `x \\in S` or a chain `a = b = c`, or None."""
    if RELATION.search(text) and r"\in" not in text:
        return None
    outside = set(_outside(text))
    signs = [match for match in EQUALS.finditer(text) if match.start() in outside]
    if not signs:
        return None
    if sum(bool(EQUALS.search(part)) for part in _split(text)) > 1:
        return None  # x = 1, y = 2 is a list
    left, right = text[: signs[0].start()].strip(), text[signs[-1].end() :].strip()
    return (left, right) if left and right else None
