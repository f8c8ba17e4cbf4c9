"""Answers of kinds that graders have been fooled by, many of each."""

from __future__ import annotations

import asyncio

import pytest

from polygym.rewards.math import equivalent


def graded(gold: str, text: str) -> bool:
    return asyncio.run(equivalent(gold, text))


COMMAS = [
    ("1,000", r"\boxed{1,0}", False),
    ("1,0", r"\boxed{1,000}", False),
    ("1000", r"\boxed{1,000}", True),
    ("1,000", r"\boxed{1000}", True),
    ("1,000", r"\boxed{1}", False),
    ("1", r"\boxed{1,000}", False),
    ("1,000", r"\boxed{1, 000}", True),
    ("1,234", r"\boxed{234, 1}", False),
    ("1,234", r"\boxed{1{,}234}", True),
    ("1,234", r"\boxed{1234.0}", True),
    ("10", r"\boxed{1,0}", False),
    ("100", r"\boxed{1,00}", False),
    ("1000", r"\boxed{10,00}", False),
    ("1000", r"\boxed{1,0,0,0}", False),
    ("12345", r"\boxed{1,2345}", False),
    ("12345", r"\boxed{12,345}", True),
    ("12345", r"\boxed{123,45}", False),
    ("1,000,000", r"\boxed{1000000}", True),
    ("1000000", r"\boxed{1,000000}", False),
    ("1000000", r"\boxed{1000,000}", False),
    ("1,000, 2,000", r"\boxed{1000, 2000}", True),
    ("1,000, 2,000", r"\boxed{2000, 1000}", True),
    ("1,000, 2,000", r"\boxed{1,0,2,0}", False),
    ("1,2,3", r"\boxed{3,2,1}", True),
    ("10,200,3", r"\boxed{3, 10, 200}", True),
    ("10,200,3", r"\boxed{10200, 3}", True),
    ("1331,1728", r"\boxed{1728,1331}", True),
    ("(1,000)", r"\boxed{(1,0)}", True),
    ("(1,000)", r"\boxed{(1000)}", True),
    ("(1,2)", r"\boxed{(1,2)}", True),
    ("(1,0)", r"\boxed{(1,000)}", True),
    ("1,2", r"\boxed{12}", False),
    ("12", r"\boxed{1,2}", False),
    ("0", r"\boxed{0,000}", False),
    ("1,000.5", r"\boxed{1000.5}", True),
    ("1,000.50", r"\boxed{1,0}", False),
    ("-1,000", r"\boxed{-1000}", True),
    ("-1,000", r"\boxed{-1,0}", False),
    (r"\$1,000", r"\boxed{1,000 dollars}", True),
    ("1,000 cm", r"\boxed{1,0}", False),
    ("x=1,000", r"\boxed{1000}", True),
    ("1,000", r"\boxed{x=1,0}", False),
    ("1,000", r"\boxed{1,0 }", False),
    ("2,050", r"\boxed{2,50}", False),
    ("2,050", r"\boxed{50,2}", False),
    ("2050", r"\boxed{2,050}", True),
    ("1,000 or 2", r"\boxed{2, 1000}", True),
    ("1 000", r"\boxed{1,0}", False),
    ("1.000", r"\boxed{1,000}", False),
    ("1000", "so we get 1,000.", True),
    ("1", "we get 1,000", False),
    ("0", "1,000", False),
    ("1000", "1,000,", True),
    (r"\{1,000\}", r"\boxed{\{1,0\}}", True),
    ("[1,000]", r"\boxed{[1,0]}", True),
    ("1,234", r"\boxed{1 and 234}", False),
    ("100,200", r"\boxed{100, 200}", True),
    ("100,200", r"\boxed{100200}", True),
]


@pytest.mark.parametrize(("gold", "text", "expected"), COMMAS)
def test_commas_group_digits_in_threes_and_separate_elsewhere(gold: str, text: str, expected: bool) -> None:
    assert graded(gold, text) is expected


