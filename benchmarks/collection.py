"""What collecting costs beside what is collected: CPU time, memory, latency, and what kills leave behind.

    python benchmarks/collection.py                              # everything, a quarter of an hour on two cores
    python benchmarks/collection.py overhead memory --rows 2000  # a quick look at two parts

- `overhead`: CPU time of the collector for a row played by an agent that answers at once, with its files, against that
  of as many bare aiohttp calls with the same bodies and the same answers, decoded; the best of the repeats counts,
  because whatever else the machine does only adds.
- `memory`: resident memory of a collector while it collects 100,000 rows from such an agent, and of an evaluation in
  process with a policy that answers at once, after each tenth; what grows behind the first tenth is told.
- `concurrent`: 2,000 rollouts at the same time, in process with a policy that takes a second to answer, and through
  the servers of an environment (`polygym env start`) with the demonstrations as the model: errors, p99 latency, memory.
- `kills`: a collector killed at random points 20 times and gone on with (`--resume`); its output has to be that of an
  undisturbed one, row for row.

Prints a table on standard error and JSON on standard output. Exits with 1 when a limit is not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from polygym.collect.evaluate import evaluate_async
from polygym.collect.inputs import InputRows
from polygym.collect.progress import Progress
from polygym.collect.served import evaluate_rows
from polygym.environments import Environment, SingleTurnEnv
from polygym.messages import Message
from polygym.policies.base import Policy, Request
from polygym.rewards.rubric import Rubric
from polygym.rollout import Rollout, Turn, Usage
from polygym.rows import Row, dump_row
from polygym.tables import plain_table

OVERHEAD_LIMIT = 3.0
GROWTH_LIMIT_MB = 16.0  # behind the first tenth: what 100,000 rollouts leave is their numbers, 8 bytes each
ROWS = 100_000
OVERHEAD_ROWS = 10_000
CONCURRENT = 2_000
KILLS = 20
AGENT = "instant_simple_agent"
ENVIRONMENT = "example_single_tool_call"
POLYGYM = str(Path(sys.executable).parent / "polygym")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def rows(count: int) -> Iterator[Row]:
    """Rows of 1 kB."""
    for number in range(count):
        yield {
            "id": number,
            "responses_create_params": {
                "input": [{"role": "user", "content": f"Question {number}: " + "cold? " * 130}]
            },
            "expected_city": "Oslo",
            "agent_ref": {"type": "responses_api_agents", "name": (AGENT, "other_simple_agent")[number % 2]},
        }


def write_rows(path: Path, count: int) -> Path:
    """A file of rows."""
    with open(path, "wb") as file:
        file.writelines(map(dump_row, rows(count)))
    return path


def resident_mb(process: int | str = "self") -> float:
    """Resident memory of a process, in MB of 10^6 bytes."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE / 1e6


@contextmanager
def instant_agent(wait_seconds: float = 0.0) -> Iterator[str]:
    """The address of a head with agents that answer at once, in a process of its own."""
    script = Path(__file__).with_name("instant_agent.py")
    command = [sys.executable, str(script), "--wait", str(wait_seconds)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.kill()
        server.communicate()


# ------------------------------------------------------------------------------------------------------------ overhead


async def bare_calls(url: str, bodies: list[bytes], concurrency: int) -> None:
    """The same requests, without anything around them but the decoding of the answers."""
    waiting = iter(bodies)
    headers = {"Content-Type": "application/json"}

    async def work(session: aiohttp.ClientSession) -> None:
        for body in waiting:
            async with session.post(f"{url}/run", data=body, headers=headers) as response:
                found = await response.json()
                assert found["scored"]

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(work(session) for _ in range(concurrency)))


async def measure_overhead(count: int, repeats: int) -> dict[str, Any]:
    """CPU-ms of a row, collected and as a bare call."""
    collected, bare = [], []
    with tempfile.TemporaryDirectory() as folder, instant_agent() as url:
        path = write_rows(Path(folder, "rows.jsonl"), count)
        bodies = path.read_bytes().splitlines()
        for number in range(repeats):
            began = time.process_time()
            found = await evaluate_rows(
                InputRows.read(path), url, output=Path(folder, f"out{number}"), keep_rollouts=False
            )
            collected.append(time.process_time() - began)
            assert sum(summary.rollouts - summary.unscored for summary in found.environments.values()) == count
            began = time.process_time()
            await bare_calls(url, bodies, 128)
            bare.append(time.process_time() - began)
    return {
        "rows": count,
        "cpu_ms": round(min(collected) / count * 1e3, 3),
        "bare_cpu_ms": round(min(bare) / count * 1e3, 3),
        "ratio": round(min(collected) / min(bare), 2),
        "limit_ratio": OVERHEAD_LIMIT,
    }


