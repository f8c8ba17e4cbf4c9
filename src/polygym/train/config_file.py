"""Reading configs: a TOML file or a shipped recipe's name, `key=value` overrides, and errors that a person can act on.

The one idea: nothing is silently accepted. What is unknown is refused with the nearest name, and every problem of a
file is reported at once.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from polygym.errors import UsageError, nearest
from polygym.train.config_errors import entry_name, explain, section_at

Config = TypeVar("Config", bound="Section")


class Section(BaseModel):
    """A table of a config file: no unknown keys, no conversions of type, no assignment after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True, allow_inf_nan=False)
    alternatives: ClassVar[tuple[str, ...]] = ()  # two keys of which a file has one


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
            if _has_key_of(other, kind, table) and _fits(other, table):
                raise UsageError(f"{source} is a config of another command: {command} {source}") from None
        raise


def _has_key_of(other: type[BaseModel], kind: type[BaseModel], table: Mapping[str, Any]) -> bool:
    """Whether a file holds a key that configs of class `other` have and those of class `kind` do not."""
    for key, value in table.items():
        if key in other.model_fields and key not in kind.model_fields:
            return True
        theirs, ours = section_at(other, [key]), section_at(kind, [key])
        tables = [found for found in (value if isinstance(value, list) else [value]) if isinstance(found, Mapping)]
        if theirs and ours and any(_has_key_of(theirs, ours, found) for found in tables):
            return True
    return False


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
        raise UsageError("\n".join(f"{source}: {line}" for line in explain(kind, table, error))) from error


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


def _entry(entries: list[Any], name: str, override: str, key: str) -> Any:
    if not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(f"override {override!r}: {key!r} is no list of tables")
    names = [entry_name(entry) for entry in entries]
    if name not in names:
        raise UsageError(f"override {override!r}: no entry is named {name!r}; {nearest(name, names)}")
    return entries[names.index(name)]
