"""Hooks: methods of an environment that an episode calls by mark, not by name.

The one idea: a mark on the method is all there is; the name of a stop hook becomes the rollout's `stop_reason`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Hook = TypeVar("Hook", bound=Callable[..., Any])
_MARK = "_polygym_hook"


def stop(hook: Hook) -> Hook:
    """Mark a method `(self, state) -> bool`, sync or async: the episode ends when it is true.

    It is asked before the first turn and after each reply of the environment.
    """
    setattr(hook, _MARK, "stop")
    return hook


def cleanup(hook: Hook) -> Hook:
    """Mark a method `(self, state)`, sync or async, that runs once after each episode, graded, failed or cancelled."""
    setattr(hook, _MARK, "cleanup")
    return hook


def marked(owner: object, kind: str) -> tuple[tuple[str, Callable[..., Any]], ...]:
    """(name, bound method) of each hook of a kind, base classes first, in the order of their definition.

    A method that overrides a marked one need not repeat the mark.
    """
    names: dict[str, None] = {}
    for cls in reversed(type(owner).__mro__):
        for name, value in vars(cls).items():
            if getattr(value, _MARK, None) == kind:
                names[name] = None
    return tuple((name, getattr(owner, name)) for name in names)
