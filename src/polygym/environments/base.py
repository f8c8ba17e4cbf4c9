"""Environment: what is asked of a policy, and how its answers are judged.

The one idea: an environment is the only concept. It has tasks in two splits, a prompt for each, a reply to each answer,
and a rubric; a group of environments is one too, whose leaves do the work.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from polygym.environments.dataset import (
    build_tasks,
    check_disjoint,
    number_after,
    read_dataset,
    read_few_shot,
    relabelled,
    split_tasks,
)
from polygym.environments.hooks import marked
from polygym.environments.names import check_names
from polygym.environments.session import EnvironmentSession
from polygym.errors import UsageError, nearest
from polygym.messages import Message, ToolSpec
from polygym.rewards.rubric import Rubric
from polygym.rollout import Task
from polygym.seeds import check_seed

Split = Literal["train", "held_out"]
SPLITS: tuple[Split, ...] = ("train", "held_out")
State = dict[str, Any]
"""What one episode knows: `task`, `answer`, `info`, `prompt`, `messages` (all so far), `turn` (answers so far), `seed`,
`metrics` (numbers for the record), `deadline` (when tools have to be done, on `time.monotonic`, or None), and whatever
the hooks put there."""


class Environment:
    """Tasks, prompts, replies and a rubric. Use one of its subclasses, or write one.

    Args:
        dataset: a list of dicts, a JSONL path, a Hugging Face dataset, or a function without arguments that builds one.
            Keys of a row: `question` (text) or `prompt` (text or messages), `answer`, `info` (a dict), `id`.
        eval_dataset: the held-out tasks; without it a fraction `held_out` of `dataset` is held out, by content.
        system_prompt: text of a system message before everything.
        few_shot: worked examples shown before the prompt: (question, answer) pairs, or messages.
        rubric: how answers are judged; a method `reward` of a subclass is a reward function too.
        parser: an object for reward functions that ask for `parser`.
        name: names metrics and files; default from the class.
        max_turns: answers of the policy in one episode.
        seed: of the held-out split.

    Raises:
        UsageError: at construction, for whatever is wrong: an empty dataset, no reward, an unknown argument.
    """

    tools: tuple[ToolSpec, ...] = ()
    parallel_tool_calls = False
    limits_turns = True  # else `max_turns` is what holds where an episode does not say it itself

    def __init__(
        self,
        dataset: Any = None,
        *,
        eval_dataset: Any = None,
        system_prompt: str | None = None,
        few_shot: Iterable[Any] | None = None,
        rubric: Rubric | None = None,
        parser: Any = None,
        name: str | None = None,
        max_turns: int = 1,
        held_out: float = 0.2,
        seed: int = 0,
        **unknown: Any,
    ) -> None:
        refuse_unknown(type(self), unknown)
        self.name = default_name(type(self)) if name is None else name
        check_names([self.name])
        self.max_turns = check_max_turns(max_turns)
        self.parser = parser
        self.system_prompt = _check_system_prompt(system_prompt)
        self.few_shot = read_few_shot(few_shot)
        self.rubric = self._check_rubric(rubric)
        self._tasks = self._read_tasks(dataset, eval_dataset, held_out, check_seed(seed))
        self.preamble = ([Message("system", self.system_prompt)] if self.system_prompt else []) + self.few_shot
        self._find_hooks()

    # What an author may override.

    def setup_state(self, state: State) -> Any:
        """Prepare an episode: fill `state` in place, or return another dict to use instead. May be async.

        Changing `state["prompt"]` (a list of messages) changes what the policy reads first.
        """

    def env_response(self, messages: list[Message], state: State) -> Any:
        """Reply to the policy's last message; nothing (None, "" or []) ends the episode. May be async.

        Returns text (a user message), messages, or a tuple of either with the state.
        """

    def demonstrate(self, task: Task) -> Any:
        """Messages after the prompt that earn `demonstrated_reward` (a text is one assistant message), or None."""
        return None

    def demonstrated_reward(self, task: Task) -> float:
        """The reward that the demonstration of this task earns: the rubric's full reward, unless a subclass differs."""
        return self.rubric.full_reward

    # What an environment answers.

    def tasks(self, split: Split = "train") -> Sequence[Task]:
        """The tasks of a split, in the order of the dataset."""
        if split not in SPLITS:
            raise UsageError(f"split {split!r} is unknown; {nearest(split, SPLITS)}")
        return self._tasks[split]

    def prompt(self, task: Task) -> list[Message]:
        """What the policy reads first: system message, worked examples, the task's own messages."""
        return [*self.preamble, *task.prompt]

    def tools_of(self, task: Task) -> Sequence[ToolSpec]:
        """What the policy may call in this task's episodes."""
        return self.tools

    def open_session(self, task: Task, *, seed: int) -> EnvironmentSession:
        """The environment's half of a new episode."""
        return EnvironmentSession(self, task, seed=seed)

    def leaves(self) -> dict[str, Environment]:
        """The environments that are not groups, by route; an environment that stands alone is its own leaf."""
        return {self.name: self}

    def shares(self) -> dict[str, float]:
        """Share of each leaf by route; they sum to 1."""
        return {self.name: 1.0}

    def leaf_of(self, task: Task) -> Environment:
        """The leaf that a task belongs to."""
        return self

    def renamed(self, name: str) -> Environment:
        """This environment under another name: a shallow copy with relabelled tasks and its own hooks."""
        if name == self.name:
            return self
        clone = copy.copy(self)
        clone.name = name
        clone._tasks = {split: relabelled(tasks, name) for split, tasks in self._tasks.items()}
        clone.rubric = self.rubric.rebound(self, clone)
        clone._find_hooks()
        return clone

    def __repr__(self) -> str:
        train, held_out = (len(self.tasks(split)) for split in SPLITS)
        return f"{type(self).__name__}(name={self.name!r}, train={train}, held_out={held_out})"

    # Construction.

    def _find_hooks(self) -> None:
        """Look up the marked methods once, bound to this object."""
        self.stops = marked(self, "stop")
        self.cleanups = marked(self, "cleanup")

    def _check_rubric(self, rubric: Rubric | None) -> Rubric:
        """The rubric, with the `reward` method where the class has one."""
        if rubric is not None and not isinstance(rubric, Rubric):
            raise UsageError(
                f"rubric must be a Rubric, got {type(rubric).__name__}: write rubric=Rubric([your_function])"
            )
        rubric = Rubric() if rubric is None else rubric
        method = getattr(self, "reward", None)
        if callable(method):
            rubric = rubric.including(method)
        if not any(rubric.weights.values()):
            raise UsageError(
                f"environment {self.name!r} has no reward function of non-zero weight; "
                "give rubric=Rubric([your_function]) or a method `reward`"
            )
        return rubric

    def _read_tasks(self, dataset: Any, eval_dataset: Any, held_out: float, seed: int) -> dict[str, Sequence[Task]]:
        if dataset is None:
            raise UsageError(
                f"environment {self.name!r} has no dataset; give dataset=[{{'question': ..., 'answer': ...}}]"
            )
        tasks = build_tasks(read_dataset(dataset), self.name)
        if eval_dataset is None:
            train, kept = split_tasks(tasks, held_out, seed)
        else:
            train = tasks
            kept = number_after(build_tasks(read_dataset(eval_dataset, "eval_dataset"), self.name), tasks)
            check_disjoint(train, kept, self.name)
        for task in (*train, *kept):
            if self.system_prompt and any(message.role == "system" for message in task.prompt):
                raise UsageError(
                    f"task {task.id!r} of environment {self.name!r} brings a system message and system_prompt is "
                    "given too; leave one out"
                )
        return {"train": train, "held_out": kept}


