"""OraclePolicy: answers every task with the environment's own demonstration.

The one idea: an environment that can show how its reward is earned can be tested without a model.
"""

from __future__ import annotations

from collections.abc import Sequence

from polygym.environments.base import Environment
from polygym.errors import PolicyError, UsageError
from polygym.messages import Message, as_messages
from polygym.policies.base import Policy, Request
from polygym.rollout import Task, TaskId, Turn


def demonstration(environment: Environment, task: Task) -> list[Message] | None:
    """The demonstration of a task as messages, or None where the environment has none.

    Raises:
        UsageError: when `demonstrate` gives something else than text or messages, or no message of the policy.
    """
    shown = environment.demonstrate(task)
    if shown is None:
        return None
    messages = [Message("assistant", shown)] if isinstance(shown, str) else as_messages(shown)
    if not any(message.role == "assistant" for message in messages):
        raise UsageError(
            f"demonstrate({task.environment!r}, task {task.id!r}) has no message with role 'assistant'; "
            "return the answers of the policy, and the replies between them"
        )
    return messages


def demonstrated_answers(environment: Environment, task: Task) -> list[Message]:
    """What the policy says in the demonstration of a task, one message a turn.

    Raises:
        PolicyError: when there is none.
        UsageError: as `demonstration`.
    """
    messages = demonstration(environment, task)
    if messages is None:
        raise PolicyError(
            f"task {task.id!r} of {task.environment!r} has no demonstration; define demonstrate(task)", kind="oracle"
        )
    return [message for message in messages if message.role == "assistant"]


def next_answer(
    answers: Sequence[Message], task: Task, conversation: Sequence[Message], prompt: Sequence[Message]
) -> Turn:
    """The first of a task's demonstrated answers that a conversation, which began with `prompt`, does not have yet.

    Raises:
        PolicyError: when it has them all.
    """
    given = sum(message.role == "assistant" for message in conversation)
    given -= sum(message.role == "assistant" for message in prompt)
    if not 0 <= given < len(answers):
        raise PolicyError(
            f"the demonstration of task {task.id!r} of {task.environment!r} has {len(answers)} turns, and turn "
            f"{given} was asked for",
            kind="oracle",
        )
    return Turn(answers[given])


class OraclePolicy(Policy):
    """Plays the assistant messages of `demonstrate(task)`, one a turn.

    Args:
        environment: an environment or a group.
    """

    name = "oracle"
    version = 0
    wants_task = True

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._answers: dict[tuple[str, TaskId], list[Message]] = {}

    async def complete(self, request: Request) -> Turn:
        """The demonstration's next message.

        Raises:
            PolicyError: when there is no demonstration, or the episode goes on after its end.
        """
        task = request.task
        if task is None:
            raise PolicyError("the oracle was asked without a task", kind="oracle")
        key = (task.environment, task.id)
        if key not in self._answers:
            self._answers[key] = demonstrated_answers(self.environment, task)
        return next_answer(self._answers[key], task, request.messages, self.environment.prompt(task))
