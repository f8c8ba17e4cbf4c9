"""What environments over HTTP cost beside the same environments in process.

    python benchmarks/servers.py                        # two environments x 300 rows
    python benchmarks/servers.py --rows 5 --repeats 1   # a quick look

The two example environments are started as a user starts them (`polygym env start`: 2 resources servers, 2 agents, a
model server that plays the demonstrations, and a head), asked, and stopped. Measured are

- the time from the command to all ready, and of `polygym eval run` on the 10 rows that ship with them;
- the CPU time of all processes together (servers, head and this one, which collects and writes the rows down) for a
  rollout of one and of three tool calls, and that of the same rollouts played in process; the best of the repeats
  counts, because whatever else the machine does only adds;
- the memory of each server before and after, and that of the stack in one process (`--single-process`).

Prints a table on standard error and JSON on standard output. Exits with 1 when a limit is not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polygym.collect.evaluate import evaluate_async
from polygym.collect.results import Results
from polygym.collect.served import evaluate_rows
from polygym.environments import Environment, OraclePolicy, load_environment
from polygym.environments.wire_rows import row_of
from polygym.rollout import Rollout
from polygym.rows import Row
from polygym.tables import plain_table

ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "example_single_tool_call": {},
    "example_multi_step": {"synonyms_range": [2, 2]},  # two to look up, one call to hand them in
}
TOOL_CALLS = {"example_single_tool_call": 1, "example_multi_step": 3}
CPU_LIMITS_MS = {"example_single_tool_call": 8.0, "example_multi_step": 14.0}
IN_PROCESS_LIMIT_MS = 1.0
READY_LIMIT_SECONDS = 4.0
EVAL_LIMIT_SECONDS = 2.0
SERVER_LIMIT_MB = 90.0
SINGLE_PROCESS_LIMIT_MB = 200.0
ROWS = 300
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Stack:
    """A stack that runs."""

    head_url: str
    ready_seconds: float
    servers: dict[str, int]
    """Process of each server by name."""
    head: int

    def processes(self) -> list[int]:
        """The head's process and all that it has started."""
        found = [self.head]
        for process in found:
            for children in Path(f"/proc/{process}/task").glob("*/children"):
                found += map(int, children.read_text().split())
        return found

    def cpu_seconds(self) -> float:
        """CPU time of all processes so far."""
        return sum(map(_cpu_seconds, self.processes()))

    def memory_mb(self) -> dict[str, float]:
        """Resident memory of each server and the head, in MB of 10^6 bytes."""
        return {name: _resident_mb(process) for name, process in {**self.servers, "head": self.head}.items()}


