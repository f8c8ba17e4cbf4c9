"""Datasets: what people have (dicts, a JSONL file, a Hugging Face dataset, a function) becomes tasks in two splits.

The one idea: a task is (environment, id), and the two splits share neither an id nor a content, so that a held-out
reward is about tasks that training never saw.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from polygym.errors import UsageError, nearest
from polygym.messages import Message, as_messages
from polygym.rollout import Task, TaskId
from polygym.rows import assign_ids, read_rows

ROW_KEYS = ("id", "question", "prompt", "answer", "info")


def read_dataset(source: Any, what: str = "dataset") -> list[dict[str, Any]]:
    """Rows, each with an `id`, of a list of dicts, a JSONL path, a Hugging Face dataset, or a function that builds one.

    A row without an id gets its position.

    Raises:
        UsageError: when it is none of these, empty, or a row or an id is not what it must be.
    """
    if callable(source):
        source = source()
    if isinstance(source, (str, Path)):
        return read_rows(source)
    if isinstance(source, Mapping):
        splits = ", ".join(map(repr, source)) or "(none)"
        raise UsageError(
            f"{what} is a mapping with keys {splits}, not rows; pass one of its splits, or a list of dicts"
        )
    if not isinstance(source, Iterable) or isinstance(source, bytes):
        raise UsageError(
            f"{what} is a {type(source).__name__}; give a list of dicts, a JSONL path, a Hugging Face dataset, "
            "or a function without arguments that builds one"
        )
    rows = []
    for position, row in enumerate(source):
        if not isinstance(row, Mapping):
            raise UsageError(f"row {position} of {what} must be a dict, got {type(row).__name__}: {row!r:.80}")
        # Tables (Hugging Face, Parquet) fill what a row lacks with None.
        rows.append({key: value for key, value in row.items() if value is not None})
    return assign_ids(rows, name=what)


def build_tasks(rows: Sequence[Mapping[str, Any]], environment: str) -> list[Task]:
    """One task for each row of `read_dataset`.

    Raises:
        UsageError: for unknown keys, or a missing or doubled question.
    """
    return [_build_task(row, environment, f"row {i} of environment {environment!r}") for i, row in enumerate(rows)]


def _build_task(row: Mapping[str, Any], environment: str, where: str) -> Task:
    for key in row:
        if key not in ROW_KEYS:
            hint = nearest(key, ROW_KEYS)
            raise UsageError(f"{where}: key {key!r} is unknown; put extra things under 'info'; {hint}")
    question, prompt, info = row.get("question"), row.get("prompt"), row.get("info")
    if (question is None) == (prompt is None):
        raise UsageError(f"{where} must have exactly one of 'question' (text) and 'prompt' (text or messages)")
    if question is not None and not isinstance(question, str):
        raise UsageError(f"{where}: question must be text, got {type(question).__name__}: {question!r:.80}")
    if info is not None and not isinstance(info, Mapping):
        raise UsageError(f"{where}: info must be a dict, got {type(info).__name__}: {info!r:.80}")
    try:
        messages = as_messages(prompt or "" if question is None else question)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
    if not any(message.content or message.tool_calls for message in messages):
        raise UsageError(f"{where}: the {'prompt' if question is None else 'question'} is empty")
    return Task(environment, row["id"], tuple(messages), row.get("answer"), dict(info or {}))


def number_after(tasks: Sequence[Task], others: Sequence[Task]) -> list[Task]:
    """`tasks` with new ids where theirs only number them (0, 1, 2, ...): they go on after the largest of `others`."""
    ids = ids_after([task.id for task in tasks], [task.id for task in others])
    return [
        task if task.id == id else Task(task.environment, id, task.prompt, task.answer, task.info)
        for task, id in zip(tasks, ids, strict=True)
    ]


def ids_after(ids: Sequence[TaskId], others: Sequence[TaskId]) -> list[TaskId]:
    """The ids of `number_after`.

    >>> ids_after([0, 1], [0, 7, "a"]), ids_after([0, 2], [0, 7])
    ([8, 9], [0, 2])
    """
    if list(ids) != list(range(len(ids))):
        return list(ids)
    start = 1 + max((id for id in others if isinstance(id, int)), default=-1)
    return list(range(start, start + len(ids)))


def relabelled(tasks: Sequence[Task], environment: str) -> Sequence[Task]:
    """The tasks under another environment's name; those that are not all in memory know how themselves."""
    named = getattr(tasks, "named", None)
    if named is not None:
        found: Sequence[Task] = named(environment)
        return found
    return [Task(environment, task.id, task.prompt, task.answer, task.info) for task in tasks]


