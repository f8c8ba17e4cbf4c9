"""Tools from plain functions: schema, docstrings, refusals."""

from __future__ import annotations

import functools
from typing import Annotated, Any, Literal, Optional, Union

import pytest

from polygym.environments.docstrings import read_docstring
from polygym.environments.tools import json_schema, tool_from_function, tools_by_name
from polygym.errors import UsageError


def google(city: str, days: int = 3, unit: Literal["C", "F"] = "C", tags: Optional[list[str]] = None) -> str:  # noqa: UP045
    """Forecast of a city.

    Looks a few days ahead.

    Args:
        city: name of the city,
            with its country
        days (int, optional): how many: 1 to 7
        unit: scale
        tags: what to leave out

    Returns:
        A text.
    """
    return ""


def test_a_schema_comes_from_hints_defaults_and_docstring() -> None:
    spec = tool_from_function(google).spec
    assert (spec.name, spec.description) == ("google", "Forecast of a city.\n\nLooks a few days ahead.")
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "name of the city, with its country"},
            "days": {"type": "integer", "description": "how many: 1 to 7", "default": 3},
            "unit": {"type": "string", "enum": ["C", "F"], "description": "scale", "default": "C"},
            "tags": {
                "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}],
                "description": "what to leave out",
                "default": None,
            },
        },
        "required": ["city"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (Any, {}),
        (list, {"type": "array"}),
        (dict, {"type": "object"}),
        (list[list[int]], {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (dict[str, Any], {"type": "object", "additionalProperties": {}}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Union[int, None], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP007
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
        (Literal["a", 1], {"type": ["integer", "string"], "enum": ["a", 1]}),
        (Literal["a", None], {"type": ["null", "string"], "enum": ["a", None]}),
        (Annotated[int, "a count"], {"type": "integer", "description": "a count"}),
        (Annotated[int, 3], {"type": "integer"}),
    ],
)
def test_types_that_a_call_can_carry(hint: Any, schema: dict[str, Any]) -> None:
    assert json_schema(hint, "x") == schema


@pytest.mark.parametrize(
    "hint", [bytes, complex, set[str], tuple[int, int], object, dict[int, str], Literal[b"a"], list["str"]]
)
def test_types_that_it_cannot_are_refused_by_name(hint: Any) -> None:
    with pytest.raises(
        UsageError, match=r"tool 'f': parameter 'x' has type .* which a tool call cannot carry; allowed: str,"
    ):
        json_schema(hint, "tool 'f': parameter 'x'")


def no_hint(city, days: int) -> str:  # type: ignore[no-untyped-def]
    """Forecast."""


def starred(*cities: str) -> str:
    """Forecast."""
    return ""


def double_starred(city: str, **options: str) -> str:
    """Forecast."""
    return ""


def positional(city: str, /) -> str:
    """Forecast."""
    return ""


def unseen(city: Nowhere) -> str:  # type: ignore[name-defined]  # noqa: F821
    """Forecast."""
    return ""


def half_hint(city: "list[") -> str:  # type: ignore[syntax]  # noqa: F722
    """Forecast."""
    return ""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_hint, "tool 'no_hint': parameter 'city' has no type hint; write `city: str`"),
        (starred, r"tool 'starred': parameter \*cities cannot be described"),
        (double_starred, r"tool 'double_starred': parameter \*\*options cannot be described"),
        (positional, "tool 'positional': parameter 'city' is positional only"),
        (unseen, "tool 'unseen': its type hints cannot be read .*Nowhere"),
        (lambda: "", "tool name '<lambda>' is not allowed; write the tool as a `def`"),
        ("google", "a tool must be a function, got str"),
        (int, "a tool must be a function, got the class int; write a `def` that calls it"),
        (Exception, "a tool must be a function, got the class Exception"),
        (max, "tool 'max': its parameters cannot be read; write a `def` that calls it"),
        (half_hint, "tool 'half_hint': its type hints cannot be read"),
        (functools.partial(google, days=1), "tool 'partial'.* has no type hint"),
    ],
)
def test_functions_that_cannot_be_described_are_refused(function: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tool_from_function(function)


def test_two_tools_of_one_name_are_refused() -> None:
    for tools in (None, google):
        with pytest.raises(UsageError, match="must be a list of functions"):
            tools_by_name(tools)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="two tools are called 'google'"):
        tools_by_name([google, google])


def test_the_state_is_given_and_hidden() -> None:
    def look(place: str, state: dict[str, Any]) -> str:
        """Look."""
        return ""

    def peek(state) -> str:  # type: ignore[no-untyped-def]
        """Look."""
        return ""

    tool = tool_from_function(look)
    assert (tool.wants_state, list(tool.spec.parameters["properties"])) == (True, ["place"])
    assert tool_from_function(peek).spec.parameters["required"] == []
    assert not tool_from_function(google).wants_state


def test_methods_objects_and_decorated_functions_are_tools() -> None:
    class Shop:
        def price(self, item: str) -> float:
            """Price of an item."""
            return 1.0

        def __call__(self, item: str) -> float:
            """Buy an item."""
            return 1.0

    def logged(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    specs = [tool_from_function(function).spec for function in (Shop().price, Shop(), logged(google))]
    assert [spec.name for spec in specs] == ["price", "Shop", "google"]
    assert [list(spec.parameters["properties"]) for spec in specs] == [
        ["item"],
        ["item"],
        ["city", "days", "unit", "tags"],
    ]
    assert [spec.description.split("\n")[0] for spec in specs] == [
        "Price of an item.",
        "Buy an item.",
        "Forecast of a city.",
    ]


@pytest.mark.parametrize(
    ("text", "description", "described"),
    [
        ("", "", {}),
        ("Only this: a text.", "Only this: a text.", {}),
        ("Add.\n\nArgs:\n    a: one\n    b: two", "Add.", {"a": "one", "b": "two"}),
        ("Add.\nArgs:\n  a: one\n\n  b: two\n\nNote:\n  c: three", "Add.", {"a": "one", "b": "two"}),
        ("Add.\n\nParameters\n-----\na : int\n    one\n    more\nb, c : str\n    both\n\nReturns\n-----\nint\n    x",
         "Add.", {"a": "one more", "b": "both", "c": "both"}),
        ("Add.\n\n:param a: one\n    more\n:param int b: two\n:returns: x", "Add.", {"a": "one more", "b": "two"}),
        ("Returns:\n    a: one", "", {}),
        ("Args:\n    a: one", "", {"a": "one"}),
        ("Add.\n\nArgs:\n    *a: one\n    b (dict[str, int]): two", "Add.", {"a": "one", "b": "two"}),
    ],
)  # fmt: skip
def test_docstrings_of_all_styles_are_read(text: str, description: str, described: dict[str, str]) -> None:
    assert read_docstring(text) == (description, described)
