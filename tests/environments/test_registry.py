"""The registry finds environments by name."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from polygym.environments import SingleTurnEnv, list_environments, load_environment
from polygym.environments.registry import find_loader
from polygym.errors import UsageError

MODULE = '''
"""A small environment."""
import polygym as pg

def exact(completion, answer):
    return completion == answer

def load_environment(num_examples=4, seed=0):
    rows = [{"question": f"{seed} {i}?", "answer": str(i)} for i in range(num_examples)]
    return pg.SingleTurnEnv(rows, rubric=pg.Rubric([exact]), name="small")

def other(level):
    return load_environment(level)

def wrong():
    return [1, 2]

def loose(**arguments):
    return load_environment(**arguments)

NUMBER = 3
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of an importable module with loaders."""
    name = f"small_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_recipes_are_listed_without_being_imported() -> None:
    code = """
import sys
from polygym.environments import list_environments
print([(e.id, e.source, bool(e.description)) for e in list_environments() if e.id in ("math_rl", "multi_env")])
print([name for name in sys.modules if name.startswith("polygym.recipes.")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[('math_rl', 'recipe', True), ('multi_env', 'recipe', True)]\n[]\n"


def test_a_recipe_is_loaded_by_name_with_its_arguments() -> None:
    env = load_environment("tool_use", num_examples=3, num_eval_examples=2, seed=1)
    assert (env.name, len(env.tasks()), len(env.tasks("held_out"))) == ("tool_use", 3, 2)


def test_a_function_is_loaded_by_its_module(module: str) -> None:
    assert len(load_environment(f"{module}:load_environment", num_examples=10).tasks()) == 8
    assert len(load_environment(f"{module}:", num_examples=5).tasks()) == 4
    assert len(load_environment(f"{module}:other", level=5).tasks()) == 4
    assert len(load_environment(f"{module}:loose", num_examples=5).tasks()) == 4


def test_a_file_and_a_folder_are_loaded_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "small"
    home.mkdir()
    (home / "small.py").write_text(MODULE)
    monkeypatch.chdir(home)
    for path in (str(home), f"{home}/small.py", "small.py", ".", "../small"):
        assert isinstance(load_environment(path, num_examples=2), SingleTurnEnv)
    with pytest.raises(UsageError, match="has no argument 'num'; Allowed: num_examples, seed"):
        load_environment(str(home), num=3)
    (home / "empty").mkdir()
    with pytest.raises(UsageError, match=r"folder 'empty' has no empty\.py"):
        load_environment("empty")


@pytest.mark.parametrize(
    ("id", "arguments", "message"),
    [
        ("math", {}, "environment 'math' is unknown; did you mean 'math_rl'"),
        ("", {}, "environment id '' must be text"),
        ("/no/such/folder", {}, "environment '/no/such/folder' is unknown"),
        ("no_such_package.module:f", {}, "no module named 'no_such_package'"),
        (":f", {}, "must be package.module:function"),
        ("..x:f", {}, "must be package.module:function"),
        ("{module}:nothing", {}, "has no function 'nothing'"),
        ("{module}:NUMBER", {}, "has no function 'NUMBER'"),
        ("{module}:wrong", {}, "returned a list; it must return an Environment"),
        ("{module}:load_environment", {"num_exmples": 3}, "has no argument 'num_exmples'; did you mean 'num_examples'"),
        ("{module}:other", {}, "needs the arguments level"),
        ("tool_use", {"number": 3}, "environment 'tool_use' has no argument 'number'"),
    ],
)
def test_what_cannot_be_loaded_is_said(id: str, arguments: dict[str, Any], message: str, module: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_environment(id.replace("{module}", module), **arguments)


def test_installed_packages_offer_environments(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def points(*named: tuple[str, str]) -> None:
        found = [importlib.metadata.EntryPoint(name, value, "polygym.environments") for name, value in named]
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found)

    points(("mine", f"{module}:load_environment"), ("bare", module))
    assert [entry.id for entry in list_environments() if entry.source == "entry point"] == ["bare", "mine"]
    assert find_loader("mine") is find_loader("bare")
    assert load_environment("mine").name == "small"
    points(("math_rl", f"{module}:load_environment"))
    with pytest.raises(UsageError, match=r"environment id 'math_rl' is given twice: polygym.recipes.math_rl:load_env"):
        list_environments()


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("x = (", {}, r"cannot be imported: SyntaxError: .*broken\.py, line 1"),
        (
            "import os\nraise RuntimeError('no key')",
            {},
            r"cannot be imported: RuntimeError: no key \(.*broken\.py, line 2",
        ),
        ("from polygym import Nothing", {}, r"cannot be imported: ImportError: .*broken\.py, line 1"),
        ("import no_such_package", {}, "no module named 'no_such_package'"),
        ("def load_environment():\n    return 1 / 0", {}, r"raised ZeroDivisionError: .*broken\.py, line 2"),
        ("def load_environment(n):\n    return range(n)", {"n": "x"}, r"raised TypeError: .*broken\.py, line 2"),
        ("def load_environment():\n    return open('gone.jsonl')", {}, r"raised FileNotFoundError: .*gone\.jsonl"),
    ],
)
@pytest.mark.parametrize("as_path", [False, True])
def test_an_environment_whose_code_fails_is_told_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, arguments: dict[str, Any], message: str, as_path: bool
) -> None:
    (tmp_path / "broken.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    with pytest.raises(UsageError, match=message) as caught:
        load_environment("./broken.py" if as_path else "broken:load_environment", **arguments)
    assert "\n" not in str(caught.value)


def test_a_function_that_is_not_there_is_answered_with_those_that_the_module_defines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("from pathlib import Path\ndef load():\n    pass\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"no function 'load_environment'; .*Allowed: load$"):
        load_environment("./mine.py")
