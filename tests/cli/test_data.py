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


def test_rows_are_prepared_blended_split_and_counted(tmp_path: Path) -> None:
    assert polygym(tmp_path, "data", "export", "math_rl", "-n", "30", "-o", "raw.jsonl").returncode == 0
    good = (tmp_path / "raw.jsonl").read_text("utf-8")
    (tmp_path / "raw.jsonl").write_text(good + '{"id": "x", "responses_create_params": {"input": "?"}}\n{torn', "utf-8")
    done = polygym(tmp_path, "data", "prepare", "raw.jsonl", "--environment", "math_rl", "-o", "math.jsonl.gz")
    assert (done.returncode, done.stdout) == (1, "30 rows in math.jsonl.gz\n")
    first, second, last = done.stderr.splitlines()
    assert first.startswith("raw.jsonl, line 31: environment 'math_rl' cannot play it: ")
    assert second.startswith("raw.jsonl, line 32: not JSON")
    assert last == "error: 2 of 32 rows are bad and were left out"

    adds = ["--add", "math_rl=math.jsonl.gz=0.75", "--add", "tool_use=0.25"]
    amounts = ["--count", "40", "--shuffle", "--seed", "4", "--json"]
    done = polygym(tmp_path, "data", "blend", *adds, *amounts, "-o", "blend.parquet")
    assert json.loads(done.stdout) == {
        "output": "blend.parquet",
        "rows": 40,
        "agents": {"tool_use_simple_agent": 10, "math_rl_simple_agent": 30},
        "manifest": "blend.parquet.manifest.json",
    }
    done = polygym(tmp_path, "data", "split", "blend.parquet", "--held-out", "2", "-o", "sides", "--json")
    split = json.loads(done.stdout)
    assert split["train"] == "sides/blend.train.parquet"
    assert split["environments"]["tool_use"] == {
        "train_rows": 6, "train_tasks": 3, "held_out_rows": 4, "held_out_tasks": 2
    }  # fmt: skip
    done = polygym(tmp_path, "data", "stats", split["train"], "--held-out", split["held_out"])
    assert done.stdout.splitlines()[0].split() == [
        "environment", "rows", "tasks", "duplicates", "words", "most", "tools", "turns", "in", "held-out"
    ]  # fmt: skip
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()[2:]}
    assert lines["math_rl"][:3] == ["28", "28", "0"]
    assert (lines["tool_use"][:3], lines["tool_use"][-1]) == (["6", "3", "3"], "0")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["blend", "--add", "math_rl=0", "-o", "x"], "more than 0"),
        (["blend", "--add", "math_rl", "-o", "x", "--seed", "3"], "give --shuffle too"),
        (["blend", "--add", "math_rl", "-o", "x", "--interleave", "--order", "concat"], "contradict each other"),
        (
            ["blend", "--add", "math_rl", "-o", "x", "--count", "1.5"],
            "at least 1, or NAME=INTEGER",
        ),
        (["blend", "--add", "math_rl", "-o", "x", "--count", "0"], "--count '0' must be an integer of at least 1"),
        (["blend", "--add", "math_rl", "-o", "x", "--epochs", "0"], "--epochs '0' must be an integer of at least 1"),
        (
            ["blend", "--add", "math_rl", "-o", "x", "--count", "math_rl=0"],
            "'math_rl=0' must be an integer of at least",
        ),
        (
            ["blend", "--add", "math_rl", "-o", "x", "--count", "4", "--count", "math_rl=4"],
            "one number, or one",
        ),
        (["blend", "--add", "math_rl", "-o", "x", "--epochs", "4", "--epochs", "5"], "--epochs is given twice"),
        (["prepare", "none.jsonl", "-o", "x"], "cannot read 'none.jsonl'"),
        (["prepare", "none.jsonl", "-o", "x", "--set", "a=1"], "give --environment ID"),
        (["split", "none.jsonl", "--held-out", "0"], "must be a fraction below 1"),
        (["stats", "none.jsonl"], "cannot read 'none.jsonl'"),
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
