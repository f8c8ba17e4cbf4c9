"""A rollout from what an agent server replied.

The one idea: polygym's agents reply with everything that a rollout file holds, others with a response and a reward at
least; both become the same record. Reading is total: a reply that makes no sense is an unscored rollout with a cause.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from polygym.environments.wire_rows import is_reserved
from polygym.errors import UsageError
from polygym.messages import Message
from polygym.policies.responses_wire import read_input, read_output
from polygym.rollout import Cause, Rollout, Turn, Usage

_NO_METRICS = ("rewards", "metrics", "turns", "usage", "seconds", "schema", "retry", "mask_sample")


def fill(rollout: Rollout, row: Mapping[str, Any], reply: Mapping[str, Any]) -> None:
    """Put what an agent replied to `row` into a rollout that is empty but for its names."""
    rollout.reward = _number(reply.get("reward"))
    rollout.cause = _cause(reply)
    if rollout.cause is not None:
        rollout.reward = None
    elif rollout.reward is None:
        rollout.cause = Cause(
            "server", f"the agent's reply has no reward that is a number: {reply.get('reward')!r:.80}"
        )
    rollout.rewards = _numbers(reply.get("rewards"))
    rollout.metrics = _numbers(reply["metrics"]) if isinstance(reply.get("metrics"), Mapping) else _others(row, reply)
    response = reply["response"] if isinstance(reply.get("response"), Mapping) else {}
    details = response.get("incomplete_details")
    rollout.truncated = bool(reply.get("truncated", isinstance(details, Mapping) and bool(details.get("reason"))))
    rollout.stop_reason = str(reply.get("stop_reason") or ("error" if rollout.cause else ""))
    rollout.seconds = {name: value for name, value in _numbers(reply.get("seconds")).items() if value is not None}
    rollout.messages = _messages(row, reply, response)
    said = [message for message in rollout.messages if message.role == "assistant"]
    count = reply.get("turns")
    if not isinstance(count, int):
        count = len(said) - _said_before(row)
    version = reply.get("policy_version")
    turns = [Turn(message, policy_version=version if isinstance(version, int) else 0) for message in said[-count:]]
    rollout.turns = turns if count > 0 else []
    if rollout.turns:  # only their sum is known
        rollout.turns[-1].usage = _usage(reply.get("usage") or response.get("usage"))


def _cause(reply: Mapping[str, Any]) -> Cause | None:
    cause = reply.get("cause")
    if isinstance(cause, Mapping):
        return Cause(str(cause.get("class", "server")), str(cause.get("message", "")))
    kind = reply.get("failure_kind")
    return Cause(str(kind), str(reply.get("failure_reason") or "")) if kind and reply.get("reward") is None else None


def _messages(row: Mapping[str, Any], reply: Mapping[str, Any], response: Mapping[str, Any]) -> list[Message]:
    """The messages as told, else those of the request and of the response."""
    try:
        if isinstance(told := reply.get("messages"), list):
            return [Message.from_dict(message) for message in told]
        return [*_prompt(row), *read_output(response.get("output") or [])]
    except (UsageError, KeyError, TypeError, AttributeError):  # nothing that can be read as messages
        return []


def _prompt(row: Mapping[str, Any]) -> list[Message]:
    return read_input(row["responses_create_params"].get("input") or "")


def _said_before(row: Mapping[str, Any]) -> int:
    return sum(message.role == "assistant" for message in _prompt(row))


def _others(row: Mapping[str, Any], reply: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers beside the reward, which is how other agents tell metrics."""
    return {
        name: float(value)
        for name, value in reply.items()
        if name not in row
        and name not in _NO_METRICS
        and not is_reserved(name)
        and isinstance(value, (int, float))
        and math.isfinite(value)
    }


def _numbers(named: object) -> dict[str, float | None]:
    return {str(name): _number(value) for name, value in named.items()} if isinstance(named, Mapping) else {}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _usage(usage: object) -> Usage:
    """Tokens read and written, under the names of rollout files or of the Responses API."""
    if not isinstance(usage, Mapping):
        return Usage()

    def first(names: Sequence[str]) -> int:
        return next((value for name in names if isinstance(value := usage.get(name), int)), 0)

    return Usage(first(("prompt_tokens", "input_tokens")), first(("completion_tokens", "output_tokens")))