def refuse_unknown(cls: type, unknown: dict[str, Any]) -> None:
    """Refuse keyword arguments that no constructor of `cls` takes. One that has `**unknown` hands nothing on.

    Raises:
        UsageError: with the nearest name that is allowed.
    """
    if not unknown:
        return
    allowed: set[str] = set()
    for base in cls.__mro__:
        if "__init__" not in vars(base) or base is object:
            continue
        parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
        named = [found for found in parameters if found.kind in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY)]
        allowed |= {found.name for found in named[1:]}
        if any(found.kind is found.VAR_KEYWORD and found.name == "unknown" for found in parameters):
            break
    name = next(iter(unknown))
    raise UsageError(f"{cls.__name__} has no argument {name!r}; {nearest(name, allowed)}")


def check_max_turns(max_turns: object) -> int:
    """The number of turns, if it is an integer of at least 1."""
    if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 1:
        raise UsageError(f"max_turns={max_turns!r} must be an integer of at least 1")
    return max_turns


def default_name(cls: type) -> str:
    """The class name in snake case, without a last `Env` or `Environment`.

    >>> default_name(type("WordGameEnv", (), {}))
    'word_game'
    """
    stem = re.sub(r"(Env|Environment)$", "", cls.__name__) or cls.__name__
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", stem).lower()


def _check_system_prompt(system_prompt: object) -> str | None:
    if system_prompt is not None and not isinstance(system_prompt, str):
        raise UsageError(f"system_prompt must be text, got {type(system_prompt).__name__}: {system_prompt!r:.80}")
    return system_prompt
