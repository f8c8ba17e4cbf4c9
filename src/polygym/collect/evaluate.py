"""Evaluation: what a policy earns on held-out tasks.

The one idea: an evaluation is a collection with a summary at its end. What has ended is on disk before the next rollout
begins, so an evaluation that is stopped keeps all it had.
"""

from __future__ import annotations

import asyncio
import hashlib
import signal
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from polygym.collect.collector import Assignment, Collector, assign_group, check_timeout
from polygym.collect.per_environment import Counts, concurrency_by_environment, counts_by_environment, one_or_all
from polygym.collect.progress import Progress
from polygym.collect.record import Heading, Record
from polygym.collect.results import Results
from polygym.collect.resume import Resume, check_resume
from polygym.collect.rollout_rows import RolloutKey
from polygym.collect.sample import sample_tasks
from polygym.collect.store import EvaluationFiles
from polygym.environments.base import Environment, check_max_turns
from polygym.errors import UsageError, nearest
from polygym.policies.base import Policy, Sampling
from polygym.rollout import Rollout, Task
from polygym.rows import Row, dump_row
from polygym.seeds import check_seed

DEFAULT_TIMEOUT_SECONDS = 1800.0  # of a rollout: longer than any that goes well, so that a hook that hangs ends at all

T = TypeVar("T")


def evaluate(
    env: Environment,
    model: str | Policy = "nano",
    *,
    num_examples: int | Mapping[str, int] | None = None,
    total: int | None = None,
    rollouts_per_example: Counts = 4,
    sampling: Sampling | Mapping[str, Sampling] | None = None,
    max_turns: int | Mapping[str, int] | None = None,
    concurrency: Counts | None = None,
    seed: int = 0,
    timeout: float | Mapping[str, float] | None = None,
    progress: Progress | None = None,
    output: str | Path | None = None,
    overwrite: bool = False,
    resume: Resume = False,
    keep_rollouts: bool = True,
) -> Results:
    """Play held-out tasks and sum up the rewards, environment by environment.

    Args:
        env: an environment or a group.
        model: a policy, or its name: `nano`, `smollm2-135m`, `oracle`, a URL, a folder, a Hugging Face id, or a model
            at OPENAI_BASE_URL.
        num_examples: tasks of each (leaf) environment, a random sample; default all held-out tasks; a mapping gives it
            by environment, where 0 leaves one out.
        total: tasks altogether, split by the shares of a group; instead of `num_examples`.
        rollouts_per_example: rollouts of each task; a mapping gives them by environment (`_default`: the rest).
        sampling: how to sample; a mapping gives it by environment.
        max_turns: turns of an episode, where not the environment's own; a mapping gives it by environment.
        concurrency: episodes under way at a time; default what the policy says, else 128. A mapping gives limits by
            environment, and under `all` how many there are in all.
        seed: chooses the tasks and names every random stream; each rollout has a seed of its own, which the model and
            the environment are given.
        timeout: seconds of a rollout (default 1800), then it is unscored; a mapping gives it by environment.
        progress: who is told how it goes.
        output: OUT; writes OUT.jsonl, OUT_failures.jsonl and OUT_metrics.json.
        overwrite: whether an earlier evaluation of that name is replaced.
        resume: whether to go on with it: what has a reward is kept, what failed is played again, up to three times in
            all. `"changed"` allows that tasks or settings are not the same.
        keep_rollouts: whether the results hold the rollouts that were played; without them, memory stays flat.

    Works inside a running event loop too (a notebook), on a thread of its own. Ctrl-C keeps what was collected.

    Raises:
        UsageError: for bad arguments, and at the first reward that is no number.
    """

    def work() -> Coroutine[Any, Any, Results]:
        return evaluate_async(
            env,
            model,
            num_examples=num_examples,
            total=total,
            rollouts_per_example=rollouts_per_example,
            sampling=sampling,
            max_turns=max_turns,
            concurrency=concurrency,
            seed=seed,
            timeout=timeout,
            progress=progress,
            output=output,
            overwrite=overwrite,
            resume=resume,
            keep_rollouts=keep_rollouts,
        )

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    return _run_on_thread(work)


