"""Tools from plain functions: what the policy is told comes from the type hints and the docstring.

The one idea: a function is described completely or refused. Every parameter has a type that JSON can carry; `*args`,
`**kwargs` and missing hints are errors at construction that name the function and the parameter. A parameter called
`state` is given the episode's state and hidden from the policy.
"""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polygym.environments.docstrings import read_docstring
from polygym.errors import UsageError
from polygym.messages import ToolSpec

STATE = "state"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
_SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_SUPPORTED = "str, int, float, bool, None, Any, list[...], dict[str, ...], Literal[...], Optional and unions of these"


@dataclass(frozen=True, slots=True)
class Tool:
    """A function and what the policy is told about it."""

    spec: ToolSpec
    function: Callable[..., Any]
    wants_state: bool
    is_async: bool


def tool_from_function(function: Callable[..., Any]) -> Tool:
    """Describe a function.

    >>> def double(x: int) -> int:
    ...     '''Double a number.
    ...
    ...     Args:
    ...         x: the number
    ...     '''
    ...     return 2 * x
    >>> tool_from_function(double).spec.parameters["properties"]
    {'x': {'type': 'integer', 'description': 'the number'}}

    Raises:
        UsageError: names the function, the parameter and what is allowed.
    """
    if isinstance(function, type):
        raise UsageError(f"a tool must be a function, got the class {function.__name__}; write a `def` that calls it")
    if not callable(function):
        raise UsageError(f"a tool must be a function, got {type(function).__name__}: {function!r:.80}")
    target = function if inspect.isroutine(function) else type(function).__call__
    name = getattr(function, "__name__", None) or type(function).__name__
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"tool name {name!r} is not allowed; write the tool as a `def` with a name of letters, digits and '_'"
        )
    try:
        hints = typing.get_type_hints(target, include_extras=True)
    except Exception as error:  # a hint may be text, which is evaluated
        raise UsageError(
            f"tool {name!r}: its type hints cannot be read ({error}); use types that its module can see"
        ) from error
    try:
        signature = inspect.signature(function)
    except ValueError as error:  # some that are written in C have none
        raise UsageError(f"tool {name!r}: its parameters cannot be read; write a `def` that calls it") from error
    description, described = read_docstring(inspect.getdoc(target) or inspect.getdoc(function) or "")
    properties: dict[str, Any] = {}
    required: list[str] = []
    wants_state = False
    for parameter in signature.parameters.values():
        _check_kind(name, parameter)
        if parameter.name == STATE:
            wants_state = True
            continue
        if parameter.name not in hints:
            raise UsageError(
                f"tool {name!r}: parameter {parameter.name!r} has no type hint; write `{parameter.name}: str`, "
                f"or another of: {_SUPPORTED}"
            )
        schema = json_schema(hints[parameter.name], f"tool {name!r}: parameter {parameter.name!r}")
        if parameter.name in described:
            schema.setdefault("description", described[parameter.name])
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        elif _is_json(parameter.default):
            schema["default"] = parameter.default
        properties[parameter.name] = schema
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    is_async = inspect.iscoroutinefunction(target)
    return Tool(ToolSpec(name, description, parameters), function, wants_state, is_async)


def tools_by_name(functions: Sequence[Callable[..., Any]]) -> dict[str, Tool]:
    """Tools of several functions.

    Raises:
        UsageError: when two have one name, or one cannot be described.
    """
    if not isinstance(functions, Iterable):
        raise UsageError(f"tools={functions!r:.80} must be a list of functions")
    tools: dict[str, Tool] = {}
    for function in functions:
        tool = tool_from_function(function)
        if tool.spec.name in tools:
            raise UsageError(f"two tools are called {tool.spec.name!r}; names must be unique: rename one function")
        tools[tool.spec.name] = tool
    return tools


def json_schema(hint: Any, where: str) -> dict[str, Any]:
    """JSON schema of a type hint.

    >>> json_schema(list[int] | None, "x")
    {'anyOf': [{'type': 'array', 'items': {'type': 'integer'}}, {'type': 'null'}]}

    Raises:
        UsageError: for a type that a tool call in JSON cannot carry.
    """
    if hint is Any:
        return {}
    if hint in (list, dict, tuple):
        return {"type": "object" if hint is dict else "array"}
    # `type(hint)` first: a Literal or a generic alias need not be hashable as a key of a table.
    if isinstance(hint, type) and hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        schema = json_schema(arguments[0], where)
        notes = [note for note in arguments[1:] if isinstance(note, str)]
        return {**schema, "description": notes[0]} if notes else schema
    if origin is typing.Literal:
        kinds = sorted({_SCALARS.get(type(value), "") for value in arguments})
        if "" not in kinds:
            return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [json_schema(argument, where) for argument in arguments]}
    if origin in (list, Sequence) and len(arguments) == 1:
        return {"type": "array", "items": json_schema(arguments[0], where)}
    if origin in (dict, Mapping) and len(arguments) == 2 and arguments[0] is str:
        return {"type": "object", "additionalProperties": json_schema(arguments[1], where)}
    raise UsageError(f"{where} has type {hint!r}, which a tool call cannot carry; allowed: {_SUPPORTED}")


def _check_kind(name: str, parameter: inspect.Parameter) -> None:
    """Refuse parameters that cannot be given by name."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise UsageError(
            f"tool {name!r}: parameter {stars}{parameter.name} cannot be described to a policy; name each parameter, "
            "or use one `list[...]` or `dict[str, ...]`"
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise UsageError(
            f"tool {name!r}: parameter {parameter.name!r} is positional only; tools are called by name: drop the '/'"
        )


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
