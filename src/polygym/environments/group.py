"""EnvGroup: several environments as one.

The one idea: a group holds names, routes and shares; its leaves do everything else, so that a group of groups is a
group and no leaf can be mistaken for another.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from polygym.environments.base import Environment, Split, refuse_unknown
from polygym.environments.names import check_names
from polygym.environments.weights import normalize_weights
from polygym.errors import UsageError, nearest
from polygym.messages import Message
from polygym.rollout import Task


class EnvGroup(Environment):
    """Environments under names, with weights.

    Args:
        envs: environments; groups among them are joined in by routes like `reasoning/math`.
        env_names: a name for each; default their own.
        weights: a number of at least 0 for each; default equal, whatever the dataset sizes. 0 switches one off: it
            then has no leaf and no share.
        name: of the group itself.

    Raises:
        UsageError: for no environments, names that are bad, equal or collide, and weights that give no mix.
    """

    def __init__(
        self,
        envs: Sequence[Environment],
        env_names: Sequence[str] | None = None,
        weights: Sequence[float] | None = None,
        name: str = "group",
        **unknown: Any,
    ) -> None:
        refuse_unknown(type(self), unknown)
        for argument, value in (("envs", envs), ("env_names", env_names or [])):
            if not isinstance(value, (list, tuple)):
                raise UsageError(f"{argument}={value!r:.80} must be a list, with an entry for each environment")
        envs = list(envs)
        for position, env in enumerate(envs):
            if not isinstance(env, Environment):
                raise UsageError(f"envs[{position}] is a {type(env).__name__}, not an Environment: {env!r:.80}")
        names = [env.name for env in envs] if env_names is None else list(env_names)
        if len(names) != len(envs):
            raise UsageError(f"{len(names)} env_names were given for {len(envs)} environments; give one for each")
        check_names(names)
        check_names([name])
        self.name = name
        self.env_names = names
        self.weights = normalize_weights(
            weights, [sum(len(leaf.tasks("train")) for leaf in env.leaves().values()) for env in envs]
        )
        self._leaves: dict[str, Environment] = {}
        self._shares: dict[str, float] = {}
        for child_name, child, weight in zip(names, envs, self.weights, strict=True):
            if weight == 0:
                continue
            shares = child.shares()
            for route, leaf in child.leaves().items():
                full = f"{child_name}/{route}" if isinstance(child, EnvGroup) else child_name
                if full in self._leaves:
                    raise UsageError(f"route {full!r} is used twice; rename one of {names} with env_names")
                self._leaves[full] = leaf.renamed(full)
                self._shares[full] = weight * shares[route]
        check_names(list(self._leaves))
        self.max_turns = max(leaf.max_turns for leaf in self._leaves.values())

    def tasks(self, split: Split = "train") -> list[Task]:
        """The tasks of all leaves, leaf after leaf. Draw by `shares`, not from this list: sizes are no weights."""
        return [task for leaf in self._leaves.values() for task in leaf.tasks(split)]

    def leaves(self) -> dict[str, Environment]:
        """The environments at the ends of the routes, those of weight 0 left out."""
        return dict(self._leaves)

    def shares(self) -> dict[str, float]:
        """Share of each leaf: the product of the weights along its route."""
        return dict(self._shares)

    def leaf_of(self, task: Task) -> Environment:
        """The leaf that a task belongs to."""
        leaf = self._leaves.get(task.environment)
        if leaf is None:
            raise UsageError(
                f"task {task.id!r} belongs to {task.environment!r}; {nearest(task.environment, self._leaves)}"
            )
        return leaf

    def prompt(self, task: Task) -> list[Message]:
        """The prompt of the task's leaf."""
        return self.leaf_of(task).prompt(task)

    def demonstrate(self, task: Task) -> Any:
        """The demonstration of the task's leaf."""
        return self.leaf_of(task).demonstrate(task)

    def demonstrated_reward(self, task: Task) -> float:
        """The reward that the demonstration of the task's leaf earns."""
        return self.leaf_of(task).demonstrated_reward(task)

    def renamed(self, name: str) -> Environment:
        """This group under another name; its routes stay, since they do not begin with it."""
        clone = copy.copy(self)
        clone.name = name
        return clone

    def __repr__(self) -> str:
        shares = ", ".join(f"{route}={share:.3g}" for route, share in self._shares.items())
        return f"EnvGroup(name={self.name!r}, {shares})"
