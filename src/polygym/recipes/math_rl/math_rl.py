"""math_rl: solve a problem, put the final answer in a box.

The one idea: the reward is whether the answer in the last box is mathematically the right one, so any problem with a
checkable answer fits: generated arithmetic, or rows of a file in the style of GSM8K.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polygym.environments import SingleTurnEnv
from polygym.errors import UsageError
from polygym.parsing.boxed import extract_answer
from polygym.recipes.math_rl.problems import Problem, check_operations, problems
from polygym.recipes.task_space import check_few_shot, check_range, is_held_out, take, take_up_to
from polygym.rewards.math import MathRubric
from polygym.rollout import Task
from polygym.rows import read_rows
from polygym.seeds import check_seed

SYSTEM_PROMPT = "Solve the problem. Put the final answer in \\boxed{}."
DEFAULT_NUM_EXAMPLES = 2000


class MathEnv(SingleTurnEnv):
    """One problem, one reply, exact mathematics."""

    def demonstrate(self, task: Task) -> str:
        """The worked solution that came with the row, if any, and the boxed answer."""
        box = f"\\boxed{{{task.answer}}}"
        solution = task.info.get("solution")
        return f"{solution}\n{box}" if solution else box


def load_environment(
    num_examples: int | None = None,
    num_eval_examples: int | None = None,
    seed: int = 0,
    operations: str | Sequence[str] = "+-*/",
    addend_range: Sequence[int] = (1, 49),
    factor_range: Sequence[int] = (2, 12),
    few_shot: int = 0,
    path: str | Path | None = None,
    eval_path: str | Path | None = None,
) -> MathEnv:
    """Arithmetic with + - * and exact division, or the problems of a JSONL file.

    Args:
        num_examples: training tasks; default 2000, or all rows of `path`.
        num_eval_examples: held-out tasks; default as many as `num_examples`, or as many as there are.
        seed: chooses the tasks. The split of a task does not depend on it.
        operations: any of + - * /, asked in turn.
        addend_range: [low, high] of both numbers of + and -.
        factor_range: [low, high] of both factors of *, and of divisor and quotient of /.
        few_shot: worked examples in the prompt, from the training split, none of them a task.
        path: a JSONL file of rows with `question` and `answer` (or GSM8K's `reasoning #### 42`) to use instead.
        eval_path: its held-out rows; without it one row in five is held out.

    Raises:
        UsageError: for a bad argument, or more examples than exist; it names the maximum.
    """
    check_seed(seed)
    if path is None:
        if eval_path is not None:
            raise UsageError("math_rl: eval_path is given without path; give path too, or neither")
        chosen = check_operations(operations)
        addends = check_range(addend_range, environment="math_rl", argument="addend_range", minimum=0)
        factors = check_range(factor_range, environment="math_rl", argument="factor_range", minimum=1)
        drawn = [problems(chosen, addends, factors, held_out=side, seed=seed) for side in (False, True)]
        train, held_out = ((_row(problem) for problem in side) for side in drawn)
    else:
        files = _file_rows(Path(path), None if eval_path is None else Path(eval_path))
        train, held_out = ((row for row in side) for side in files)
    examples = take_up_to(train, check_few_shot(few_shot, environment="math_rl"))
    if num_examples is None and path is not None:
        train_rows = list(train)
    else:
        wanted = DEFAULT_NUM_EXAMPLES if num_examples is None else num_examples
        train_rows = take(train, wanted, environment="math_rl", argument="num_examples")
    if num_eval_examples is None:
        held_out_rows = take_up_to(held_out, len(train_rows))
    else:
        held_out_rows = take(held_out, num_eval_examples, environment="math_rl", argument="num_eval_examples")
    return MathEnv(
        train_rows,
        eval_dataset=held_out_rows,
        system_prompt=SYSTEM_PROMPT,
        few_shot=[(row["question"], _worked(row)) for row in examples],
        rubric=MathRubric(),
        name="math_rl",
    )


def _worked(row: dict[str, Any]) -> str:
    """A worked answer: the solution that comes with the row, or the question as an equation, then the box."""
    question = str(row["question"]).removeprefix("What is ").removesuffix("?")
    solution = row.get("info", {}).get("solution") or f"{question} = {row['answer']}."
    return f"{solution} The answer is \\boxed{{{row['answer']}}}."


def _row(problem: Problem) -> dict[str, Any]:
    return {"id": problem.id, "question": problem.question, "answer": str(problem.answer)}


def _file_rows(path: Path, eval_path: Path | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    rows = [_file_row(row, path, line) for line, row in enumerate(read_rows(path), start=1)]
    if eval_path is not None:
        return rows, [_file_row(row, eval_path, line) for line, row in enumerate(read_rows(eval_path), start=1)]
    held_out = [is_held_out("math_rl", row["question"]) for row in rows]
    return (
        [row for row, is_held in zip(rows, held_out, strict=True) if not is_held],
        [row for row, is_held in zip(rows, held_out, strict=True) if is_held],
    )


def _file_row(row: dict[str, Any], path: Path, number: int) -> dict[str, Any]:
    question, answer = row.get("question"), row.get("answer")
    if not isinstance(question, str) or not isinstance(answer, (str, int, float)) or isinstance(answer, bool):
        raise UsageError(
            f"{path}: row {number} must have 'question' (text) and 'answer' (text or a number), got {row!r:.80}"
        )
    solution, marker, final = str(answer).rpartition("####")
    if not marker:
        return {"question": question, "answer": extract_answer(str(answer)) or str(answer)}
    return {"question": question, "answer": final.strip(), "info": {"solution": solution.strip()}}
