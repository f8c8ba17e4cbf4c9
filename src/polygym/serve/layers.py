"""Reading and merging the YAML that describes a stack.

The one idea: nothing is resolved until everything is merged, and then every value that is missing is found, not only
the first. A server is defined once; of plain values, the later layer wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polygym.errors import UsageError, nearest
from polygym.serve.catalog import POLICY_VALUES

_REFERENCE = re.compile(r"\$\{\s*([\w.]+)\s*\}")


@dataclass(frozen=True)
class Layer:
    """One source of configuration; `name` is how messages tell of it."""

    name: str
    content: Mapping[str, Any]


def read_yaml(path: str | Path) -> Layer:
    """A YAML file as a layer.

    Raises:
        UsageError: when it cannot be read, with the line of what is wrong.
    """
    import yaml
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    path = Path(path)
    if not path.is_file():
        raise UsageError(f"config file {str(path)!r} does not exist" if not path.exists() else f"{path}: no file")
    try:
        loaded = OmegaConf.load(path)
        content = OmegaConf.to_container(loaded, resolve=False)
    except yaml.MarkedYAMLError as error:
        place = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UsageError(f"{path}{place}: not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, UnicodeDecodeError, OmegaConfBaseException) as error:
        raise UsageError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path}: must be a mapping of server names to their blocks, got a {type(content).__name__}")
    return Layer(str(path), {str(key): value for key, value in content.items()})


def merge(layers: Iterable[Layer]) -> tuple[dict[str, Any], list[str]]:
    """All layers as one, and what is wrong with putting them together."""
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    problems = []
    for layer in layers:
        for key, value in layer.content.items():
            if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
                problems.append(
                    f"{key!r} is defined twice: in {origins[key]} and in {layer.name}; names must be unique: rename "
                    "one, or leave it out"
                )
                continue
            merged[key] = value
            origins[key] = layer.name
    return merged, problems


def resolve(merged: Mapping[str, Any]) -> tuple[dict[str, Any], list[str], set[str]]:
    """The document with its `${...}` filled in, every value that is missing, and the top-level keys that lack one."""
    from omegaconf import DictConfig, ListConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    problems: list[str] = []
    incomplete: set[str] = set()
    users_of: dict[str, list[str]] = {}  # variable that nobody gives: the places that need it

    def value_at(node: DictConfig | ListConfig, key: Any, place: str) -> Any:
        if OmegaConf.is_missing(node, key):
            problems.append(f"{place} is missing: a ??? stands in its place")
            incomplete.add(place.partition(".")[0])
            return None
        try:
            value = node[key]
        except OmegaConfBaseException as error:
            incomplete.add(place.partition(".")[0])
            raw = OmegaConf.to_container(node, resolve=False)
            variables = _REFERENCE.findall(str(raw[key]))  # type: ignore[index]
            absent = [name for name in variables if OmegaConf.select(config, name, throw_on_missing=False) is None]
            for name in absent:
                users_of.setdefault(name, []).append(place)
            if not absent:
                problems.append(f"{place}: {str(error).splitlines()[0]}")
            return None
        return plain(value, place)

    def plain(value: Any, place: str) -> Any:
        if isinstance(value, DictConfig):
            return {str(key): value_at(value, key, f"{place}.{key!s}" if place else str(key)) for key in value}
        if isinstance(value, ListConfig):
            return [value_at(value, index, f"{place}[{index}]") for index in range(len(value))]
        return value

    try:
        config = OmegaConf.create(dict(merged))
    except OmegaConfBaseException as error:
        return {}, [f"the config cannot be read: {str(error).splitlines()[0]}"], set()
    document = plain(config, "")
    known = [key for key, value in merged.items() if not isinstance(value, Mapping)]
    for name, users in users_of.items():
        hint = f"give {POLICY_VALUES[name]}" if name in POLICY_VALUES else nearest(name, known)
        problems.append(f"{name} is missing, which {' and '.join(users)} need{'s' * (len(users) == 1)}; {hint}")
    return document, problems, incomplete
