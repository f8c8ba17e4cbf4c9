"""tool_use: answer a question with one of four tools.

The one idea: the reward looks only at the last line of the reply, so a policy is paid for the right result and is free
in how it gets it; the tools are the reliable way.
"""

from __future__ import annotations

from collections.abc import Sequence

from polygym.environments import ToolEnv
from polygym.messages import Message, ToolCall
from polygym.recipes.task_space import check_few_shot, check_range, take, take_up_to
from polygym.recipes.tool_use.questions import FUNCTIONS, Difficulty, Question, check_tools, questions
from polygym.rewards.rubric import Rubric
from polygym.rollout import Task
from polygym.seeds import check_seed

SYSTEM_PROMPT = "Use a tool to answer. Give only the result on the last line."
MAX_TURNS = 4


def exact_match(messages: list[Message], answer: str) -> float:
    """1 if the last line of the policy's last message is the answer, else 0."""
    last = next((message for message in reversed(messages) if message.role == "assistant"), None)
    if last is None or last.tool_calls:
        return 0.0
    lines = last.content.strip().splitlines()
    return float(bool(lines) and lines[-1].strip() == answer)


class ToolUseEnv(ToolEnv):
    """Calculate, count words, reverse a string or convert units."""

    def demonstrate(self, task: Task) -> list[Message]:
        """The call, its result, and the answer."""
        return _use(Question(str(task.id), task.info["tool"], task.info["arguments"]))


def load_environment(
    num_examples: int = 2000,
    num_eval_examples: int | None = None,
    seed: int = 0,
    tools: Sequence[str] = tuple(FUNCTIONS),
    left_range: Sequence[int] = (10, 999),
    right_range: Sequence[int] = (10, 99),
    word_range: Sequence[int] = (2, 5),
    letter_range: Sequence[int] = (3, 7),
    value_range: Sequence[int] = (2, 99),
    few_shot: int = 0,
    max_turns: int = MAX_TURNS,
) -> ToolUseEnv:
    """Questions for `calculate`, `count_words`, `reverse_string` and `convert_units`, in turn.

    Args:
        num_examples: training tasks.
        num_eval_examples: held-out tasks; default as many as `num_examples`, or as many as there are.
        seed: chooses the tasks. The split of a task does not depend on it.
        tools: which of the four are offered, and asked about.
        left_range: [low, high] of the first number to calculate with.
        right_range: [low, high] of the second.
        word_range: [low, high] words in a text to count.
        letter_range: [low, high] letters in a text to reverse.
        value_range: [low, high] of a number to convert.
        few_shot: worked examples in the prompt, from the training split, none of them a task.
        max_turns: replies of the policy in one episode.

    Raises:
        UsageError: for a bad argument, or more examples than exist; it names the maximum.
    """
    check_seed(seed)
    bounds = {
        "left_range": (left_range, 0),
        "right_range": (right_range, 0),
        "word_range": (word_range, 1),
        "letter_range": (letter_range, 1),
        "value_range": (value_range, 1),
    }
    difficulty = Difficulty(
        **{
            argument: check_range(value, environment="tool_use", argument=argument, minimum=minimum)
            for argument, (value, minimum) in bounds.items()
        }
    )
    names = check_tools(tools)
    train, held_out = (questions(names, difficulty, held_out=side, seed=seed) for side in (False, True))
    examples = take_up_to(train, check_few_shot(few_shot, environment="tool_use"))
    train_questions = take(train, num_examples, environment="tool_use", argument="num_examples")
    if num_eval_examples is None:
        held_out_questions = take_up_to(held_out, num_examples)
    else:
        held_out_questions = take(held_out, num_eval_examples, environment="tool_use", argument="num_eval_examples")
    return ToolUseEnv(
        [_row(question) for question in train_questions],
        eval_dataset=[_row(question) for question in held_out_questions],
        tools=[FUNCTIONS[tool] for tool in names],
        system_prompt=SYSTEM_PROMPT,
        few_shot=[message for example in examples for message in (Message("user", example.text), *_use(example))],
        rubric=Rubric([exact_match]),
        max_turns=max_turns,
        name="tool_use",
    )


def _use(question: Question) -> list[Message]:
    """The call that answers a question, its result, and the answer."""
    call = ToolCall(question.tool, question.arguments, id="call_1")
    return [
        Message("assistant", tool_calls=(call,)),
        Message("tool", question.answer, tool_call_id=call.id),
        Message("assistant", question.answer),
    ]


def _row(question: Question) -> dict[str, object]:
    info = {"tool": question.tool, "arguments": dict(question.arguments)}
    return {"id": question.text, "question": question.text, "answer": question.answer, "info": info}
