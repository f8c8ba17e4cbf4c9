"""The command line: what every command owes its user."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import typer

from polygym.cli.main import app, main
from polygym.errors import GraderError, PolicyError, UsageError

COMMANDS = [
    f"{group.name} {command.name}"
    for group in app.registered_groups
    if group.typer_instance is not None
    for command in group.typer_instance.registered_commands
] + [command.name or "" for command in app.registered_commands]


def polygym(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "polygym", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)  # type: ignore[call-overload]


def exit_code_of(*arguments: str) -> object:
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    return left.value.code


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_has_an_example_of_it(command, capsys):
    assert len(COMMANDS) > 12
    assert exit_code_of(*command.split(), "--help") == 0
    assert f"Example: polygym {command} " in capsys.readouterr().out.replace("\n", " ") + " "


def test_help_lists_every_noun_and_loads_nothing_heavy():
    code = "import sys; from polygym.cli.main import main\ntry: main(['--help'])\nfinally: print(sorted(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for noun in ("env", "data", "plan", "eval", "sft", "rl", "model"):
        assert f"\n  {noun} " in shown
    for module in ("torch", "transformers", "aiohttp", "numpy", "pydantic_settings", "polygym.environments"):
        assert f"'{module}'" not in shown


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nope"], "error: No such command 'nope'; see: polygym --help"),
        (["env"], "error: Missing command; see: polygym env --help"),
        (["env", "lsit"], "error: No such command 'lsit'. Did you mean 'list'?; see: polygym env --help"),
        (
            ["eval", "run"],
            "error: what is to be evaluated? Give an environment id or a config, or rows with --input",
        ),
        (
            ["rl", "run", "--jsn", "x"],
            "error: No such option: --jsn (Possible options: --json, --set); see: polygym rl run --help",
        ),
        (
            ["eval", "run", "math_rl", "-n", "3", "--total", "9"],
            "error: num_examples=3 and total=9 exclude each other; give one of them",
        ),
        (
            ["eval", "run", "math_rl", "--num-repeats", "{math 4}"],
            (
                "error: --num-repeats '{math 4}' must be a whole number, or one for each name, each once: "
                "'{a: 4, _default: 1}'"
            ),
        ),
        (["eval", "run", "math_rl", "--changed"], "error: without --resume, --changed means nothing; leave it out"),
        (
            ["eval", "run", "math_rl", "-r", "{maths: 4}", "--limit", "1"],
            (
                "error: rollouts_per_example is given for 'maths', which is unknown; did you mean 'math_rl'? "
                "Allowed: _default, math_rl"
            ),
        ),
        (
            ["env", "show", "math_rl", "--set", "twelve"],
            "error: --set 'twelve' is not of the form key=value, for example --set num_examples=20",
        ),
        (["rl", "run", "gone.toml"], "error: config file 'gone.toml' does not exist"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, line, capsys):
    assert exit_code_of(*arguments) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", line + "\n")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UsageError("weight=-1; give 0 or more"), 2, "error: weight=-1; give 0 or more\n"),
        (PolicyError("http://localhost:1 is down"), 1, "error: http://localhost:1 is down\n"),
        (GraderError("the grader died \x1b[2J"), 1, "error: the grader died \n"),
        (FileNotFoundError(2, "No such file", "x.jsonl"), 2, "error: x.jsonl: No such file\n"),
        (OSError(28, "No space left on device"), 1, "error: No space left on device\n"),
        (
            ModuleNotFoundError("No module named 'torch'", name="torch"),
            2,
            "error: this needs the package 'torch'; install it with: pip install 'polygym[train]'\n",
        ),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_what_a_command_raises_decides_the_exit_code(error, code, line, monkeypatch, capsys):
    def fail() -> None:
        raise error

    other = typer.Typer()
    other.command("fail")(fail)
    other.callback()(lambda: None)
    monkeypatch.setattr("polygym.cli.main.app", other)
    assert exit_code_of("fail") == code
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    ("loading", "command"),
    [
        ("typer", "env list"),
        ("numpy", "eval run math_rl"),
        ("torch", "eval run math_rl -n 1"),
        ("torch", "rl run multi_env --set output=run"),
        ("transformers", "rl run multi_env --set output=run"),
        ("torch", "sft run multi_env/nano --set output=run"),
    ],
)
def test_ctrl_c_while_a_library_loads_is_one_line_and_130(loading, command, tmp_path):
    code = f"""
import sys
class Loading:
    def find_spec(self, name, *rest):
        if name == "{loading}":
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt as error:
                if name == "transformers":  # which hides it
                    raise RuntimeError("cannot load") from error
                raise
sys.meta_path.insert(0, Loading())
from polygym.__main__ import main
main()
"""
    command = [sys.executable, "-c", code, *command.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_bug_of_ours_keeps_its_traceback(monkeypatch):
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'polygym.gone'", name="polygym.gone")

    other = typer.Typer()
    other.command("fail")(fail)
    other.callback()(lambda: None)
    monkeypatch.setattr("polygym.cli.main.app", other)
    with pytest.raises(ModuleNotFoundError):
        main(["fail"])


def test_the_version_is_that_of_the_package():
    from importlib.metadata import version

    assert polygym("--version").stdout == f"polygym {version('polygym')}\n"


def test_json_output_is_json_and_nothing_else():
    names = [item["name"] for item in json.loads(polygym("model", "list", "--json").stdout)]
    assert names == ["nano", "smollm2-135m", "oracle"]


def test_a_reader_that_leaves_early_gets_no_traceback():
    command = f"{sys.executable} -m polygym model list --json | head -c 1"
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("[", "")