BASES = [
    ("1010_2", r"\boxed{1010}", False),
    ("1010", r"\boxed{1010_2}", False),
    ("1010_2", r"\boxed{1010_2}", True),
    ("1010_2", r"\boxed{1010_{2}}", True),
    ("1010_2", r"\boxed{1010_{\text{two}}}", True),
    ("1010_2", r"\boxed{1010_\text{two}}", True),
    ("1010_2", r"\boxed{(1010)_2}", True),
    ("1010_2", r"\boxed{1010₂}", True),
    ("1010_2", r"\boxed{1010_3}", False),
    ("1010_2", r"\boxed{1011_2}", False),
    ("1010_2", r"\boxed{01010_2}", True),
    ("1010_2", r"\boxed{10}", False),
    ("10", r"\boxed{1010_2}", False),
    ("10_{10}", r"\boxed{10}", True),
    ("10", r"\boxed{10_{10}}", True),
    ("2516_8", r"\boxed{2516_8}", True),
    ("2516_8", r"\boxed{2516}", False),
    ("2516_8", r"\boxed{1358}", False),
    ("1A_{16}", r"\boxed{1A_{16}}", True),
    ("1A_{16}", r"\boxed{1a_{16}}", True),
    ("1A_{16}", r"\boxed{1A}", False),
    ("1A_{16}", r"\boxed{1B_{16}}", False),
    ("1010_2", r"\boxed{1010 base 2}", True),
    ("1010_2", r"\boxed{1010\text{ (base 2)}}", True),
    ("1010_2", r"\boxed{1010_{(2)}}", True),
    ("x_1", r"\boxed{x_1}", True),
    ("x_1", r"\boxed{x_2}", False),
    ("x_2", r"\boxed{2}", False),
    ("2", r"\boxed{x_2}", False),
    (r"\log_2 8", r"\boxed{3}", True),
    ("3", r"\boxed{\log_2 8}", True),
    ("x=1010_2", r"\boxed{1010_2}", True),
    ("1010_2", r"\boxed{x=1010}", False),
    ("1010_2", "The answer is 1010_2.", True),
    ("2", "The answer is 1010_2.", False),
    ("1010", "the answer is 1010_2", False),
    ("1010_2", "the answer is 1010", False),
    ("12_5", r"\boxed{12_5, 13_5}", False),
    ("12_5, 13_5", r"\boxed{13_5, 12_5}", True),
    ("12_5, 13_5", r"\boxed{12, 13}", False),
    ("1.01_2", r"\boxed{1.01_2}", True),
    ("1.01_2", r"\boxed{1.01}", False),
    ("-101_2", r"\boxed{-101_2}", True),
    ("-101_2", r"\boxed{101_2}", False),
    ("-101_2", r"\boxed{-101}", False),
    ("a_{10}", r"\boxed{a_{10}}", True),
    ("a_{10}", r"\boxed{10}", False),
    ("55", r"\boxed{a_{10}=55}", True),
    ("1010_2", r"\boxed{1,010_2}", False),
    ("2", r"\boxed{2_{\text{ten}}}", True),
    ("110_2+1", r"\boxed{110+1}", False),
    ("12_3", r"\boxed{5}", False),
]


@pytest.mark.parametrize(("gold", "text", "expected"), BASES)
def test_a_base_is_part_of_an_answer(gold: str, text: str, expected: bool) -> None:
    assert graded(gold, text) is expected


LAST_NUMBERS = [
    ("42", "5-42", True),
    ("-42", "5-42", False),
    ("-42", "the answer is -42", True),
    ("42", "the answer is -42", False),
    ("42", "x=-42", False),
    ("-42", "x=-42", True),
    ("-42", "x = -42.", True),
    ("42", "(-42)", False),
    ("-42", "(-42)", True),
    ("-42", "−42", True),
    ("42", "pages 5–42", True),
    ("42", "5 - 42", True),
    ("-42", "5 - 42", False),
    ("42", "it is 42-", True),
    ("42", "3*14=42", True),
    ("42", "A-42", True),
    ("-42", "[-42]", True),
    ("2", "5-4+2", True),
    ("-3", "it is: -3", True),
    ("3", "it is: -3", False),
    ("3", "- 3 apples\n- 3", True),
    ("0.5", "the answer is .5", True),
    ("-0.5", "answer: -.5", True),
    ("1/2", "answer: 1/2", True),
    ("-1/2", "answer: -1/2", True),
    ("2", "answer: 1/2", False),
    ("5", "1,2,5", True),
    ("42", "42 - the end", True),
    ("42", "42.", True),
    ("42", "**42**", True),
    ("42", "it is forty-two", False),
    ("7", "x_7", False),
    ("7", "a7", True),
    ("7", "H2O and 7 apples", True),
    ("1000", "1e3", True),
    ("3", "", False),
]


