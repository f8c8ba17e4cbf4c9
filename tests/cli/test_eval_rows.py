"""`polygym eval run --input` as a person runs it, on real stacks of servers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

POLYGYM = [str(Path(sys.executable).parent / "polygym")]
EXAMPLES = ["example_single_tool_call", "example_multi_step"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


class Workplace:
    """A folder to work in, with state of its own, and a head port that nobody else has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = str(free_port())
        self.environ = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "OMP_NUM_THREADS": "1"}

    def command(self, *arguments: str) -> dict[str, Any]:
        return {"args": [*POLYGYM, *arguments], "cwd": self.folder, "env": self.environ, "text": True}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(**self.command(*arguments), capture_output=True, timeout=120)

    def ok(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *environments: str) -> None:
        served = [word for name in environments for word in ("--resources-server", name)]
        self.ok("env", "start", "--model-type", "oracle_model", *served, "--head-port", self.port, "--detach")

    def instances(self) -> list[dict[str, Any]]:
        (stack,) = json.loads(self.ok("env", "status", "--head-port", self.port, "--json"))
        return list(stack["servers"])

    def lines(self, path: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / path).read_text("utf-8").splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    workplace = Workplace(tmp_path)
    yield workplace
    workplace.run("env", "stop", "--all")
    assert workplace.run("env", "status").returncode == 1


