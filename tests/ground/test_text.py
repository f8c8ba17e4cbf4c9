"""What reaches a terminal."""

from __future__ import annotations

import pytest

from polygym.text import one_line, printable


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;new title\x07text", "text"),
        ("\x1b]8;;http://a.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("over\rwritten\x08\x08", "overwritten"),
        ("\x9b2Jcleared", "cleared"),
        ("never closed \x1b]52;c;", "never closed "),
        ("\x1bc reset", " reset"),
        ("right\u202eleft", "rightleft"),
        ("tab\tand\nnewline", "tab\tand\nnewline"),
        ("naïve 語 👩‍🔬", "naïve 語 👩‍🔬"),
        ("\ud800", ""),
    ],
)
def test_control_codes_do_not_reach_the_terminal(hostile, shown):
    assert printable(hostile) == shown


def test_one_line_is_one_line_of_bounded_width():
    assert one_line("a\n\tb\x1b[2Jc" + "d" * 300, 10) == "a bcddddd…"
