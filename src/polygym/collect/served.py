"""Collecting the rollouts of wire rows through agent servers.

The one idea: a row is played where it says. It goes to the agent that it names, equal rows are more rollouts of one
task, and what comes back is counted and saved like any evaluation; a server that fails leaves rollouts unscored, never
at 0, after it was given another chance, and holds up no other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from polygym.collect.agents import Agent, Agents, Reply
from polygym.collect.collector import check_timeout
from polygym.collect.evaluate import DEFAULT_TIMEOUT_SECONDS
from polygym.collect.inputs import InputRows
from polygym.collect.line import Line, work_off
from polygym.collect.per_environment import Counts, concurrency_by_environment, counts_by_environment, one_or_all
from polygym.collect.progress import Progress
from polygym.collect.record import Heading, Record
from polygym.collect.results import Results
from polygym.collect.resume import Resume, check_resume
from polygym.collect.rollout_rows import OF_REPLIES, OWN, PARAMETERS, RolloutKey, own_keys, shadowed
from polygym.collect.store import EvaluationFiles
from polygym.collect.wire_rollout import fill
from polygym.environments.wire_rows import ROLLOUT_INDEX, SEED, TIMEOUT
from polygym.errors import UsageError
from polygym.policies.base import Sampling
from polygym.rewards.rubric import BadRewardError
from polygym.rollout import Cause, Rollout, TaskId
from polygym.rows import Row, task_digest
from polygym.seeds import check_seed, derive_seed

SAMPLING = {"temperature": "temperature", "top_p": "top_p", "max_output_tokens": "max_tokens"}
"""Parameters of a request that do not make it another task, and their names in process."""


@dataclass(slots=True)
class PlannedRow:
    """One rollout to be played: which row, as which rollout of its task. `tries` were made before it was put back."""

    position: int
    rollout_index: int
    tries: int = 0


async def evaluate_rows(
    rows: InputRows | Sequence[Row],
    head_url: str,
    *,
    token: str | None = None,
    agent: str | None = None,
    rollouts_per_example: Counts = 1,
    params: Mapping[str, Any] | None = None,
    concurrency: Counts | None = None,
    seed: int = 0,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    progress: Progress | None = None,
    output: str | Path | None = None,
    overwrite: bool = False,
    resume: Resume = False,
    keep_rollouts: bool = True,
) -> Results:
    """Play rows on the agents of a running stack and sum up the rewards, environment by environment.

    Args:
        rows: wire rows, or what `InputRows.read` made of a file of them.
        head_url: address of the stack's head.
        token: of the stack, where it has one.
        agent: who plays rows that name no agent; only for rows in memory.
        rollouts_per_example: rollouts of each row; a mapping gives them by environment or agent (`_default`: the rest).
        params: replace parameters of each row's request, such as `temperature`.
        concurrency: rollouts under way at a time (default 128); a mapping gives limits by environment or agent, and
            under `all` how many there are in all.
        seed: names every random stream; each rollout has a seed, which the model and the environment are given.
        timeout: seconds of a rollout, all tries together; then it is unscored.
        progress: who is told how it goes.
        output: OUT; writes OUT.jsonl, OUT_failures.jsonl and OUT_metrics.json. A line has the row's own keys too, and
            the `response`.
        overwrite: whether an earlier evaluation of that name is replaced.
        resume: whether to go on with it: what has a reward is kept, what failed is played again, up to three times in
            all. `"changed"` allows that rows or settings are not the same.
        keep_rollouts: whether the results hold the rollouts that were played; without them, memory stays flat.

    Raises:
        UsageError: for bad arguments or rows, before anything is played.
        BadRewardError: at the first reward that is no number; what has ended is kept.
    """
    check_seed(seed)
    check_timeout(timeout)
    check_params(params or {})
    progress = progress or Progress()
    source = rows if isinstance(rows, InputRows) else InputRows.of(rows, agent=agent)
    environments_A = dict(zip(source.agents, source.environments, strict=True))
    repeats_E = counts_by_environment("num_repeats", rollouts_per_example, source.environments, 1, environments_A)
    at_once, limits_E = concurrency_by_environment(concurrency, source.environments, environments_A)
    going_on = bool(check_resume(resume))
    files = None
    if output is not None:
        files = EvaluationFiles(output, overwrite=overwrite, resume=going_on, reads=source.path)
    async with Agents(head_url, token=token) as agents:
        source.check_agents(agents.by_name)
        agents_E = {environments_A[name]: agents.by_name[name] for name in source.agents}
        for found in agents_E.values():
            found.patience.tell = progress.message
        rows_E = source.counts_E()
        settings = {
            "rows": source.name,
            "rows_sha256": source.digest,
            "num_examples": rows_E,
            "rollouts_per_example": one_or_all(repeats_E),
            "seed": seed,
            "params": dict(params or {}),
            "timeout": timeout,
        }
        shares = {name: count / len(source) for name, count in rows_E.items()}
        heading = Heading(", ".join(agents.models) or "unknown", settings, shares, seed)
        record = Record(heading, files, resume=resume, keep_rollouts=keep_rollouts)
        plan = _Plan(source, repeats_E, params or {}, seed)

        async def play_all() -> None:
            totals_E = {name: plan.count(name, record) for name in rows_E}
            progress.start(totals_E)
            work_E = {name: plan.work(name, record) for name in rows_E}
            line = Line(work_E, totals_E, limits_E=limits_E, held=lambda name: agents_E[name].patience.is_held)

            async def play(item: PlannedRow) -> Rollout | None:
                environment = source.environment(item.position)
                row = plan.row(item)
                reply, seconds = await _ask(agents_E[environment], row, timeout)
                item.tries += reply.tries
                if reply.dead and line.others_have_work(environment):
                    return None  # it is played later, if its agent comes back while others are played
                rollout = _rollout(environment, source.task_ids[item.position], item, row, reply, seconds)
                body = {key: value for key, value in (reply.body or {}).items() if key not in ("retry", TIMEOUT, OWN)}
                place = (item.position, item.rollout_index)
                told = {key: value for key, value in body.items() if key in OF_REPLIES}
                line_of = {key: value for key, value in {**body, **row, **told}.items() if key != OWN}
                if note := shadowed(source.row(item.position), {**line_of, **rollout.to_row()}):
                    line_of[OWN] = note
                record.keep(rollout, line_of, played=item.tries > 0, place=place)
                if rollout.cause is not None and rollout.cause.kind == BadRewardError.code:
                    raise BadRewardError(rollout.cause.message)
                return rollout

            await work_off(line, play, concurrency=at_once, progress=progress)

        return await record.collect(play_all, plan.has, progress)


def check_params(params: Mapping[str, Any]) -> None:
    """Refuse sampling that no policy could heed, as in process.

    Raises:
        UsageError: names the parameter.
    """
    for name, own in SAMPLING.items():
        value = params.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UsageError(f"{name}={value!r:.80} must be a number")
        try:
            Sampling(**{own: value})  # type: ignore[arg-type]
        except UsageError as error:
            raise UsageError(str(error).replace(f"{own}=", f"{name}=", 1)) from error


class _Plan:
    """Which rollouts are played of which row, and what their rows say."""

    def __init__(self, source: InputRows, repeats_E: Mapping[str, int], params: Mapping[str, Any], seed: int) -> None:
        self._source = source
        self._repeats_E = repeats_E
        self._params = params
        self._seed = seed

    def items(self, environment: str) -> Iterator[PlannedRow]:
        """All rollouts of an environment."""
        source, repeats = self._source, self._repeats_E[environment]
        for position in source.positions(environment):
            first = source.rows_before(position) * repeats
            for index in range(first, first + repeats):
                yield PlannedRow(position, index)

    def work(self, environment: str, record: Record) -> Iterator[PlannedRow]:
        """Those that are to be played."""
        ids = self._source.task_ids
        for item in self.items(environment):
            if not record.is_done((environment, ids[item.position], item.rollout_index)):
                yield item

    def count(self, environment: str, record: Record) -> int:
        """How many there are of them."""
        return sum(1 for _ in self.work(environment, record))

    def row(self, item: PlannedRow) -> Row:
        """A row as its agent is sent it."""
        environment, task_id = self._source.environment(item.position), self._source.task_ids[item.position]
        row = self._source.row(item.position)
        seed = derive_seed(self._seed, environment, task_id, item.rollout_index)
        params = {**row[PARAMETERS], **self._params}
        return {**row, PARAMETERS: params, ROLLOUT_INDEX: item.rollout_index, SEED: seed}

    @cached_property
    def _tasks(self) -> dict[tuple[str, TaskId], tuple[int, int]]:
        """The first row of each task, and how many it has."""
        source, tasks = self._source, dict[tuple[str, TaskId], tuple[int, int]]()
        for position, task_id in enumerate(source.task_ids):
            name = source.environment(position), task_id
            tasks[name] = tasks.get(name, (position, 0))[0], source.rows_before(position) + 1
        return tasks

    def has(self, key: RolloutKey, read: Callable[[], Row] | None) -> bool:
        """Whether a rollout that is there already is one of these; where its row can be read, it must be the same."""
        environment, task_id, index = key
        first, rows = self._tasks.get((environment, task_id), (0, 0))
        if index >= rows * self._repeats_E.get(environment, 0):
            return False
        if read is None:
            return True
        return task_digest(_asked(own_keys(read()))) == task_digest(_asked(self._source.row(first)))


def _asked(row: Row) -> Row:
    """What makes a row the same task: all but how it is sampled, and what says nothing."""
    params = row.get(PARAMETERS)
    params = params if isinstance(params, Mapping) else {}
    said = {key: value for key, value in params.items() if key not in SAMPLING and value is not None}
    kept = {key: value for key, value in row.items() if value is not None and key != "agent_ref"}
    return {**kept, PARAMETERS: said}


async def _ask(agent: Agent, row: Row, timeout: float) -> tuple[Reply, float]:
    """What the agent made of a row, and how long it took; a rollout that takes too long has a cause too."""
    started = time.perf_counter()
    try:
        async with asyncio.timeout(timeout):
            reply = await agent.run(row, timeout)
    except TimeoutError as error:
        late = f"the rollout took longer than {timeout:g} s"
        notes = getattr(error.__cause__, "__notes__", [])
        known = notes[-1] if notes else agent.patience.cause.message if agent.patience.is_failing else ""
        reply = Reply(None, Cause("timeout", f"{late}; before: {known}" if known else late), tries=1)
    return reply, time.perf_counter() - started


def _rollout(environment: str, task_id: Any, item: PlannedRow, row: Row, reply: Reply, seconds: float) -> Rollout:
    group_id = f"{environment}/{task_id!r}"  # repr keeps the ids 1 and "1" apart
    rollout = Rollout(environment, task_id, group_id, item.rollout_index, row[SEED], answer=row.get("answer"))
    if reply.body is None:
        rollout.cause, rollout.stop_reason = reply.cause, "error"
    else:
        fill(rollout, row, reply.body)
    rollout.seconds.setdefault("total", seconds)
    return rollout
