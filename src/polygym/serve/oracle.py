"""RowOracle: the oracle of a model server, which is sent the row that it is asked about.

The one idea: in process the oracle holds its environment; here the request's task names one, which is built when it is
first named. What a request names is among the given environments or registered: it never imports anything else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from polygym.environments.base import Environment
from polygym.environments.oracle import demonstrated_answers, next_answer
from polygym.environments.registry import list_environments, load_environment
from polygym.environments.wire_rows import without_preamble
from polygym.errors import PolicyError, UsageError, nearest
from polygym.messages import Message
from polygym.policies.base import Policy, Request
from polygym.rollout import Task, Turn

REMEMBERED = 1024  # demonstrations; each turn of an episode asks for the same one


class RowOracle(Policy):
    """Plays the assistant messages of `demonstrate(task)`, one a turn, for the environments that tasks name.

    Args:
        environments: id and arguments, as `load_environment` takes them, of each environment that is not known by its
            id or has other arguments than the default.
    """

    name = "oracle"
    version = 0
    wants_task = True

    def __init__(self, environments: Mapping[str, tuple[str, Mapping[str, Any]]] | None = None) -> None:
        self._known = dict(environments or {})
        self._environments: dict[str, Environment] = {}
        self._answers: OrderedDict[str, list[Message]] = OrderedDict()

    async def complete(self, request: Request) -> Turn:
        """The demonstration's next message.

        Raises:
            PolicyError: when there is no task or no demonstration, or the episode goes on after its end.
        """
        task = request.task
        if task is None:
            raise PolicyError(
                'the oracle was asked without a task; send "task": {"environment": NAME, "row": ROW}', "oracle"
            )
        return next_answer(self._demonstration(task), task, request.messages, task.prompt)

    def _demonstration(self, task: Task) -> list[Message]:
        key = repr(task)  # ids of rows from different files may be equal
        answers = self._answers.get(key)
        if answers is None:
            environment = self._environment(task.environment)
            prompt = without_preamble(list(task.prompt), environment.preamble)
            try:
                answers = demonstrated_answers(environment, replace(task, prompt=tuple(prompt)))
            except PolicyError:
                raise
            except Exception as error:  # an author's code, and a row from anywhere
                raise PolicyError(
                    f"demonstrate of {task.environment!r} raised {type(error).__name__} for task {task.id!r}: {error}",
                    "oracle",
                ) from error
            self._answers[key] = answers
            if len(self._answers) > REMEMBERED:
                self._answers.popitem(last=False)
        return answers

    def _environment(self, name: str) -> Environment:
        if name not in self._environments:
            known: dict[str, tuple[str, Mapping[str, Any]]] = {
                entry.id: (entry.id, {}) for entry in list_environments()
            }
            known |= self._known
            if name not in known:
                raise UsageError(f"task environment {name!r} is unknown to the oracle; {nearest(name, known)}")
            id, arguments = known[name]
            self._environments[name] = load_environment(id, **arguments)
        return self._environments[name]
