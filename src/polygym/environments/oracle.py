"""OraclePolicy: answers every task with the environment's own demonstration.

The one idea: an environment that can show how its reward is earned can be tested without a model.
"""

from __future__ import annotations

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
        self._shown: dict[tuple[str, TaskId], list[Message]] = {}

    async def complete(self, request: Request) -> Turn:
        """The demonstration's next message.

        Raises:
            PolicyError: when there is no demonstration, or the episode goes on after its end.
        """
        task = request.task
        if task is None:
            raise PolicyError("the oracle was asked without a task", kind="oracle")
        answers = self._answers(task)
        done = sum(message.role == "assistant" for message in request.messages) - sum(
            message.role == "assistant" for message in self.environment.prompt(task)
        )
        if done >= len(answers):
            raise PolicyError(
                f"the demonstration of task {task.id!r} of {task.environment!r} has {len(answers)} turns, "
                "but the episode goes on",
                kind="oracle",
            )
        return Turn(answers[done])

    def _answers(self, task: Task) -> list[Message]:
        key = (task.environment, task.id)
        if key not in self._shown:
            messages = demonstration(self.environment, task)
            if messages is None:
                raise PolicyError(
                    f"task {task.id!r} of {task.environment!r} has no demonstration; define demonstrate(task)",
                    kind="oracle",
                )
            self._shown[key] = [message for message in messages if message.role == "assistant"]
        return self._shown[key]
