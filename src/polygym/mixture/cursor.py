"""Which task of an environment comes next.

The one idea: (seed, environment, cursor) names a task. Nothing else is kept, so a resumed run draws on where it was,
whatever happened to the other environments.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from polygym.errors import UsageError
from polygym.seeds import derive_seed


class TaskCursor:
    """Draws task numbers 0 to size - 1 without replacement, in a new random order each epoch.

    >>> cursor = TaskCursor(seed=0, environment="math", size=3)
    >>> sorted(cursor.draw(3)), cursor.epoch
    ([0, 1, 2], 1)

    Args:
        seed: of the run.
        environment: whose tasks these are; each environment has its own order.
        size: how many tasks it has.

    Raises:
        UsageError: for fewer than one task.
    """

    def __init__(self, seed: int, environment: str, size: int) -> None:
        if size < 1:
            raise UsageError(
                f"environment {environment!r} has {size} tasks to draw from; give it at least 1, or weight 0"
            )
        self.seed = seed
        self.environment = environment
        self.size = size
        self.position = 0
        self._order: list[int] = []
        self._order_epoch = -1

    @property
    def epoch(self) -> int:
        """Whole passes through the tasks so far."""
        return self.position // self.size

    def draw(self, n: int) -> list[int]:
        """The next `n` task numbers."""
        drawn = [self._task(position) for position in range(self.position, self.position + n)]
        self.position += n
        return drawn

    def state_dict(self) -> dict[str, int]:
        """Where the cursor stands, and the size that it counted by."""
        return {"position": self.position, "size": self.size}

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Stand where the saved cursor stood.

        Returns:
            Whether the number of tasks is the same. Where it is not, the order is new and the position is kept.
        """
        self.position = int(state["position"])
        return int(state["size"]) == self.size

    def _task(self, position: int) -> int:
        epoch, place = divmod(position, self.size)
        if epoch != self._order_epoch:
            self._order = list(range(self.size))
            random.Random(derive_seed(self.seed, self.environment, "tasks", epoch)).shuffle(self._order)
            self._order_epoch = epoch
        return self._order[place]
