"""What is asked: environments, groups of them, tools, the oracle and the registry; `episode.play` plays one rollout."""

from polygym.environments.base import Environment, State
from polygym.environments.episode import play
from polygym.environments.group import EnvGroup
from polygym.environments.hooks import cleanup, stop
from polygym.environments.multi_turn import MultiTurnEnv
from polygym.environments.oracle import OraclePolicy
from polygym.environments.registry import list_environments, load_environment
from polygym.environments.remote import RemoteEnvironment
from polygym.environments.single_turn import SingleTurnEnv
from polygym.environments.tool import ToolEnv

__all__ = [
    "EnvGroup",
    "Environment",
    "MultiTurnEnv",
    "OraclePolicy",
    "RemoteEnvironment",
    "SingleTurnEnv",
    "State",
    "ToolEnv",
    "cleanup",
    "list_environments",
    "load_environment",
    "play",
    "stop",
]
