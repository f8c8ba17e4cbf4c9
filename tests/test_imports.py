"""Who may import whom: the rooms of the house, from the ground up."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import polygym

SOURCE = Path(polygym.__file__).parent
ROOMS = (
    ("errors", "messages", "seeds", "rollout", "rows", "statistics", "tables", "text"),  # the ground
    ("parsing",),
    ("policies",),
    ("rewards",),
    ("environments",),
    ("recipes",),
    ("mixture",),
    ("data",),
    ("collect",),
    ("train",),
    ("serve",),
    ("view",),
    ("cli",),
)
RANKS = {name: rank for rank, names in enumerate(ROOMS) for name in names}
HEAVY = ("torch", "transformers", "fastapi", "datasets", "aiohttp", "math_verify")


def imported_rooms(source: str, package: tuple[str, ...]) -> set[str]:
    """Rooms of polygym that a module's text imports anywhere, inside functions too ("" is polygym itself)."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from polygym import rows` names a room, `from polygym.rows import x` has named it already
            found += [f"polygym.{alias.name}" for alias in node.names] if module == "polygym" else [module]
    parts = [name.split(".") for name in found]
    return {names[1] if len(names) > 1 else "" for names in parts if names[0] == "polygym"}


def wrong_imports(path: Path) -> list[str]:
    """What a module of the package imports although it must not."""
    inside = path.relative_to(SOURCE.parent).with_suffix("").parts
    room = inside[1]
    if room in ("__init__", "__main__"):
        return []
    wrong = []
    for target in sorted(imported_rooms(path.read_text("utf-8"), inside[:-1]) - {room}):
        known = target in RANKS
        upwards = known and RANKS[target] > RANKS[room]
        beyond_ground = room == "view" and known and RANKS[target] > 0
        if not known or upwards or beyond_ground or target == "recipes":
            wrong.append(f"{'/'.join(inside[1:])} imports {target or 'the package itself'}")
    return wrong


def test_every_module_lives_in_a_known_room():
    rooms = {path.relative_to(SOURCE).with_suffix("").parts[0] for path in SOURCE.rglob("*.py")}
    assert rooms - {"__init__", "__main__"} <= set(RANKS)


def test_imports_run_downwards_and_nothing_imports_recipes():
    assert [line for path in sorted(SOURCE.rglob("*.py")) for line in wrong_imports(path)] == []


def test_the_reader_of_imports_sees_every_form():
    absolute = "import polygym.train.loop\nfrom polygym import collect\nimport polygym"
    relative = "def f():\n    from ..recipes import x\n    from . import y"
    assert imported_rooms(absolute, ("polygym", "mixture")) == {"train", "collect", ""}
    assert imported_rooms(relative, ("polygym", "mixture")) == {"recipes", "mixture"}


def test_import_polygym_loads_no_heavy_library():
    code = f"import polygym, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_public_names_are_exactly_those_that_can_be_had():
    assert set(polygym.__all__) == set(polygym._HOMES)
    assert sorted([*polygym.__all__, "__version__"]) == dir(polygym)
    assert [name for name in polygym.__all__ if getattr(polygym, name, None) is None] == []
