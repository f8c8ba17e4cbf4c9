"""`polygym data` as a person runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

POLYGYM = [str(Path(sys.executable).parent / "polygym")]


def polygym(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*POLYGYM, *arguments], cwd=folder, capture_output=True, text=True, timeout=120)


def test_example_rows_are_blended_and_exported(tmp_path: Path) -> None:
    adds = ["--add", "example_single_tool_call", "--add", "example_multi_step"]
    done = polygym(tmp_path, "data", "blend", *adds, "--output", "results/blend_input.jsonl")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "10 rows in results/blend_input.jsonl: example_single_tool_call_simple_agent 5, "
        "example_multi_step_simple_agent 5\n"
    )
    assert polygym(tmp_path, "data", "export", "example_multi_step").returncode == 0
    exported = (tmp_path / "resources_servers/example_multi_step/data/example.jsonl").read_text("utf-8").splitlines()
    blended = [json.loads(line) for line in (tmp_path / "results/blend_input.jsonl").read_text("utf-8").splitlines()]
    of_it = [row for row in blended if row.pop("agent_ref")["name"].startswith("example_multi_step")]
    assert [json.loads(line) for line in exported] == of_it


def test_any_number_of_rows_is_written_with_arguments(tmp_path: Path) -> None:
    arguments = ["-n", "12", "--seed", "3", "--set", 'tools=["calculate"]', "-o", "rows.jsonl", "--json"]
    done = polygym(tmp_path, "data", "export", "tool_use", *arguments)
    assert json.loads(done.stdout) == {"output": "rows.jsonl", "rows": 12}
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text("utf-8").splitlines()]
    assert {row["tool"] for row in rows} == {"calculate"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["blend", "--add", "math_rl=0", "-o", "x"], "more than 0"),
        (["blend", "-o", "x"], "--add"),
        (["export", "math_rl", "--seed", "3"], "give -n NUMBER"),
        (["export", "math_rl", "-o", "/proc/no/x"], "cannot write '/proc/no/x'"),
        (["export", "mathrl"], "did you mean 'math_rl'"),
    ],
)
def test_a_mistake_is_told_with_its_fix(arguments: list[str], said: str, tmp_path: Path) -> None:
    done = polygym(tmp_path, "data", *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr
