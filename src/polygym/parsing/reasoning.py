"""The reasoning block of a reply, apart from what is meant to be read.

The one idea: text between `<think>` and `</think>` was never said. A block that is not closed was cut, so nothing after
it was said either; a `</think>` that was never opened closes a block that the chat template had opened.
"""

from __future__ import annotations

import re

MARKER = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)


class ReasoningScanner:
    """Depth of reasoning along a text, marker by marker.

    A model that reasons about the tag itself writes an opening one too many, so the first closing tag closes the block.
    Only if a further closing tag follows were the blocks nested.
    """

    def __init__(self) -> None:
        self.inside = False
        self._seen = False
        self._surplus = 0

    def open(self) -> None:
        """An opening tag was read."""
        self._surplus += self.inside
        self.inside = self._seen = True

    def close(self) -> bool:
        """A closing tag was read. Returns whether the text before it, since the last block, was reasoning too."""
        retroactive = False
        if not self.inside:
            retroactive = not self._seen or self._surplus > 0
            self._surplus = max(0, self._surplus - 1)
        self.inside = False
        self._seen = True
        return retroactive


def strip_reasoning(text: str) -> tuple[str, str]:
    """The visible text and the reasoning, tags removed, white space kept.

    >>> strip_reasoning("<think>2 + 2</think>It is 4.")
    ('It is 4.', '2 + 2')
    >>> strip_reasoning("so 4</think>It is 4.")
    ('It is 4.', 'so 4')
    >>> strip_reasoning("<think>cut he")
    ('', 'cut he')
    """
    scanner = ReasoningScanner()
    visible: list[str] = []
    reasoning: list[str] = []
    block = 0  # pieces of visible text that an earlier block has settled
    position = 0
    for marker in MARKER.finditer(text):
        (reasoning if scanner.inside else visible).append(text[position : marker.start()])
        position = marker.end()
        if not marker[1]:
            scanner.open()
        elif scanner.close():
            reasoning.extend(visible[block:])
            del visible[block:]
        block = len(visible)
    (reasoning if scanner.inside else visible).append(text[position:])
    return "".join(visible), "".join(reasoning)
