"""What a collection tells whoever watches.

The one idea: collection knows no display; it calls these four methods, which by default do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from polygym.rollout import Rollout


class Progress:
    """Subclass it, or match its shape."""

    def start(self, total_by_environment: Mapping[str, int]) -> None:
        """A collection begins; how many rollouts each environment will have."""

    def rollout(self, rollout: Rollout) -> None:
        """One episode has ended, scored or not."""

    def message(self, text: str) -> None:
        """A line for a person: what goes on beside the rollouts."""

    def finish(self) -> None:
        """The collection has ended, completely or not."""
