"""Equality of mathematical answers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from case_rows import parametrize
from polygym.rewards import math as math_rewards
from polygym.rewards.math import MathRubric, equivalent


@parametrize("math_equiv")
def test_math_equiv_case(case: dict[str, Any]) -> None:
    assert asyncio.run(equivalent(case["input"]["gold"], case["input"]["prediction"])) is case["expected"]


def test_the_rubric_pays_a_right_answer_and_nothing_else() -> None:
    def reward(completion: str, answer: Any) -> Any:
        return asyncio.run(MathRubric().score({"completion": completion, "answer": answer})).reward

    assert reward(r"\boxed{7}", "7") == 1.0
    assert reward(r"\boxed{7}", 7) == 1.0
    assert reward(r"\boxed{0.5}", 0.5) == 1.0
    assert reward(r"\boxed{8}", "7") == 0.0
    assert reward("", "7") == 0.0


def test_the_function_of_the_rubric_is_called_correct_answer() -> None:
    assert MathRubric().weights == {"correct_answer": 1.0}


def test_a_task_without_an_answer_leaves_the_rollout_unscored() -> None:
    score = asyncio.run(MathRubric().score({"completion": r"\boxed{7}", "answer": None}))
    assert score.reward is None
    assert score.cause is not None
    assert "must be text or a number, got None" in score.cause.message


@pytest.mark.parametrize(
    ("gold", "prediction", "expected"),
    [
        ("5/2", r"2\frac{1}{2}", True),
        ("-2.5", r"-2\frac{1}{2}", True),
        ("5/2", "2½", True),
        ("12", "1 2", False),
        ("1234", "1 234", True),
        ("1000", r"1{,}000", True),
        ("1000", r"1\,000", True),
        ("0.25", "0.2500001", False),
        (r"\frac13", "0.333333", True),
        (r"\frac13", "0.33333", False),
        (r"\frac13", "0.333334", False),
        (r"\frac13", r"0.\overline{3}", True),
        ("0.333333", r"\frac13", False),
        (r"\frac{1}{3}", r"33.333333\%", True),
        ("0.5", r"50\%", True),
        ("50", "0.5", False),
        ("1", "100%", True),
        ("50 percent", "50%", True),
        ("60^\\circ", "60 degrees", True),
        ("35 cm", r"35\text{ centimeters}", True),
        ("35 cm", "35 m", False),
        ("35", r"35\text{ cm}^2", True),
        ("5", "5 million", False),
        ("5000000", "5 million", True),
        ("29", "$29", True),
        ("29", "€29.00", True),
        ("1500", r"1.5\times 10^{3}", True),
        ("1000", "1e3", True),
        ("3", "٣", True),
        ("0", "-0", True),
        ("-1", "1", False),
        (r"-\frac{1}{2}", r"\frac{1}{-2}", True),
        ("9" * 5000, "9" * 5000, True),
        ("9" * 5000, "9" * 4999 + "8", False),
        ("(1000,2)", "(1,000, 2)", True),
        ("(2,3)", "(3,2)", False),
        ("(0,1]", "(0,1)", False),
        ("[0,1)", "[0,1)", True),
        ("[1,2]", "(1,2)", False),
        ("(1, 2), (3, 4)", "(3,4),(1,2)", True),
        ("1,2,3", "1, 2 and 3", True),
        ("1,1,2", "1,2", False),
        (r"\{1,1,2\}", r"\{1,2\}", True),
        (r"\{5\}", "5", True),
        (r"\emptyset", r"\{\}", True),
        (r"\pm 3", "3,-3", True),
        (r"\pm 3", r"\pm 4", False),
        ("x=1, y=2", "y=2,x=1", True),
        ("1,2", "x=1 or x=2", True),
        ("n=2, 3, 4", "n=4,3,2", True),
        ("x=5", "y=5", False),
        ("D=(0,1)", "(0,1)", True),
        ("[0,1]", r"x\in[0,1]", True),
        ("7", "2+5=7", True),
        ("C", r"\text{(C)}", True),
        ("C", "(D)", False),
        ("5", r"\color{red}{5}", True),
        ("5", r"\textcolor{red}{5}\\", True),
        ("C", "C) 5", True),
        ("C", "C: red", True),
        ("C", r"\textbf{(C)}\ 12", True),
        ("D", r"\textbf{(C)}\ 12", False),
        ("C", "C) or (D)", False),
        ("C", "C, D", False),
        ("east", r"\text{East}", True),
        ("east", "seat", False),
        ("no", "No", True),
        ("5", r"\text{The answer is } 5", True),
        ("1/8", r"12.5\%", True),
        ("8", "1.000", False),
        ("3", "three", False),
        ("Final: #### 12", r"12", True),
        (r"so \boxed{12}", "12", True),
    ],
)
def test_answers_are_equal_without_algebra(
    gold: str, prediction: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(math_rewards, "QUICK_LENGTH", 20_000)
    try:
        assert asyncio.run(equivalent(gold, rf"\boxed{{{prediction}}}")) is expected
    finally:
        assert "math_verify" not in sys.modules


@pytest.mark.parametrize(
    ("gold", "prediction", "expected"),
    [
        (r"\sqrt{2}", "1.414214", True),
        (r"\sqrt{2}", "1.41421", False),
        (r"\sqrt{2}", r"\sqrt{2}+10^{-100}", False),
        (r"3\pi", "9.424778", True),
        (r"1\pm\sqrt{2}", r"1+\sqrt2, 1-\sqrt2", True),
        (r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt{3}}", True),
        ("2^{10}", "1024", True),
        ("5!", "120", True),
        (r"\log_2 8", "3", True),
        ("0.1+0.2", "0.3", True),
        ("(1+i)^2", "2i", True),
        ("3+4i", "4i+3", True),
        ("x^2-1", "(x-1)(x+1)", True),
        (r"\frac{x}{2}", "0.5x", True),
        (r"\frac{a}{b}", r"\frac{b}{a}", False),
        ("5x", "5", False),
        ("y=2x+1", "y-2x=1", True),
        ("x>3", "3<x", True),
        ("x>3", r"x\ge 3", False),
        (r"(-\infty,2)\cup(3,\infty)", r"(3,\infty)\cup(-\infty,2)", True),
        (r"\begin{pmatrix}1/2\\2\end{pmatrix}", r"\begin{pmatrix}0.5\\2\end{pmatrix}", True),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\3\end{pmatrix}", False),
        (r"6\sqrt{2}", r"6\sqrt{2}\text{ cm}", True),
        (r"36\pi", r"36\pi\,\mathrm{cm}^3", True),
        (r"\frac{1}{2}", r"\sin 30^\circ", True),
        ("x<3", r"x \in (-\infty, 3)", True),
        (r"2\le x\le 5", "[2,5]", True),
        ("[2,5]", r"2\le x\le 5", False),
        (r"\pi", "22/7", False),
        (r"\frac{\pi}{2}", "pi/2", True),
        (r"2\sqrt{2}", "2*sqrt(2)", True),
        ("4", r"4\sqrt(2)", False),
        ("x^2", "x**2", True),
        ("-2", r"\sqrt[3]{-8}", True),
        ("2", r"\sqrt[3]{-8}", False),
        (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}", False),
        (r"1-\frac{1}{e}", r"1+\frac{1}{e}", False),
        (r"\frac{2^{2005}+1}{3\cdot 2^{2006}}", r"\frac{1}{3\cdot 2^{2006}}", False),
        (r"19, 46, \text{ and } 82", "21, 36, and 82", False),
        (r"1, 2, \ldots, n", r"1, 3, 5, \ldots, 2n-1", False),
        ("12:00", "1:00", False),
        ("34x+45y-20z+100=0", "-34x-45y+20z-100=0", True),
        ("2x+4y-3=0", r"y=-\frac{1}{2}x+\frac{3}{4}", True),
        (r"\frac{x+2}{7}", r"\frac{x}{7}+\frac{2}{7}", True),
        (r"\{1/3, \sqrt{4}\}", r"\{2, 0.333333\}", True),
        (r"\frac{1}{0}", r"\frac{2}{0}", False),
        ("4", "}{", False),
        ("4", r"\frac", False),
        ("4", "import os", False),
        ("4", "\\", False),
        ("4", "\x00", False),
    ],
)
def test_expressions_are_equal_by_algebra(gold: str, prediction: str, expected: bool) -> None:
    assert asyncio.run(equivalent(gold, rf"\boxed{{{prediction}}}")) is expected


def test_a_plain_number_wakes_no_algebra_system() -> None:
    code = (
        "import asyncio, sys\nfrom polygym.rewards.math import equivalent\n"
        "assert asyncio.run(equivalent('1,234.5', 'so \\\\boxed{\\\\frac{2469}{2}}'))\n"
        "assert not {'math_verify', 'sympy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_megabyte_of_text_is_a_wrong_answer() -> None:
    for text in (r"\boxed{" + "1+" * 500_000 + "1}", "(" * 1_000_000, r"\boxed{" + "(" * 9_000 + ")" * 9_000 + "}"):
        assert asyncio.run(equivalent("4", text)) is False
