"""Task, Turn, Rollout, RolloutGroup: what flows from environments through collection to training.

The one idea: a rollout is a record. Its text, rewards and times go to a JSONL line (`to_row`, schema 1); token ids and
log-probabilities stay with its turns, for the learner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from polygym.messages import Message

SCHEMA = 1
TaskId = int | str


@dataclass(frozen=True, slots=True)
class Task:
    """One row of an environment's dataset. (environment, id) names it; its text never does."""

    environment: str
    id: TaskId
    prompt: tuple[Message, ...]
    answer: Any = None
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens read and written."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(slots=True)
class Turn:
    """One answer of a policy.

    `finish_reason` is `stop`, `length` (cut by a token limit) or `context` (the prompt filled the context; nothing was
    sampled). Token fields are None where the policy cannot tell: `token_ids` are the ids that were sampled, `logprobs`
    their log-probabilities under the sampling distribution's own temperature, both of the same length.
    """

    message: Message
    finish_reason: str = "stop"
    usage: Usage = Usage()
    prompt_token_ids: Sequence[int] | None = None
    token_ids: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None
    policy_version: int = 0


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a rollout is unscored or failed: a class that can be counted, and a message for a person.

    `asked` is False where the model's endpoint was not asked, because requests before had found it dead.
    """

    kind: str
    message: str
    asked: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The cause as stored in rollout files; `asked` only where it is False."""
        told: dict[str, Any] = {"class": self.kind, "message": self.message}
        return told if self.asked else {**told, "asked": False}


@dataclass(slots=True)
class Rollout:
    """One episode of the policy on a task. `reward` is None when it could not be scored: that is not a reward of 0."""

    environment: str
    task_id: TaskId
    group_id: str
    rollout_index: int
    seed: int
    messages: list[Message] = field(default_factory=list)
    answer: Any = None
    reward: float | None = None
    rewards: dict[str, float | None] = field(default_factory=dict)
    metrics: dict[str, float | None] = field(default_factory=dict)
    advantage: float | None = None
    cause: Cause | None = None
    stop_reason: str = ""
    truncated: bool = False
    turns: list[Turn] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    step: int | None = None

    @property
    def scored(self) -> bool:
        """Whether the rollout has a finite reward."""
        return self.reward is not None and math.isfinite(self.reward)

    @property
    def policy_version(self) -> int:
        """Version of the policy that wrote the first turn."""
        return self.turns[0].policy_version if self.turns else 0

    @property
    def usage(self) -> Usage:
        """Tokens of all turns: read (each turn reads its whole prompt) and written."""
        return Usage(
            sum(turn.usage.prompt_tokens for turn in self.turns),
            sum(turn.usage.completion_tokens for turn in self.turns),
        )

    def to_row(self) -> dict[str, Any]:
        """The rollout as a line of `rollouts/*.jsonl` (docs/run_folder.md)."""
        usage = self.usage
        return {
            "schema": SCHEMA,
            "environment": self.environment,
            "task_id": self.task_id,
            "group_id": self.group_id,
            "rollout_index": self.rollout_index,
            "step": self.step,
            "policy_version": self.policy_version,
            "messages": [message.to_dict() for message in self.messages],
            "answer": self.answer,
            "reward": self.reward,
            "rewards": self.rewards,
            "metrics": self.metrics,
            "advantage": self.advantage,
            "scored": self.scored,
            "cause": self.cause.to_dict() if self.cause else None,
            "stop_reason": self.stop_reason,
            "truncated": self.truncated,
            "turns": len(self.turns),
            "usage": {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens},
            "seconds": self.seconds,
            "seed": self.seed,
        }


@dataclass(slots=True)
class RolloutGroup:
    """The K rollouts of one task that share a baseline."""

    environment: str
    task_id: TaskId
    group_id: str
    rollouts: list[Rollout]

    @property
    def rewards_K(self) -> list[float | None]:
        """Rewards in rollout order; None where unscored."""
        return [rollout.reward if rollout.scored else None for rollout in self.rollouts]