async def evaluate_async(
    env: Environment,
    model: str | Policy = "nano",
    *,
    num_examples: int | Mapping[str, int] | None = None,
    total: int | None = None,
    rollouts_per_example: Counts = 4,
    sampling: Sampling | Mapping[str, Sampling] | None = None,
    max_turns: int | Mapping[str, int] | None = None,
    concurrency: Counts | None = None,
    seed: int = 0,
    timeout: float | Mapping[str, float] | None = None,
    progress: Progress | None = None,
    output: str | Path | None = None,
    overwrite: bool = False,
    resume: Resume = False,
    keep_rollouts: bool = True,
) -> Results:
    """`evaluate` for callers that have an event loop; the arguments are the same."""
    if not isinstance(env, Environment):
        raise UsageError(f"env must be an Environment, got {type(env).__name__}: use load_environment(id)")
    check_seed(seed)
    _by_environment("num_examples", num_examples, env.leaves())
    tasks_E = sample_tasks(env, num_examples=num_examples, total=total, seed=seed)
    leaves = env.leaves()
    repeats_E = counts_by_environment("rollouts_per_example", rollouts_per_example, leaves, 4)
    sampling_E = dict.fromkeys(leaves, Sampling()) | _by_environment("sampling", sampling, leaves)
    own_turns_E = {route: leaf.max_turns for route, leaf in leaves.items()}
    max_turns_E = own_turns_E | _by_environment("max_turns", max_turns, leaves)
    timeout_E = dict.fromkeys(leaves, DEFAULT_TIMEOUT_SECONDS) | _by_environment("timeout", timeout, leaves)
    for route in leaves:
        if not isinstance(sampling_E[route], Sampling):
            raise UsageError(f"sampling must be a Sampling, got {sampling_E[route]!r:.80}: Sampling(temperature=0.7)")
        check_max_turns(max_turns_E[route])
        check_timeout(timeout_E[route])
    files = None if output is None else EvaluationFiles(output, overwrite=overwrite, resume=bool(check_resume(resume)))
    at_once, limits_E = concurrency_by_environment(concurrency, leaves)
    settings = {
        "num_examples": {route: len(tasks) for route, tasks in tasks_E.items()},
        "rollouts_per_example": one_or_all({route: repeats_E[route] for route in tasks_E}),
        "split": "held_out",
        "tasks_sha256": _digest(tasks_E),
        "seed": seed,
        "sampling": {route: asdict(sampling_E[route]) for route in tasks_E},
        "max_turns": {route: max_turns_E[route] for route in tasks_E},
        "timeout": {route: timeout_E[route] for route in tasks_E},
    }
    totals_E = {route: len(tasks) * repeats_E[route] for route, tasks in tasks_E.items()}
    # The place of a task in the results: a task of each environment in turn.
    places = {
        (route, task.id): (number, environment)
        for environment, (route, tasks) in enumerate(tasks_E.items())
        for number, task in enumerate(tasks)
    }

    def assignments(route: str) -> Iterator[Assignment]:
        for task in tasks_E[route]:
            group = assign_group(
                leaves[route],
                task,
                repeats_E[route],
                seed=seed,
                sampling=sampling_E[route],
                max_turns=max_turns_E[route],
                timeout_seconds=timeout_E[route],
            )
            for assignment in group:
                if not record.is_done((route, task.id, assignment.rollout_index)):
                    yield assignment

    def planned(key: RolloutKey, read: Callable[[], Row] | None) -> bool:
        route, task_id, index = key
        if (route, task_id) not in places or index >= repeats_E[route]:
            return False
        return read is None or _asked(read(), tasks_E[route][places[route, task_id][0]])

    def keep(rollout: Rollout) -> None:
        number, environment = places[rollout.environment, rollout.task_id]
        record.keep(rollout, place=(number, environment, rollout.rollout_index))

    async def play_all() -> None:
        done_E = Counter(route for route, _, _ in record.earlier.done)
        left_E = {route: total - done_E[route] for route, total in totals_E.items()}
        own = getattr(policy, "concurrency", None) if concurrency is None else None
        collector = Collector(policy, concurrency=own or at_once, limits_E=limits_E, progress=progress, on_rollout=keep)
        await collector.collect_fairly({route: assignments(route) for route in tasks_E}, left_E)

    policy = _policy(model, env, at_once if concurrency is not None else None)
    try:
        shares = env.shares()
        name = getattr(policy, "name", type(policy).__name__)
        heading = Heading(name, settings, {route: shares[route] for route in tasks_E}, seed)
        record = Record(heading, files, resume=resume, keep_rollouts=keep_rollouts)
        return await record.collect(play_all, planned, progress or Progress())
    finally:
        if policy is not model:
            await policy.close()


def _digest(tasks_E: Mapping[str, Sequence[Task]]) -> str:
    """What tells whether the same is asked: a digest of the tasks, their prompts and their answers."""
    digest = hashlib.sha256()
    for route, tasks in tasks_E.items():
        for task in tasks:
            digest.update(dump_row({"": [route, task.id, [message.to_dict() for message in task.prompt]]}))
            digest.update(dump_row({"": task.answer if isinstance(task.answer, (str, int, float)) else None}))
    return digest.hexdigest()


def _asked(row: Row, task: Task) -> bool:
    """Whether a rollout's row is one of this task: it has its answer and its prompt."""
    said = [message.get("content") for message in row.get("messages") or ()]
    same_answer = dump_row({"": row.get("answer")}) == dump_row({"": task.answer})
    return same_answer and all(message.content in said for message in task.prompt)


def _policy(model: str | Policy, env: Environment, concurrency: int | None) -> Policy:
    if not isinstance(model, str):
        if not callable(getattr(model, "complete", None)):
            raise UsageError(f"model must be a name or a Policy, got {type(model).__name__}: {model!r:.80}")
        return model
    if model == "oracle":
        from polygym.environments.oracle import OraclePolicy

        return OraclePolicy(env)
    from polygym.policies.load import load_policy

    return load_policy(model, concurrency=concurrency)


def _by_environment(name: str, value: T | Mapping[str, T] | None, leaves: Mapping[str, Environment]) -> dict[str, T]:
    """What is given for each leaf: one value for all, or a mapping that may leave some out."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        return dict.fromkeys(leaves, value)
    for route in value:
        if route not in leaves:
            raise UsageError(f"{name} is given for environment {route!r}, which is unknown; {nearest(route, leaves)}")
    return dict(value)


def _run_on_thread(work: Callable[[], Coroutine[Any, Any, Results]]) -> Results:
    """Run a coroutine to its end beside a running event loop; Ctrl-C cancels it and waits for it."""
    outcome: Future[Results] = Future()
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = Future()

    async def supervised() -> Results:
        started.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await work()

    def run() -> None:
        try:
            outcome.set_result(asyncio.run(supervised()))
        except BaseException as error:  # every error belongs to the caller, who waits on another thread
            outcome.set_exception(error)

    thread = threading.Thread(target=run, name="polygym-evaluate")
    with _interruptible():
        try:
            thread.start()
            return outcome.result()
        except KeyboardInterrupt:
            loop, task = started.result()
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)
            thread.join()
            raise


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt a wait: an event loop that is blocked by it would only take note of the signal."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
