"""Reasoning blocks."""

from __future__ import annotations

import pytest

from polygym.parsing.reasoning import strip_reasoning


@pytest.mark.parametrize(
    ("text", "visible", "reasoning"),
    [
        ("a", "a", ""),
        ("<think>r</think>a", "a", "r"),
        ("<think>r", "", "r"),
        ("r</think>a", "a", "r"),
        ("<think>r</think>a<think>s</think>b", "ab", "rs"),
        ("<think>r</think>a<think>s", "a", "rs"),
        ("<think>the <think> tag</think>a", "a", "the  tag"),
        ("<think>r<think>s</think>t</think>a", "a", "rst"),
        ("<think>r</think>a</think>b", "ab", "r"),
        ("<thinking>r</thinking>a", "a", "r"),
        ("<THINK>r</THINK>a", "a", "r"),
        ("", "", ""),
    ],
)
def test_reasoning_is_told_from_what_was_said(text: str, visible: str, reasoning: str) -> None:
    assert strip_reasoning(text) == (visible, reasoning)
