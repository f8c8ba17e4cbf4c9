"""EnvironmentSession: the environment's half of an episode, from `setup_state` to the `@cleanup` hooks.

The one idea: what an environment does in an episode does not depend on where the policy is. `episode.play` holds a
session beside its policy, a resources server holds many whose policies are elsewhere, and `RemoteEnvironment` gives
`play` sessions that such a server holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from polygym.messages import Message, ToolSpec, as_messages
from polygym.rewards.rubric import BadRewardError, Score
from polygym.rollout import Cause, Task, Turn

if TYPE_CHECKING:
    from polygym.environments.base import Environment, State

OUT_OF_TIME = "out_of_time"
"""Key of the state: a tool has used up the time of the rollout."""


class EpisodeFailure(Exception):
    """The episode cannot go on; `cause` goes to the rollout, which is unscored."""

    def __init__(self, kind: str, message: str, *, asked: bool = True) -> None:
        super().__init__(message)
        self.cause = Cause(kind, message, asked)


class EnvironmentSession:
    """One episode as its environment sees it. `messages` and `state` live as long as it does.

    `prompt` is what the messages begin with, whatever hooks have made of it; empty before `set_up`.

    Args:
        environment: a leaf.
        task: what is asked.
        seed: of this episode, for hooks that draw (`state["seed"]`).
        prompt: where it is given; default `environment.prompt(task)`.
    """

    __slots__ = (
        "_given_prompt",
        "environment",
        "environment_seconds",
        "grading_seconds",
        "messages",
        "metrics",
        "prompt",
        "state",
        "task",
    )

    def __init__(
        self, environment: Environment, task: Task, *, seed: int, prompt: Sequence[Message] | None = None
    ) -> None:
        self.environment = environment
        self.task = task
        self.prompt: list[Message] = []
        self._given_prompt = prompt
        self.messages: list[Message] = []
        self.metrics: dict[str, float | None] = {}
        self.environment_seconds = self.grading_seconds = 0.0
        self.state: State = {
            "task": task,
            "answer": task.answer,
            "info": dict(task.info),
            "prompt": [],
            "messages": self.messages,
            "turn": 0,
            "seed": seed,
            "metrics": self.metrics,
            "deadline": None,
        }

    @property
    def max_turns(self) -> int:
        """Answers of the policy in this episode."""
        return self.environment.max_turns

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """What the policy may call in this episode."""
        return self.environment.tools_of(self.task)

    async def set_up(self) -> None:
        """Fill the state and say the prompt.

        Raises:
            EpisodeFailure: here and in every other method, where foreign code fails.
        """
        environment = self.environment
        prompt = self._given_prompt
        self.state["prompt"] = await self._ask("prompt", environment.prompt, self.task) if prompt is None else prompt
        returned = await self._ask("setup_state", environment.setup_state, self.state)
        if returned is not None:
            self._adopt(returned, "setup_state")
        self._begin(_as_messages(self.state["prompt"], "setup_state"))

    def answered(self, message: Message) -> None:
        """Take what the policy said."""
        self.messages.append(message)
        self.state["turn"] += 1

    async def reply(self) -> bool:
        """Let the environment answer; whether it said anything."""
        returned = await self._ask("env_response", self.environment.env_response, list(self.messages), self.state)
        # Text or messages, or a pair of either with the state; a dict that is a message has a role.
        if isinstance(returned, tuple) and len(returned) == 2 and not _is_message(returned[1]):
            returned, state = returned
            self._adopt(state, "env_response")
        if not returned:
            return False
        self.messages += _as_messages(returned, "env_response")
        return True

    async def stopped(self) -> str | None:
        """Name of the first stop hook that is true."""
        for name, hook in self.environment.stops:
            if await self._ask(name, hook, self.state):
                return name
        return None

    async def grade(self, turns: Sequence[Turn]) -> Score:
        """What the rubric says of the policy's `turns`; the score's metrics include those that the hooks left.

        Raises:
            BadRewardError: when a reward function returns something that is no number.
        """
        task, started = self.task, perf_counter()
        context = {
            "completion": "\n".join([turn.message.content for turn in turns]),
            "messages": self.messages,
            "answer": task.answer,
            "info": self.state["info"],
            "state": self.state,
            "task": task,
            "parser": self.environment.parser,
        }
        try:
            score = await self.environment.rubric.score(context)
        except BadRewardError:
            raise
        except Exception as error:  # a rubric may be a subclass of somebody else's
            raise EpisodeFailure("reward", f"the rubric raised {type(error).__name__}: {error}") from error
        finally:
            self.grading_seconds += perf_counter() - started
        score.metrics = self._with_metrics(score.metrics)
        return score

    async def clean_up(self, timeout_seconds: float | None) -> Cause | None:
        """Run every cleanup hook, whatever went before and whatever the others do; each has `timeout_seconds`.

        Returns:
            The first thing that went wrong, or None. This method raises nothing.
        """
        cause = None
        for name, hook in self.environment.cleanups:
            try:
                async with asyncio.timeout(timeout_seconds):
                    await self._ask(name, hook, self.state)
            except EpisodeFailure as failure:
                cause = cause or failure.cause
            except TimeoutError:
                cause = cause or Cause("timeout", f"{name} took longer than {timeout_seconds:g} s")
        return cause

    def _begin(self, prompt: list[Message]) -> None:
        self.prompt = prompt
        self.messages += prompt

    def _with_metrics(self, scored: dict[str, float | None]) -> dict[str, float | None]:
        """The numbers that the hooks left in the state, and those of the rubric."""
        metrics = self.state["metrics"]
        for name, value in metrics.items():
            if value is not None and not isinstance(value, (int, float)):
                raise EpisodeFailure("environment", f"state['metrics'][{name!r}] must be a number, got {value!r:.80}")
            if name in scored:
                raise EpisodeFailure(
                    "environment", f"metric {name!r} is both in state['metrics'] and a function of the rubric"
                )
        return {**metrics, **scored}

    def _adopt(self, state: Any, hook: str) -> None:
        """Go on with the state that a hook returned, filled up with what every state has."""
        if not isinstance(state, dict):
            raise EpisodeFailure(
                "environment", f"{hook} returned a {type(state).__name__} as state, not a dict: {state!r:.80}"
            )
        if state is not self.state:
            self.state = {**self.state, **state, "messages": self.messages}

    async def _ask(self, name: str, hook: Callable[..., Any], *arguments: Any) -> Any:
        """Call a hook, sync or async, on the environment's time."""
        started = perf_counter()
        try:
            returned = hook(*arguments)
            if hasattr(returned, "__await__"):
                returned = await returned
        except Exception as error:  # hooks are other people's code
            raise EpisodeFailure("environment", f"{name} raised {type(error).__name__}: {error}") from error
        finally:
            self.environment_seconds += perf_counter() - started
        return returned


def _is_message(value: object) -> bool:
    """Whether a value is a message rather than a state."""
    return isinstance(value, Message) or (isinstance(value, Mapping) and "role" in value)


def _as_messages(value: Any, hook: str) -> list[Message]:
    try:
        return as_messages(value)
    except (ValueError, TypeError, KeyError) as error:
        raise EpisodeFailure("environment", f"{hook} gave no messages: {error}") from error
