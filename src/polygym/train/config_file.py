"""Reading configs: a TOML file or a shipped recipe's name, `key=value` overrides, and errors that a person can act on.

The one idea: nothing is silently accepted. What is unknown is refused with the nearest name, and every problem of a
file is reported at once.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from polygym.errors import UsageError, nearest

Config = TypeVar("Config", bound="Section")


class Section(BaseModel):
    """A table of a config file: no unknown keys, no conversions of type, no assignment after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True, allow_inf_nan=False)
    alternatives: ClassVar[tuple[str, ...]] = ()  # two keys of which a file has one


def default_name(identifier: str) -> str:
    """The name of an environment that was given none: the last part of its id, without a function's name.

    >>> default_name("my_package.games:load_environment"), default_name("math_rl")
    ('games', 'math_rl')
    """
    return identifier.partition(":")[0].replace("/", ".").rsplit(".", 1)[-1]


def check_run_name(name: str) -> None:
    """Check the name of a run, which names its folder.

    Raises:
        ValueError: which pydantic tells with the other problems of the config.
    """
    if "/" in name or "\\" in name or name in (".", "..") or any(ord(character) < 32 for character in name):
        raise ValueError(f"name={name!r} is no name of a folder; leave out slashes, or give the folder as output")


def recipe_configs() -> list[str]:
    """Names of the shipped configs: `NAME` for a recipe's `config.toml`, `NAME/VARIANT` for its `VARIANT.toml`.

    `NAME/config` is `NAME` too, for where the plain name means the environment (`polygym eval run`).
    """
    names = []
    for folder in resources.files("polygym.recipes").iterdir():
        if folder.is_dir():
            for file in folder.iterdir():
                if file.name.endswith(".toml"):
                    variant = file.name.removesuffix(".toml")
                    names += [folder.name] if variant == "config" else []
                    names.append(f"{folder.name}/{variant}")
    return sorted(names)


def find_config(source: str | Path) -> Path:
    """The file behind a path or a shipped recipe's name.

    Raises:
        UsageError: when there is no such file or recipe.
    """
    path = Path(source)
    if path.suffix == ".toml" or path.is_file():
        if path.is_dir():
            raise UsageError(f"config {str(source)!r} is a folder; give the .toml file in it")
        if not path.is_file():
            raise UsageError(f"config file {str(source)!r} does not exist")
        return path
    names = recipe_configs()
    if str(source) not in names:
        raise UsageError(
            f"config {str(source)!r} is neither a .toml file nor a shipped recipe; {nearest(source, names)}"
        )
    recipe, _, variant = str(source).partition("/")
    return Path(str(resources.files("polygym.recipes").joinpath(recipe, f"{variant or 'config'}.toml")))


def load(
    kind: type[Config], source: str | Path, overrides: Sequence[str] = (), *, others: Mapping[str, type[Section]]
) -> Config:
    """Read a config of class `kind`.

    Args:
        kind: the class of the whole file, such as `RunConfig`.
        source: a path to a TOML file, or a shipped recipe's name.
        overrides: `key=value` texts; a dot enters a table, and `env.NAME.key` the `[[env]]` of that name.
        others: classes of configs by the command that takes them; a file that is one of them is told so.

    Raises:
        UsageError: with every problem of the file on its own line.
    """
    path = find_config(source)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    for override in overrides:
        _apply(table, override)
        for first, second in (kind.alternatives, kind.alternatives[::-1]) if kind.alternatives else ():
            if override.partition("=")[0].strip() == first:
                table.pop(second, None)  # the one that is given last replaces the other
    if not table.get("name"):
        table["name"] = path.stem if path == Path(source) else str(source).replace("/", "-")
    try:
        return validate(kind, table, str(source))
    except UsageError:
        for command, other in others.items():
            if _fits(other, table):
                raise UsageError(f"{source} is a config of another command: {command} {source}") from None
        raise


def _fits(kind: type[Section], table: Mapping[str, Any]) -> bool:
    try:
        kind.model_validate(table)
    except ValidationError:
        return False
    return True


def validate(kind: type[Config], table: Mapping[str, Any], source: str) -> Config:
    """`table` as a config of class `kind`, with pydantic's findings turned into one clear error.

    Raises:
        UsageError: with every problem on its own line.
    """
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        raise UsageError("\n".join(f"{source}: {line}" for line in _explain(kind, table, error))) from error


def _explain(kind: type[BaseModel], table: Mapping[str, Any], error: ValidationError) -> Iterable[str]:
    problems = error.errors(include_url=False)
    parents = {problem["loc"][:depth] for problem in problems for depth in range(len(problem["loc"]))}
    for problem in problems:
        where = ".".join(_named(problem["loc"], table))
        if problem["loc"] and problem["loc"] in parents:
            continue  # a table that is refused only because something in it is
        if problem["type"] == "extra_forbidden":
            known = _table_at(kind, problem["loc"][:-1]).model_fields
            yield f"unknown key {where!r}; {nearest(problem['loc'][-1], known)}"
        elif problem["type"] == "missing":
            yield f"{where!r} is missing"
        elif problem["type"] == "value_error":
            yield f"{where + ': ' if where else ''}{problem['ctx']['error']}"
        else:
            yield f"{where}={problem['input']!r:.80}: {problem['msg']}"


def _table_at(kind: type[BaseModel], location: Sequence[int | str]) -> type[BaseModel]:
    """The class of the table that an error's location lies in."""
    for part in location:
        if isinstance(part, str):
            annotation = kind.model_fields[part].annotation
            inner = next((arg for arg in get_args(annotation) if isinstance(arg, type)), annotation)
            kind = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else kind
    return kind


def _apply(table: dict[str, Any], override: str) -> None:
    key, sign, text = override.partition("=")
    path = key.strip().split(".")
    if not sign or not all(path):
        raise UsageError(f"override {override!r} is not of the form key=value, for example learning_rate=1e-5")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    target: Any = table
    for index, part in enumerate(path[:-1]):
        if isinstance(target, list):
            target = _entry(target, part, override, ".".join(path[:index]))
        else:
            target = target.setdefault(part, {})
        if not isinstance(target, (dict, list)):
            raise UsageError(f"override {override!r}: {'.'.join(path[: index + 1])!r} is a value, not a table")
    if isinstance(target, list):
        raise UsageError(f"override {override!r}: name one entry of the list, as in env.math.weight=2")
    target[path[-1]] = value


def _named(location: Sequence[int | str], table: Any) -> Iterable[str]:
    """The keys of a place in a file; an entry of a list is told by its name, as in an override, where it has one."""
    for part in location:
        if isinstance(table, list) and isinstance(part, int):
            table = table[part]
        else:
            table = table.get(part) if isinstance(table, Mapping) else None
        named = isinstance(part, int) and isinstance(table, Mapping) and (table.get("name") or table.get("id"))
        yield default_name(str(named)) if named else str(part)


def _entry(entries: list[Any], name: str, override: str, key: str) -> Any:
    if not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(f"override {override!r}: {key!r} is no list of tables")
    names = [str(entry.get("name") or default_name(str(entry.get("id", "")))) for entry in entries]
    if name not in names:
        raise UsageError(f"override {override!r}: no entry is named {name!r}; {nearest(name, names)}")
    return entries[names.index(name)]
