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

Place = tuple[str | int, ...]
"""The keys that lead to a value of the document."""
_REFERENCE = re.compile(r"\$\{\s*([\w.]+)\s*\}")
NAMED_SERVERS = "--resources-server"
_TEXT_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")


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
        if (found := _no_text(yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader))) is not None:
            raise UsageError(
                f"{path}, line {found.start_mark.line + 1}: key {found.value} is no text; put it in quotes"
            )
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


def _no_text(root: Any) -> Any:
    """The first node of a YAML document that is a key and no text; None where all are."""
    from yaml import MappingNode, SequenceNode

    todo, seen = [root], set()
    while todo:
        node = todo.pop()
        if id(node) in seen:  # an anchor that is referred to
            continue
        seen.add(id(node))
        if isinstance(node, MappingNode):
            for key, _ in node.value:
                if key.tag not in _TEXT_TAGS:
                    return key
            todo += [value for _, value in node.value]
        elif isinstance(node, SequenceNode):
            todo += node.value
    return None


def merge(layers: Iterable[Layer]) -> tuple[dict[str, Any], list[str]]:
    """All layers as one, and what is wrong with putting them together."""
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    problems = []
    for layer in layers:
        for key, value in layer.content.items():
            if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
                named = layer.name == NAMED_SERVERS
                how = f"give one another name ({NAMED_SERVERS} NAME=ENV)" if named else "rename one, or leave it out"
                problems.append(
                    f"{key!r} is defined twice: in {origins[key]} and in {layer.name}; names must be unique: {how}"
                )
                continue
            merged[key] = value
            origins[key] = layer.name
    return merged, problems


def is_referred_to(key: str, text: str) -> bool:
    """Whether a `${...}` in a text names a key of the document.

    >>> is_referred_to("size", "{'a': '${size}'}"), is_referred_to("size", "{'size': '${other}'}")
    (True, False)
    """
    return re.search(rf"\$\{{[^}}]*\b{re.escape(key)}\b", text) is not None


def resolve(merged: Mapping[str, Any]) -> tuple[dict[str, Any], list[str], set[Place]]:
    """The document with its `${...}` filled in, what is wrong with its values, and the places that have none."""
    from omegaconf import DictConfig, ListConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    problems: list[str] = []
    missing: set[Place] = set()
    users_of: dict[str, list[str]] = {}  # variable that nobody gives: the places that need it

    def is_absent(name: str) -> bool:
        try:
            return OmegaConf.select(config, name, throw_on_missing=False) is None
        except OmegaConfBaseException:  # it is there, and cannot be resolved itself
            return False

    def value_at(node: DictConfig | ListConfig, key: Any, place: Place) -> Any:
        if OmegaConf.is_missing(node, key):
            problems.append(f"{_dotted(place)} is missing: a ??? stands in its place")
            missing.add(place)
            return None
        try:
            value = node[key]
        except OmegaConfBaseException as error:
            missing.add(place)
            raw = OmegaConf.to_container(node, resolve=False)
            absent = [name for name in _REFERENCE.findall(str(raw[key])) if is_absent(name)]  # type: ignore[index]
            for name in absent:
                users_of.setdefault(name, []).append(_dotted(place))
            if not absent:
                problems.append(f"{_dotted(place)}={raw[key]!s:.80}: {str(error).splitlines()[0]}")  # type: ignore[index]
            return None
        return plain(value, place)

    def plain(value: Any, place: Place) -> Any:
        if isinstance(value, DictConfig):
            return {str(key): value_at(value, key, (*place, str(key))) for key in value}
        if isinstance(value, ListConfig):
            return [value_at(value, index, (*place, index)) for index in range(len(value))]
        return value

    try:
        config = OmegaConf.create(dict(merged))
    except OmegaConfBaseException as error:
        return {}, [f"the config cannot be read: {str(error).splitlines()[0]}"], set()
    document = plain(config, ())
    known = [key for key, value in merged.items() if not isinstance(value, Mapping)]
    for name, users in users_of.items():
        if name in merged:
            continue  # a ??? that has been told
        hint = f"give {POLICY_VALUES[name]}" if name in POLICY_VALUES else nearest(name, known)
        problems.append(f"{name} is missing, which {' and '.join(users)} need{'s' * (len(users) == 1)}; {hint}")
    return document, problems, missing


def _dotted(place: Place) -> str:
    """A place as it is told.

    >>> _dotted(("maths", "datasets", 0, "name"))
    'maths.datasets[0].name'
    """
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place).removeprefix(".")
