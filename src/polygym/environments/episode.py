"""One episode: a policy plays one task of an environment. This is the only place that plays.

The one idea: whatever foreign code does (hook, tool, reward function, policy), the result is a rollout. A failure is
its `cause` and leaves it unscored; only cancellation, and a reward that is no number, leave this function as errors.

Order of an episode: `setup_state`; then turns, each answered by `env_response`, until one of these ends it, the first
that holds giving the `stop_reason`:
    context     the prompt fills the policy's context: nothing could be sampled (before any answer: unscored)
    truncated   the policy's answer was cut by a token limit
    NAME        the `@stop` hook of that name is true
    answered    the environment has nothing to say
    max_turns   the turn limit is reached
then the rubric, then the `@cleanup` hooks. `env_response` runs for the last answer too. A failure gives `error`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from polygym.environments.base import Environment, State
from polygym.errors import PolicyError
from polygym.messages import Message, as_messages
from polygym.policies.base import Policy, Request, Sampling
from polygym.rewards.rubric import BadRewardError
from polygym.rollout import Cause, Rollout, Task
from polygym.seeds import derive_seed


async def play(
    environment: Environment,
    task: Task,
    policy: Policy,
    *,
    sampling: Sampling,
    seed: int,
    group_id: str = "",
    rollout_index: int = 0,
    step: int | None = None,
    max_turns: int | None = None,
    timeout_seconds: float | None = None,
) -> Rollout:
    """Play one task once.

    Args:
        seed: of this rollout; turn t samples with `derive_seed(seed, t)`.
        max_turns: replaces the environment's limit.
        timeout_seconds: of the whole rollout; None for no limit. What had been said by then is kept.

    Returns:
        The rollout: `seconds` has `policy`, `environment`, `grading` and `total`; a failure is in `cause`, with
        `reward` None and the messages so far kept.

    Raises:
        BadRewardError: when a reward function returns something that is no number.
    """
    leaf = environment.leaf_of(task)
    rollout = Rollout(task.environment, task.id, group_id, rollout_index, seed, answer=task.answer, step=step)
    episode = _Episode(leaf, task, policy, rollout, sampling, leaf.max_turns if max_turns is None else max_turns)
    started = perf_counter()
    try:
        async with asyncio.timeout(timeout_seconds) as deadline:
            with policy.episode():
                rollout.stop_reason = await episode.converse()
            await episode.grade()
    except _Failure as failure:
        episode.fail(failure.cause)
    except TimeoutError as error:  # the deadline's: those of foreign code have become failures before they come here
        assert deadline.expired()
        known = getattr(error.__cause__, "__notes__", [])  # what a policy noted on its cancellation
        episode.fail(Cause("timeout", "; ".join([f"the rollout took longer than {timeout_seconds:g} s", *known])))
    finally:
        await episode.clean_up(timeout_seconds)
    rollout.seconds = {
        "policy": episode.policy_seconds,
        "environment": episode.environment_seconds,
        "grading": episode.grading_seconds,
        "total": perf_counter() - started,
    }
    return rollout


def _is_message(value: object) -> bool:
    """Whether a value is a message rather than a state."""
    return isinstance(value, Message) or (isinstance(value, Mapping) and "role" in value)


class _Failure(Exception):
    """Foreign code failed; `cause` goes to the rollout."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.cause = Cause(kind, message)


