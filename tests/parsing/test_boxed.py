"""Final answers of mathematical replies."""

from __future__ import annotations

import time
from typing import Any

import pytest

from case_rows import parametrize
from polygym.parsing.boxed import extract_answer, last_boxed


@parametrize("math_extract")
def test_math_extract_case(case: dict[str, Any]) -> None:
    assert last_boxed(case["input"]["text"]) == case["expected"]


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{a{b}c} }", "a{b}c"),
        (r"\boxed{1 \\}", r"1 \\"),
        (r"\boxed{\}", None),
        (r"\boxed{\text{a \} b}}", r"\text{a \} b}"),
        (r"{ \boxed{3}", "3"),
        (r"\boxed{\frac{1}{2} so \boxed{3}", "3"),
        (r"\boxed{1}<think>\boxed{2}</think>", "1"),
        (r"<think>\boxed{1}</think> so \boxed{2}", "2"),
        (r"\boxed{1}</think> so 2", None),
        (r"\fbox{7}", "7"),
        (r"\fbox{$7$}", "$7$"),
        (r"$\boxed 7$", "7"),
        (r"$\boxed -7$.", "-7"),
        (r"\boxed7", "7"),
        (r"$\boxed \frac{1}{2}$", r"\frac{1}{2}"),
        (r"$\boxed x$", "x"),
        ("\\boxed 12.\nDone", "12"),
        (r"the \boxed notation", None),
        (r"\boxed{3} is the \boxed one", "3"),
        (r"\boxedx{3}", None),
        ("\\boxed\n{5}", "5"),
        (r"so \\boxed{5}", "5"),
        (r"1 \\\boxed{5}", "5"),
        (r"\\boxed{5", None),
        ("no box", None),
        ("", None),
    ],
)
def test_the_last_complete_box_counts(text: str, content: str | None) -> None:
    assert last_boxed(text) == content


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"#### 5 and \boxed{6}", "6"),
        ("#### 1\n#### 42\nso it is 7", "42"),
        ("####\n42", "42"),
        ("####", None),
        (r"\boxed{2 #### 5", None),
        ("It is 72, in total.", "72"),
        ("It is 1,234,567.", "1,234,567"),
        ("3,4", "4"),
        ("It is -3.", "-3"),
        ("It is −3.5.", "−3.5"),
        ("5-3", "3"),
        ("10 - 3", "3"),
        ("Final Answer: **73**", "73"),
        ("It is 1/2.", "1/2"),
        ("It is 1 1/2 cups", "1 1/2"),
        (r"It is $-\frac{3}{4}$.", r"-\frac{3}{4}"),
        ("a 50% share", "50%"),
        ("costs $29.00.", "29.00"),
        ("It is .5", ".5"),
        ("It is 1010_2.", "1010_2"),
        ("It is -1A_{16}.", "-1A_{16}"),
        ("So x_7 holds", None),
        ("5 is a_{12}", "5"),
        ("on 12.05.2024", "2024"),
        ("no number", None),
        ("<think>5", None),
        ("", None),
    ],
)
def test_without_a_box_the_marker_or_the_last_number_counts(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


UNITS = [
    r"\boxed{",
    "{",
    "}",
    r"\boxed ",
    r"\boxed 1",
    "1,111",
    "1",
    "-",
    "1/",
    r"\frac{1}",
    "#",
    "A",
    "1A",
    "1_",
    "x_",
]


@pytest.mark.parametrize("unit", UNITS)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    begin = time.process_time()
    extract_answer(text)
    assert time.process_time() - begin < 3.0
