"""Arguments of tool calls."""

from __future__ import annotations

from typing import Any

import pytest

from case_rows import parametrize
from polygym.parsing.arguments import parse_arguments


@parametrize("tool_args")
def test_tool_args_case(case: dict[str, Any]) -> None:
    given = case["input"]
    schema = {
        "type": "object",
        "properties": {n: kind if isinstance(kind, dict) else {"type": kind} for n, kind in given["schema"].items()},
        "required": given.get("required", []),
    }
    parsed = parse_arguments(given["arguments"], schema)
    assert (parsed.args, parsed.error) == (case["expected"].get("args"), case["expected"].get("error"))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([1], "arguments_not_object"),
        (True, "arguments_not_object"),
        (7, "arguments_not_object"),
        ("[1]", "arguments_not_object"),
        ("7", "arguments_not_object"),
        ('"Paris"', "arguments_not_object"),
        ('"[1]"', "arguments_not_object"),
        ('"\\"{}\\""', "arguments_not_object"),
        ("Paris", "invalid_json"),
        ("{'a': 1}", "invalid_json"),
        ('{"a": 1} {"a": 2}', "invalid_json"),
        ('{"a": NaN}', "invalid_json"),
        ('{"a": 1e999}', "invalid_json"),
        ("[" * 100_000, "invalid_json"),
        ('{"a": "\\ud800"}', "invalid_unicode"),
        ({"a": 1, 2: 3}, "invalid_json"),
        ({"a": {None: 1}}, "invalid_json"),
        ({"a": float("nan")}, "invalid_json"),
        ({"a": [1.0, {"b": float("-inf")}]}, "invalid_json"),
        ({"a": {1, 2}}, "invalid_json"),
        ({"a": 10**5000}, "invalid_json"),
        ({"a": "\ud800"}, "invalid_unicode"),
        ({"a": ["\ud800"]}, "invalid_unicode"),
        ({"\ud800": 1}, "invalid_unicode"),
    ],
)
def test_arguments_must_be_one_json_object(arguments: object, error: str) -> None:
    assert parse_arguments(arguments, {"properties": {"a": {}}}).error == error


@pytest.mark.parametrize("schema", [{}, {"type": "integer"}, {"type": "array"}, {"enum": [1]}])
@pytest.mark.parametrize("depth", [200, 450, 900, 5000])
def test_any_depth_gives_arguments_or_an_error(schema: dict[str, Any], depth: int) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    for arguments in ({"a": value}, '{"a": ' + "[" * depth + "]" * depth + "}"):
        parsed = parse_arguments(arguments, {"properties": {"a": schema}})
        assert (parsed.args is None) is (parsed.error is not None)
        assert depth < 1000 or parsed.error == "invalid_json"
    value = {}
    value["a"] = value
    assert parse_arguments(value, {"properties": {"a": schema}}).error == "invalid_json"


@pytest.mark.parametrize("arguments", ["", None, "null", "{}", {}, '"{}"', '""'])
def test_nothing_means_no_arguments(arguments: object) -> None:
    assert parse_arguments(arguments, {}).args == {}


