"""Why rollouts of an environment have no reward, counted.

The one idea: what failed is told in one line an environment, with a count, the class of the cause and a message, so
that an environment that fails as a whole cannot pass unnoticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from polygym.rollout import Cause, Rollout
from polygym.text import one_line

CAUSES_SHOWN = 5
NO_CAUSE = Cause("unknown", "no cause was recorded")


@dataclass(slots=True)
class Unscored:
    """Rollouts of one environment, and those of them that could not be scored.

    `causes` counts the classes of cause; `messages` holds one message of each, shortened and without control codes.
    """

    rollouts: int = 0
    unscored: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)

    def count(self, rollout: Rollout) -> None:
        """Take in one more rollout."""
        self.take(rollout.scored, rollout.cause)

    def take(self, scored: bool, cause: Cause | None) -> None:
        """Take in one more. Of a class's messages the first in the alphabet is kept: the same in whatever order."""
        self.rollouts += 1
        if not scored:
            cause = cause or NO_CAUSE
            self.unscored += 1
            self.causes[cause.kind] = self.causes.get(cause.kind, 0) + 1
            message = one_line(cause.message)
            self.messages[cause.kind] = min(message, self.messages.get(cause.kind, message))

    def in_order(self) -> Unscored:
        """A copy with the most frequent class first."""
        kinds = sorted(self.causes, key=lambda kind: (-self.causes[kind], kind))
        return Unscored(
            self.rollouts,
            self.unscored,
            {kind: self.causes[kind] for kind in kinds},
            {kind: self.messages[kind] for kind in kinds},
        )

    def line(self, name: str) -> str:
        """What a person is told about the environment called `name`.

        >>> Unscored(4, 1, {"reward": 1}, {"reward": "exact raised KeyError"}).line("math")
        'math: 1 of 4 rollouts unscored (reward 1), left out of the means; reward: exact raised KeyError'
        """
        causes = sorted(self.causes.items(), key=lambda cause: -cause[1])[:CAUSES_SHOWN]
        counts = ", ".join(f"{kind} {count}" for kind, count in causes)
        message = f"{causes[0][0]}: {self.messages[causes[0][0]]}"
        if self.unscored < self.rollouts:
            told = f"{self.unscored} of {self.rollouts} rollouts unscored ({counts}), left out of the means"
            return f"{name}: {told}; {message}"
        return (
            f"{name}: none of {self.rollouts} rollouts was scored ({counts}); {message}; mend that, then begin anew "
            "(polygym env test tries an environment without a model)"
        )


def unscored_lines(found_E: Mapping[str, Unscored]) -> list[str]:
    """A line for each environment that has unscored rollouts."""
    return [found.line(name) for name, found in found_E.items() if found.unscored]


def never_scored(found_E: Mapping[str, Unscored]) -> list[str]:
    """Names of the environments that were played and never scored."""
    return [name for name, found in found_E.items() if found.rollouts and found.unscored == found.rollouts]
