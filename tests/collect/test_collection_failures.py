"""What befalls a collection, with the command as a process of its own: kills, a full disk, agents that fail."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from agent_toys import FAST, OTHER, Stack, row, running_beside
from polygym.rows import Row, dump_row

POLYGYM = str(Path(sys.executable).parent / "polygym")


@pytest.fixture
def stack() -> Iterator[Stack]:
    with running_beside() as found:
        yield found


def started(stack: Stack, folder: Path, rows: list[Row], *options: str, output: str = "out") -> subprocess.Popen[str]:
    """The command that collects rows, running."""
    path = folder / "rows.jsonl"
    if not path.exists():
        path.write_bytes(b"".join(map(dump_row, rows)))
    command = [POLYGYM, "eval", "run", "--no-serve", "--head-port", str(urlsplit(stack.url).port), "-i", str(path)]
    return subprocess.Popen(
        [*command, "-o", str(folder / output), *options],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(folder / "state")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str], *, seconds: float = 60) -> tuple[int, str]:
    """Its exit code and what it told."""
    _, told = process.communicate(timeout=seconds)
    return process.returncode, told


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def metrics(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def wait_for_rows(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    while process.poll() is None and (not path.exists() or path.read_bytes().count(b"\n") < count):
        time.sleep(0.005)


@pytest.mark.slow
def test_a_collector_killed_at_random_points_and_gone_on_with_ends_as_one_that_was_not(
    stack: Stack, tmp_path: Path
) -> None:
    stack.seconds = {FAST: 0.02, OTHER: 0.01}
    rows = [row(number, "seeded", agent=(FAST, OTHER)[number % 2], note=f"n{number}") for number in range(60)]
    options = ("-r", "2", "--concurrency", "4")
    assert ended(started(stack, tmp_path, rows, *options, output="whole"))[0] == 0
    draw = random.Random(7)
    path = tmp_path / "out.jsonl"
    for _ in range(5):
        process = started(stack, tmp_path, rows, *options, "--resume")
        there = path.read_bytes().count(b"\n") if path.exists() else 0
        wait_for_rows(path, there + draw.randint(1, 20), process)
        time.sleep(draw.random() * 0.02)
        process.kill()
        process.communicate()
    code, told = ended(started(stack, tmp_path, rows, *options, "--resume"))
    assert (code, "rollouts are there already" in told) == (0, True)

    def comparable(name: str) -> list[str]:
        found = lines(tmp_path / f"{name}.jsonl")
        assert len(found) == 120
        return sorted(json.dumps(line | {"seconds": None}, sort_keys=True) for line in found)

    assert comparable("out") == comparable("whole")
    one, other = (metrics(tmp_path / f"{name}_metrics.json")["environments"] for name in ("out", "whole"))
    for name in ("fast", "other"):
        for key in ("n", "rollouts", "mean_reward", "interval", "pass_at_k", "tasks", "completion_tokens"):
            assert one[name][key] == other[name][key]
    assert [path.name for path in tmp_path.glob(".out*")] == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder that holds 64 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system of its own can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_stops_with_whole_files_that_can_be_gone_on_with(stack: Stack, small_disk: Path) -> None:
    rows = [row(number, "seeded") for number in range(120)]
    output = str(small_disk / "out")
    folder = small_disk.parent
    code, told = ended(started(stack, folder, rows, output=output))
    assert code == 1
    assert "No space left on device; what was collected is whole: make room, then go on with --resume" in told
    kept = lines(small_disk / "out.jsonl")  # no torn line
    assert 20 < len(kept) < 120
    assert "Traceback" not in told
    subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
    code, told = ended(started(stack, folder, rows, "--resume", output=output))
    assert (code, f"{len(kept)} rollouts are there already" in told) == (0, True)
    assert len(lines(small_disk / "out.jsonl")) == 120
    assert Counter(asked["id"] for asked in stack.asked).most_common(1)[0][1] <= 2


@pytest.mark.parametrize("option", ["--resume", "--overwrite"])
def test_two_collectors_do_not_write_one_output(option: str, stack: Stack, tmp_path: Path) -> None:
    stack.seconds = {FAST: 1.0}
    rows = [row(number) for number in range(8)]
    first = started(stack, tmp_path, rows, "--concurrency", "2")
    wait_for_rows(tmp_path / "out.jsonl", 1, first)
    code, told = ended(started(stack, tmp_path, rows, option))
    assert (code, "is being written by another evaluation" in told) == (2, True)
    assert ended(first)[0] == 0
    assert len(lines(tmp_path / "out.jsonl")) == 8


def test_a_row_of_an_unknown_agent_is_told_before_anything_is_played(stack: Stack, tmp_path: Path) -> None:
    rows = [row(0), row(1, agent="fsat_simple_agent")]
    code, told = ended(started(stack, tmp_path, rows))
    assert code == 2
    assert "row 2: agent 'fsat_simple_agent' is unknown; did you mean 'fast_simple_agent'?" in told
    assert stack.asked == []
    assert not (tmp_path / "out.jsonl").exists()


def test_a_row_that_no_server_accepts_costs_no_other_and_is_missing(stack: Stack, tmp_path: Path) -> None:
    rows = [row(0), row(1, "refuses"), row(2), row(3, agent=OTHER)]
    code, told = ended(started(stack, tmp_path, rows))
    assert code == 1
    assert "no reward for 1 of 4 rollouts (fast 1 of 3); the causes stand with the results; --resume plays" in told
    assert [line["reward"] for line in sorted(lines(tmp_path / "out.jsonl"), key=lambda line: line["task_id"])] == [
        0.5,
        None,
        0.5,
        0.5,
    ]
    (failure,) = lines(tmp_path / "out_failures.jsonl")
    assert (failure["task_id"], failure["class"], failure["attempts"]) == (1, "refused", 1)
    assert failure["last_error"] == "fast_simple_agent answered 422: no such key"
    assert stack.tries["1/0"] == 1
    for attempts in (2, 3, 3):
        assert ended(started(stack, tmp_path, rows, "--resume"))[0] == 1
        assert lines(tmp_path / "out_failures.jsonl")[0]["attempts"] == attempts
    assert stack.tries == {"0/0": 1, "1/0": 3, "2/0": 1, "3/0": 1}


def test_an_environment_that_fails_for_a_while_and_comes_back_loses_no_rollout(stack: Stack, tmp_path: Path) -> None:
    stack.down = {OTHER}
    rows = [row(number, agent=(FAST, OTHER)[number % 2]) for number in range(40)]
    process = started(stack, tmp_path, rows)
    wait_for_rows(tmp_path / "out.jsonl", 20, process)
    time.sleep(4.5)
    assert {line["environment"] for line in lines(tmp_path / "out.jsonl")} == {"fast"}  # the others were not held up
    stack.down = set()
    code, told = ended(process)
    assert code == 0
    assert "other_simple_agent fails and is waited for: the resources server is gone" in told
    assert "other_simple_agent works again" in told
    assert len(lines(tmp_path / "out.jsonl")) == 40


@pytest.mark.slow
def test_an_environment_that_fails_for_longer_is_played_to_its_end_while_others_are(
    stack: Stack, tmp_path: Path
) -> None:
    stack.down = {OTHER}
    stack.seconds = {FAST: 1.0}
    rows = [row(number, agent=(FAST, OTHER)[number % 2]) for number in range(120)]
    process = started(stack, tmp_path, rows, "--concurrency", "2")
    time.sleep(39)  # it is waited for 35 seconds; then both workers play the other, for 12 seconds more
    stack.down = set()
    code, told = ended(process, seconds=120)
    assert "has failed for" in told
    assert (code, len(lines(tmp_path / "out.jsonl"))) == (0, 120)


@pytest.mark.slow
def test_a_dead_agent_is_told_once_and_its_rest_is_not_waited_for(stack: Stack, tmp_path: Path) -> None:
    stack.down = {FAST}
    rows = [row(number) for number in range(300)]
    began = time.monotonic()
    code, told = ended(started(stack, tmp_path, rows))
    assert time.monotonic() - began < 45
    assert (code, told.count("is not waited for")) == (1, 1)
    failures = lines(tmp_path / "out_failures.jsonl")
    assert len(failures) == 300
    # Those that were not begun have no attempt against them.
    assert sum(failure["attempts"] for failure in failures) <= 128
    assert sum("this rollout was not begun" in failure["last_error"] for failure in failures) >= 172
    stack.down = set()
    assert ended(started(stack, tmp_path, rows, "--resume"))[0] == 0


@pytest.mark.slow
def test_an_environment_fifty_times_slower_holds_up_no_other(stack: Stack, tmp_path: Path) -> None:
    stack.seconds = {FAST: 0.02, OTHER: 1.0}
    rows = [row(number, agent=(FAST, OTHER)[number % 4 == 0]) for number in range(160)]
    process = started(stack, tmp_path, rows, "--concurrency", "8")
    code, _ = ended(process)
    assert code == 0
    order = [line["environment"] for line in lines(tmp_path / "out.jsonl")]
    last_fast = len(order) - 1 - order[::-1].index("fast")
    assert order[:last_fast].count("other") <= 8  # 120 of fast through 4 workers, while other ends one or two rounds


def test_a_collector_that_is_interrupted_keeps_what_it_had_and_goes_on(stack: Stack, tmp_path: Path) -> None:
    stack.seconds = {FAST: 0.05}
    rows = [row(number) for number in range(40)]
    process = started(stack, tmp_path, rows, "--concurrency", "2")
    wait_for_rows(tmp_path / "out.jsonl", 5, process)
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
    found = metrics(tmp_path / "out_metrics.json")
    assert (found["complete"], found["environments"]["fast"]["rollouts"]) == (False, len(lines(tmp_path / "out.jsonl")))
    assert ended(started(stack, tmp_path, rows, "--resume"))[0] == 0
    assert metrics(tmp_path / "out_metrics.json")["complete"] is True
    assert len({line["task_id"] for line in lines(tmp_path / "out.jsonl")}) == len(lines(tmp_path / "out.jsonl")) == 40
