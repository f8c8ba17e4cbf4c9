"""Environments: arguments, names, hooks, reward methods."""

from __future__ import annotations

from typing import Any

import pytest

from environments.worlds import Countdown, Script, exact, rows, run, single
from polygym.environments import EnvGroup, Environment, MultiTurnEnv, SingleTurnEnv, State, ToolEnv, stop
from polygym.environments.base import default_name
from polygym.environments.hooks import marked
from polygym.errors import UsageError
from polygym.rewards.rubric import Rubric


def double(x: int) -> int:
    """Double a number."""
    return 2 * x


@pytest.mark.parametrize(
    ("cls", "extra", "typo", "hint"),
    [
        (SingleTurnEnv, {}, "system_promt", "system_prompt"),
        (SingleTurnEnv, {}, "max_turn", "held_out"),
        (Countdown, {}, "max_turn", "max_turns"),
        (ToolEnv, {"tools": [double]}, "tool_timeout", "tool_timeout_seconds"),
        (ToolEnv, {"tools": [double]}, "evaldataset", "eval_dataset"),
    ],
)
def test_unknown_arguments_are_refused_with_what_is_allowed(cls: Any, extra: Any, typo: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"{cls.__name__} has no argument '{typo}'; .*{hint}"):
        cls(rows(2), rubric=Rubric([exact]), **extra, **{typo: 1})


@pytest.mark.parametrize("given", [0, 1, 3])
def test_an_environment_of_one_turn_says_so(given: int) -> None:
    with pytest.raises(
        UsageError, match=r"SingleTurnEnv has one turn: leave out max_turns, or use MultiTurnEnv or Tool"
    ):
        SingleTurnEnv(rows(2), rubric=Rubric([exact]), max_turns=given)


def test_what_is_allowed_is_what_the_constructor_takes() -> None:
    with pytest.raises(UsageError) as single_turn:
        SingleTurnEnv(rows(2), rubric=Rubric([exact]), max_turn=1)
    assert "max_turns" not in str(single_turn.value)
    with pytest.raises(
        UsageError, match=r"EnvGroup has no argument 'dataset'; Allowed: env_names, envs, name, weights$"
    ):
        EnvGroup([single()], dataset=rows(2))


def test_subclasses_may_pass_their_arguments_through() -> None:
    class Hard(Countdown):
        def __init__(self, dataset: Any, *, n: int = 5, **arguments: Any) -> None:
            self.n = n
            super().__init__(dataset, **arguments)

    assert Hard(rows(2), n=7, max_turns=9).max_turns == 9
    with pytest.raises(UsageError, match=r"Hard has no argument 'm'; .*max_turns, n, name"):
        Hard(rows(2), m=7)


@pytest.mark.parametrize("max_turns", [0, -1, 1.5, True, "3", None])
def test_max_turns_is_a_positive_integer(max_turns: Any) -> None:
    with pytest.raises(UsageError, match=f"max_turns={max_turns!r} must be an integer of at least 1"):
        Countdown(rows(2), max_turns=max_turns)


@pytest.mark.parametrize("name", ["all", "", "a b", 3])
def test_an_environment_checks_its_own_name(name: Any) -> None:
    with pytest.raises(UsageError, match="environment name"):
        single(name=name)


def test_the_name_comes_from_the_class() -> None:
    assert [default_name(type(name, (), {})) for name in ("SingleTurnEnv", "WordGame", "MyMATHEnvironment", "Env")] == [
        "single_turn",
        "word_game",
        "my_math",
        "env",
    ]
    assert Countdown(rows(2)).name == "countdown"


def test_an_environment_without_a_reward_is_refused() -> None:
    for rubric in (None, Rubric(), Rubric([exact], [0])):
        with pytest.raises(UsageError, match=r"'single_turn' has no reward function of non-zero weight"):
            SingleTurnEnv(rows(2), rubric=rubric)
    with pytest.raises(UsageError, match="rubric must be a Rubric, got function"):
        SingleTurnEnv(rows(2), rubric=exact)  # type: ignore[arg-type]


def test_a_reward_method_is_used_beside_the_rubric() -> None:
    class Polite(SingleTurnEnv):
        async def reward(self, completion: str) -> float:
            return 0.5 * completion.startswith("please")

    assert run(Polite(rows(2)), Script("please")).rewards == {"reward": 0.5}
    both = Polite(rows(2), rubric=Rubric([exact]))
    assert run(both, Script("please")).rewards == {"exact": 0.0, "reward": 0.5}


def test_an_environment_that_never_replies_is_no_multi_turn_one() -> None:
    with pytest.raises(UsageError, match=r"MultiTurnEnv does not say how it replies; define `env_response"):
        MultiTurnEnv(rows(2), rubric=Rubric([exact]))


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(UsageError, match="split 'eval' is unknown"):
        single().tasks("eval")  # type: ignore[arg-type]


def test_hooks_are_found_in_base_classes_first_and_overrides_keep_their_mark() -> None:
    class Later(Countdown):
        @stop
        def bored(self, state: State) -> bool:
            return False

        def landed(self, state: State) -> bool:
            return False

        @property
        def broken(self) -> None:
            raise RuntimeError("properties are not looked at")

    env = Later(rows(2))
    assert [name for name, _ in env.stops] == ["landed", "bored"]
    assert env.stops[0][1]({"left": 0}) is False
    assert [name for name, _ in marked(env, "cleanup")] == ["tidy"]


def test_renaming_copies_the_environment_and_binds_its_methods_to_the_copy() -> None:
    env = Countdown(rows(5))
    other = env.renamed("other")
    assert isinstance(other, Countdown)
    assert (env.name, other.name, env.renamed("countdown") is env) == ("countdown", "other", True)
    assert [task.environment for task in other.tasks()] == ["other"] * 4
    assert [task.id for task in other.tasks()] == [task.id for task in env.tasks()]
    assert run(other, Script("go")).reward == 1.0
    assert other.last_state["left"] == 0
    assert not hasattr(env, "last_state")
    assert [hook.__self__ for _, hook in (*other.stops, *other.cleanups)] == [other, other]  # type: ignore[attr-defined]


def test_a_leaf_is_its_own_only_leaf() -> None:
    env = single(name="m")
    assert (env.leaves(), env.shares(), env.leaf_of(env.tasks()[0])) == ({"m": env}, {"m": 1.0}, env)
    assert isinstance(env, Environment)
