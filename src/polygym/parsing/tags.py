"""Marked text: the last `<tag>...</tag>` or the last `[...]` of a reply.

The one idea: a policy that changes its mind writes its answer again, so the last complete mark counts; a mark that was
cut off is no mark.
"""

from __future__ import annotations

import re


def last_tag(text: str, tag: str) -> str | None:
    """Content of the last complete `<tag>...</tag>`, white space trimmed, or None.

    A closing tag belongs to the nearest opening one.

    >>> last_tag("<guess>I say <guess>crane</guess>", "guess")
    'crane'
    >>> last_tag("<guess>crane", "guess") is None
    True
    """
    opening = None
    content = None
    for marker in re.finditer(rf"<(/?){re.escape(tag)}>", text):
        if not marker[1]:
            opening = marker.end()
        elif opening is not None:
            content = text[opening : marker.start()]
            opening = None
    return None if content is None else content.strip()


def last_bracket(text: str) -> str | None:
    """Content of the last complete `[...]` that holds no bracket itself, white space trimmed, or None.

    >>> last_bracket("[apple] is out, so [grape]")
    'grape'
    """
    content = None
    for bracket in re.finditer(r"\[([^\[\]]*)\]", text):
        content = bracket[1]
    return None if content is None else content.strip()
