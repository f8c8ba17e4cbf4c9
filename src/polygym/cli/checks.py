"""Checks behind `polygym env test`: does an environment do what training will rely on?

The one idea: an environment is tried as training uses it. It is loaded twice, asked for its tasks, played by its own
demonstrations and by a policy that says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from polygym.collect.evaluate import evaluate
from polygym.collect.results import Results
from polygym.environments import Environment
from polygym.messages import Message
from polygym.policies.base import Policy, Request
from polygym.rollout import Task, Turn

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
    environment, again = load(), load()
    for route, leaf in environment.leaves().items():
        yield _splits(route, leaf)
        yield _repeats(route, leaf, again.leaves()[route])
    demonstrated = {route for route, leaf in environment.leaves().items() if leaf.demonstrate(_first(leaf)) is not None}
    if demonstrated == set(environment.leaves()):
        oracle = evaluate(environment, model="oracle", num_examples=num_examples, rollouts_per_example=1)
        for route, leaf in environment.leaves().items():
            yield _demonstrations(route, oracle, leaf.rubric.full_reward)
    else:
        for route in sorted(set(environment.leaves()) - demonstrated):
            yield Check(route, "demonstrations earn the full reward", None, "demonstrate(task) is not defined")
    silent = evaluate(environment, model=SilentPolicy(), num_examples=num_examples, rollouts_per_example=1)
    for route in environment.leaves():
        yield _silence(route, silent)


def _first(leaf: Environment) -> Task:
    return leaf.tasks("held_out")[0]


def _fingerprint(tasks: Sequence[Task]) -> list[tuple[object, ...]]:
    return [(task.id, task.prompt, repr(task.answer)) for task in tasks[:COMPARED_TASKS]]


def _splits(route: str, leaf: Environment) -> Check:
    train, held_out = ({task.id for task in leaf.tasks(split)} for split in ("train", "held_out"))
    shared = train & held_out
    detail = f"{len(train)} train, {len(held_out)} held out"
    if shared:
        detail += f", {len(shared)} in both, such as {sorted(map(str, shared))[0]}"
    return Check(route, "splits share no task", not shared, detail)


def _repeats(route: str, leaf: Environment, again: Environment) -> Check:
    same = all(_fingerprint(leaf.tasks(split)) == _fingerprint(again.tasks(split)) for split in ("train", "held_out"))
    detail = "ids, prompts and answers are equal" if same else "ids, prompts or answers differ; derive them from `seed`"
    return Check(route, "loading again gives the same tasks", same, detail)


def _demonstrations(route: str, results: Results, full: float) -> Check:
    found = results.to_dict()["environments"][route]
    mean = found["mean_reward"]
    passed = not found["unscored"] and mean is not None and mean >= full - 1e-9
    shown = "no rollout was scored" if mean is None else f"mean reward {mean:.3f} of {full:g}"
    return Check(route, "demonstrations earn the full reward", passed, f"{shown}, unscored {found['unscored']}")


def _silence(route: str, results: Results) -> Check:
    found = results.to_dict()["environments"][route]
    mean = found["mean_reward"]
    detail = f"mean reward {mean:.3f}" if mean is not None else "no rollout was scored"
    return Check(route, "an empty answer is scored", not found["unscored"], f"{detail}, unscored {found['unscored']}")