def processes_of(place: Workplace) -> list[str]:
    """Command lines of processes that work in the place's folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve() == place.folder:
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def test_the_rows_of_two_environments_are_played_by_servers_that_run(place: Workplace) -> None:
    place.start(*EXAMPLES)
    assert len(place.instances()) == 5
    adds = [word for name in EXAMPLES for word in ("--add", name)]
    place.ok("data", "blend", *adds, "--output", "results/blend_input.jsonl")
    given = ["--input", "results/blend_input.jsonl", "--output", "results/blend_outputs.jsonl"]
    table = place.ok("eval", "run", "--no-serve", "--head-port", place.port, *given)
    assert [line.split()[:4] for line in table.splitlines()[2:5]] == [
        ["example_single_tool_call", "5", "5", "1.000"],
        ["example_multi_step", "5", "5", "1.000"],
        ["combined", "10", "10", "1.000"],
    ]
    of_multi_step = table.split("example_multi_step")[-1].splitlines()
    assert ["reward/handed_in", "1.000"] in [line.split() for line in of_multi_step]
    assert ["original_term_minefield_hit", "0.000"] in [line.split() for line in of_multi_step]
    rows = place.lines("results/blend_outputs.jsonl")
    assert len(rows) == 10
    assert {row["environment"] for row in rows} == set(EXAMPLES)
    for row in rows:
        assert (row["schema"], row["reward"], row["scored"], row["cause"]) == (1, 1.0, True, None)
        assert row["response"]["output"][-1]["type"] == "message"
        assert row["agent_ref"]["name"] == f"{row['environment']}_simple_agent"
        assert row["turns"] == sum(message["role"] == "assistant" for message in row["messages"])
    multi = next(row for row in rows if row["environment"] == "example_multi_step")
    assert (multi["metrics"]["accuracy"], multi["accuracy"], multi["metrics"]["set_overlap"]) == (1.0, 1.0, 1.0)
    metrics = json.loads((place.folder / "results/blend_outputs_metrics.json").read_bytes())
    assert (metrics["model"], metrics["combined"]["mean_reward"]) == ("oracle", 1.0)

    # Rows that were exported, and given their agent by hand; without one they need --agent.
    for name in EXAMPLES:
        place.ok("data", "export", name)
    exported = f"resources_servers/{EXAMPLES[0]}/data/example.jsonl"
    bare = place.run("eval", "run", "--no-serve", "--head-port", place.port, "--input", exported)
    assert (bare.returncode, "5 row(s) name no agent" in bare.stderr) == (2, True)
    agent = f"{EXAMPLES[0]}_simple_agent"
    by_option = place.ok(
        "eval",
        "run",
        "--no-serve",
        "--head-port",
        place.port,
        "--input",
        exported,
        "--agent",
        agent,
        "-r",
        "2",
        "--json",
    )
    assert json.loads(by_option)["environments"][EXAMPLES[0]]["rollouts"] == 10
    with open(place.folder / "both.jsonl", "w", encoding="utf-8") as file:
        for name in EXAMPLES:
            for row in place.lines(f"resources_servers/{name}/data/example.jsonl"):
                named = {"agent_ref": {"type": "responses_api_agents", "name": f"{name}_simple_agent"}}
                file.write(json.dumps({**row, **named}) + "\n")
    again = place.ok("eval", "run", "--no-serve", "--head-port", place.port, "--input", "both.jsonl", "-o", "again")
    assert again == table


def test_what_the_rows_need_is_started_and_stopped(place: Workplace) -> None:
    place.ok("data", "blend", "--add", "word_game", "--add", "example_session_state", "-o", "rows.jsonl")
    done = place.run("eval", "run", "--input", "rows.jsonl", "--model", "oracle", "-o", "out", "--json")
    assert done.returncode == 0, done.stderr
    assert "5 servers up in" in done.stderr
    found = json.loads(done.stdout)["environments"]
    assert {name: (e["rollouts"], e["unscored"]) for name, e in found.items()} == {
        "word_game": (5, 0),
        "example_session_state": (5, 0),
    }
    assert found["example_session_state"]["mean_reward"] == 1.0
    in_process = place.ok("eval", "run", "word_game", "--model", "oracle", "-n", "5", "-r", "1", "--json")
    assert set(json.loads(in_process)["environments"]["word_game"]) == set(found["word_game"])
    again = place.run("eval", "run", "--input", "rows.jsonl", "--model", "oracle", "-o", "out")
    assert (again.returncode, "servers up" in again.stderr) == (2, False)
    assert "output 'out' holds an evaluation already (out.jsonl, " in again.stderr
    assert processes_of(place) == []


@pytest.mark.parametrize("kind", ["resources_servers", "responses_api_agents", "responses_api_models"])
def test_a_server_that_is_killed_costs_no_reward(kind: str, place: Workplace) -> None:
    place.start("example_session_state")
    place.ok("data", "export", "example_session_state", "-n", "60", "-o", "rows.jsonl")
    agent = "example_session_state_simple_agent"
    given = [
        "--no-serve",
        "--head-port",
        place.port,
        "--input",
        "rows.jsonl",
        "--agent",
        agent,
        "-r",
        "10",
        "-o",
        "out",
    ]
    running = subprocess.Popen(**place.command("eval", "run", *given), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output = place.folder / "out.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (output.exists() and output.stat().st_size):
        time.sleep(0.01)
    os.kill(next(server["pid"] for server in place.instances() if server["server_type"] == kind), signal.SIGKILL)
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 0, errors
    rows = place.lines("out.jsonl")
    assert len(rows) == 600
    assert {row["reward"] for row in rows} <= {1.0, None}
    assert sum(row["reward"] is None for row in rows) < 30
    assert {row["cause"]["class"] for row in rows if row["reward"] is None} <= {"server", "endpoint"}
    (restarted,) = (server for server in place.instances() if server["server_type"] == kind)
    assert (restarted["restarts"], restarted["status"]) == (1, "ready")


def test_an_interrupted_collection_keeps_what_it_had_and_stops_its_servers(place: Workplace) -> None:
    place.ok("data", "export", "example_session_state", "-n", "200", "-o", "rows.jsonl")
    agent = "example_session_state_simple_agent"
    given = [
        "--input",
        "rows.jsonl",
        "--agent",
        agent,
        "--model",
        "oracle",
        "-r",
        "50",
        "--concurrency",
        "2",
        "-o",
        "out",
    ]
    running = subprocess.Popen(**place.command("eval", "run", *given), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output = place.folder / "out.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (output.exists() and output.stat().st_size):
        time.sleep(0.05)
    began = time.monotonic()
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=30)
    assert time.monotonic() - began < 5
    assert (running.returncode, errors.splitlines()[-1]) == (130, "interrupted")
    assert {row["reward"] for row in place.lines("out.jsonl")} == {1.0}
    assert json.loads((place.folder / "out_metrics.json").read_bytes())["complete"] is False
    assert processes_of(place) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--input", "rows.jsonl", "--no-serve", "--head-port", "9"], "no head server answers at http://127.0.0.1:9"),
        (["--input", "rows.jsonl", "--no-serve", "--model", "oracle"], "with --no-serve, --model means nothing"),
        (["--input", "rows.jsonl", "math_rl"], "with --input, ENV_OR_CONFIG means nothing"),
        (["--input", "rows.jsonl", "-n", "3"], "with --input, -n means nothing"),
        (["math_rl", "--no-serve"], "without --input, --no-serve means nothing"),
        ([], "what is to be evaluated?"),
        (["--input", "none.jsonl"], "cannot read 'none.jsonl'"),
        (["--input", "bad.jsonl"], "row 2: the row has no responses_create_params"),
        (["--input", "lost.jsonl", "--model", "oracle"], "there is no environment 'math_rll'; did you mean 'math_rl'"),
        (["--input", "rows.jsonl", "--model-type", "oracel_model"], "did you mean 'oracle_model'"),
    ],
)
def test_a_mistake_is_told_with_its_fix_and_nothing_is_started(arguments: list[str], said: str, tmp_path: Path) -> None:
    place = Workplace(tmp_path)
    row = {"responses_create_params": {"input": "What is 1 + 1?"}, "agent_ref": {"name": "math_rl_simple_agent"}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    (tmp_path / "bad.jsonl").write_text(json.dumps(row) + '\n{"question": "x"}\n', "utf-8")
    lost = {**row, "agent_ref": {"name": "math_rll_simple_agent"}}
    (tmp_path / "lost.jsonl").write_text(json.dumps(lost) + "\n", "utf-8")
    done = place.run("eval", "run", *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert said in done.stderr
