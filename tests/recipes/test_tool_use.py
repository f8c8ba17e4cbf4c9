"""The tools, and what the last line must be."""

from __future__ import annotations

import pytest

from polygym.errors import UsageError
from polygym.messages import Message, ToolCall
from polygym.recipes import tool_use
from polygym.recipes.tool_use.tool_use import exact_match
from polygym.recipes.tool_use.tools import calculate, convert_units, count_words, reverse_string


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("1 + 2 * 3", "7"),
        ("(1+2)*3", "9"),
        ("7/2", "3.5"),
        ("-3 - -4", "1"),
        ("0.1 + 0.2", "0.3"),
        (" 2 ", "2"),
        ("1/3", "0.3333333333"),
    ],
)
def test_calculate(expression: str, result: str) -> None:
    assert calculate(expression) == result


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1 +",
        "2 ** 9",
        "abs(1)",
        "x",
        "'a'",
        "1 < 2",
        "True",
        "1 // 2",
        "(" * 150,
        "1" * 201,
        "1; 2",
        "[1]",
        "1j",
        "\0",
        "1/0",
    ],
)
def test_calculate_reads_nothing_but_arithmetic(expression: str) -> None:
    with pytest.raises(ValueError):
        calculate(expression)


def test_the_other_tools() -> None:
    assert count_words("  a bird  in the tree ") == 5
    assert reverse_string("abc d") == "d cba"
    assert convert_units(2.5, "meters", "kilometers") == "0.0025"
    assert convert_units(3, "hours", "seconds") == "10800"
    with pytest.raises(ValueError, match="cannot convert 'hours' to 'grams'"):
        convert_units(3, "hours", "grams")


@pytest.mark.parametrize(
    ("content", "reward"),
    [
        ("42", 1.0),
        ("It is\n42", 1.0),
        (" 42 \n", 1.0),
        ("42\nthat is it", 0.0),
        ("It is 42", 0.0),
        ("", 0.0),
        ("42.", 0.0),
    ],
)
def test_only_the_last_line_counts(content: str, reward: float) -> None:
    assert exact_match([Message("user", "?"), Message("assistant", content)], "42") == reward


def test_a_call_is_no_answer() -> None:
    call = ToolCall("calculate", {"expression": "42"})
    assert exact_match([Message("assistant", "42", (call,)), Message("tool", "42")], "42") == 0.0


def test_questions_come_from_the_four_tools_in_turn() -> None:
    env = tool_use.load_environment(num_examples=8)
    asked = [task.info["tool"] for task in env.tasks()]
    assert asked == ["calculate", "count_words", "reverse_string", "convert_units"] * 2


@pytest.mark.parametrize("tools", [["calculator"], [], ["calculate", "calculate"], "sum"])
def test_unknown_or_repeated_tools_are_refused(tools: object) -> None:
    with pytest.raises(UsageError, match="tool"):
        tool_use.load_environment(tools=tools)  # type: ignore[arg-type]