def content_key(task: Task) -> str:
    """What makes two tasks the same task under different ids: the prompt and the answer."""
    content = [[message.to_dict() for message in task.prompt], task.answer]
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, default=repr)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def split_tasks(tasks: Sequence[Task], held_out: float, seed: int) -> tuple[list[Task], list[Task]]:
    """(train, held-out): a seeded split by content, the same in every process and for every order of the rows.

    With two or more different tasks each side gets at least one; equal tasks stay on one side. `held_out=0` keeps all
    for training.

    Raises:
        UsageError: when `held_out` is outside [0, 1).
    """
    keys = [content_key(task) for task in tasks]
    chosen = held_out_keys(keys, held_out, seed)
    train = [task for task, key in zip(tasks, keys, strict=True) if key not in chosen]
    return train, [task for task, key in zip(tasks, keys, strict=True) if key in chosen]


def held_out_keys(keys: Iterable[str], held_out: float, seed: int) -> set[str]:
    """Which contents are held out; see `split_tasks`."""
    if isinstance(held_out, bool) or not isinstance(held_out, (int, float)) or not 0 <= held_out < 1:
        raise UsageError(f"held_out={held_out!r} is outside [0, 1); it is the fraction of tasks kept for evaluation")
    unique = set(keys)
    count = round(held_out * len(unique))
    if held_out > 0:
        count = min(max(count, 1), len(unique) - 1)
    return set(sorted(unique, key=lambda key: hashlib.blake2b(f"{seed}/{key}".encode()).digest())[:count])


def check_disjoint(train: Sequence[Task], held_out: Sequence[Task], environment: str) -> None:
    """Check that two splits given by the user share no id and no content.

    Raises:
        UsageError: names the first pair that is shared.
    """
    ours, theirs = ([(task.id, content_key(task)) for task in part] for part in (train, held_out))
    check_parts(ours, theirs, environment, ("dataset", "eval_dataset"))


def check_parts(
    train: Sequence[tuple[TaskId, str]],
    held_out: Sequence[tuple[TaskId, str]],
    environment: str,
    called: tuple[str, str],
) -> None:
    """Check that two parts share no id and no content, each given as (id, content).

    Args:
        called: what the parts are called in messages.

    Raises:
        UsageError: names the first pair that is shared.
    """
    first, second = called
    ids = {id for id, _ in train}
    contents = {content: id for id, content in train}
    for id, content in held_out:
        if id in ids:
            raise UsageError(
                f"environment {environment!r}: id {id!r} is in {first} and in {second}; an id names one task: leave "
                "ids out or make them unique"
            )
        if content in contents:
            raise UsageError(
                f"environment {environment!r}: task {id!r} of {second} is also in {first} (task {contents[content]!r});"
                f" remove it from one, or leave {second} out and a part of {first} is held out"
            )


def read_few_shot(examples: Iterable[Any] | None) -> list[Message]:
    """Messages of worked examples: (question, answer) pairs of text, or messages, in any mix.

    Raises:
        UsageError: for anything else.
    """
    messages: list[Message] = []
    if isinstance(examples, (str, Mapping, Message)) or not isinstance(examples or (), Iterable):
        raise UsageError("few_shot must be a list of (question, answer) pairs or of messages")
    for example in examples or ():
        if isinstance(example, (Message, Mapping)):
            messages += as_messages([example])
        elif (
            isinstance(example, (tuple, list)) and len(example) == 2 and all(isinstance(text, str) for text in example)
        ):
            messages += [Message("user", example[0]), Message("assistant", example[1])]
        else:
            raise UsageError(
                f"few_shot example {example!r:.80} must be a (question, answer) pair of texts, or a message"
            )
    return messages
