"""One episode: a policy plays one task of an environment. This is the only place that plays.

The one idea: whatever foreign code does (hook, tool, reward function, policy), the result is a rollout. A failure is
its `cause` and leaves it unscored; only cancellation, and a reward that is no number, leave this function as errors.

Order of an episode: `setup_state`; then turns, each answered by `env_response`, until one of these ends it, the first
that holds giving the `stop_reason`:
    context       the prompt fills the policy's context: nothing could be sampled (before any answer: unscored)
    truncated     the policy's answer was cut by a token limit
    NAME          the `@stop` hook of that name is true
    answered      the environment has nothing to say
    max_turns     the turn limit is reached
    token_budget  the tokens of the whole rollout are used up (also where that cut the last answer)
    time_budget   a tool used up the time of the whole rollout, but for a part that is kept for the rubric
then the rubric, then the `@cleanup` hooks. `env_response` runs for the last answer too. A failure gives `error`.

The environment's half of all this is an `EnvironmentSession`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from time import monotonic, perf_counter

from polygym.environments.base import Environment
from polygym.environments.session import OUT_OF_TIME, EnvironmentSession, EpisodeFailure
from polygym.errors import PolicyError, UsageError
from polygym.policies.base import Policy, Request, Sampling
from polygym.rollout import Cause, Rollout, Task, Turn
from polygym.seeds import derive_seed

TOOLS_FRACTION = 0.9  # of a rollout's time, within which tools have to be done


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
    max_total_tokens: int | None = None,
    timeout_seconds: float | None = None,
) -> Rollout:
    """Play one task once, in a session of its own.

    Args:
        seed: of this rollout; turn t samples with `derive_seed(seed, t)`.
        max_turns: replaces the environment's limit.
        max_total_tokens: how much the policy may sample in all its turns, by its own count; None for no limit.
        timeout_seconds: of the whole rollout; None for no limit. What had been said by then is kept.

    Returns:
        The rollout: `seconds` has `policy`, `environment`, `grading` and `total`; a failure is in `cause`, with
        `reward` None and the messages so far kept.

    Raises:
        BadRewardError: when a reward function returns something that is no number.
    """
    return await play_session(
        environment.leaf_of(task).open_session(task, seed=seed),
        policy,
        sampling=sampling,
        group_id=group_id,
        rollout_index=rollout_index,
        step=step,
        max_turns=max_turns,
        max_total_tokens=max_total_tokens,
        timeout_seconds=timeout_seconds,
    )


async def play_session(
    session: EnvironmentSession,
    policy: Policy,
    *,
    sampling: Sampling,
    group_id: str = "",
    rollout_index: int = 0,
    step: int | None = None,
    max_turns: int | None = None,
    max_total_tokens: int | None = None,
    timeout_seconds: float | None = None,
) -> Rollout:
    """`play` in a session that has not been set up yet, for those who have something to read from it afterwards."""
    if max_total_tokens is not None and max_total_tokens < 1:
        raise UsageError(f"max_total_tokens={max_total_tokens!r} must be at least 1, or None for no limit")
    task = session.task
    rollout = Rollout(
        task.environment,
        task.id,
        group_id,
        rollout_index,
        session.state["seed"],
        messages=session.messages,
        answer=task.answer,
        metrics=session.metrics,
        step=step,
    )
    episode = _Episode(session, policy, rollout, sampling, max_turns, max_total_tokens)
    started = perf_counter()
    if timeout_seconds is not None:
        session.state["deadline"] = monotonic() + TOOLS_FRACTION * timeout_seconds
    try:
        async with asyncio.timeout(timeout_seconds) as deadline:
            with policy.episode():
                rollout.stop_reason = await episode.converse()
            score = await session.grade(rollout.turns)
            rollout.reward, rollout.rewards, rollout.cause = score.reward, score.rewards, score.cause
            rollout.metrics = score.metrics
    except EpisodeFailure as failure:
        _fail(rollout, failure.cause)
    except TimeoutError as error:  # the deadline's: those of foreign code have become failures before they come here
        assert deadline.expired()
        known = getattr(error.__cause__, "__notes__", [])  # what a policy noted on its cancellation
        _fail(rollout, Cause("timeout", "; ".join([f"the rollout took longer than {timeout_seconds:g} s", *known])))
    finally:
        cause = await session.clean_up(timeout_seconds)
        if cause is not None:
            _fail(rollout, cause)
    rollout.seconds = {
        "policy": episode.policy_seconds,
        "environment": session.environment_seconds,
        "grading": session.grading_seconds,
        "total": perf_counter() - started,
    }
    return rollout


def _fail(rollout: Rollout, cause: Cause) -> None:
    """Leave the rollout unscored; the first cause is kept."""
    rollout.cause = rollout.cause or cause
    rollout.reward = None
    rollout.stop_reason = "error"


class _Episode:
    """The policy's half: who is asked what, and when it ends."""

    __slots__ = ("max_total_tokens", "max_turns", "policy", "policy_seconds", "rollout", "sampling", "session")

    def __init__(
        self,
        session: EnvironmentSession,
        policy: Policy,
        rollout: Rollout,
        sampling: Sampling,
        max_turns: int | None,
        max_total_tokens: int | None,
    ) -> None:
        self.session = session
        self.policy = policy
        self.rollout = rollout
        self.sampling = sampling
        self.max_turns = max_turns
        self.max_total_tokens = max_total_tokens
        self.policy_seconds = 0.0

    async def converse(self) -> str:
        """Play all turns; returns the stop reason."""
        session, rollout = self.session, self.rollout
        await session.set_up()
        if reason := await session.stopped():
            return reason
        tools = session.tools
        max_turns = session.max_turns if self.max_turns is None else self.max_turns
        shown = session.task if self.policy.wants_task else None
        sampling, left = self.sampling, self.max_total_tokens
        previous = None
        while True:
            if left is not None and left < sampling.max_tokens:
                sampling = replace(sampling, max_tokens=left)
            number = len(rollout.turns)
            request = Request(
                list(session.messages), tools, sampling, derive_seed(rollout.seed, number), previous, shown
            )
            turn = await self._complete(request, number)
            if turn.finish_reason == "context":
                rollout.truncated = True
                if not rollout.turns:
                    raise EpisodeFailure(
                        "context", "the prompt does not fit the policy's context; shorten it or raise the limit"
                    )
                return "context"
            previous = turn
            rollout.turns.append(turn)
            session.answered(turn.message)
            replied = await session.reply()
            reason = await session.stopped()
            if left is not None:
                left -= _sampled(turn)
            used_up = left is not None and left <= 0
            if turn.finish_reason == "length":
                rollout.truncated = True
                return "token_budget" if used_up else "truncated"
            if reason:
                return reason
            if not replied:
                return "answered"
            # A policy that took longer itself is not judged by what its tools had no time for.
            if session.state.get(OUT_OF_TIME) and session.environment_seconds > self.policy_seconds:
                rollout.truncated = True
                return "time_budget"
            if number + 1 >= max_turns:
                return "max_turns"
            if used_up:
                rollout.truncated = True
                return "token_budget"

    async def _complete(self, request: Request, number: int) -> Turn:
        """Ask the policy, on its time."""
        started = perf_counter()
        try:
            return await self.policy.complete(request)
        except PolicyError as error:
            raise EpisodeFailure(error.kind, f"turn {number}: {error}", asked=error.asked) from error
        except Exception as error:  # a policy is other people's code
            raise EpisodeFailure(
                "policy", f"turn {number}: the policy raised {type(error).__name__}: {error}"
            ) from error
        finally:
            self.policy_seconds += perf_counter() - started


def _sampled(turn: Turn) -> int:
    """Tokens of a turn, as its policy counted them."""
    return turn.usage.completion_tokens or len(turn.token_ids or ())
