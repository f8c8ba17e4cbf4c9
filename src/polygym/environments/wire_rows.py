"""Wire rows: a task as one JSON object that servers pass on, and the way back.

The one idea: a row is flat. `responses_create_params` holds what the policy reads, `answer` is the answer, and every
key that has no meaning of its own belongs to the task's info: rows of NeMo Gym are tasks, and tasks are such rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from polygym.environments.base import Environment
from polygym.errors import UsageError
from polygym.messages import Message
from polygym.policies.responses_wire import input_items, read_create_params, tool_items
from polygym.rollout import Task, TaskId
from polygym.rows import Row
from polygym.seeds import derive_seed

RESOURCES, AGENTS, MODELS = "resources_servers", "responses_api_agents", "responses_api_models"
"""The types of server, as rows and configs name them."""
INTERNAL_PREFIX = "_ng_"
TASK_INDEX = "_ng_task_index"
ROLLOUT_INDEX = "_ng_rollout_index"
SEED = "_ng_seed"
TIMEOUT = "_ng_timeout"
"""Seconds that whoever asks gives: to an agent for the rollout, to a resources server for what its tools do in it."""
RESERVED = ("id", "answer", "responses_create_params", "agent_ref", "response", "reward")
"""Keys with a meaning of their own; so has every key that begins with `_ng_`."""


def row_of(environment: Environment, task: Task, *, agent: str | None = None) -> Row:
    """The task as a row. `agent` names the agent server that plays it.

    Raises:
        UsageError: when the task's info has a reserved key.
    """
    leaf = environment.leaf_of(task)
    taken = next((key for key in task.info if is_reserved(key)), None)
    if taken is not None:
        raise UsageError(
            f"task {task.id!r} of environment {leaf.name!r} has the info key {taken!r}, which means something else "
            f"in a row; rename it. Reserved: {', '.join(RESERVED)}, {INTERNAL_PREFIX}*"
        )
    params: dict[str, Any] = {"input": input_items(leaf.prompt(task))}
    if tools := leaf.tools_of(task):
        params["tools"] = tool_items(tools)
    row: Row = {"id": task.id, "responses_create_params": params, **task.info}
    if task.answer is not None:
        row["answer"] = task.answer
    if agent is not None:
        row["agent_ref"] = {"type": AGENTS, "name": agent}
    return row


def task_of(row: Mapping[str, Any], environment: Environment | str) -> Task:
    """The task in a row of `environment`, which may be given by name only.

    Its id is the row's, else its `_ng_task_index`, else a digest of its content. The system message and the worked
    examples that the environment itself puts before every task are taken off the prompt.

    Raises:
        UsageError: as `check_row`.
    """
    _check_shape(row)
    messages = read_create_params(row["responses_create_params"]).messages
    if isinstance(environment, Environment):
        name = environment.name
        messages = without_preamble(messages, environment.preamble)
    else:
        name = environment
    info = {key: value for key, value in row.items() if not is_reserved(key)}
    return Task(name, row_id(row), tuple(messages), row.get("answer"), info)


def row_id(row: Mapping[str, Any]) -> TaskId:
    """What names a row's task: its id, its `_ng_task_index`, or a digest of its content."""
    for key in ("id", TASK_INDEX):
        value = row.get(key)
        if value is not None:
            return value
    content = {key: value for key, value in row.items() if not is_reserved(key) or key in RESERVED[1:3]}
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return f"row_{hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"


def seed_of(row: Mapping[str, Any], task: Task) -> int:
    """The seed of the rollout that a row asks for: its own, else one of its task and the rollout's number."""
    seed = row.get(SEED)
    return derive_seed(0, task.environment, task.id, row.get(ROLLOUT_INDEX) or 0) if seed is None else seed


def timeout_of(row: Mapping[str, Any]) -> float | None:
    """The seconds that a row gives, None where it gives none.

    Raises:
        UsageError: when they are no number above 0.
    """
    seconds = row.get(TIMEOUT)
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0):
        raise UsageError(f"{TIMEOUT} is {seconds!r:.80}; it must be a number of seconds above 0")
    return seconds


def check_row(row: object) -> None:
    """Check everything in a row that has a meaning of its own.

    Raises:
        UsageError: names the key, what it holds and what it should.
    """
    _check_shape(row)
    assert isinstance(row, Mapping)
    read_create_params(row["responses_create_params"])


def is_reserved(key: str) -> bool:
    """Whether a key of a row has a meaning of its own."""
    return key in RESERVED or key.startswith(INTERNAL_PREFIX)


def _check_shape(row: object) -> None:
    """All but the parameters of the request."""
    if not isinstance(row, Mapping):
        raise UsageError(f"a row must be a JSON object, got {type(row).__name__}: {row!r:.80}")
    if "responses_create_params" not in row:
        keys = ", ".join(map(str, row)) or "(none)"
        raise UsageError(f"the row has no responses_create_params; its keys are: {keys:.200}")
    row_id = row.get("id")
    if row_id is not None and (isinstance(row_id, bool) or not isinstance(row_id, (int, str))):
        raise UsageError(f"id {row_id!r:.80} must be an integer or a text")
    for key in (TASK_INDEX, ROLLOUT_INDEX, SEED):
        value = row.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise UsageError(f"{key} is {value!r:.80}; it must be an integer of at least 0")
    agent = row.get("agent_ref")
    if agent is not None and (not isinstance(agent, Mapping) or not isinstance(agent.get("name"), str)):
        raise UsageError(f'agent_ref is {agent!r:.80}; write {{"type": "{AGENTS}", "name": "..."}}')


def without_preamble(messages: list[Message], preamble: list[Message]) -> list[Message]:
    """The messages of a row after the environment's preamble, where they begin with it and do not end there."""
    count = len(preamble)
    return messages[count:] if len(messages) > count and messages[:count] == preamble else messages
