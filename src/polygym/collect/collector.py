"""Collector: many episodes at once.

The one idea: a rollout that fails is a rollout with a cause, so no environment can stop another; a wrong reward
function, or a cancellation, stops all and keeps what has ended.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from polygym.collect.agent_play import AgentEnvironment
from polygym.collect.line import DEFAULT_CONCURRENCY, Line, check_concurrency, work_off
from polygym.collect.progress import Progress
from polygym.environments.base import Environment
from polygym.environments.episode import play
from polygym.errors import UsageError
from polygym.policies.base import Policy, Sampling
from polygym.rollout import Cause, Rollout, Task
from polygym.seeds import derive_seed


@dataclass(slots=True)
class Assignment:
    """One rollout to be played. `environment` is a leaf; limits of None are the environment's and the collector's."""

    environment: Environment
    task: Task
    group_id: str
    rollout_index: int
    seed: int
    sampling: Sampling
    step: int | None = None
    max_turns: int | None = None
    timeout_seconds: float | None = None


def assign_group(
    environment: Environment,
    task: Task,
    rollouts: int,
    *,
    seed: int,
    sampling: Sampling,
    max_turns: int | None = None,
    timeout_seconds: float | None = None,
) -> list[Assignment]:
    """The assignments of one task. The seed of each is named by (seed, environment, task, rollout)."""
    group_id = f"{task.environment}/{task.id!r}"  # repr keeps the ids 1 and "1" apart
    return [
        Assignment(
            environment,
            task,
            group_id,
            index,
            derive_seed(seed, task.environment, task.id, index),
            sampling,
            max_turns=max_turns,
            timeout_seconds=timeout_seconds,
        )
        for index in range(rollouts)
    ]


def check_timeout(seconds: float | None) -> float | None:
    """The timeout of a rollout, if it is more than 0; None for no limit."""
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0):
        raise UsageError(f"timeout={seconds!r} must be more than 0 seconds, or None for no limit")
    return seconds


class Collector:
    """Plays assignments with one policy.

    Args:
        policy: who answers.
        concurrency: episodes under way at a time.
        limits_E: episodes of an environment under way at a time, where it has a limit and they are collected fairly.
        timeout_seconds: of one rollout, where its assignment gives none; None for no limit.
        progress: who is told that a rollout has ended.
        on_rollout: called with each rollout as it ends, in the order in which they end: the place to save it.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        limits_E: Mapping[str, int] | None = None,
        timeout_seconds: float | None = None,
        progress: Progress | None = None,
        on_rollout: Callable[[Rollout], None] | None = None,
    ) -> None:
        self.policy = policy
        self.concurrency = check_concurrency(concurrency)
        self.limits_E = limits_E or {}
        self.timeout_seconds = check_timeout(timeout_seconds)
        self.progress = progress or Progress()
        self.on_rollout = on_rollout

    async def collect(self, assignments: Iterable[Assignment]) -> list[Rollout]:
        """The rollouts of `assignments`, in their order.

        When it is cancelled or a reward turns out to be no number, episodes under way are cancelled and the error goes
        on; `on_rollout` has then seen every rollout that had ended.

        Raises:
            BadRewardError: at the first reward that is no number.
        """
        waiting = list(assignments)
        rollouts: list[Rollout | None] = [None] * len(waiting)

        async def play_at(position: int) -> Rollout:
            rollouts[position] = rollout = await self.play(waiting[position])
            return rollout

        self.progress.start(Counter(assignment.task.environment for assignment in waiting))
        line = Line({"": range(len(waiting))}, {"": len(waiting)})  # one queue: in the order of the assignments
        await work_off(line, play_at, concurrency=self.concurrency, progress=self.progress)
        return [rollout for rollout in rollouts if rollout is not None]

    async def collect_fairly(
        self, assignments_E: Mapping[str, Iterable[Assignment]], totals_E: Mapping[str, int]
    ) -> None:
        """Play the assignments of several environments beside each other (`Line`); `on_rollout` sees the rollouts.

        Raises:
            BadRewardError: as `collect`.
        """
        self.progress.start(totals_E)
        line = Line(assignments_E, totals_E, limits_E=self.limits_E)
        await work_off(line, self.play, concurrency=self.concurrency, progress=self.progress)

    async def play(self, assignment: Assignment) -> Rollout:
        """Play one assignment; `on_rollout` sees it."""
        rollout = await self._play(assignment)
        if self.on_rollout is not None:
            self.on_rollout(rollout)
        return rollout

    async def _play(self, assignment: Assignment) -> Rollout:
        started = time.perf_counter()
        timeout_seconds = assignment.timeout_seconds or self.timeout_seconds
        try:
            if isinstance(assignment.environment, AgentEnvironment):
                return await assignment.environment.rollout(
                    assignment.task,
                    sampling=assignment.sampling,
                    seed=assignment.seed,
                    group_id=assignment.group_id,
                    rollout_index=assignment.rollout_index,
                    step=assignment.step,
                    timeout_seconds=timeout_seconds,
                )
            return await play(
                assignment.environment,
                assignment.task,
                self.policy,
                sampling=assignment.sampling,
                seed=assignment.seed,
                group_id=assignment.group_id,
                rollout_index=assignment.rollout_index,
                step=assignment.step,
                max_turns=assignment.max_turns,
                timeout_seconds=timeout_seconds,
            )
        except UsageError:
            raise
        except Exception as error:  # the wall between environments: what one of them raises ends its own rollout only
            cause = Cause("internal", f"{type(error).__name__}: {error}")
        return Rollout(
            assignment.task.environment,
            assignment.task.id,
            assignment.group_id,
            assignment.rollout_index,
            assignment.seed,
            answer=assignment.task.answer,
            cause=cause,
            stop_reason="error",
            seconds={"total": time.perf_counter() - started},
            step=assignment.step,
        )