@contextmanager
def running_stack(folder: Path, *options: str) -> Iterator[Stack]:
    """The two environments with the oracle, started by the command and stopped at the end."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    names = [part for name in ENVIRONMENTS for part in ("--resources-server", name)]
    started = time.perf_counter()
    polygym(folder, "env", "start", "--model-type", "oracle_model", *names, "--head-port", port, "--detach", *options)
    ready_seconds = time.perf_counter() - started
    try:
        [told] = json.loads(polygym(folder, "env", "status", "--head-port", port, "--json"))
        servers = {server["name"]: server["pid"] for server in told["servers"]}
        yield Stack(told["url"], ready_seconds, servers, told["pid"])
    finally:
        polygym(folder, "env", "stop", "--head-port", port)


def polygym(folder: Path, *arguments: str) -> str:
    """What a command prints; its stacks are noted down in `folder` alone."""
    environ = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    command = [sys.executable, "-m", "polygym", *arguments]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def measure_cpu(stack: Stack, folder: Path, rows: int, repeats: int) -> dict[str, Any]:
    """CPU-ms and wall-ms of a rollout through the servers, and CPU-ms of the same in process."""
    return {name: asyncio.run(_measure_cpu(name, stack, folder, rows, repeats)) for name in ENVIRONMENTS}


async def _measure_cpu(name: str, stack: Stack, folder: Path, rows: int, repeats: int) -> dict[str, Any]:
    environment = load_environment(name, num_examples=rows, num_eval_examples=rows, **ENVIRONMENTS[name])
    tasks = environment.tasks("held_out")
    wire = [row_of(environment, task, agent=f"{name}_simple_agent") for task in tasks]
    await _served(wire[:5], stack, folder)
    cpu, wall, alone = [], [], []
    for _ in range(repeats):
        started, before, servers = time.perf_counter(), time.process_time(), stack.cpu_seconds()
        results = await _served(wire, stack, folder)
        cpu.append(time.process_time() - before + stack.cpu_seconds() - servers)
        wall.append(time.perf_counter() - started)
        _check(name, results.rollouts, len(wire))
        before = time.process_time()
        results = await _in_process(environment, folder)
        alone.append(time.process_time() - before)
        _check(name, results.rollouts, len(wire))
    return {
        "tool_calls": TOOL_CALLS[name],
        "rollouts": len(wire),
        "cpu_ms": round(min(cpu) / len(wire) * 1e3, 3),
        "limit_cpu_ms": CPU_LIMITS_MS[name],
        "wall_ms": round(min(wall) / len(wire) * 1e3, 3),
        "in_process_cpu_ms": round(min(alone) / len(wire) * 1e3, 3),
        "limit_in_process_cpu_ms": IN_PROCESS_LIMIT_MS,
    }


async def _served(rows: list[Row], stack: Stack, folder: Path) -> Results:
    return await evaluate_rows(rows, stack.head_url, output=folder / "served", overwrite=True)


async def _in_process(environment: Environment, folder: Path) -> Results:
    policy = OraclePolicy(environment)
    output = folder / "in_process"
    return await evaluate_async(environment, policy, rollouts_per_example=1, output=output, overwrite=True)


def _check(name: str, rollouts: list[Rollout], count: int) -> None:
    """Only rollouts that went as planned are a measure."""
    odd = [rollout for rollout in rollouts if (rollout.reward, rollout.metrics["tool_calls"]) != (1, TOOL_CALLS[name])]
    if odd or len(rollouts) != count:
        raise SystemExit(f"{name}: {len(odd)} of {count} rollouts did not go as planned; the first: {odd[:1]}")


def measure_commands(stack: Stack, folder: Path, repeats: int) -> dict[str, Any]:
    """Wall-seconds of the commands of the first steps, on the rows that ship with the environments."""
    added = [part for name in ENVIRONMENTS for part in ("--add", name)]
    polygym(folder, "data", "blend", *added, "--output", "input.jsonl")
    port = stack.head_url.rpartition(":")[2]
    arguments = ("--no-serve", "--head-port", port, "-i", "input.jsonl", "-o", "outputs.jsonl", "--overwrite")
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        polygym(folder, "eval", "run", *arguments)
        seconds.append(time.perf_counter() - started)
    rows = [json.loads(line) for line in (folder / "outputs.jsonl").read_text().splitlines()]
    if [row["reward"] for row in rows] != [1.0] * 10:
        raise SystemExit(f"eval run did not go as planned: rewards {[row['reward'] for row in rows]}")
    return {"eval_run_seconds": round(min(seconds), 3), "limit_eval_run_seconds": EVAL_LIMIT_SECONDS}


def _cpu_seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def _resident_mb(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024 / 1e6, 1)


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and say whether the limits are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS, help="rollouts of each environment in one measurement")
    parser.add_argument("--repeats", type=int, default=3, help="measurements, of which the best counts")
    options = parser.parse_args(argv)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running_stack(folder) as stack:
            before = stack.memory_mb()
            commands = measure_commands(stack, folder, options.repeats)
            rollouts = measure_cpu(stack, folder, options.rows, options.repeats)
            memory = {name: {"ready_mb": before[name], "worked_mb": mb} for name, mb in stack.memory_mb().items()}
        with running_stack(folder, "--single-process") as single:
            asyncio.run(_served_all(single, folder))
            single_mb = max(single.memory_mb().values())
    report = {
        "ready_seconds": round(stack.ready_seconds, 3),
        "limit_ready_seconds": READY_LIMIT_SECONDS,
        **commands,
        "rollouts": rollouts,
        "memory": memory,
        "limit_server_mb": SERVER_LIMIT_MB,
        "single_process_mb": single_mb,
        "limit_single_process_mb": SINGLE_PROCESS_LIMIT_MB,
    }
    columns = list(next(iter(rollouts.values())))
    rows = [[name, *(str(measured[column]) for column in columns)] for name, measured in rollouts.items()]
    print(plain_table(["environment", *columns], rows), file=sys.stderr)
    servers = [[name, str(mb["ready_mb"]), str(mb["worked_mb"])] for name, mb in memory.items()]
    print(plain_table(["server", "ready_mb", "worked_mb"], servers), file=sys.stderr)
    for key in ("ready_seconds", "eval_run_seconds", "single_process_mb"):
        print(f"{key} {report[key]} (limit {report[f'limit_{key}']:g})", file=sys.stderr)
    print(json.dumps(report, indent=2))
    return int(not kept(report))


async def _served_all(stack: Stack, folder: Path) -> None:
    rows: list[Row] = []
    for name in ENVIRONMENTS:
        environment = load_environment(name, num_examples=20, num_eval_examples=20)
        rows += [row_of(environment, task, agent=f"{name}_simple_agent") for task in environment.tasks("held_out")]
    await _served(rows, stack, folder)


def kept(report: dict[str, Any]) -> bool:
    """Whether every limit is kept."""
    rollouts = report["rollouts"].values()
    return (
        all(measured["cpu_ms"] <= measured["limit_cpu_ms"] for measured in rollouts)
        and all(measured["in_process_cpu_ms"] <= measured["limit_in_process_cpu_ms"] for measured in rollouts)
        and max(mb["worked_mb"] for mb in report["memory"].values()) <= report["limit_server_mb"]
        and all(
            report[key] <= report[f"limit_{key}"] for key in ("ready_seconds", "eval_run_seconds", "single_process_mb")
        )
    )


if __name__ == "__main__":
    sys.exit(main())
