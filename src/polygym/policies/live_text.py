"""What can be shown of a reply that is still being written.

The one idea: only what will be in the finished text is shown early. A tool call, reasoning, a stop string or half a
character may be under way at the end, so the text before it is all there is for now.

Limit: a `</think>` that was never opened makes all the text before it reasoning, which nothing announces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MARKERS = ("<think", "</think")
CALL_MARKERS = (*MARKERS, "<tool_call", "</tool_call")


def shown_so_far(text: str, *, calls: bool = False, stops: Sequence[str] = ()) -> str:
    """The beginning of `text` that stays, whatever follows; with `calls`, white space round it is left out.

    >>> shown_so_far("Let me see. <tool_c", calls=True), shown_so_far("2 < 3 <th"), shown_so_far("1, tw", stops=["two"])
    ('Let me see.', '2 < 3 ', '1, ')
    """
    begins = [_begin(text, marker) for marker in (*(CALL_MARKERS if calls else MARKERS), *stops)]
    shown = text[: min(begins)].rstrip("\ufffd")
    return shown.strip() if calls else shown


def _begin(text: str, marker: str) -> int:
    """Where a marker begins, or could begin if the text went on; the end of the text where it does not."""
    found = re.search(re.escape(marker), text, re.IGNORECASE)
    if found:
        return found.start()
    at = max(0, len(text) - len(marker) + 1)
    return next((at for at in range(at, len(text)) if marker.lower().startswith(text[at:].lower())), len(text))
