"""The registry: environments by name.

The one idea: an id is found, never registered. Recipes are the folders of `polygym.recipes`, installed packages say
`polygym.environments` in their entry points, and `package.module:function` or a path name everything else. Listing
imports none of them.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from polygym.environments.base import Environment
from polygym.errors import UsageError, nearest

RECIPES = "polygym.recipes"
ENTRY_POINTS = "polygym.environments"
LOADER = "load_environment"


@dataclass(frozen=True)
class EnvironmentEntry:
    """What is known of an environment without importing it."""

    id: str
    source: str
    target: str
    description: str

    def to_dict(self) -> dict[str, str]:
        """The entry as data."""
        return asdict(self)


def list_environments() -> list[EnvironmentEntry]:
    """Recipes, then environments of installed packages, each by id.

    Raises:
        UsageError: when two of them have one id.
    """
    entries: dict[str, EnvironmentEntry] = {}
    for entry in (*_recipes(), *_entry_points()):
        other = entries.setdefault(entry.id, entry)
        if other is not entry and other.target != entry.target:
            raise UsageError(
                f"environment id {entry.id!r} is given twice: {other.target} ({other.source}) and {entry.target} "
                f"({entry.source}); uninstall one, or name it as package.module:function"
            )
    return list(entries.values())


def find_loader(id: str) -> Callable[..., Any]:
    """The function that builds an environment.

    Args:
        id: a recipe (`math_rl`), an entry point, `package.module:function`, or the path of a file or folder that
            `polygym env init` wrote.

    Raises:
        UsageError: with the nearest known id, or what cannot be imported.
    """
    if not isinstance(id, str) or not id:
        raise UsageError(f"environment id {id!r} must be text, such as 'math_rl' or 'package.module:function'")
    if ":" in id and not Path(id).exists():
        return _from_target(id)
    known = {entry.id: entry.target for entry in list_environments()}
    if id in known:
        return _from_target(known[id])
    if Path(id).exists() and ("/" in id or "\\" in id or id.endswith(".py") or Path(id).is_dir()):
        return _from_path(Path(id))
    raise UsageError(f"environment {id!r} is unknown; {nearest(id, known)}; or give package.module:function, or a path")


def load_environment(id: str, **arguments: Any) -> Environment:
    """Build an environment by id; see `find_loader`. The address of a resources server is an id too (`load_served`).

    Raises:
        UsageError: for an unknown id, an argument that the loader does not take or lacks, a loader that raises, or one
            that does not return an environment.
    """
    loader = _of_server(id) or find_loader(id)
    check_arguments(loader, arguments, id)
    with _told(f"environment {id!r}: its loader raised"):
        environment = loader(**arguments)
    if not isinstance(environment, Environment):
        raise UsageError(f"the loader of {id!r} returned a {type(environment).__name__}; it must return an Environment")
    return environment


def _of_server(id: str) -> Callable[..., Any] | None:
    """The function that builds the environment at an address; None where the id is none."""
    from polygym.environments.served import is_address, load_served

    return partial(load_served, id) if isinstance(id, str) and is_address(id) else None


def check_arguments(loader: Callable[..., Any], arguments: dict[str, Any], id: str) -> None:
    """Check arguments against the loader's signature, before it runs.

    Raises:
        UsageError: with the nearest name that is allowed, or the ones that are missing.
    """
    parameters = inspect.signature(loader).parameters.values()
    named = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for name in arguments:
            if name not in named:
                raise UsageError(f"environment {id!r} has no argument {name!r}; {nearest(name, named)}")
    missing = [name for name, p in named.items() if p.default is p.empty and name not in arguments]
    if missing:
        raise UsageError(f"environment {id!r} needs the arguments {', '.join(missing)}; give them under args")


def _recipes() -> list[EnvironmentEntry]:
    package = importlib.util.find_spec(RECIPES)
    folders = [Path(folder) for folder in (package.submodule_search_locations or ())] if package else []
    entries = []
    for path in sorted(path for folder in folders for path in folder.iterdir()):
        if (path / "__init__.py").is_file() and not path.name.startswith("_"):
            entries.append(EnvironmentEntry(path.name, "recipe", f"{RECIPES}.{path.name}:{LOADER}", _summary(path)))
    return entries


def _summary(folder: Path) -> str:
    """First line of the docstring of the recipe's module, without the recipe's name; read without running it."""
    for file in (folder / f"{folder.name}.py", folder / "__init__.py"):
        if file.is_file():
            docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
            if docstring:
                return docstring.splitlines()[0].removeprefix(f"{folder.name}: ")
    return ""


def _entry_points() -> list[EnvironmentEntry]:
    found = []
    for point in sorted(importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        target = point.value if ":" in point.value else f"{point.value}:{LOADER}"
        distribution = point.dist
        summary = (distribution.metadata["Summary"] or "") if distribution is not None else ""
        found.append(
            EnvironmentEntry(point.name, distribution.name if distribution else "entry point", target, summary)
        )
    return found


def _from_target(target: str) -> Callable[..., Any]:
    module_name, _, function_name = target.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise UsageError(f"environment {target!r} must be package.module:function")
    with _importing(target):
        module = importlib.import_module(module_name)
    return _loader_of(module, function_name or LOADER, target)


@contextmanager
def _importing(target: str) -> Iterator[None]:
    """What goes wrong in an import, as an error of the user's."""
    with _told(f"environment {target!r} cannot be imported:"):
        try:
            yield
        except ModuleNotFoundError as error:
            raise UsageError(
                f"environment {target!r}: no module named {error.name!r}; install the package, or mend the name"
            ) from error


@contextmanager
def _told(what: str) -> Iterator[None]:
    """An error in an author's code as one line with its place; what already is the user's error stays as it is."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:  # an author's code may raise anything
        words = f"{type(error).__name__}: {' '.join(str(error).split())}"
        if isinstance(error, SyntaxError):  # its words hold the place
            place = f"{error.filename}, line {error.lineno}"
            words = f"SyntaxError: {error.msg}"
        else:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{last.filename}, line {last.lineno}"
        raise UsageError(f"{what} {words} ({place})") from error


def _from_path(path: Path) -> Callable[..., Any]:
    file = path / f"{path.resolve().name}.py" if path.is_dir() else path
    if not file.is_file():
        raise UsageError(
            f"folder {str(path)!r} has no {file.name}; give the file, or a folder that holds a file of its name"
        )
    name = f"polygym_path_{abs(hash(file.resolve()))}_{file.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise UsageError(f"{str(file)!r} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            with _importing(str(path)):
                spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return _loader_of(sys.modules[name], LOADER, str(path))


def _loader_of(module: Any, name: str, target: str) -> Callable[..., Any]:
    loader = getattr(module, name, None)
    if not callable(loader):
        functions = [
            key
            for key, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not key.startswith("_")
        ]
        raise UsageError(f"environment {target!r}: its module has no function {name!r}; {nearest(name, functions)}")
    return loader
