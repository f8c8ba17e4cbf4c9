"""RememberingPolicy: a policy that others ask for us, and that knows afterwards what it said.

The one idea: only what this run's policy sampled may carry loss. An agent that plays elsewhere hands in token ids; the
turn that they name is looked up among those that were sampled here, and ids that are not there are somebody else's.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence

from polygym.policies.base import Policy, Request
from polygym.rollout import Turn


class RememberingPolicy(Policy):
    """Answers as `policy` does, which its owner closes."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.name = policy.name
        self.wants_task = policy.wants_task
        self._turns: dict[bytes, Turn] = {}

    async def complete(self, request: Request) -> Turn:
        """Answer once, and remember it."""
        turn = await self.policy.complete(request)
        if turn.prompt_token_ids is not None and turn.token_ids is not None:
            self._turns[_key(turn.prompt_token_ids, turn.token_ids)] = turn
        return turn

    def recall(self, turn: Turn) -> Turn | None:
        """The turn with these prompt and token ids, as it was sampled; None where it was not, or is forgotten."""
        if turn.prompt_token_ids is None or turn.token_ids is None:
            return None
        return self._turns.get(_key(turn.prompt_token_ids, turn.token_ids))

    def forget(self) -> None:
        """Forget all turns, as those of a policy that has been."""
        self._turns.clear()


def _key(prompt: Sequence[int], ids: Sequence[int]) -> bytes:
    digest = hashlib.blake2b(array("q", prompt).tobytes(), digest_size=16)
    digest.update(len(prompt).to_bytes(8, "big") + array("q", ids).tobytes())
    return digest.digest()