@pytest.mark.parametrize(("gold", "text", "expected"), LAST_NUMBERS)
def test_without_a_box_the_last_number_counts_with_its_sign(gold: str, text: str, expected: bool) -> None:
    assert graded(gold, text) is expected


SIGNS = [
    ("5", r"\boxed{--5}", False),
    ("-5", r"\boxed{--5}", False),
    ("5", r"\boxed{-(-5)}", True),
    ("5", r"\boxed{+5}", True),
    ("-5", r"\boxed{-5}", True),
    ("5", r"\boxed{+-5}", False),
    ("-5", r"\boxed{+-5}", False),
    ("-5", r"\boxed{-+5}", False),
    ("5", r"\boxed{---5}", False),
    ("-5", r"\boxed{---5}", False),
    ("5", r"\boxed{- -5}", False),
    ("5", r"\boxed{−−5}", False),
    ("5", r"\boxed{-{-5}}", True),
    ("8", r"\boxed{3-(-5)}", True),
    ("8", r"\boxed{3--5}", True),
    ("5", r"\boxed{++5}", False),
    ("1/2", r"\boxed{\frac{--1}{2}}", False),
    ("1/2", r"\boxed{\frac{-1}{-2}}", True),
    ("1/2", r"\boxed{--\frac{1}{2}}", False),
    ("x", r"\boxed{--x}", False),
    ("-x", r"\boxed{-x}", True),
    ("5", r"\boxed{5-}", False),
    ("5", r"\boxed{-5}", False),
    ("5", r"\boxed{--5.0}", False),
    ("0", r"\boxed{-0}", True),
    ("0", r"\boxed{--0}", False),
    ("2,3", r"\boxed{--2, 3}", False),
    ("(2,3)", r"\boxed{(--2,3)}", False),
    ("x=5", r"\boxed{x=--5}", False),
    ("5", r"\boxed{–5}", False),
    ("-5", r"\boxed{–5}", True),
    ("-5", r"\boxed{—5}", True),
    ("5", r"\boxed{-–5}", False),
]


@pytest.mark.parametrize(("gold", "text", "expected"), SIGNS)
def test_two_signs_in_a_row_are_no_number(gold: str, text: str, expected: bool) -> None:
    assert graded(gold, text) is expected


BRACKETS = [
    ("5", r"\boxed{[5]}", False),
    ("[5]", r"\boxed{5}", False),
    ("[5]", r"\boxed{[5]}", True),
    ("5", r"\boxed{(5)}", True),
    ("5", r"\boxed{{5}}", True),
    ("5", r"\boxed{\{5\}}", True),
    ("5", r"\boxed{((5))}", True),
    ("5", r"\boxed{[[5]]}", False),
    ("5", r"\boxed{(5]}", False),
    ("5", r"\boxed{[5)}", False),
    ("5", r"\boxed{\left[5\right]}", False),
    ("5", r"\boxed{\left(5\right)}", True),
    ("5", r"\boxed{\lfloor 5\rfloor}", True),
    ("5", r"\boxed{|5|}", True),
    ("5", r"\boxed{|-5|}", True),
    ("5", r"\boxed{[5}", False),
    ("5", r"\boxed{5]}", False),
    ("5", r"\boxed{(5}", False),
    ("5", r"\boxed{5)}", False),
    ("x+1", r"\boxed{[x+1]}", False),
    ("1/2", r"\boxed{[1/2]}", False),
    ("[1,2]", r"\boxed{[1,2]}", True),
    ("1,2", r"\boxed{[1,2]}", False),
    ("(1,2)", r"\boxed{[1,2]}", False),
    ("5", r"\boxed{<5>}", False),
    ("5", r"\boxed{([5])}", False),
    ("5", r"\boxed{[(5)]}", False),
    ("14", r"\boxed{2[3+4]}", True),
    ("14", r"\boxed{2(3+4)}", True),
    ("x=5", r"\boxed{[5]}", False),
    ("5", r"\boxed{x=[5]}", False),
    ("5", r"\boxed{[x=5]}", False),
    ("5", r"\boxed{[]5}", False),
    ("5", r"\boxed{[5].}", False),
    ("5", r"\boxed{\[5\]}", True),
]


@pytest.mark.parametrize(("gold", "text", "expected"), BRACKETS)
def test_square_brackets_make_no_number(gold: str, text: str, expected: bool) -> None:
    assert graded(gold, text) is expected
