"""Collecting the rollouts of wire rows through agent servers.

The one idea: a row is played where it says. It goes to the agent that it names, equal rows are more rollouts of one
task, and what comes back is counted and saved like any evaluation; a server that fails leaves rollouts unscored, never
at 0, after it was given another chance.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polygym.collect.agents import Agent, Agents, Reply
from polygym.collect.evaluate import DEFAULT_TIMEOUT_SECONDS
from polygym.collect.line import DEFAULT_CONCURRENCY, check_concurrency, work_off
from polygym.collect.progress import Progress
from polygym.collect.record import Keep, recorded
from polygym.collect.results import Results
from polygym.collect.store import EvaluationFiles
from polygym.collect.wire_rollout import fill
from polygym.environments.wire_rows import AGENTS, ROLLOUT_INDEX, SEED, TASK_INDEX, check_row, row_id
from polygym.errors import UsageError
from polygym.policies.backoff import backoff_seconds
from polygym.rewards.rubric import BadRewardError
from polygym.rollout import Cause, Rollout, TaskId
from polygym.rows import Row, TaskIndex, agents_of
from polygym.seeds import check_seed, derive_seed

TRIES = 3
"""How often a rollout is begun whose cause lies with servers or the model's endpoint."""


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """One rollout to be played."""

    row: Row
    agent: Agent
    task_id: TaskId
    rollout_index: int
    seed: int


