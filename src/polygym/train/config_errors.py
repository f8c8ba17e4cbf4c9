"""What is wrong with a config, in the words of the file: pydantic's findings name Python's types instead.

The one idea: a line says where, what was given, what is allowed, and what to write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from polygym.errors import nearest

Location = Sequence[int | str]


def default_name(identifier: str) -> str:
    """The name of an environment that was given none: the last part of its id, without a function's name.

    >>> default_name("my_package.games:load_environment"), default_name("math_rl")
    ('games', 'math_rl')
    """
    return identifier.partition(":")[0].replace("/", ".").rsplit(".", 1)[-1]


def entry_name(entry: Mapping[str, Any]) -> str:
    """The name of the environment that an entry of a config names.

    >>> entry_name({"id": "math_rl"}), entry_name({"rows": "data/mix.jsonl"}), entry_name({"id": "a", "name": "b"})
    ('math_rl', 'mix', 'b')
    """
    for key in ("name", "id", "server", "rows", "eval_rows"):
        if (value := entry.get(key)) and isinstance(value, str):
            if key == "id":
                return default_name(value)
            return Path(value).name.partition(".")[0] if key.endswith("rows") else value
    return ""


def explain(kind: type[BaseModel], table: Mapping[str, Any], error: ValidationError) -> Iterator[str]:
    """A line for each problem of `table`, which is no config of class `kind`."""
    problems = error.errors(include_url=False)
    parents = {problem["loc"][:depth] for problem in problems for depth in range(len(problem["loc"]))}
    for problem in problems:
        location = problem["loc"]
        if location and location in parents:
            continue  # a table that is refused only because something in it is
        where = ".".join(_named(location, table))
        if problem["type"] == "extra_forbidden":
            yield f"unknown key {where!r}; {nearest(location[-1], _keys(section_at(kind, location[:-1])))}"
        elif problem["type"] == "missing" and isinstance(location[-1], str):
            yield f"{where!r} is missing{'; ' + _entries(location, None) if _is_list(kind, location) else ''}"
        elif problem["type"] == "value_error" and isinstance(problem["input"], Mapping):
            yield f"{where + ': ' if where else ''}{problem['ctx']['error']}"
        else:
            given = problem["input"]
            if problem["type"] == "missing":  # of a list that holds too few
                where, given = ".".join(_named(location[:-1], table)), problem["input"]
            yield f"{where}={given!r:.80}: {_words(kind, problem)}"


def section_at(kind: type[BaseModel], location: Location) -> type[BaseModel] | None:
    """The class of the table, or of the tables of the list, at a place of a config; None where there are values."""
    section: type[BaseModel] | None = kind
    for part in location:
        if isinstance(part, str):
            annotation = _annotation(section, part)
            classes = [annotation, *get_args(annotation)]
            sections = [found for found in classes if isinstance(found, type) and issubclass(found, BaseModel)]
            section = sections[0] if sections else None
    return section


def _words(kind: type[BaseModel], problem: ErrorDetails) -> str:
    location, given = problem["loc"], problem["input"]
    section = section_at(kind, location)
    match problem["type"]:
        case "tuple_type" if section is not None:
            return f"must be a list of tables; {_entries(location, given)}"
        case "tuple_type" | "missing" | "too_long" if size := _size(kind, location):
            return f"must be a list of {size}"
        case "tuple_type":
            example = json.dumps([given], default=str, ensure_ascii=False)
            return f"must be a list: write {location[-1]} = {example:.80}"
        case "model_type" if isinstance(location[-1], int):
            return f"must be a table; {_entries(location[:-1], given)}"
        case "model_type":
            one = f", written [{_dotted(location)}] with one bracket" if isinstance(given, list) else ""
            return f"must be a table{one}, of the keys {', '.join(_keys(section))}"
        case "dict_type":
            return "must be a table of keys and values"
        case "too_short" if section is not None:
            return f"must not be empty; {_entries(location, None)}"
        case "string_too_short":
            return "must not be empty"
        case "string_type":
            return "must be text in quotes"
        case "bool_type":
            return "must be true or false, without quotes"
        case "literal_error":
            return f"must be {problem['ctx']['expected']}"
        case "value_error":
            return str(problem["ctx"]["error"])
        case "int_type" | "float_type" if isinstance(given, str):
            return f"{problem['msg']}, without quotes"
    return problem["msg"]


def _entries(location: Location, given: object) -> str:
    """How a list of tables is written."""
    example = given if isinstance(given, str) else "math_rl"
    return f'write [[{_dotted(location)}]] with two brackets, and id = "{example:.40}" below it'


def _dotted(location: Location) -> str:
    return ".".join(part for part in location if isinstance(part, str))


def _keys(section: type[BaseModel] | None) -> list[str]:
    return sorted(section.model_fields) if section else []


def _annotation(section: type[BaseModel] | None, key: str) -> Any:
    field = section.model_fields.get(key) if section else None
    return field.annotation if field else None


def _annotation_at(kind: type[BaseModel], location: Location) -> Any:
    names = [part for part in location if isinstance(part, str)]
    return _annotation(section_at(kind, names[:-1]), names[-1])


def _is_list(kind: type[BaseModel], location: Location) -> bool:
    return get_origin(_annotation_at(kind, location)) is tuple


def _size(kind: type[BaseModel], location: Location) -> int:
    """Items of a list that always has as many; 0 for any other."""
    arguments = get_args(_annotation_at(kind, location))
    return 0 if ... in arguments else len(arguments)


def _named(location: Location, table: Any) -> Iterator[str]:
    """The keys of a place in a file; an entry of a list is told by its name, as in an override, where it has one."""
    for part in location:
        if isinstance(table, list) and isinstance(part, int):
            table = table[part] if part < len(table) else None
        else:
            table = table.get(part) if isinstance(table, Mapping) else None
        named = entry_name(table) if isinstance(part, int) and isinstance(table, Mapping) else ""
        yield named or str(part)
