"""The Policy protocol: who answers.

The one idea: a policy turns a request (messages, tools, sampling, seed) into a turn. Batching, retries and token ids
are its own business; environments never see them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from polygym.errors import UsageError
from polygym.messages import Message, ToolSpec
from polygym.rollout import Task, Turn


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample one turn. `max_tokens` bounds a turn; a temperature of 0 is greedy.

    Raises:
        UsageError: when a value is out of range.
    """

    max_tokens: int = 512
    temperature: float = 1.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.max_tokens, bool) or not isinstance(self.max_tokens, int) or self.max_tokens < 1:
            raise UsageError(f"max_tokens={self.max_tokens!r} must be an integer of at least 1")
        if not 0 <= self.temperature <= 100:
            raise UsageError(
                f"temperature={self.temperature!r} is outside [0, 100]; 0 is greedy, 1 samples the policy itself"
            )
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top_p={self.top_p!r} is outside (0, 1]; 1 keeps every token")


@dataclass(slots=True)
class Request:
    """What a policy is asked.

    `previous` is the policy's own last turn in this episode (None for the first): its `prompt_token_ids` and
    `token_ids` are the exact prefix of this conversation, and only the messages after it are still to be encoded.
    `task` is filled only for a policy with `wants_task`. `extra` are further fields of the wire, for a policy that asks
    a server; one that computes here has been spared those that it cannot heed. `on_text` is told the visible text so
    far while the answer is written, in the event loop, by a policy that can tell it early.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSpec]
    sampling: Sampling
    seed: int
    previous: Turn | None = None
    task: Task | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    on_text: Callable[[str], None] | None = None


class Policy(Protocol):
    """Who answers. Subclass it for the defaults, or match its shape."""

    name: str
    version: int = 0
    wants_task: bool = False

    async def complete(self, request: Request) -> Turn:
        """Answer once.

        Raises:
            PolicyError: when no answer could be had for a reason outside the policy's own output. A prompt that does
                not fit is not an error: it is a turn with `finish_reason="context"`.
        """
        ...

    def episode(self) -> AbstractContextManager[None]:
        """Held while an episode is under way. A batching policy waits for all that are before it computes."""
        return nullcontext()

    async def close(self) -> None:
        """Release connections, threads and models. Calling it twice is harmless."""
        return
