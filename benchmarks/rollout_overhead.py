"""What a rollout costs beside its policy: CPU time of this process for each rollout, everything in.

    python benchmarks/rollout_overhead.py                        # 3 environments x 200 tasks x 4, both ways
    python benchmarks/rollout_overhead.py --tasks 5 --repeats 1  # a quick look

The environments are the three of `multi_env`, asked by a policy that answers at once: math in 1 turn, tools in 3 (two
calls, then the answer), word in 5 (it opens with one guess), so 7,200 policy calls for 2,400 rollouts. A measure is
one `evaluate` with its output files, from the sample of tasks to the summary; the best of the repeats counts, because
whatever else the machine does only adds.

Plain numbers are graded by an exact comparison and are part of the measure. Other answers go to math-verify in grader
processes, which cost no time here: what one verdict takes is reported beside it.

Prints a table on standard error and JSON on standard output. Exits with 1 when a limit is not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from polygym.collect.evaluate import evaluate_async
from polygym.environments import Environment
from polygym.messages import Message, ToolCall
from polygym.policies.base import Policy, Request
from polygym.policies.openai import OpenAIPolicy
from polygym.recipes.math_rl.math_rl import SYSTEM_PROMPT as MATH
from polygym.recipes.multi_env import load_environment
from polygym.recipes.tool_use.tool_use import SYSTEM_PROMPT as TOOLS
from polygym.recipes.word_game.word_game import SYSTEM_PROMPT as WORD
from polygym.rewards.math import equivalent
from polygym.rollout import Turn, Usage
from polygym.tables import plain_table

IN_PROCESS_LIMIT_MS = 0.5
HTTP_LIMIT_MS = 2.5
TASKS = 200
ROLLOUTS = 4
TURNS = {"math": 1, "tools": 3, "word": 5}

_CALL = {"name": "count_words", "arguments": {"text": "one two three"}}
REPLIES: dict[str, list[str | list[dict[str, Any]]]] = {
    MATH: ["The answer is \\boxed{12}."],
    TOOLS: [[_CALL], [_CALL], "3"],
    WORD: ["<guess>fuzzy</guess>"],
}
"""What the policy says turn by turn, by system prompt; the last reply is repeated."""


class InstantPolicy(Policy):
    """Answers from `REPLIES` at once."""

    name = "instant"
    version = 0
    wants_task = False

    def __init__(self) -> None:
        self.calls = 0
        self._turns = {prompt: [_turn(reply) for reply in replies] for prompt, replies in REPLIES.items()}

    async def complete(self, request: Request) -> Turn:
        """The next reply; which one is told by the number of messages: the prompt has two, a turn adds two."""
        self.calls += 1
        turns = self._turns[request.messages[0].content]
        return turns[min(len(request.messages) // 2, len(turns)) - 1]


def _turn(reply: str | list[dict[str, Any]]) -> Turn:
    if isinstance(reply, str):
        return Turn(Message("assistant", reply), usage=Usage(50, 10))
    calls = tuple(ToolCall(call["name"], call["arguments"], id=f"call_{place}") for place, call in enumerate(reply))
    return Turn(Message("assistant", tool_calls=calls), usage=Usage(50, 10))


def environments(tasks: int) -> Environment:
    """Math, tools and the word game, with at least `tasks` held-out tasks each."""
    sizes = {f"{name}_examples": tasks for name in TURNS}
    return load_environment(**sizes, eval_examples=tasks, word_args={"openings": 1})  # type: ignore[arg-type]


def measure(environment: Environment, policy: Policy, tasks: int, rollouts: int, repeats: int) -> dict[str, Any]:
    """CPU-ms and wall-ms of a rollout: the best of `repeats`, after one small evaluation that warms everything up."""
    return asyncio.run(_measure(environment, policy, tasks, rollouts, repeats))


async def _measure(environment: Environment, policy: Policy, tasks: int, rollouts: int, repeats: int) -> dict[str, Any]:
    cpu_seconds, wall_seconds = [], []
    await evaluate_async(environment, policy, num_examples=1, rollouts_per_example=1)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(repeats):
            output = Path(folder) / f"out{number}"
            wall, cpu = time.perf_counter(), time.process_time()
            results = await evaluate_async(
                environment, policy, num_examples=tasks, rollouts_per_example=rollouts, output=output
            )
            cpu_seconds.append(time.process_time() - cpu)
            wall_seconds.append(time.perf_counter() - wall)
    await policy.close()
    found = results.environments
    turns = {name: summary.turns_mean for name, summary in found.items()}
    if turns != TURNS or any(summary.unscored for summary in found.values()):
        raise SystemExit(f"episodes did not go as planned: turns {turns}, not {TURNS}, or unscored ones:\n{results}")
    played = len(results.rollouts)
    return {
        "rollouts": played,
        "policy_calls": sum(TURNS.values()) * tasks * rollouts,
        "cpu_ms_per_rollout": round(min(cpu_seconds) / played * 1e3, 4),
        "wall_ms_per_rollout": round(min(wall_seconds) / played * 1e3, 4),
        "grading_ms_per_rollout": round(
            sum(rollout.seconds["grading"] for rollout in results.rollouts) / played * 1e3, 4
        ),
    }


def measure_grading(verdicts: int) -> dict[str, Any]:
    """Wall-ms of one verdict: a plain number (exact comparison), and a polynomial (math-verify in a process)."""

    async def timed(gold: str, form: str) -> float:
        await equivalent(gold, form.format(0))  # starts the grader processes
        started = time.perf_counter()
        for number in range(1, verdicts + 1):
            await equivalent(gold, form.format(number))
        return round((time.perf_counter() - started) / verdicts * 1e3, 4)

    async def both() -> dict[str, Any]:
        return {
            "plain_number_wall_ms": await timed("12", "\\boxed{{{0}}}"),
            "math_verify_wall_ms": await timed("x^2 + 3x", "\\boxed{{x(x + {0})}}"),
        }

    return asyncio.run(both())


@contextmanager
def instant_server() -> Iterator[str]:
    """The address of an OpenAI-compatible server that gives the same replies, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        replies = Path(folder) / "replies.json"
        replies.write_text(json.dumps(REPLIES), "utf-8")
        script = Path(__file__).with_name("instant_server.py")
        server = subprocess.Popen([sys.executable, script, "--replies", replies], stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        finally:
            server.kill()
            server.communicate()


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and say whether the limits are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=TASKS, help="held-out tasks of each environment")
    parser.add_argument("--rollouts", type=int, default=ROLLOUTS, help="rollouts of each task")
    parser.add_argument("--repeats", type=int, default=3, help="measurements, of which the best counts")
    options = parser.parse_args(argv)

    environment = environments(options.tasks)
    sizes = (options.tasks, options.rollouts, options.repeats)
    report: dict[str, Any] = {"in_process": measure(environment, InstantPolicy(), *sizes)}
    os.environ.setdefault("OPENAI_API_KEY", "none")
    with instant_server() as address:
        report["http"] = measure(environment, OpenAIPolicy("instant", address), *sizes)
    report["in_process"]["limit_cpu_ms"] = IN_PROCESS_LIMIT_MS
    report["http"]["limit_cpu_ms"] = HTTP_LIMIT_MS
    report["grading"] = measure_grading(verdicts=min(100, options.tasks))

    columns = [
        "rollouts",
        "policy_calls",
        "cpu_ms_per_rollout",
        "limit_cpu_ms",
        "wall_ms_per_rollout",
        "grading_ms_per_rollout",
    ]
    rows = [[name, *(str(report[name][column]) for column in columns)] for name in ("in_process", "http")]
    print(plain_table(["policy", *columns], rows), file=sys.stderr)
    print("a verdict: " + ", ".join(f"{name} {value}" for name, value in report["grading"].items()), file=sys.stderr)
    print(json.dumps(report, indent=2))
    return int(
        any(report[name]["cpu_ms_per_rollout"] > report[name]["limit_cpu_ms"] for name in ("in_process", "http"))
    )


if __name__ == "__main__":
    sys.exit(main())
