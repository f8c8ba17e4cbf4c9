"""Small environments and policies for the tests of `polygym.collect`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polygym.environments import SingleTurnEnv
from polygym.messages import Message
from polygym.policies.base import Policy, Request
from polygym.rewards.rubric import Rubric
from polygym.rollout import Rollout, Turn, Usage


def exact(completion: str, answer: str) -> float:
    """1 for the answer itself."""
    return float(completion == answer)


def toy(
    name: str, *, tasks: int = 4, held_out: int = 4, reward: Callable[..., Any] = exact, **arguments: Any
) -> SingleTurnEnv:
    """An environment whose answer is always "right"."""
    rows = [{"question": f"{name} question {index}", "answer": "right"} for index in range(tasks + held_out)]
    return SingleTurnEnv(rows[:tasks], eval_dataset=rows[tasks:], rubric=Rubric([reward]), name=name, **arguments)


class Scripted(Policy):
    """Answers with what `answer(request)` returns; an exception that it returns is raised."""

    name = "scripted"
    version = 0
    wants_task = False

    def __init__(self, answer: Callable[[Request], Any]) -> None:
        self.answer = answer
        self.asked: list[Request] = []
        self.closed = False

    async def complete(self, request: Request) -> Turn:
        self.asked.append(request)
        answer = self.answer(request)
        if hasattr(answer, "__await__"):
            answer = await answer
        if isinstance(answer, BaseException):
            raise answer
        return Turn(Message("assistant", answer), usage=Usage(7, 3))

    async def close(self) -> None:
        self.closed = True


def rollout(
    environment: str, task: int | str, reward: float | None, *, index: int = 0, step: int | None = None
) -> Rollout:
    """A rollout that has ended."""
    return Rollout(environment, task, f"{environment}/{task}", index, seed=index, reward=reward, step=step)
