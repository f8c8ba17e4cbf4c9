"""Arguments of a tool call: from what was written to what the tool is given.

The one idea: a value that can mean only one thing is read as that thing (the text "34234" for an integer, a list that
was encoded twice); anything else is a named error that the policy can be told, and the tool is not run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from polygym.errors import nearest
from polygym.parsing.strict_json import JsonError, check_value, decode_all

ArgumentError = Literal[
    "invalid_json",
    "invalid_unicode",
    "arguments_not_object",
    "unexpected_argument",
    "missing_argument",
    "type_mismatch",
    "invalid_value",
]
INTEGER = re.compile(r"[+-]?[0-9]{1,4000}(\.0*)?")
NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
# Keywords that are checked here; a schema with any other goes to jsonschema, which takes longer to import and to run.
OWN_KEYWORDS = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "enum", "anyOf",
     "description", "title", "default", "examples"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ParsedArguments:
    """Arguments ready for the tool, or the code of what is wrong and a sentence about it."""

    args: dict[str, Any] | None
    error: ArgumentError | None = None
    message: str = ""


class MismatchError(ValueError):
    """A value does not fit its schema; `code` is the error's name."""

    def __init__(self, message: str, code: ArgumentError = "type_mismatch") -> None:
        super().__init__(message)
        self.code = code


def parse_arguments(arguments: object, schema: Mapping[str, Any]) -> ParsedArguments:
    """Arguments, as an object or as its JSON text, checked against the JSON schema of an object.

    Nothing (None, empty text, `null`) means no arguments. A null for an argument that is not required means that it was
    not given. Arguments that the schema does not name are errors unless it sets `additionalProperties`.

    >>> parse_arguments('{"a": "7"}', {"properties": {"a": {"type": "integer"}}}).args
    {'a': 7}
    >>> parse_arguments('{"a": 7', {}).error
    'invalid_json'
    """
    try:
        value = as_object(arguments)
        return ParsedArguments(_fit_whole(value, schema))
    except JsonError as error:
        code: ArgumentError = "invalid_unicode" if error.code == "invalid_unicode" else "invalid_json"
        return ParsedArguments(None, code, f"arguments are not valid JSON: {error}")
    except MismatchError as error:
        return ParsedArguments(None, error.code, str(error))
    except RecursionError:
        return ParsedArguments(None, "invalid_json", "arguments are nested too deeply")


def as_object(arguments: object) -> dict[str, Any]:
    """The object that `arguments` are, or hold as JSON text (encoded once or twice).

    Raises:
        JsonError: when text is no JSON, or the object cannot be written as such.
        MismatchError: when the value is no object.
    """
    value = arguments
    if isinstance(value, str):
        value = decode_all(value) if value.strip() else None
    if isinstance(value, str):
        value = _decoded_again(value)
    if value is None:
        return {}
    if isinstance(value, Mapping):
        if not isinstance(arguments, str):
            check_value(value)
        return dict(value)
    raise MismatchError(f"arguments must be an object, got {_show(arguments)}", "arguments_not_object")


def fit(value: Any, schema: Mapping[str, Any], name: str = "value") -> Any:
    """`value` as `schema` wants it, through `items`, `properties`, `anyOf` and `enum`.

    Raises:
        MismatchError: when it does not fit.
    """
    if isinstance(choices := schema.get("anyOf"), list):
        return _fit_any(value, choices, name)
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return _fit_any(value, [{**schema, "type": kind} for kind in kinds], name)
    fitted = _fit_kind(value, kinds, name)
    if isinstance(fitted, list) and isinstance(items := schema.get("items"), Mapping):
        fitted = [fit(item, items, f"{name}[{index}]") for index, item in enumerate(fitted)]
    elif isinstance(fitted, dict) and "properties" in schema:
        fitted = _fit_properties(fitted, schema, f"{name}.")
    if isinstance(enum := schema.get("enum"), list) and not any(_same(fitted, choice) for choice in enum):
        raise MismatchError(f"{name} must be one of {enum!r:.200}, got {_show(value)}", "invalid_value")
    return fitted


def allows_null(schema: Mapping[str, Any]) -> bool:
    """Whether null fits `schema` as it stands."""
    kinds = schema.get("type")
    if isinstance(choices := schema.get("anyOf"), list):
        return any(allows_null(choice) for choice in choices)
    return kinds is None or kinds == "null" or (isinstance(kinds, list) and "null" in kinds)


