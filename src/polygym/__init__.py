"""polygym: train one language model on many reinforcement-learning environments at once.

    >>> import polygym as pg
    >>> "MathRubric" in dir(pg)
    True

The one idea here: names are looked up when they are first used, so importing the package costs milliseconds and loads
no heavy library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polygym.collect.evaluate import evaluate, evaluate_async
    from polygym.collect.results import Results
    from polygym.environments import (
        EnvGroup,
        Environment,
        MultiTurnEnv,
        RemoteEnvironment,
        SingleTurnEnv,
        ToolEnv,
        cleanup,
        list_environments,
        load_environment,
        stop,
    )
    from polygym.errors import GraderError, PolicyError, PolygymError, UsageError
    from polygym.messages import Message, ToolCall, ToolSpec
    from polygym.policies.base import Policy, Request, Sampling
    from polygym.policies.load import load_policy
    from polygym.rewards.judge import JudgeRubric
    from polygym.rewards.math import MathRubric
    from polygym.rewards.rubric import Rubric
    from polygym.rollout import Rollout, RolloutGroup, Task, Turn

__version__ = "0.1.0"

_HOMES = {
    "EnvGroup": "polygym.environments",
    "Environment": "polygym.environments",
    "GraderError": "polygym.errors",
    "JudgeRubric": "polygym.rewards.judge",
    "MathRubric": "polygym.rewards.math",
    "Message": "polygym.messages",
    "MultiTurnEnv": "polygym.environments",
    "Policy": "polygym.policies.base",
    "PolicyError": "polygym.errors",
    "PolygymError": "polygym.errors",
    "RemoteEnvironment": "polygym.environments",
    "Request": "polygym.policies.base",
    "Results": "polygym.collect.results",
    "Rollout": "polygym.rollout",
    "RolloutGroup": "polygym.rollout",
    "Rubric": "polygym.rewards.rubric",
    "Sampling": "polygym.policies.base",
    "SingleTurnEnv": "polygym.environments",
    "Task": "polygym.rollout",
    "ToolCall": "polygym.messages",
    "ToolEnv": "polygym.environments",
    "ToolSpec": "polygym.messages",
    "Turn": "polygym.rollout",
    "UsageError": "polygym.errors",
    "cleanup": "polygym.environments",
    "evaluate": "polygym.collect.evaluate",
    "evaluate_async": "polygym.collect.evaluate",
    "list_environments": "polygym.environments",
    "load_environment": "polygym.environments",
    "load_policy": "polygym.policies.load",
    "stop": "polygym.environments",
}

__all__ = [
    "EnvGroup",
    "Environment",
    "GraderError",
    "JudgeRubric",
    "MathRubric",
    "Message",
    "MultiTurnEnv",
    "Policy",
    "PolicyError",
    "PolygymError",
    "RemoteEnvironment",
    "Request",
    "Results",
    "Rollout",
    "RolloutGroup",
    "Rubric",
    "Sampling",
    "SingleTurnEnv",
    "Task",
    "ToolCall",
    "ToolEnv",
    "ToolSpec",
    "Turn",
    "UsageError",
    "cleanup",
    "evaluate",
    "evaluate_async",
    "list_environments",
    "load_environment",
    "load_policy",
    "stop",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'polygym' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
