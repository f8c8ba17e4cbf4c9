"""Text that others wrote, made safe to print.

The one idea: a model's or an endpoint's text may hold control codes that move the cursor, change the title or hide
other text; what reaches a terminal holds printable characters, newlines and tabs only.
"""

from __future__ import annotations

import re

# a whole escape sequence goes, not only its first character: CSI (colours, cursor), OSC (titles, links), other escapes
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
# C0 and C1 controls but for newline and tab; marks that reverse or hide the text around them; lone surrogates
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def printable(text: object) -> str:
    r"""`text` without control codes.

    >>> printable("\x1b[31mred\x1b[0m\r\n\x07ok")
    'red\nok'
    """
    return _CONTROLS.sub("", _SEQUENCES.sub("", str(text)))


def one_line(text: object, width: int = 200) -> str:
    """`text` without control codes, on one line of at most `width` characters.

    >>> one_line("a\\n  b", 10), one_line("abcdef", 4)
    ('a b', 'abc…')
    """
    line = " ".join(printable(text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def clock(seconds: float) -> str:
    """A duration as people read it.

    >>> clock(7.2), clock(75), clock(3725)
    ('0:07', '1:15', '1:02:05')
    """
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def sparkline(values: list[float], width: int = 12) -> str:
    """The last `width` values from 0 to 1 as bars; values outside are drawn at the edge.

    >>> sparkline([0, 0.5, 1])
    '▁▅█'
    """
    bars = "▁▂▃▄▅▆▇█"
    return "".join(bars[min(7, max(0, round(value * 7 + 1e-9)))] for value in values[-width:])
