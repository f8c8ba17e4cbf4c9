"""`polygym eval profile`, `reverify`, `aggregate` and `compare` as a person runs them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stored_rollouts import stored, write

POLYGYM = [sys.executable, "-m", "polygym"]


def polygym(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    return subprocess.run(
        [*POLYGYM, *arguments], cwd=folder, env=environ, text=True, capture_output=True, timeout=120, check=False
    )


def ok(folder: Path, *arguments: str) -> str:
    done = polygym(folder, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_evaluations_are_compared_profiled_scored_again_and_merged(tmp_path: Path) -> None:
    for name in ("one", "two"):
        ok(tmp_path, "eval", "run", "math_rl", "--model", "oracle", "-n", "5", "-r", "2", "-o", name)
    assert "math_rl" in ok(tmp_path, "eval", "compare", "one.jsonl", "two_metrics.json")
    found = json.loads(ok(tmp_path, "eval", "compare", "one.jsonl", "two_metrics.json", "--json"))
    of_math = found["environments"]["math_rl"]
    assert (of_math["tasks"], of_math["difference"], of_math["interval"], found["left_out"]) == (5, 0.0, [0.0, 0.0], [])

    assert json.loads(ok(tmp_path, "eval", "profile", "one.jsonl", "-o", "tasks.jsonl", "--json"))["math_rl"] == {
        "tasks": 5,
        "always": 5,
        "sometimes": 0,
        "never": 0,
        "unscored": 0,
        "mean_reward": 1.0,
    }
    assert len((tmp_path / "tasks.jsonl").read_text("utf-8").splitlines()) == 5

    told = ok(tmp_path, "eval", "reverify", "one.jsonl", "-o", "again")
    assert told.splitlines()[-1] == "math_rl: 0 of 10 rewards changed"
    assert "majority@2" in told

    told = ok(tmp_path, "eval", "aggregate", "two.jsonl", "one.jsonl", "-o", "all")
    assert told.splitlines()[-1] == ("10 rows are of rollouts that stand there more than once; one of each was taken")
    assert json.loads((tmp_path / "all_metrics.json").read_bytes())["model"] == "oracle"


def test_mistakes_are_one_line_and_exit_code_2(tmp_path: Path) -> None:
    write(tmp_path / "x.jsonl", [stored("word_gam", 1, 0, 1.0)])
    write(tmp_path / "old.jsonl", [stored("a", 1, 0, 1.0) | {"schema": 0}])
    for arguments, words in (
        (["profile", "none.jsonl", "-o", "p"], "none.jsonl"),
        (["profile", "x.jsonl", "-o", "x.jsonl"], "is the file that is read"),
        (["profile", "old.jsonl", "-o", "p"], "line 1: the rollout has schema 0"),
        (["reverify", "x.jsonl", "-o", "y"], "or give the environment or config that was evaluated"),
        (["reverify", "x.jsonl", "math_rl", "-o", "y"], "'word_gam', which is not given"),
        (["reverify", "x.jsonl", "-o", "y", "--set", "a=1"], "--set means nothing"),
        (["reverify", "x.jsonl", "math_rl", "-o", "y", "--head-port", "1"], "ENV_OR_CONFIG means nothing"),
        (["aggregate", "x.jsonl", "x.jsonl", "-o", "y"], "given twice"),
        (["compare", "x.jsonl", "y_metrics.json"], "y_metrics.json"),
    ):
        done = polygym(tmp_path, "eval", *arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert words in done.stderr


def test_a_merge_in_which_a_reward_is_missing_ends_with_exit_code_1(tmp_path: Path) -> None:
    write(tmp_path / "x.jsonl", [stored("a", 1, 0, 1.0), stored("b", 1, 0, None)])
    done = polygym(tmp_path, "eval", "aggregate", "x.jsonl", "-o", "all")
    assert (done.returncode, done.stderr) == (
        1,
        "error: no reward for 1 of 2 rollouts (b 1 of 1); the causes stand with the results\n",
    )


def test_a_merge_of_a_collection_that_was_stopped_says_so_and_ends_with_exit_code_1(tmp_path: Path) -> None:
    for name, complete in (("x", False), ("y", True)):
        write(tmp_path / f"{name}.jsonl", [stored(name, 1, 0, 1.0)])
        told = {"environments": {}, "model": "nano", "complete": complete}
        (tmp_path / f"{name}_metrics.json").write_text(json.dumps(told), "utf-8")
    done = polygym(tmp_path, "eval", "aggregate", "x.jsonl", "y.jsonl", "-o", "all")
    assert done.stdout.splitlines()[-1] == "x.jsonl is of a collection that was stopped before its end"
    assert done.returncode == 1
    assert done.stderr == (
        "error: 1 of 2 collections were stopped before their end; go on with them (polygym eval run --resume), and "
        "merge again\n"
    )
    assert json.loads((tmp_path / "all_metrics.json").read_bytes())["complete"] is False


def test_a_profile_replaces_a_file_only_when_it_is_told_to(tmp_path: Path) -> None:
    write(tmp_path / "x.jsonl", [stored("a", 1, 0, 1.0)])
    (tmp_path / "x_metrics.json").write_text("{}", "utf-8")
    done = polygym(tmp_path, "eval", "profile", "x.jsonl", "-o", "x_metrics.json")
    assert (done.returncode, done.stderr) == (
        2,
        "error: output 'x_metrics.json' is there already; give another one (-o), or replace it (--overwrite)\n",
    )
    assert (tmp_path / "x_metrics.json").read_text("utf-8") == "{}"
    ok(tmp_path, "eval", "profile", "x.jsonl", "-o", "x_metrics.json", "--overwrite")
    assert json.loads((tmp_path / "x_metrics.json").read_bytes())["task_id"] == 1


def rollouts(path: Path) -> dict[tuple[str, int, int], dict[str, object]]:
    rows = map(json.loads, path.read_text("utf-8").splitlines())
    return {(row["environment"], row["task_id"], row["rollout_index"]): row for row in rows}


@pytest.fixture
def port(tmp_path: Path) -> Iterator[str]:
    """Port of the head of a stack with the oracle."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        free = str(listening.getsockname()[1])
    names = ("example_single_tool_call", "example_multi_step")
    served = [word for name in names for word in ("--resources-server", name)]
    ok(tmp_path, "env", "start", "--model-type", "oracle_model", *served, "--head-port", free, "--detach")
    try:
        yield free
    finally:
        polygym(tmp_path, "env", "stop", "--head-port", free)