async def evaluate_rows(
    rows: Sequence[Row],
    head_url: str,
    *,
    lines: Sequence[int] | None = None,
    token: str | None = None,
    agent: str | None = None,
    rollouts_per_example: int = 1,
    params: Mapping[str, Any] | None = None,
    concurrency: int = DEFAULT_CONCURRENCY,
    seed: int = 0,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    progress: Progress | None = None,
    output: str | Path | None = None,
    overwrite: bool = False,
    source: str = "rows",
) -> Results:
    """Play rows on the agents of a running stack and sum up the rewards, environment by environment.

    Args:
        rows: wire rows.
        head_url: address of the stack's head.
        lines: numbers of the rows in messages.
        token: of the stack, where it has one.
        agent: who plays rows that name no agent.
        rollouts_per_example: rollouts of each row.
        params: replace parameters of each row's request, such as `temperature`.
        concurrency: rollouts under way at a time.
        seed: names every random stream.
        timeout: seconds of a rollout, all tries together; then it is unscored.
        progress: who is told how it goes.
        output: OUT; writes OUT.jsonl, OUT_failures.jsonl and OUT_metrics.json. A line has the row's own keys too, and
            the `response`.
        overwrite: whether an earlier evaluation of that name is replaced.
        source: what the rows are called in the settings of the results.

    Raises:
        UsageError: for bad arguments or rows, before anything is played.
        BadRewardError: at the first reward that is no number; what has ended is kept.
    """
    if rollouts_per_example < 1:
        raise UsageError(f"rollouts_per_example={rollouts_per_example!r} must be an integer of at least 1")
    check_seed(seed)
    check_concurrency(concurrency)
    check_rows(rows, lines)
    files = None if output is None else EvaluationFiles(output, overwrite=overwrite)
    async with Agents(head_url, token=token) as agents:
        planned = plan(rows, agents.by_name, agent, rollouts_per_example, params or {}, seed, lines)
        rows_E = Counter(item.agent.environment for item in planned)
        settings = {
            "rows": source,
            "num_examples": {name: count // rollouts_per_example for name, count in rows_E.items()},
            "rollouts_per_example": rollouts_per_example,
            "seed": seed,
            "params": dict(params or {}),
            "timeout": timeout,
        }

        def sum_up(rollouts: list[Rollout], complete: bool) -> Results:
            shares = {name: count / len(planned) for name, count in rows_E.items()}
            name = ", ".join(agents.models) or "unknown"
            return Results.of(rollouts, model=name, settings=settings, shares=shares, complete=complete, seed=seed)

        async def collect(keep: Keep) -> list[Rollout]:
            async def play(item: PlannedRow) -> Rollout:
                rollout, body = await play_row(item, timeout)
                keep(rollout, {**{key: value for key, value in body.items() if key != "retry"}, **item.row})
                if rollout.cause is not None and rollout.cause.kind == BadRewardError.code:
                    raise BadRewardError(rollout.cause.message)
                return rollout

            return await work_off(
                planned,
                play,
                environment_of=lambda item: item.agent.environment,
                concurrency=concurrency,
                progress=progress or Progress(),
            )

        return await recorded(collect, sum_up, files)


def check_rows(rows: Sequence[Row], lines: Sequence[int] | None = None) -> None:
    """Check every row for itself; whether its agent is there, `plan` checks.

    Raises:
        UsageError: names the row.
    """
    for position, row in enumerate(rows):
        try:
            check_row({key: value for key, value in row.items() if key != "agent_ref"})
        except UsageError as error:
            raise UsageError(f"row {lines[position] if lines else position + 1}: {error}") from error


def plan(
    rows: Sequence[Row],
    agents: Mapping[str, Agent],
    default_agent: str | None,
    rollouts_per_example: int,
    params: Mapping[str, Any],
    seed: int,
    lines: Sequence[int] | None = None,
) -> list[PlannedRow]:
    """Who plays which row, as which rollout of which task.

    Raises:
        UsageError: for rows that name no agent or an unknown one, and for an id that names two tasks.
    """
    planned: list[PlannedRow] = []
    index = TaskIndex()
    played: Counter[int] = Counter()
    named: dict[tuple[str, TaskId], tuple[int, int]] = {}
    names = agents_of(rows, default_agent, agents, lines=lines)
    for position, (row, name) in enumerate(zip(rows, names, strict=True)):
        row = {**row, "agent_ref": {"type": AGENTS, "name": name}}
        number, line = index.number(row), lines[position] if lines else position + 1
        environment = agents[name].environment
        task_id = row_id({**row, TASK_INDEX: number})
        other, first = named.setdefault((name, task_id), (number, line))
        if other != number:
            raise UsageError(
                f"rows {first} and {line} of agent {name!r} have the id {task_id!r} and are different; an id names one "
                "task: rename one, or leave the ids out"
            )
        merged = {**row, "responses_create_params": {**row["responses_create_params"], **params}}
        for _ in range(rollouts_per_example):
            rollout = played[number]
            played[number] += 1
            of_rollout = derive_seed(seed, environment, task_id, rollout)
            numbered = {**merged, TASK_INDEX: number, ROLLOUT_INDEX: rollout, SEED: of_rollout}
            planned.append(PlannedRow(numbered, agents[name], task_id, rollout, of_rollout))
    return planned


async def play_row(item: PlannedRow, timeout: float) -> tuple[Rollout, Mapping[str, Any]]:
    """One rollout of a row, and what the agent replied; a rollout that servers have failed is tried again."""
    environment = item.agent.environment
    group_id = f"{environment}/{item.task_id!r}"  # repr keeps the ids 1 and "1" apart
    rollout = Rollout(environment, item.task_id, group_id, item.rollout_index, item.seed, answer=item.row.get("answer"))
    started = time.perf_counter()
    reply: Reply | None = None
    try:
        async with asyncio.timeout(timeout):
            for tries in range(1, TRIES + 1):
                reply = await item.agent.run(item.row)
                if not reply.retry or tries == TRIES:
                    break
                await asyncio.sleep(backoff_seconds(tries))
    except TimeoutError:
        late = f"the rollout took longer than {timeout:g} s"
        known = reply.cause.message if reply is not None and reply.cause is not None else ""
        reply = Reply(None, Cause("timeout", f"{late}; before: {known}" if known else late))
    assert reply is not None
    if reply.body is None:
        rollout.cause, rollout.stop_reason = reply.cause, "error"
    else:
        fill(rollout, item.row, reply.body)
    rollout.seconds.setdefault("total", time.perf_counter() - started)
    return rollout, reply.body or {}
