"""What every recipe promises: splits, counts, seeds, demonstrations."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from polygym.environments import Environment, OraclePolicy, play
from polygym.errors import UsageError
from polygym.policies.base import Sampling
from polygym.recipes import math_rl, multi_env, tool_use, word_game

RECIPES: dict[str, Callable[..., Environment]] = {
    "math_rl": math_rl.load_environment,
    "tool_use": tool_use.load_environment,
    "word_game": word_game.load_environment,
}
SCRIPT = """
import json, polygym
env = polygym.load_environment({name!r}, num_examples=30, num_eval_examples=10, seed=5)
tasks = [task for split in ("train", "held_out") for task in env.tasks(split)]
print(json.dumps([[task.id, task.prompt[0].content, task.answer] for task in tasks]))
"""


@pytest.fixture(params=RECIPES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_there_are_as_many_examples_as_asked(name: str) -> None:
    env = RECIPES[name](num_examples=37, num_eval_examples=11)
    assert (len(env.tasks("train")), len(env.tasks("held_out"))) == (37, 11)
    assert len(RECIPES[name](num_examples=20).tasks("held_out")) == 20


def test_a_seed_repeats_the_tasks_in_another_process(name: str) -> None:
    env = RECIPES[name](num_examples=30, num_eval_examples=10, seed=5)
    ours = [[t.id, t.prompt[0].content, t.answer] for split in ("train", "held_out") for t in env.tasks(split)]  # type: ignore[arg-type]
    script = SCRIPT.format(name=name)
    theirs = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert json.loads(theirs) == ours
    assert ours != [[t.id, t.prompt[0].content, t.answer] for t in RECIPES[name](num_examples=30, seed=6).tasks()]


def test_no_task_is_in_both_splits_whatever_the_seeds(name: str) -> None:
    train = {
        t.prompt for seed in (0, 1) for t in RECIPES[name](num_examples=300, num_eval_examples=10, seed=seed).tasks()
    }
    held = {
        t.prompt
        for seed in (0, 2)
        for t in RECIPES[name](num_examples=10, num_eval_examples=100, seed=seed).tasks("held_out")
    }
    assert name == "word_game" or train.isdisjoint(held)  # without openings all word games have one prompt


def test_demonstrations_earn_their_reward(name: str) -> None:
    env = RECIPES[name](num_examples=12)
    oracle = OraclePolicy(env)
    for task in env.tasks():
        rollout = asyncio.run(play(env, task, oracle, sampling=Sampling(), seed=0))
        assert rollout.cause is None
        assert rollout.reward == env.demonstrated_reward(task) > 0


def test_more_examples_than_exist_are_refused_with_the_maximum() -> None:
    with pytest.raises(UsageError, match="num_eval_examples=1000 is more than exist: the maximum is 149 "):
        word_game.load_environment(num_examples=10, num_eval_examples=1000)
    with pytest.raises(UsageError, match="num_examples=1000 is more than exist: the maximum is "):
        math_rl.load_environment(num_examples=1000, operations="*", factor_range=(2, 9))


@pytest.mark.parametrize(
    "arguments",
    [
        {"operations": "%"},
        {"operations": "++"},
        {"operations": []},
        {"operations": 3},
        {"addend_range": (5, 1)},
        {"factor_range": (0, 3)},
        {"few_shot": -1},
        {"eval_path": "rows.jsonl"},
        {"seed": -1},
    ],
)
def test_math_rl_refuses_bad_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(arguments))):
        math_rl.load_environment(**arguments)


def test_math_answers_are_exact_and_boxed() -> None:
    env = math_rl.load_environment(num_examples=400, addend_range=(0, 20), factor_range=(1, 12))
    for task in env.tasks():
        left, operation, right = str(task.prompt[0].content).removeprefix("What is ").removesuffix("?").split()
        a, b = int(left), int(right)
        expected = {"+": a + b, "-": a - b, "*": a * b, "/": a // b if operation == "/" else 0}[operation]
        assert task.answer == str(expected)
        assert operation != "/" or a % b == 0
        assert env.demonstrate(task) == f"\\boxed{{{expected}}}"


def test_worked_examples_are_no_tasks() -> None:
    env = math_rl.load_environment(num_examples=50, few_shot=2)
    prompt = env.prompt(env.tasks()[0])
    assert [message.role for message in prompt] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert prompt[1].content not in {
        task.prompt[0].content for split in ("train", "held_out") for task in env.tasks(split)
    }  # type: ignore[arg-type]


def test_math_rl_reads_word_problems_with_reasoning(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [
        {"question": f"Tom has {n} eggs and buys 2. How many?", "answer": f"{n} + 2 = {n + 2}\n#### {n + 2}"}
        for n in range(40)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    env = math_rl.load_environment(path=path)
    assert len(env.tasks("train")) + len(env.tasks("held_out")) == 40
    task = env.tasks("held_out")[0]
    number = int(str(task.answer)) - 2
    assert env.demonstrate(task) == f"{number} + 2 = {number + 2}\n\\boxed{{{number + 2}}}"
    path.write_text('{"question": "Why?"}\n', "utf-8")
    with pytest.raises(UsageError, match=r"rows.jsonl: row 1 must have 'question' \(text\) and 'answer'"):
        math_rl.load_environment(path=path)


def test_multi_env_has_equal_shares_whatever_the_counts() -> None:
    env = multi_env.load_environment(math_examples=5, tools_examples=6, word_examples=7)
    assert {route: len(leaf.tasks()) for route, leaf in env.leaves().items()} == {"math": 5, "tools": 6, "word": 7}
    assert list(env.shares().values()) == pytest.approx([1 / 3] * 3)


def test_multi_env_takes_arguments_for_its_children_and_refuses_those_it_has_itself() -> None:
    env = multi_env.load_environment(8, 8, 8, math_args={"operations": "+"}, word_args={"openings": 1})
    assert all("+" in task.prompt[0].content for task in env.leaves()["math"].tasks())
    assert all(task.prompt[0].content.count("\n") == 1 for task in env.leaves()["word"].tasks())
    with pytest.raises(UsageError, match="math_args has 'num_examples'; give math_examples instead"):
        multi_env.load_environment(math_args={"num_examples": 3})
    with pytest.raises(UsageError, match="oprations"):
        multi_env.load_environment(math_args={"oprations": "+"})
