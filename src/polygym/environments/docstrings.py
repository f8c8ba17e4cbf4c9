"""Docstrings of tools: the description, and a line for each parameter.

The one idea: the three styles that people write (Google, NumPy, Sphinx) are told apart by their section marks; a
docstring in none of them is all description.
"""

from __future__ import annotations

import re
import textwrap

_GOOGLE = re.compile(r"^(Args|Arguments|Parameters|Params):\s*$")
_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Params|Returns?|Yields?|Raises|Examples?|Notes?|References|See Also|Warnings?"
    r"|Attributes):?\s*$"
)
_RULE = re.compile(r"^-{3,}\s*$")
_SPHINX = re.compile(r"^:(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")
_SPHINX_OTHER = re.compile(r"^:\w+[^:]*:")
_GOOGLE_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_NUMPY_ENTRY = re.compile(r"^\*{0,2}(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?$")


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """(description, {parameter: what it says}) of a docstring as `inspect.getdoc` returns it.

    >>> read_docstring("Add.\\n\\nArgs:\\n    a (int): first\\n        number\\n    b: second\\n\\nReturns:\\n    sum")
    ('Add.', {'a': 'first number', 'b': 'second'})
    """
    lines = text.splitlines()
    described: dict[str, str] = {}
    start = next((i for i in range(len(lines)) if _starts_section(lines, i)), len(lines))
    for i in range(start, len(lines)):
        if _GOOGLE.match(lines[i]):
            described.update(_google(_indented(lines, i + 1)))
        elif _is_numpy(lines, i) and lines[i].strip().startswith(("Param", "Arg")):
            described.update(_numpy(_until_section(lines, i + 2)))
        elif match := _SPHINX.match(lines[i]):
            described[match[1]] = " ".join(line.strip() for line in (match[2], *_indented(lines, i + 1))).strip()
    return "\n".join(lines[:start]).strip(), {name: text for name, text in described.items() if text}


def _is_numpy(lines: list[str], i: int) -> bool:
    return bool(_SECTION.match(lines[i])) and i + 1 < len(lines) and bool(_RULE.match(lines[i + 1]))


def _starts_section(lines: list[str], i: int) -> bool:
    """Whether the description ends before line i."""
    google = _SECTION.match(lines[i]) and lines[i].rstrip().endswith(":")
    return bool(google) or _is_numpy(lines, i) or bool(_SPHINX_OTHER.match(lines[i]))


def _indented(lines: list[str], start: int) -> list[str]:
    """The lines from `start` that are indented or blank, without their common indentation."""
    block = []
    for line in lines[start:]:
        if line.strip() and not line[0].isspace():
            break
        block.append(line)
    return [line for line in textwrap.dedent("\n".join(block)).splitlines() if line.strip()]


def _until_section(lines: list[str], start: int) -> list[str]:
    block = []
    for i in range(start, len(lines)):
        if _is_numpy(lines, i):
            break
        block.append(lines[i])
    return [line for line in block if line.strip()]


def _google(block: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    name = None
    for line in block:
        match = _GOOGLE_ENTRY.match(line)
        if match and not line[0].isspace():
            name = match[1]
            found[name] = match[2].strip()
        elif name is not None:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def _numpy(block: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    names: list[str] = []
    for line in block:
        match = _NUMPY_ENTRY.match(line)
        if match and not line[0].isspace():
            names = [name.strip() for name in match[1].split(",")]
            found.update(dict.fromkeys(names, ""))
        else:
            found.update({name: f"{found[name]} {line.strip()}".strip() for name in names})
    return found
