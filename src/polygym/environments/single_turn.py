"""SingleTurnEnv: one question, one answer, one reward."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from polygym.environments.base import Environment, refuse_unknown
from polygym.errors import UsageError
from polygym.rewards.rubric import Rubric


class SingleTurnEnv(Environment):
    """The policy answers once and the rubric judges the answer.

    >>> from polygym.rewards.rubric import Rubric
    >>> def exact(completion, answer): return completion == answer
    >>> rows = [{"question": "1+1?", "answer": "2"}, {"question": "1+2?", "answer": "3"}]
    >>> SingleTurnEnv(rows, rubric=Rubric([exact]))
    SingleTurnEnv(name='single_turn', train=1, held_out=1)

    Arguments are those of `Environment`, without `max_turns`, which is 1.
    """

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
        held_out: float = 0.2,
        seed: int = 0,
        **unknown: Any,
    ) -> None:
        if "max_turns" in unknown:
            raise UsageError(
                f"{type(self).__name__} has one turn: leave out max_turns, or use MultiTurnEnv or ToolEnv for more"
            )
        refuse_unknown(type(self), unknown)
        super().__init__(
            dataset,
            eval_dataset=eval_dataset,
            system_prompt=system_prompt,
            few_shot=few_shot,
            rubric=rubric,
            parser=parser,
            name=name,
            held_out=held_out,
            seed=seed,
        )
