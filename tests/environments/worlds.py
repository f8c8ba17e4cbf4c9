"""Small environments and policies that the tests of this folder share."""

from __future__ import annotations

import asyncio
from typing import Any

from polygym.environments import Environment, MultiTurnEnv, SingleTurnEnv, State, cleanup, play, stop
from polygym.messages import Message, ToolCall
from polygym.policies.base import Policy, Request, Sampling
from polygym.rewards.rubric import Rubric
from polygym.rollout import Rollout, Turn


def rows(count: int, start: int = 0) -> list[dict[str, Any]]:
    """`count` different questions whose answers are their numbers."""
    return [{"question": f"{i}?", "answer": str(i)} for i in range(start, start + count)]


def exact(completion: str, answer: str) -> bool:
    return completion == answer


def single(count: int = 10, **arguments: Any) -> SingleTurnEnv:
    """A single-turn environment with an exact reward."""
    return SingleTurnEnv(rows(count), **{"rubric": Rubric([exact]), **arguments})


class Countdown(MultiTurnEnv):
    """Say "go" `n` times; the reward is 1 when the count reaches 0."""

    n = 3

    def setup_state(self, state: State) -> None:
        state["left"] = self.n
        state["cleaned"] = 0

    def env_response(self, messages: list[Message], state: State) -> Any:
        state["left"] -= messages[-1].content == "go"
        return f"{state['left']} left"

    @stop
    def landed(self, state: State) -> bool:
        return bool(state["left"] == 0)

    @cleanup
    def tidy(self, state: State) -> None:
        state["cleaned"] += 1

    def reward(self, state: State) -> float:
        self.last_state = state
        return float(state["left"] == 0)


class Script(Policy):
    """Says what it is given, turn by turn (the last for ever): text, a Message, a Turn, or an exception to raise."""

    name = "script"

    def __init__(self, *lines: Any) -> None:
        self.lines = lines
        self.requests: list[Request] = []

    async def complete(self, request: Request) -> Turn:
        self.requests.append(request)
        turn = sum(message.role == "assistant" for message in request.messages)
        line = self.lines[min(turn, len(self.lines) - 1)]
        if isinstance(line, BaseException):
            raise line
        if isinstance(line, Turn):
            return line
        return Turn(line if isinstance(line, Message) else Message("assistant", line))


def call(name: str, id: str = "", /, **arguments: Any) -> Message:
    """A message with one call."""
    return Message("assistant", tool_calls=(ToolCall(name, arguments, id),))


def run(environment: Environment, policy: Policy, **arguments: Any) -> Rollout:
    """One rollout of the first training task."""
    arguments = {"task": environment.tasks()[0], "sampling": Sampling(), "seed": 0, **arguments}
    return asyncio.run(play(environment, arguments.pop("task"), policy, **arguments))


def texts(rollout: Rollout, role: str) -> list[str]:
    """Contents of the messages of a role."""
    return [message.content for message in rollout.messages if message.role == role]
