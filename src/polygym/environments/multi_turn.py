"""MultiTurnEnv: the policy and the environment take turns until a stop hook, the turn limit, or nothing more to say."""

from __future__ import annotations

from typing import Any

from polygym.environments.base import Environment
from polygym.errors import UsageError

DEFAULT_MAX_TURNS = 10


class MultiTurnEnv(Environment):
    """Override `env_response(messages, state)`, and where needed `setup_state(state)`, `@stop` and `@cleanup` hooks.

    `env_response` also answers the last turn that the limit allows, so that a win on it counts.
    Arguments are those of `Environment`.
    """

    def __init__(self, dataset: Any = None, *, max_turns: int = DEFAULT_MAX_TURNS, **arguments: Any) -> None:
        if type(self).env_response is Environment.env_response:
            raise UsageError(
                f"{type(self).__name__} does not say how it replies; define `env_response(self, messages, state)`, "
                "or use SingleTurnEnv"
            )
        super().__init__(dataset, max_turns=max_turns, **arguments)
