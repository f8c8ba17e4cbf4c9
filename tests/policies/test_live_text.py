"""What is shown of an unfinished reply stays in the finished one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polygym.parsing.reasoning import strip_reasoning
from polygym.parsing.tool_calls import parse_tool_calls
from polygym.policies.live_text import shown_so_far

PIECES = st.lists(
    st.sampled_from(
        [
            "It is ",
            "4",
            " < 5",
            "<",
            "İ",
            "\n",
            " ",
            '<tool_call>{"name": "now"}</tool_call>',
            "<tool_call>{",
            "<b>",
            "<think>2+2</think>",
            "<THINK>hm</THINK>",
            "<thinking>",
            "tool_call",
        ]
    ),
    max_size=8,
).map("".join)


@given(PIECES, st.integers(0, 200))
def test_what_is_shown_of_any_beginning_is_a_beginning_of_the_visible_text(text: str, length: int) -> None:
    begun = text[:length]
    assert strip_reasoning(text)[0].startswith(shown_so_far(begun))
    assert parse_tool_calls(text, ["now"]).content.startswith(shown_so_far(begun, calls=True))


@pytest.mark.parametrize(
    ("text", "options", "shown"),
    [
        ("It is 4.", {}, "It is 4."),
        ("It is 4. ", {"calls": True}, "It is 4."),
        ("a <tool_call>", {}, "a <tool_call>"),
        ("half a character \ufffd", {}, "half a character "),
        ("one, two, three", {"stops": ("two",)}, "one, "),
        ("one, TWO", {"stops": ("two",)}, "one, "),
        ("<", {}, ""),
        ("< 5", {}, "< 5"),
    ],
)
def test_text_is_held_back_where_it_may_not_stay(text: str, options: dict[str, object], shown: str) -> None:
    assert shown_so_far(text, **options) == shown  # type: ignore[arg-type]