class _Episode:
    """What one episode holds while it is under way."""

    __slots__ = (
        "environment",
        "environment_seconds",
        "grading_seconds",
        "max_turns",
        "messages",
        "policy",
        "policy_seconds",
        "rollout",
        "sampling",
        "state",
        "task",
    )

    def __init__(
        self, environment: Environment, task: Task, policy: Policy, rollout: Rollout, sampling: Sampling, max_turns: int
    ) -> None:
        self.environment = environment
        self.task = task
        self.policy = policy
        self.rollout = rollout
        self.sampling = sampling
        self.max_turns = max_turns
        self.messages = rollout.messages
        self.policy_seconds = self.environment_seconds = self.grading_seconds = 0.0
        self.state: State = {
            "task": task,
            "answer": task.answer,
            "info": dict(task.info),
            "prompt": [],
            "messages": self.messages,
            "turn": 0,
            "seed": rollout.seed,
            "metrics": rollout.metrics,
        }

    async def converse(self) -> str:
        """Play all turns; returns the stop reason."""
        await self._set_up()
        if reason := await self._stopped():
            return reason
        rollout, environment = self.rollout, self.environment
        shown = self.task if self.policy.wants_task else None
        previous = None
        while True:
            number = len(rollout.turns)
            request = Request(
                list(self.messages),
                environment.tools,
                self.sampling,
                derive_seed(rollout.seed, number),
                previous,
                shown,
            )
            started = perf_counter()
            try:
                turn = await self.policy.complete(request)
            except PolicyError as error:
                raise _Failure(error.kind, f"turn {number}: {error}") from error
            except Exception as error:  # a policy is other people's code
                raise _Failure("policy", f"turn {number}: the policy raised {type(error).__name__}: {error}") from error
            finally:
                self.policy_seconds += perf_counter() - started
            if turn.finish_reason == "context":
                rollout.truncated = True
                if not rollout.turns:
                    raise _Failure(
                        "context", "the prompt does not fit the policy's context; shorten it or raise the limit"
                    )
                return "context"
            previous = turn
            rollout.turns.append(turn)
            self.messages.append(turn.message)
            self.state["turn"] = number + 1
            replied = await self._reply()
            reason = await self._stopped()
            if turn.finish_reason == "length":
                rollout.truncated = True
                return "truncated"
            if reason:
                return reason
            if not replied:
                return "answered"
            if number + 1 >= self.max_turns:
                return "max_turns"

    async def grade(self) -> None:
        """Ask the rubric."""
        rollout, task, started = self.rollout, self.task, perf_counter()
        context = {
            "completion": "\n".join([turn.message.content for turn in rollout.turns]),
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
            raise _Failure("reward", f"the rubric raised {type(error).__name__}: {error}") from error
        finally:
            self.grading_seconds = perf_counter() - started
        rollout.reward, rollout.rewards, rollout.cause = score.reward, score.rewards, score.cause
        rollout.metrics = self._metrics(score.metrics)

    def _metrics(self, scored: dict[str, float | None]) -> dict[str, float | None]:
        """The numbers that the hooks left in the state, and those of the rubric."""
        metrics = self.state["metrics"]
        for name, value in metrics.items():
            if value is not None and not isinstance(value, (int, float)):
                raise _Failure("environment", f"state['metrics'][{name!r}] must be a number, got {value!r:.80}")
            if name in scored:
                raise _Failure(
                    "environment", f"metric {name!r} is both in state['metrics'] and a function of the rubric"
                )
        return {**metrics, **scored}

    async def clean_up(self, timeout_seconds: float | None) -> None:
        """Run every cleanup hook, whatever went before and whatever the others do; each has the time of a rollout."""
        for name, hook in self.environment.cleanups:
            try:
                async with asyncio.timeout(timeout_seconds):
                    await self._ask(name, hook, self.state)
            except _Failure as failure:
                self.fail(failure.cause)
            except TimeoutError:
                self.fail(Cause("timeout", f"{name} took longer than {timeout_seconds:g} s"))

    def fail(self, cause: Cause) -> None:
        """Leave the rollout unscored; the first cause is kept."""
        self.rollout.cause = self.rollout.cause or cause
        self.rollout.reward = None
        self.rollout.stop_reason = "error"

    async def _set_up(self) -> None:
        environment = self.environment
        self.state["prompt"] = await self._ask("prompt", environment.prompt, self.task)
        returned = await self._ask("setup_state", environment.setup_state, self.state)
        if returned is not None:
            self._adopt(returned, "setup_state")
        self.messages += self._as_messages(self.state["prompt"], "setup_state")

    async def _reply(self) -> bool:
        """Let the environment answer; whether it said anything."""
        returned = await self._ask("env_response", self.environment.env_response, list(self.messages), self.state)
        # Text or messages, or a pair of either with the state; a dict that is a message has a role.
        if isinstance(returned, tuple) and len(returned) == 2 and not _is_message(returned[1]):
            returned, state = returned
            self._adopt(state, "env_response")
        if not returned:
            return False
        self.messages += self._as_messages(returned, "env_response")
        return True

    def _adopt(self, state: Any, hook: str) -> None:
        """Go on with the state that a hook returned, filled up with what every state has."""
        if not isinstance(state, dict):
            raise _Failure(
                "environment", f"{hook} returned a {type(state).__name__} as state, not a dict: {state!r:.80}"
            )
        if state is not self.state:
            self.state = {**self.state, **state, "messages": self.messages}

    async def _stopped(self) -> str | None:
        """Name of the first stop hook that is true."""
        for name, hook in self.environment.stops:
            if await self._ask(name, hook, self.state):
                return name
        return None

    async def _ask(self, name: str, hook: Callable[..., Any], *arguments: Any) -> Any:
        """Call a hook, sync or async, on the environment's time."""
        started = perf_counter()
        try:
            returned = hook(*arguments)
            if hasattr(returned, "__await__"):
                returned = await returned
        except Exception as error:  # hooks are other people's code
            raise _Failure("environment", f"{name} raised {type(error).__name__}: {error}") from error
        finally:
            self.environment_seconds += perf_counter() - started
        return returned

    def _as_messages(self, value: Any, hook: str) -> list[Message]:
        try:
            return as_messages(value)
        except (ValueError, TypeError, KeyError) as error:
            raise _Failure("environment", f"{hook} gave no messages: {error}") from error
