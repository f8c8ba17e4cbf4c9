"""The example environments: what earns the reward, what does not, and what is only counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from polygym.environments import Environment, play
from polygym.errors import UsageError
from polygym.messages import Message, ToolCall
from polygym.policies.base import Policy, Request, Sampling
from polygym.recipes import example_multi_step, example_session_state, example_single_tool_call
from polygym.recipes.example_multi_step.vocabulary import TERMS
from polygym.recipes.example_single_tool_call.weather import CITIES, CONDITIONS, QUESTIONS, condition_of
from polygym.rollout import Rollout, Task, Turn

RECIPES: list[Callable[..., Environment]] = [
    example_single_tool_call.load_environment,
    example_multi_step.load_environment,
    example_session_state.load_environment,
]
Say = Sequence["str | ToolCall | list[ToolCall]"]


class Scripted(Policy):
    """Says what it was given: a text, a call, or calls of one turn."""

    name = "scripted"

    def __init__(self, says: Say) -> None:
        self.says = iter(says)

    async def complete(self, request: Request) -> Turn:
        said = next(self.says, "")
        if isinstance(said, str):
            return Turn(Message("assistant", said))
        return Turn(Message("assistant", tool_calls=(said,) if isinstance(said, ToolCall) else tuple(said)))


def played(env: Environment, task: Task, *says: str | ToolCall | list[ToolCall]) -> Rollout:
    rollout = asyncio.run(play(env, task, Scripted(says), sampling=Sampling(), seed=0))
    assert rollout.cause is None
    return rollout


def rewarded(env: Environment, task: Task, *says: str | ToolCall | list[ToolCall]) -> float | None:
    return played(env, task, *says).reward


@pytest.mark.parametrize("load", RECIPES)
def test_a_seed_names_the_tasks_and_no_task_is_in_both_splits(load: Callable[..., Environment]) -> None:
    ids = [[task.id for task in load(num_examples=30, seed=seed).tasks()] for seed in (3, 3, 4)]
    assert ids[0] == ids[1] != ids[2]
    train = {task.prompt for task in load(num_examples=300, seed=0).tasks()}
    assert train.isdisjoint({task.prompt for task in load(num_examples=300, seed=1).tasks("held_out")})


@pytest.mark.parametrize("load", RECIPES)
def test_silence_and_a_guess_earn_nothing(load: Callable[..., Environment]) -> None:
    env = load(num_examples=3)
    for task in env.tasks():
        assert rewarded(env, task, "") == 0.0
        assert rewarded(env, task, "It is sunny. [1, 2, 3]. 42") == 0.0
        assert rewarded(env, task, *[ToolCall("no_such_tool")] * 20) == 0.0


# example_single_tool_call


def weather(city: str) -> ToolCall:
    return ToolCall("get_weather", {"city": city})


@pytest.fixture
def asked() -> tuple[Environment, Task, str, str]:
    """The environment, a task, the city that it is about, and the other one."""
    env = example_single_tool_call.load_environment(num_examples=50)
    for task in env.tasks():
        city = task.info["expected_city"]
        other = next(name for name in CITIES if name != city and name in task.prompt[0].content)
        if condition_of(city) != condition_of(other):
            return env, task, city, other
    raise AssertionError


def test_the_weather_of_the_right_city_has_to_be_asked_and_told(asked: tuple[Environment, Task, str, str]) -> None:
    env, task, city, other = asked
    told, wrong = f"It is {condition_of(city)} there.", f"It is {condition_of(other)}."
    assert rewarded(env, task, weather(city), told) == 1.0
    assert rewarded(env, task, weather(f" {city.upper()} "), told) == 1.0
    assert rewarded(env, task, weather(other), weather(city), told) == 1.0
    assert rewarded(env, task, weather(city), wrong) == 0.0
    assert rewarded(env, task, weather(other), wrong) == 0.0
    assert rewarded(env, task, weather(other), told) == 0.0
    assert rewarded(env, task, told) == 0.0
    assert rewarded(env, task, weather(city), "") == 0.0
    assert rewarded(env, task, weather(city), " or ".join(CONDITIONS)) == 0.0
    assert rewarded(env, task, *[weather(city)] * 20) == 0.0
    assert rewarded(env, task, ToolCall("get_weather", {"city": city}, error="invalid_json"), told) == 0.0
    assert rewarded(env, task, ToolCall("get_weather", {"town": city}), told) == 0.0
    assert played(env, task, weather(city), wrong).metrics["called_expected_city"] == 1.0
    assert played(env, task, weather(other), wrong).metrics["called_expected_city"] == 0.0


def test_a_task_without_expected_city_is_paid_for_any_valid_call(asked: tuple[Environment, Task, str, str]) -> None:
    env, task, _, _ = asked
    free = Task(env.name, "free", task.prompt)
    assert rewarded(env, free, weather("Atlantis"), "") == 1.0
    assert rewarded(env, free, ToolCall("get_weather", {}), "It is sunny.") == 0.0
    assert rewarded(env, free, "It is sunny.") == 0.0


def test_a_call_that_stands_in_the_prompt_is_not_the_policys(asked: tuple[Environment, Task, str, str]) -> None:
    env, task, city, _ = asked
    told = Message("tool", "cold", tool_call_id="a")
    shown = (*task.prompt, Message("assistant", tool_calls=(weather(city),)), told)
    assert rewarded(env, Task(env.name, "shown", shown, info=task.info), f"It is {condition_of(city)}.") == 0.0


def test_the_weather_differs_from_city_to_city() -> None:
    counts = Counter(map(condition_of, CITIES))
    assert len(counts) >= 9
    assert max(counts.values()) <= len(CITIES) // 4
    assert len(set(CITIES)) == len(CITIES)
    assert all("{city}" in text and "{other}" in text for text in QUESTIONS)


# example_multi_step


def hand_in(values: Any) -> ToolCall:
    return ToolCall("extract_synonym_values", {"synonym_values": values})


def test_the_expected_list_in_its_order_earns_the_reward() -> None:
    env = example_multi_step.load_environment(num_examples=20, synonyms_range=(2, 3))
    task = env.tasks()[0]
    values, minefield = task.info["expected_synonym_values"], task.info["minefield_label_value"]
    lookups = [ToolCall("get_synonym_value", {"synonym": word}) for word in task.info["expected_synonyms"]]
    names = ("accuracy", "set_overlap", "order_instruction_following_failure", "original_term_minefield_hit")

    def judged(*says: str | ToolCall | list[ToolCall]) -> tuple[float | None, ...]:
        rollout = played(env, task, *says)
        return (rollout.reward, *(rollout.metrics[name] for name in names))

    half = pytest.approx(1 / len(values))
    assert judged(*lookups, hand_in(values), "Done.") == (1.0, 1.0, 1.0, 0.0, 0.0)
    assert judged(lookups, hand_in(values)) == (1.0, 1.0, 1.0, 0.0, 0.0)
    assert judged(hand_in(values[::-1])) == (0.0, 0.0, 1.0, 1.0, 0.0)
    assert judged(hand_in(values[:1])) == (0.0, 0.0, half, 0.0, 0.0)
    assert judged(hand_in([*values, 1])) == (0.0, 0.0, 1.0, 0.0, 0.0)
    assert judged(hand_in([minefield, *values])) == (0.0, 0.0, 1.0, 0.0, 1.0)
    assert judged(hand_in([])) == (0.0, 0.0, 0.0, 0.0, 0.0)
    assert judged(*lookups, "Done.") == (0.0, 0.0, 0.0, 0.0, 0.0)
    assert judged(hand_in(values), hand_in([7]), "Done.") == (0.0, 0.0, 0.0, 0.0, 0.0)
    assert judged(hand_in([7]), hand_in(values), "Done.") == (1.0, 1.0, 1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    "call",
    [
        hand_in("none"),
        hand_in(None),
        hand_in([[1], {}]),
        hand_in([1.5]),
        ToolCall("extract_synonym_values", {}),
        ToolCall("extract_synonym_values", {}, error="invalid_json", raw='{"synonym_values": [1,'),
        ToolCall("extract_synonym_values", {"synonym_values": [1], "more": 2}),
    ],
)
def test_a_malformed_call_is_scored(call: ToolCall) -> None:
    env = example_multi_step.load_environment(num_examples=2)
    rollout = played(env, env.tasks()[0], call, "Sorry.")
    assert (rollout.reward, rollout.metrics["set_overlap"], rollout.metrics["tool_errors"]) == (0.0, 0.0, 1)


def test_a_row_may_lack_a_minefield_but_not_what_is_expected() -> None:
    env = example_multi_step.load_environment(num_examples=2)
    prompt = env.tasks()[0].prompt
    bare = Task(env.name, "bare", prompt, info={"expected_synonym_values": [384]})
    assert rewarded(env, bare, hand_in([384])) == 1.0
    lacking = asyncio.run(play(env, Task(env.name, "x", prompt), Scripted([""]), sampling=Sampling(), seed=0))
    assert lacking.reward is None
    assert lacking.cause is not None and "expected_synonym_values" in lacking.cause.message


def test_synonyms_stand_in_the_order_of_the_list_and_the_values_can_be_told_apart() -> None:
    for task in example_multi_step.load_environment(num_examples=100).tasks():
        lines = task.prompt[0].content.split("\n\n", 1)[1].splitlines()
        term = task.info["minefield_label"]
        listed = [line.split(" is a synonym of ")[0] for line in lines if line.endswith(f" of {term}.")]
        assert listed == task.info["expected_synonyms"]
        values = task.info["expected_synonym_values"]
        assert values == [sum(map(ord, word)) for word in listed]
        assert task.info["minefield_label_value"] not in values


def test_no_word_belongs_to_two_terms_and_no_message_names_one() -> None:
    words = [word.lower() for term in TERMS for word in (term.name, *term.synonyms)]
    assert [word for word, count in Counter(words).items() if count > 1] == []
    for term in TERMS:
        values = [sum(map(ord, word)) for word in (term.name, *term.synonyms)]
        assert len(set(values)) == len(values), term.name
        for message in term.messages:
            assert not set(message.lower().strip(".").replace(",", "").split()) & set(words), message


def test_example_multi_step_with_few_terms_repeats_no_task_and_shares_none_between_splits() -> None:
    few: dict[str, Any] = {"num_terms": 2, "synonyms_range": (1, 1), "num_examples": 2000}
    sides = [
        {(task.prompt[0].content, task.prompt[1].content) for task in environment.tasks(split)}
        for environment in (
            example_multi_step.load_environment(**few),
            example_multi_step.load_environment(**few, seed=1),
        )
        for split in ("train", "held_out")
    ]
    assert [len(side) for side in sides] == [2000] * 4
    assert not (sides[0] | sides[2]) & (sides[1] | sides[3])


@pytest.mark.parametrize(
    "arguments",
    [{"num_terms": 0}, {"num_terms": 1}, {"num_terms": 99}, {"synonyms_range": (1, 9)}, {"synonyms_range": (0, 1)}],
)
def test_example_multi_step_refuses_bad_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(arguments))):
        example_multi_step.load_environment(**arguments)


# example_session_state


def test_the_reward_is_the_counter_and_not_what_is_said() -> None:
    env = example_session_state.load_environment(num_examples=5)
    task = env.tasks()[0]
    missing = task.info["expected_count"] - task.info["initial_count"]
    raised = ToolCall("increment_counter", {"count": missing})
    assert rewarded(env, task, raised, "Done.") == 1.0
    assert rewarded(env, task, ToolCall("increment_counter", {"count": missing - 1}), "Done.") == 0.0
    assert rewarded(env, task, raised, raised, "Done.") == 0.0
    said = f"It shows {task.info['expected_count']}."
    assert played(env, task, said).metrics["value_stated"] == 1.0
    assert rewarded(env, task, said) == 0.0
    assert played(env, task, raised, "It shows 0.").metrics["value_stated"] == 0.0


def test_counters_of_episodes_under_way_together_keep_apart() -> None:
    env = example_session_state.load_environment(num_examples=40)

    async def together() -> list[Rollout]:
        policies = [
            Scripted([ToolCall("increment_counter", {"count": n}), ToolCall("get_counter_value")]) for n in range(40)
        ]
        return await asyncio.gather(
            *(play(env, env.tasks()[n], policies[n], sampling=Sampling(), seed=n) for n in range(40))
        )

    for n, rollout in enumerate(asyncio.run(together())):
        assert rollout.messages[-2].content == f'{{"count": {env.tasks()[n].info["initial_count"] + n}}}'
