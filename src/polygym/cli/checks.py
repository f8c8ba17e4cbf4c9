"""Checks behind `polygym env test`: does an environment do what training will rely on?

The one idea: an environment is tried as training uses it. It is loaded twice, asked for its tasks, played by its own
demonstrations and by a policy that says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from polygym.collect.evaluate import evaluate
from polygym.environments import Environment
from polygym.errors import PolygymError
from polygym.messages import Message
from polygym.policies.base import Policy, Request
from polygym.rollout import Rollout, Task, Turn

COMPARED_TASKS = 1000  # tasks of a split that are compared between two loads


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. `passed` is None where the environment leaves out what would be checked."""

    environment: str
    name: str
    passed: bool | None
    detail: str

    def to_dict(self) -> dict[str, Any]:
        """The finding as data."""
        return asdict(self)


class SilentPolicy(Policy):
    """Answers every request with an empty message."""

    name = "silent"

    async def complete(self, request: Request) -> Turn:
        """An empty turn."""
        return Turn(Message("assistant", ""))


def check_environment(load: Callable[[], Environment], num_examples: int) -> Iterator[Check]:
    """Check every leaf of an environment, one finding at a time.

    Args:
        load: builds the environment; it is called twice.
        num_examples: held-out tasks of each leaf to play.
    """
    leaves, again = load().leaves(), load().leaves()
    for route, leaf in leaves.items():
        yield _splits(route, leaf)
        yield _repeats(route, leaf, again.get(route))
    played = {"demonstrations earn their reward": _demonstrations, "an empty answer is scored": _silence}
    for route, leaf in leaves.items():
        if asked := min(num_examples, len(leaf.tasks("held_out"))):
            for name, find in played.items():
                try:
                    passed, detail = find(leaf, asked)
                except Exception as error:  # of other people's code, whose faults are what is looked for
                    words = str(error) if isinstance(error, PolygymError) else f"{type(error).__name__}: {error}"
                    passed, detail = False, words
                yield Check(route, name, passed, detail)


def _fingerprint(tasks: Sequence[Task]) -> list[tuple[object, ...]]:
    return [(task.id, task.prompt, repr(task.answer)) for task in tasks[:COMPARED_TASKS]]


def _splits(route: str, leaf: Environment) -> Check:
    train, held_out = leaf.tasks("train"), leaf.tasks("held_out")
    ids, contents = {task.id for task in train}, {(task.prompt, repr(task.answer)) for task in train}
    shared = [task.id for task in held_out if task.id in ids or (task.prompt, repr(task.answer)) in contents]
    detail = f"{len(train)} train, {len(held_out)} held out"
    if shared:
        detail += f", {len(shared)} in both, such as {shared[0]}"
    return Check(route, "both splits have tasks and share none", not shared and bool(train and held_out), detail)


def _repeats(route: str, leaf: Environment, again: Environment | None) -> Check:
    name = "loading again gives the same tasks"
    if again is None:
        return Check(route, name, False, "the second time there is no such environment")
    same = all(_fingerprint(leaf.tasks(split)) == _fingerprint(again.tasks(split)) for split in ("train", "held_out"))
    detail = "ids, prompts and answers are equal" if same else "ids, prompts or answers differ; derive them from `seed`"
    return Check(route, name, same, detail)


def _demonstrations(leaf: Environment, num_examples: int) -> tuple[bool | None, str]:
    tasks = {task.id: task for task in leaf.tasks("held_out")}
    if leaf.demonstrate(next(iter(tasks.values()))) is None:
        return None, "demonstrate(task) is not defined"
    played = evaluate(leaf, "oracle", num_examples=num_examples, rollouts_per_example=1).rollouts
    for rollout in played:
        promised = leaf.demonstrated_reward(tasks[rollout.task_id])
        if rollout.reward is None:
            return False, _unscored(rollout)
        if rollout.reward < promised - 1e-9:
            return False, f"task {rollout.task_id} earned {rollout.reward:g} of {promised:g}"
    return True, f"{len(played)} tasks"


def _silence(leaf: Environment, num_examples: int) -> tuple[bool | None, str]:
    played = evaluate(leaf, SilentPolicy(), num_examples=num_examples, rollouts_per_example=1).rollouts
    for rollout in played:
        if rollout.reward is None:
            return False, _unscored(rollout)
    return True, f"mean reward {fmean(rollout.reward or 0.0 for rollout in played):.3f}"


def _unscored(rollout: Rollout) -> str:
    return f"task {rollout.task_id} is unscored: {rollout.cause.message if rollout.cause else 'no cause'}"
