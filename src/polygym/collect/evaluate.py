"""Evaluation: what a policy earns on held-out tasks.

The one idea: an evaluation is a collection with a summary at its end. What has ended is on disk before the next rollout
begins, so an evaluation that is stopped keeps all it had.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from polygym.collect.collector import Assignment, Collector, assign_group, check_timeout
from polygym.collect.line import DEFAULT_CONCURRENCY
from polygym.collect.progress import Progress
from polygym.collect.record import Keep, recorded
from polygym.collect.results import Results
from polygym.collect.sample import sample_tasks
from polygym.collect.store import EvaluationFiles
from polygym.environments.base import Environment, check_max_turns
from polygym.errors import UsageError, nearest
from polygym.policies.base import Policy, Sampling
from polygym.rollout import Rollout
from polygym.seeds import check_seed

DEFAULT_TIMEOUT_SECONDS = 1800.0  # of a rollout: longer than any that goes well, so that a hook that hangs ends at all

T = TypeVar("T")


def evaluate(
    env: Environment,
    model: str | Policy = "nano",
    *,
    num_examples: int | Mapping[str, int] | None = None,
    total: int | None = None,
    rollouts_per_example: int = 4,
    sampling: Sampling | Mapping[str, Sampling] | None = None,
    max_turns: int | Mapping[str, int] | None = None,
    concurrency: int | None = None,
    seed: int = 0,
    timeout: float | Mapping[str, float] | None = None,
    progress: Progress | None = None,
    output: str | Path | None = None,
    overwrite: bool = False,
) -> Results:
    """Play held-out tasks and sum up the rewards, environment by environment.

    Args:
        env: an environment or a group.
        model: a policy, or its name: `nano`, `smollm2-135m`, `oracle`, a URL, a folder, a Hugging Face id, or a model
            at OPENAI_BASE_URL.
        num_examples: tasks of each (leaf) environment, a random sample; default all held-out tasks; a mapping gives it
            by environment, where 0 leaves one out.
        total: tasks altogether, split by the shares of a group; instead of `num_examples`.
        rollouts_per_example: rollouts of each task.
        sampling: how to sample; a mapping gives it by environment.
        max_turns: turns of an episode, where not the environment's own; a mapping gives it by environment.
        concurrency: episodes under way at a time; default what the policy says, else 128.
        seed: chooses the tasks and names every random stream.
        timeout: seconds of a rollout (default 1800), then it is unscored; a mapping gives it by environment.
        progress: who is told how it goes.
        output: OUT; writes OUT.jsonl, OUT_failures.jsonl and OUT_metrics.json.
        overwrite: whether an earlier evaluation of that name is replaced.

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
    rollouts_per_example: int = 4,
    sampling: Sampling | Mapping[str, Sampling] | None = None,
    max_turns: int | Mapping[str, int] | None = None,
    concurrency: int | None = None,
    seed: int = 0,
    timeout: float | Mapping[str, float] | None = None,
    progress: Progress | None = None,
    output: str | Path | None = None,
    overwrite: bool = False,
) -> Results:
    """`evaluate` for callers that have an event loop; the arguments are the same."""
    if not isinstance(env, Environment):
        raise UsageError(f"env must be an Environment, got {type(env).__name__}: use load_environment(id)")
    if isinstance(rollouts_per_example, bool) or not isinstance(rollouts_per_example, int) or rollouts_per_example < 1:
        raise UsageError(f"rollouts_per_example={rollouts_per_example!r} must be an integer of at least 1")
    check_seed(seed)
    _by_environment("num_examples", num_examples, env.leaves())
    tasks_E = sample_tasks(env, num_examples=num_examples, total=total, seed=seed)
    leaves = env.leaves()
    sampling_E = dict.fromkeys(leaves, Sampling()) | _by_environment("sampling", sampling, leaves)
    own_turns_E = {route: leaf.max_turns if leaf.limits_turns else None for route, leaf in leaves.items()}
    max_turns_E = own_turns_E | _by_environment("max_turns", max_turns, leaves)
    timeout_E = dict.fromkeys(leaves, DEFAULT_TIMEOUT_SECONDS) | _by_environment("timeout", timeout, leaves)
    for route in leaves:
        if not isinstance(sampling_E[route], Sampling):
            raise UsageError(f"sampling must be a Sampling, got {sampling_E[route]!r:.80}: Sampling(temperature=0.7)")
        if max_turns_E[route] is not None:  # else it is for the environment's server to say
            check_max_turns(max_turns_E[route])
        check_timeout(timeout_E[route])
    groups_E = {
        route: [
            assign_group(
                leaves[route],
                task,
                rollouts_per_example,
                seed=seed,
                sampling=sampling_E[route],
                max_turns=max_turns_E[route],
                timeout_seconds=timeout_E[route],
            )
            for task in tasks
        ]
        for route, tasks in tasks_E.items()
    }
    files = None if output is None else EvaluationFiles(output, overwrite=overwrite)
    shares = env.shares()
    settings = {
        "num_examples": {route: len(tasks) for route, tasks in tasks_E.items()},
        "rollouts_per_example": rollouts_per_example,
        "split": "held_out",
        "seed": seed,
        "sampling": {route: asdict(sampling_E[route]) for route in tasks_E},
        "max_turns": {route: max_turns_E[route] for route in tasks_E},
        "timeout": {route: timeout_E[route] for route in tasks_E},
    }

    def sum_up(rollouts: list[Rollout], complete: bool) -> Results:
        name = getattr(policy, "name", type(policy).__name__)
        used = {route: shares[route] for route in tasks_E}
        return Results.of(rollouts, model=name, settings=settings, shares=used, complete=complete, seed=seed)

    async def collect(keep: Keep) -> list[Rollout]:
        own = getattr(policy, "concurrency", None) or DEFAULT_CONCURRENCY
        at_once = own if concurrency is None else concurrency
        collector = Collector(policy, concurrency=at_once, progress=progress, on_rollout=keep)
        return await collector.collect(_interleaved(groups_E))

    policy = _policy(model, env, concurrency)
    try:
        return await recorded(collect, sum_up, files)
    finally:
        if policy is not model:
            await policy.close()


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


def _interleaved(groups_E: Mapping[str, list[list[Assignment]]]) -> list[Assignment]:
    """A task of each environment in turn, so that all of them progress together and a slow one holds up none."""
    turns = zip_longest(*groups_E.values(), fillvalue=())
    return [assignment for groups in turns for group in groups for assignment in group]


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