# -------------------------------------------------------------------------------------------------------------- memory


class Memory(Progress):
    """Takes the resident memory of this process after each tenth of the rollouts."""

    def __init__(self, total: int) -> None:
        self.every, self.ended = max(1, total // 10), 0
        self.mb: list[float] = []

    def rollout(self, rollout: Rollout) -> None:
        """One more."""
        self.ended += 1
        if self.ended % self.every == 0:
            self.mb.append(round(resident_mb(), 1))

    def report(self, seconds: float) -> dict[str, Any]:
        """What was taken."""
        return {
            "rollouts": self.ended,
            "seconds": round(seconds, 1),
            "mb": self.mb,
            "growth_mb": round(max(self.mb) - self.mb[0], 1),
            "limit_growth_mb": GROWTH_LIMIT_MB,
        }


class AfterSeconds(Policy):
    """Answers right after some seconds."""

    name = "after"
    version = 0
    wants_task = False

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def complete(self, request: Request) -> Turn:
        """The answer."""
        if self.seconds:
            await asyncio.sleep(self.seconds)
        return Turn(Message("assistant", "right"), usage=Usage(50, 10))


def exact(completion: str, answer: str) -> float:
    """1 for the answer."""
    return float(completion == answer)


def environment(tasks: int) -> Environment:
    """One with held-out tasks."""
    dataset = [{"question": f"Question {number}: " + "cold? " * 20, "answer": "right"} for number in range(tasks + 1)]
    return SingleTurnEnv(dataset[:1], eval_dataset=dataset[1:], rubric=Rubric([exact]), name="questions")


def alone(part: str, count: int) -> dict[str, Any]:
    """A measure of memory in a process of its own, which begins small."""
    command = [sys.executable, __file__, part, "--rows", str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def memory_of_rows(count: int) -> dict[str, Any]:
    """While rows are collected."""
    with tempfile.TemporaryDirectory() as folder, instant_agent() as url:
        path = write_rows(Path(folder, "rows.jsonl"), count)
        watched, began = Memory(count), time.monotonic()
        source = InputRows.read(path)
        await evaluate_rows(source, url, output=Path(folder, "out"), progress=watched, keep_rollouts=False)
        return watched.report(time.monotonic() - began)


async def memory_in_process(count: int) -> dict[str, Any]:
    """While an environment is evaluated."""
    asked = environment(count // 10)
    with tempfile.TemporaryDirectory() as folder:
        watched, began = Memory(count // 10 * 10), time.monotonic()
        await evaluate_async(
            asked,
            AfterSeconds(0.0),
            rollouts_per_example=10,
            output=Path(folder, "out"),
            progress=watched,
            keep_rollouts=False,
        )
        return watched.report(time.monotonic() - began)


# ---------------------------------------------------------------------------------------------------------- concurrent


async def concurrent_in_process(count: int) -> dict[str, Any]:
    """So many rollouts at the same time, of a policy that takes a second."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        found = await evaluate_async(
            environment(count),
            AfterSeconds(1.0),
            rollouts_per_example=1,
            concurrency=count,
            output=Path(folder, "out"),
        )
    return latency(found.environments, time.monotonic() - began)


async def concurrent_served(count: int) -> dict[str, Any]:
    """So many rollouts at the same time through the servers of an environment."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
        probe.close()
        environ = {**os.environ, "XDG_STATE_HOME": folder}
        path = Path(folder, "rows.jsonl")

        def polygym(*arguments: str) -> str:
            return subprocess.run(
                [POLYGYM, *arguments], env=environ, stdout=subprocess.PIPE, text=True, check=True
            ).stdout

        polygym("data", "export", ENVIRONMENT, "-n", str(count), "-o", str(path))
        start = ["env", "start", "--detach", "--head-port", port, "--model-type", "oracle_model"]
        polygym(*start, "--resources-server", ENVIRONMENT)
        try:
            (stack,) = json.loads(polygym("env", "status", "--json", "--head-port", port))
            began = time.monotonic()
            source = InputRows.read(path, agent=f"{ENVIRONMENT}_simple_agent")
            found = await evaluate_rows(
                source, f"http://127.0.0.1:{port}", concurrency=count, output=Path(folder, "out"), keep_rollouts=False
            )
            seconds = time.monotonic() - began
            servers = {server["name"]: round(resident_mb(server["pid"]), 1) for server in stack["servers"]}
        finally:
            polygym("env", "stop", "--head-port", port)
    return {**latency(found.environments, seconds), "servers_mb": servers}


def latency(environments: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """What is told of one environment's rollouts."""
    (found,) = environments.values()
    return {
        "rollouts": found.rollouts,
        "unscored": found.unscored,
        "seconds": round(seconds, 2),
        "median_seconds": round(found.seconds.median, 2),
        "p99_seconds": round(found.seconds_p99, 2),
        "mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, 1),
    }


# --------------------------------------------------------------------------------------------------------------- kills


def kills(count: int) -> dict[str, Any]:
    """Kill a collector so many times, and compare what comes of it with an undisturbed one."""
    with tempfile.TemporaryDirectory() as folder, instant_agent(0.02) as url:
        path = write_rows(Path(folder, "rows.jsonl"), 2000)
        port = url.rpartition(":")[2]
        draw = random.Random(0)

        def collector(output: str) -> subprocess.Popen[bytes]:
            command = [POLYGYM, "eval", "run", "--no-serve", "--head-port", port, "-i", str(path), "--resume"]
            command += ["--concurrency", "8", "-r", "2", "-o", str(Path(folder, output))]
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        assert collector("whole").wait() == 0
        output = Path(folder, "out.jsonl")
        torn = 0
        for _ in range(count):
            process = collector("out")
            before = output.stat().st_size if output.exists() else 0
            wanted = before + draw.randrange(1, 400_000)
            while process.poll() is None and (not output.exists() or output.stat().st_size < wanted):
                time.sleep(0.001)
            process.kill()
            process.wait()
            torn += not output.read_bytes().endswith(b"\n")
        code = collector("out").wait()
        whole, gone_on = (_comparable(Path(folder, f"{name}.jsonl")) for name in ("whole", "out"))
    return {"kills": count, "torn_lines": torn, "rows": len(gone_on), "same": code == 0 and whole == gone_on}


def _comparable(path: Path) -> list[str]:
    """The rows in one order, without their times."""
    return sorted(
        json.dumps({**json.loads(line), "seconds": None}, sort_keys=True) for line in path.read_bytes().splitlines()
    )


PARTS = ("overhead", "memory", "concurrent", "kills")


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and say whether the limits are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--rows", type=int, default=ROWS, help="rows whose memory is taken; a tenth for the overhead")
    parser.add_argument("--concurrent", type=int, default=CONCURRENT, help="rollouts at the same time")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--repeats", type=int, default=3, help="measurements of the overhead, of which the best counts")
    options = parser.parse_args(argv)
    inner = {"memory-rows": memory_of_rows, "memory-in-process": memory_in_process}
    if options.parts and options.parts[0] in inner:  # this process is the one that is measured
        print(json.dumps(asyncio.run(inner[options.parts[0]](options.rows))))
        return 0
    wanted = options.parts or PARTS
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"unknown part {sorted(unknown)}; parts are {', '.join(PARTS)}")
    report: dict[str, Any] = {}
    if "overhead" in wanted:
        report["overhead"] = asyncio.run(measure_overhead(max(100, options.rows // 10), options.repeats))
    if "memory" in wanted:
        report["memory_rows"] = alone("memory-rows", options.rows)
        report["memory_in_process"] = alone("memory-in-process", options.rows)
    if "concurrent" in wanted:
        report["concurrent_in_process"] = asyncio.run(concurrent_in_process(options.concurrent))
        report["concurrent_served"] = asyncio.run(concurrent_served(options.concurrent))
    if "kills" in wanted:
        report["kills"] = kills(options.kills)
    lines = [[part, name, str(value)] for part, found in report.items() for name, value in found.items()]
    print(plain_table(["part", "figure", "value"], lines), file=sys.stderr)
    print(json.dumps(report, indent=2))
    return int(not kept(report))


def kept(report: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether every limit is kept."""
    return all(
        found.get("ratio", 0) <= found.get("limit_ratio", 0)
        and found.get("growth_mb", 0) <= found.get("limit_growth_mb", 0)
        and not found.get("unscored", 0)
        and found.get("same", True)
        for found in report.values()
    )


if __name__ == "__main__":
    sys.exit(main())
