"""multi_env: arithmetic, tool use and the word game as one environment, with equal shares.

The one idea: a group is an environment. To add a fourth, load it and name it:

    documents = polygym.load_environment("document_search_l1")
    group = polygym.EnvGroup([load_environment(), documents], env_names=["basics", "documents"])

(nested: routes `basics/math` and so on), or side by side under names of their own:

    group = polygym.EnvGroup([*load_environment().leaves().values(), documents], ["math", "tools", "word", "documents"])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polygym.environments import EnvGroup
from polygym.environments import load_environment as load_recipe
from polygym.errors import UsageError

MATH_ARGS: Mapping[str, Any] = {"operations": "+-", "addend_range": (1, 99)}
WORD_ARGS: Mapping[str, Any] = {"openings": 2}
"""What `math` and `word` are here, unless told otherwise: within reach of a small policy, yet far from mastered."""


def load_environment(
    math_examples: int = 2000,
    tools_examples: int = 2000,
    word_examples: int = 2000,
    eval_examples: int | None = None,
    seed: int = 0,
    math_args: Mapping[str, Any] | None = None,
    tools_args: Mapping[str, Any] | None = None,
    word_args: Mapping[str, Any] | None = None,
) -> EnvGroup:
    """`math`, `tools` and `word`, with equal shares whatever the numbers of examples.

    Args:
        math_examples: training tasks of `math` (recipe math_rl).
        tools_examples: training tasks of `tools` (recipe tool_use).
        word_examples: training tasks of `word` (recipe word_game).
        eval_examples: held-out tasks of each; default as many as training tasks, or as many as there are.
        seed: chooses the tasks of all three.
        math_args: further arguments of math_rl; default `MATH_ARGS`, which given ones replace one by one.
        tools_args: further arguments of tool_use.
        word_args: further arguments of word_game; likewise over `WORD_ARGS`.

    Raises:
        UsageError: for a bad argument, or more examples than exist; it names the maximum.
    """
    children = {
        "math": ("math_rl", math_examples, {**MATH_ARGS, **(math_args or {})}),
        "tools": ("tool_use", tools_examples, tools_args or {}),
        "word": ("word_game", word_examples, {**WORD_ARGS, **(word_args or {})}),
    }
    envs = []
    for name, (recipe, examples, arguments) in children.items():
        for key in ("num_examples", "num_eval_examples", "seed"):
            if key in arguments:
                ours = {"num_examples": f"{name}_examples", "num_eval_examples": "eval_examples"}.get(key, key)
                raise UsageError(f"multi_env: {name}_args has {key!r}; give {ours} instead")
        sizes = {"num_examples": examples, "num_eval_examples": eval_examples, "seed": seed}
        envs.append(load_recipe(recipe, **sizes, **arguments))
    return EnvGroup(envs, env_names=list(children), name="multi_env")
