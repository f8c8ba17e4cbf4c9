"""Verdicts: what a resources server says of an episode, and how `/verify` says it.

The one idea: a reward is a number or it is absent, with its cause; what is no number at all is a mistake in the code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from polygym.environments.remote_session import BAD_REWARD
from polygym.rewards.rubric import BadRewardError, as_reward
from polygym.rollout import Cause
from polygym.rows import Row

_OWN = ("reward", "mask_sample", "failure_kind", "failure_reason")


@dataclass(slots=True)
class Verdict:
    """What a server says of an episode. `reward` None is unscored, and `cause` says why."""

    reward: float | None
    rewards: dict[str, float | None] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    cause: Cause | None = None


def as_verdict(returned: Any, row: Row) -> Verdict:
    """The verdict in what an author's `verify` returned.

    What it repeats of the row is no metric; `mask_sample`, `failure_kind` and `failure_reason` leave it unscored.
    """
    if isinstance(returned, BaseModel):
        returned = returned.model_dump()
    told = dict(returned) if isinstance(returned, Mapping) else {"reward": returned}
    metrics = {name: value for name, value in told.items() if name not in row and name not in _OWN}
    try:
        reward = as_reward(told.get("reward"), "verify")
    except BadRewardError as error:
        return Verdict(None, cause=Cause(BAD_REWARD, str(error)))
    if told.get("mask_sample"):
        said = told.get("failure_reason") or "verify masked it"
        return Verdict(None, {}, metrics, Cause(str(told.get("failure_kind") or "reward"), str(said)))
    if reward is None or not math.isfinite(reward):
        return Verdict(None, {}, metrics, Cause("reward", f"verify returned {reward}"))
    return Verdict(reward, {"reward": reward}, metrics)


def broken_off(row: Row) -> Cause | None:
    """Why the response in a row is no answer of the policy: the model has failed. None where it is one."""
    response = row.get("response")
    if not isinstance(response, Mapping):
        return None
    error, status = response.get("error"), response.get("status")
    if not error and status not in ("failed", "cancelled"):
        return None
    said = error.get("message") or error.get("code") if isinstance(error, Mapping) else error
    return Cause("model", f"the response has the status {status!r}: {said or 'no error is told'}")


def verify_reply(row: Row, verdict: Verdict) -> Row:
    """The whole of the request, and the verdict; metrics stand at the top level too, where their name is free."""
    cause = verdict.cause if verdict.reward is None else None
    reply = {
        **row,
        "reward": verdict.reward,
        "rewards": verdict.rewards,
        "metrics": verdict.metrics,
        "mask_sample": verdict.reward is None,
        "failure_kind": cause.kind if cause else None,
        "failure_reason": cause.message if cause else None,
    }
    for name, value in verdict.metrics.items():
        reply.setdefault(name, value)
    return reply
