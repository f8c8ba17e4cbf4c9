"""example_session_state: raise a counter that each episode has to itself, and say what it shows.

The one idea: the reward is the state of the episode, not what was said. A server that mixed up two sessions, or lost
one, would be found out by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from polygym.environments import ToolEnv
from polygym.environments.base import State
from polygym.messages import Message
from polygym.recipes.task_space import is_held_out, shuffled_range, take, take_up_to
from polygym.recipes.tool_call_record import Step, demonstrated, last_reply
from polygym.rewards.rubric import Rubric
from polygym.rollout import Task
from polygym.seeds import check_seed, derive_seed

NAME = "example_session_state"
MAX_TURNS = 8
LARGEST_START, LARGEST_STEP, MOST_STEPS = 99, 20, 3
TASKS = sum(LARGEST_STEP**steps for steps in range(1, MOST_STEPS + 1))


async def increment_counter(count: int, state: State) -> dict[str, bool]:
    """Raise the counter.

    Args:
        count: By how much.
    """
    state["counter"] += count
    return {"success": True}


async def get_counter_value(state: State) -> dict[str, int]:
    """Read the counter."""
    return {"count": state["counter"]}


def counter_reached(info: dict[str, Any], state: State) -> float:
    """1 if the counter stands at `expected_count`, else 0."""
    return float(state["counter"] == info["expected_count"])


def value_stated(messages: list[Message], info: dict[str, Any], state: State) -> float:
    """1 if the last number of the reply is `expected_count`, else 0."""
    numbers = re.findall(r"-?\d+", last_reply(messages, state["prompt"]))
    return float(bool(numbers) and numbers[-1] == str(info["expected_count"]))


class CounterEnv(ToolEnv):
    """Raise a counter by some numbers."""

    def setup_state(self, state: State) -> None:
        """The counter of this episode."""
        state["counter"] = state["info"].get("initial_count", 0)

    def demonstrate(self, task: Task) -> list[Message]:
        """A call for each number, one that reads the counter, and what it shows."""
        expected = task.info["expected_count"]
        counts = task.info.get("increments", [expected - task.info.get("initial_count", 0)])
        steps: list[Step] = [(increment_counter.__name__, {"count": count}, {"success": True}) for count in counts]
        steps.append((get_counter_value.__name__, {}, {"count": expected}))
        return demonstrated(steps, f"The counter shows {expected}.")


def load_environment(
    num_examples: int = 200, num_eval_examples: int | None = None, seed: int = 0, max_turns: int = MAX_TURNS
) -> CounterEnv:
    """Counters to raise with `increment_counter` and to read with `get_counter_value`.

    Args:
        num_examples: training tasks.
        num_eval_examples: held-out tasks; default as many as `num_examples`, or as many as there are.
        seed: chooses the tasks. The split of a task does not depend on it.
        max_turns: replies of the policy in one episode.

    Raises:
        UsageError: for a bad argument, or more examples than exist; it names the maximum.
    """
    check_seed(seed)
    train, held_out = (_rows(held_out=side, seed=seed) for side in (False, True))
    train_rows = take(train, num_examples, environment=NAME, argument="num_examples")
    if num_eval_examples is None:
        held_out_rows = take_up_to(held_out, num_examples)
    else:
        held_out_rows = take(held_out, num_eval_examples, environment=NAME, argument="num_eval_examples")
    return CounterEnv(
        train_rows,
        eval_dataset=held_out_rows,
        tools=[increment_counter, get_counter_value],
        rubric=Rubric([counter_reached, value_stated], [1, 0]),
        max_turns=max_turns,
        name=NAME,
    )


def _rows(*, held_out: bool, seed: int) -> Iterator[dict[str, Any]]:
    for number in shuffled_range(TASKS, seed):
        if is_held_out(NAME, number) == held_out:
            yield _row(number)


def _row(number: int) -> dict[str, Any]:
    """The task of a number: which steps it names, in base `LARGEST_STEP`, the short ones first."""
    rest, length = number, 1
    while rest >= LARGEST_STEP**length:
        rest -= LARGEST_STEP**length
        length += 1
    steps = [rest // LARGEST_STEP**place % LARGEST_STEP + 1 for place in range(length)]
    start = derive_seed(NAME, number) % (LARGEST_START + 1)
    question = f"Raise the counter by {', then by '.join(map(str, steps))}, and tell me what it shows then."
    info = {"initial_count": start, "increments": steps, "expected_count": start + sum(steps)}
    return {"id": number, "question": question, "info": info}