def test_rollouts_of_servers_are_scored_again_by_servers_and_in_process(tmp_path: Path, port: str) -> None:
    names = ("example_single_tool_call", "example_multi_step")
    ok(tmp_path, "data", "blend", *(word for name in names for word in ("--add", name)), "--output", "rows.jsonl")
    run = ("eval", "run", "--input", "rows.jsonl", "--no-serve", "--head-port", port, "-r", "2")
    ok(tmp_path, *run, "--output", "out")
    lines = (tmp_path / "out.jsonl").read_text("utf-8").splitlines()
    for name, arguments in {"served": ["--head-port", port], "here": []}.items():
        told = ok(tmp_path, "eval", "reverify", "out.jsonl", "-o", name, *arguments)
        assert told.count(f"0 of {len(lines) // 2} rewards changed") == 2
        assert rollouts(tmp_path / f"{name}.jsonl") == rollouts(tmp_path / "out.jsonl")
    # a curriculum: the rows of tasks that were solved are rows to be played again
    ok(tmp_path, "eval", "profile", "out.jsonl", "-o", "tasks.jsonl")
    rows = [json.loads(line)["row"] for line in (tmp_path / "tasks.jsonl").read_text("utf-8").splitlines()]
    write(tmp_path / "again_rows.jsonl", rows)
    assert len(rows) == len(lines) // 2
    ok(tmp_path, "eval", "run", "--input", "again_rows.jsonl", "--no-serve", "--head-port", port, "--output", "again")
