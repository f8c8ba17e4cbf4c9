"""Names of environments."""

from __future__ import annotations

from typing import Any

import pytest

from case_rows import parametrize
from polygym.environments.names import EnvironmentNameError, check_names


def code_of(names: list[Any]) -> str | None:
    try:
        check_names(names)
    except EnvironmentNameError as error:
        return error.code
    return None


@parametrize("env_names")
def test_env_names_case(case: dict[str, Any]) -> None:
    assert code_of(case["input"]["names"]) == case["expected"].get("error")


@pytest.mark.parametrize("name", ["math", "math_2", "math-hard", "owner/math", "v1.5", "_private", "9x", "a/b/c"])
def test_names_that_may_be_used(name: str) -> None:
    assert code_of([name]) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "a\nb",
        "math ",
        "..",
        "../math",
        "/math",
        "math/",
        "a//b",
        ".hidden",
        "-x",
        "a\\b",
        "a:b",
        "é",
        7,
        None,
        True,
        "a" * 129,
    ],
)
def test_names_that_break_a_file_or_metric_name_are_bad(name: Any) -> None:
    assert code_of(["math", name]) == "bad_name"


@pytest.mark.parametrize("name", ["combined", "eval", "reward", "time", "All", "REWARD", "math/reward", "all/math"])
def test_reserved_words_are_refused_in_any_case_and_any_part(name: str) -> None:
    assert code_of([name]) == "reserved_name"


@pytest.mark.parametrize("pair", [["a.b", "a_b"], ["a/b", "a-b"], ["A/B", "a_b"], ["x", "y", "X"]])
def test_names_of_one_path_collide(pair: list[str]) -> None:
    assert code_of(pair) == "colliding_path"


def test_the_message_shows_both_and_the_fix() -> None:
    with pytest.raises(EnvironmentNameError) as caught:
        check_names(["math", "word", "math"])
    assert str(caught.value) == (
        "environment name 'math' is used twice (positions 0 and 2); "
        'names must be unique: pass env_names=["math", "math_2"]'
    )
