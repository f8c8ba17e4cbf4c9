"""example_single_tool_call: ask a tool for the weather of the right city and say what it returned.

The one idea: one call and one sentence are the smallest episode with a tool. Each question names two cities, so that a
policy has to read, and the weather is known to the tool alone, so that it has to call.
"""

from __future__ import annotations

from typing import Any

from polygym.environments import ToolEnv
from polygym.environments.base import State
from polygym.environments.tools import tool_from_function
from polygym.messages import Message
from polygym.recipes.example_single_tool_call.weather import (
    CITIES,
    Question,
    condition_of,
    conditions_in,
    description_of,
    get_weather,
    questions,
    same_city,
)
from polygym.recipes.task_space import take, take_up_to
from polygym.recipes.tool_call_record import calls_of, demonstrated, last_reply
from polygym.rewards.rubric import Rubric
from polygym.rollout import Task
from polygym.seeds import check_seed

NAME = "example_single_tool_call"
SYSTEM_PROMPT = "Look up the weather with the tool. Then say in one sentence what it is."
MAX_TURNS = 4
TOOL = tool_from_function(get_weather).spec


def reported(messages: list[Message], info: dict[str, Any], state: State) -> float:
    """1 if the tool was asked for `expected_city` and the reply names the weather there and no other, else 0.

    A task without `expected_city` is paid for any valid call.
    """
    city = info.get("expected_city")
    if city is None or not called_expected_city(messages, info, state):
        return called_expected_city(messages, info, state)
    return float(conditions_in(last_reply(messages, state["prompt"])) == {condition_of(city)})


def called_expected_city(messages: list[Message], info: dict[str, Any], state: State) -> float:
    """1 if a valid call asked for `expected_city`, or for any city where the task has none, else 0."""
    asked = {same_city(call["city"]) for call in calls_of(TOOL, messages, state["prompt"]) if call is not None}
    city = info.get("expected_city")
    return float(bool(asked) if city is None else same_city(city) in asked)


class WeatherEnv(ToolEnv):
    """Say what the weather is in one of two cities."""

    def demonstrate(self, task: Task) -> list[Message]:
        """The call, its result, and the sentence."""
        city = task.info.get("expected_city", CITIES[0])
        returned = {"city": city, "weather_description": description_of(city)}
        return demonstrated([(TOOL.name, {"city": city}, returned)], f"It is {condition_of(city)} in {city}.")


def load_environment(
    num_examples: int = 200, num_eval_examples: int | None = None, seed: int = 0, max_turns: int = MAX_TURNS
) -> WeatherEnv:
    """Questions about the weather, answered with `get_weather`.

    Args:
        num_examples: training tasks.
        num_eval_examples: held-out tasks; default as many as `num_examples`, or as many as there are.
        seed: chooses the tasks. The split of a task does not depend on it.
        max_turns: replies of the policy in one episode.

    Raises:
        UsageError: for a bad argument, or more examples than exist; it names the maximum.
    """
    check_seed(seed)
    train, held_out = (questions(held_out=side, seed=seed) for side in (False, True))
    train_questions = take(train, num_examples, environment=NAME, argument="num_examples")
    if num_eval_examples is None:
        held_out_questions = take_up_to(held_out, num_examples)
    else:
        held_out_questions = take(held_out, num_eval_examples, environment=NAME, argument="num_eval_examples")
    return WeatherEnv(
        [_row(question) for question in train_questions],
        eval_dataset=[_row(question) for question in held_out_questions],
        tools=[get_weather],
        system_prompt=SYSTEM_PROMPT,
        rubric=Rubric([reported, called_expected_city], [1, 0]),
        max_turns=max_turns,
        name=NAME,
    )


def _row(question: Question) -> dict[str, object]:
    return {"id": question.number, "question": question.text, "info": {"expected_city": question.city}}