@pytest.mark.parametrize(
    ("kind", "value", "fitted"),
    [
        ("integer", 3.0, 3),
        ("integer", "-7", -7),
        ("integer", " 7 ", 7),
        ("integer", "230.0", 230),
        ("integer", 12345678901234567890123, 12345678901234567890123),
        ("number", 3, 3),
        ("number", "2.5", 2.5),
        ("number", "1e3", 1000.0),
        ("boolean", "true", True),
        ("boolean", False, False),
        ("string", "", ""),
        ("string", "12", "12"),
        ("array", [1], [1]),
        ("array", "[]", []),
        ("object", '{"a": [1]}', {"a": [1]}),
        (["integer", "null"], None, None),
        (["string", "integer"], 5, 5),
        (["integer", "string"], "5", "5"),
    ],
)
def test_a_value_that_can_mean_one_thing_is_read_as_it(kind: object, value: object, fitted: object) -> None:
    parsed = parse_arguments({"x": value}, {"properties": {"x": {"type": kind}}, "required": ["x"]})
    assert parsed.error is None
    assert repr(parsed.args) == repr({"x": fitted})  # repr tells 1, 1.0 and True apart


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("integer", True),
        ("integer", 2.5),
        ("integer", "2.5"),
        ("integer", "1_000"),
        ("integer", "٣"),
        ("integer", ""),
        ("integer", None),
        ("integer", "9" * 5000),
        ("number", True),
        ("number", "nan"),
        ("number", "inf"),
        ("number", "1e999"),
        ("string", 7),
        ("string", None),
        ("boolean", 1),
        ("boolean", "yes"),
        ("array", "a, b"),
        ("array", {"a": 1}),
        ("object", "[1]"),
        ("object", [1]),
    ],
)
def test_a_value_of_another_type_is_a_type_mismatch(kind: str, value: object) -> None:
    parsed = parse_arguments({"x": value}, {"properties": {"x": {"type": kind}}, "required": ["x"]})
    assert (parsed.args, parsed.error) == (None, "type_mismatch")
    assert parsed.message.startswith(f"x must be of type {kind}, got ")


def test_a_missing_argument_is_named() -> None:
    parsed = parse_arguments({}, {"properties": {"city": {"type": "string"}}, "required": ["city"]})
    assert (parsed.error, parsed.message) == ("missing_argument", "argument 'city' is missing")


def test_an_unexpected_argument_is_told_the_nearest_name() -> None:
    parsed = parse_arguments({"cty": "Paris"}, {"properties": {"city": {"type": "string"}}, "required": ["city"]})
    assert parsed.error == "unexpected_argument"
    assert parsed.message == "unexpected argument 'cty'; did you mean 'city'? Allowed: city"


def test_extra_arguments_pass_where_the_schema_takes_them() -> None:
    assert parse_arguments({"a": 1}, {"additionalProperties": True}).args == {"a": 1}


def test_a_null_for_an_optional_argument_means_it_was_not_given() -> None:
    assert parse_arguments({"x": None}, {"properties": {"x": {"type": "integer"}}}).args == {}


@pytest.mark.parametrize(("value", "error"), [("m", None), ("M", "invalid_value"), ("cm", "invalid_value")])
def test_a_value_outside_its_enum_is_invalid(value: str, error: str | None) -> None:
    assert parse_arguments({"unit": value}, {"properties": {"unit": {"enum": ["m", "km"]}}}).error == error


def test_an_enum_of_integers_takes_a_numeric_text_but_not_true() -> None:
    schema = {"properties": {"n": {"type": "integer", "enum": [1, 2]}}}
    assert parse_arguments({"n": "1"}, schema).args == {"n": 1}
    assert parse_arguments({"n": True}, schema).error == "type_mismatch"
    assert parse_arguments({"n": True}, {"properties": {"n": {"enum": [1, 2]}}}).error == "invalid_value"


def test_lists_and_objects_are_fitted_inside() -> None:
    point = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    schema = {"properties": {"points": {"type": "array", "items": point}}}
    assert parse_arguments({"points": '[{"x": "1"}]'}, schema).args == {"points": [{"x": 1}]}
    assert parse_arguments({"points": [{"y": 1}]}, schema).error == "unexpected_argument"
    assert parse_arguments({"points": [{}]}, schema).message == "argument 'points[0].x' is missing"


@pytest.mark.parametrize(
    ("schema", "value", "error"),
    [
        ({"type": "integer", "minimum": 1}, 0, "invalid_value"),
        ({"type": "integer", "minimum": 1}, "3", None),
        ({"type": "string", "pattern": "^a"}, "b", "invalid_value"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, 2.5, "invalid_value"),
        ({"$ref": "#/$defs/n"}, "x", "type_mismatch"),
    ],
)
def test_other_keywords_are_left_to_jsonschema(schema: dict[str, Any], value: object, error: str | None) -> None:
    whole = {"type": "object", "properties": {"x": schema}, "$defs": {"n": {"type": "integer"}}}
    assert parse_arguments({"x": value}, whole).error == error
