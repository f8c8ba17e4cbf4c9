"""Names of environments: what may be one, and which cannot stand side by side.

The one idea: a name becomes a metric prefix, a file name and a config key, so it is checked where the environment is
built, not where the first of these breaks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from polygym.errors import UsageError

RESERVED = ("_default", "all", "combined", "eval", "reward", "time")
MAX_LENGTH = 128
AGENT = "simple_agent"
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)


class EnvironmentNameError(UsageError):
    """Names that cannot be used.

    `code` is `no_environments`, `bad_name`, `reserved_name`, `duplicate_name` or `colliding_path`.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def path_of(name: str) -> str:
    """The name as it looks in a file or module name: equal paths mean one file on some system.

    >>> path_of("owner/My-Env")
    'owner_my_env'
    """
    return re.sub(r"[/.-]", "_", name).lower()


def check_names(names: Sequence[object]) -> None:
    """Check that each name is usable and that no two are equal or would share a path.

    Raises:
        EnvironmentNameError: says what was given, where, and what is allowed.
    """
    if not names:
        raise EnvironmentNameError("no environments were given; give at least one", "no_environments")
    for position, name in enumerate(names):
        _check_name(name, position)
    seen: dict[str, int] = {}
    for position, name in enumerate(map(str, names)):
        path = path_of(name)
        first = seen.setdefault(path, position)
        if first == position:
            continue
        if name == names[first]:
            raise EnvironmentNameError(
                f"environment name {name!r} is used twice (positions {first} and {position}); "
                f'names must be unique: pass env_names=["{name}", "{name}_2"]',
                "duplicate_name",
            )
        raise EnvironmentNameError(
            f"environment names {names[first]!r} (position {first}) and {name!r} (position {position}) both become "
            f"{path!r} in file names; rename one with env_names",
            "colliding_path",
        )


def served_name(target: str) -> str:
    """Name of the server of an environment that is given by id, as package.module:name, or by path.

    >>> served_name("math_rl"), served_name("my_package.weather:load"), served_name("./my_env")
    ('math_rl', 'weather', 'my_env')

    Raises:
        UsageError: when it is none of these.
    """
    if re.fullmatch(r"\w[\w-]*", target):
        return target
    path = target.partition(":")[0]
    name = Path(path).stem if "/" in path or path.endswith(".py") else path.rpartition(".")[2]
    if not name:
        raise UsageError(f"environment {target!r} must be an id, package.module:name, or a path")
    return name


def agent_name(environment: str) -> str:
    """Name of the agent that plays a served environment.

    >>> agent_name("math_rl")
    'math_rl_simple_agent'
    """
    return f"{environment}_{AGENT}"


def environment_of_agent(agent: str) -> str | None:
    """The environment that an agent's name says it plays; None where it says none.

    >>> environment_of_agent("math_rl_simple_agent")
    'math_rl'
    """
    environment = agent.removesuffix(f"_{AGENT}")
    return None if environment in (agent, "") else environment


def _check_name(name: object, position: int) -> None:
    if not isinstance(name, str) or not name or len(name) > MAX_LENGTH:
        raise EnvironmentNameError(
            f"environment name {name!r:.150} (position {position}) must be text of 1 to {MAX_LENGTH} characters",
            "bad_name",
        )
    for part in name.split("/"):
        if not _PART.fullmatch(part):
            raise EnvironmentNameError(
                f"environment name {name!r} (position {position}) must be made of letters, digits, '_', '-' and '.', "
                "starting with a letter, a digit or '_'; parts may be joined by '/'",
                "bad_name",
            )
        if part.lower() in RESERVED:
            raise EnvironmentNameError(
                f"environment name {name!r} (position {position}) uses the reserved word {part!r}; "
                f"reserved: {', '.join(RESERVED)}; choose another with env_names",
                "reserved_name",
            )