def _fit_whole(value: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    fitted = _fit_properties(value, schema, "")
    if not _is_own(schema):
        from jsonschema import validators
        from jsonschema.exceptions import best_match

        problem = best_match(validators.validator_for(schema)(schema).iter_errors(fitted))
        if problem is not None:
            where = ".".join(str(part) for part in problem.absolute_path) or "arguments"
            code: ArgumentError = "type_mismatch" if problem.validator == "type" else "invalid_value"
            raise MismatchError(f"{where}: {problem.message:.200}", code)
    return fitted


def _fit_properties(value: dict[str, Any], schema: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    properties: Mapping[str, Any] = schema.get("properties") or {}
    required = schema.get("required") or ()
    if not schema.get("additionalProperties"):
        for name in value:
            if name not in properties:
                raise MismatchError(
                    f"unexpected argument {prefix + name!r:.80}; {nearest(name, properties)}", "unexpected_argument"
                )
    for name in required:
        if name not in value:
            raise MismatchError(f"argument {prefix + name!r} is missing", "missing_argument")
    fitted = {}
    for name, item in value.items():
        kind = properties.get(name)
        if not isinstance(kind, Mapping):
            fitted[name] = item
        elif item is not None or name in required or allows_null(kind):
            fitted[name] = fit(item, kind, prefix + name)
    return fitted


def _fit_any(value: Any, choices: list[Mapping[str, Any]], name: str) -> Any:
    problem = MismatchError(f"{name} fits none of its kinds, got {_show(value)}")
    fitted: list[Any] = []
    for choice in choices:
        try:
            result = fit(value, choice, name)
        except MismatchError as error:
            problem = error if error.code == "invalid_value" else problem
            continue
        if _same(result, value):  # a kind that takes the value as it stands comes before one that would change it
            return result
        fitted.append(result)
    if fitted:
        return fitted[0]
    raise problem


def _fit_kind(value: Any, kind: object, name: str) -> Any:
    match kind, value:
        case "string", str():
            return value
        case "boolean", bool():
            return value
        case "boolean", str() if value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        case (("integer" | "number"), bool()):
            pass
        case (("integer" | "number"), int()):
            return value
        case "integer", float() if value.is_integer():
            return int(value)
        case "number", float():
            return value
        case (("integer" | "number"), str()) if INTEGER.fullmatch(value.strip()):
            return int(value.strip().split(".")[0])
        case "number", str() if NUMBER.fullmatch(value.strip()) and abs(float(value)) < float("inf"):
            return float(value)
        case "null", None:
            return None
        case "array", list() | tuple():
            return list(value)
        case "object", Mapping():
            return dict(value)
        case (("array" | "object"), str()):
            return _decoded(value, list if kind == "array" else dict, kind, name)
        case (("string" | "boolean" | "integer" | "number" | "null" | "array" | "object"), _):
            pass
        case _:  # no type, or one that only jsonschema knows
            return value
    raise MismatchError(f"{name} must be of type {kind}, got {_show(value)}")


def _decoded_again(text: str) -> Any:
    try:
        return decode_all(text) if text.strip() else None
    except JsonError as error:
        if error.code == "invalid_unicode":
            raise
        return text  # text that only happens to be encoded


def _decoded(text: str, wanted: type, kind: object, name: str) -> Any:
    try:
        value = decode_all(text)
    except JsonError as error:
        raise MismatchError(f"{name} must be of type {kind}, got {_show(text)}") from error
    if not isinstance(value, wanted):
        raise MismatchError(f"{name} must be of type {kind}, got {_show(text)}")
    return value


def _is_own(schema: object) -> bool:
    """Whether every keyword of `schema`, all the way down, is checked in this module."""
    if not isinstance(schema, Mapping):
        return True
    return (
        OWN_KEYWORDS.issuperset(schema)
        and all(_is_own(part) for part in (schema.get("properties") or {}).values())
        and all(_is_own(part) for part in (schema.get("items"), *schema.get("anyOf", ())))
        and not isinstance(schema.get("additionalProperties"), Mapping)
    )


def _same(left: Any, right: Any) -> bool:
    """Equality that tells True from 1."""
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
