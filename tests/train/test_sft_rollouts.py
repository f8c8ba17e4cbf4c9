"""Tests of supervised training on collected rollouts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import training_toys as toy
from polygym.collect.evaluate import evaluate
from polygym.environments import OraclePolicy
from polygym.errors import UsageError
from polygym.train import sft
from polygym.train.progress import TrainProgress
from polygym.train.sft_config import load_config

CONFIG = """
model = "{model}"
output = "{output}"
from_scratch = true
max_steps = {steps}
max_seq_len = {max_seq_len}
learning_rate = 3e-2
threads = 1
[sampling]
max_tokens = 6
[[data]]
path = "{path}"
batch_size = 8
"""
EVALUATED = '[eval]\nnum_examples = 4\n[[eval.env]]\nid = "training_toys:letters"\nname = "a"\n'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.save_model(tmp_path_factory.mktemp("model"))


def row(number: int, reward: float | None = 1.0, answer: str = "aaaa", **keys: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"{chr(97 + number)} a?"}, {"role": "assistant", "content": answer}]
    return {
        "schema": 1, "environment": "a", "task_id": number, "group_id": f"a/{number}", "rollout_index": 0,
        "messages": messages, "reward": reward, "turns": 1, "stop_reason": "answered", "truncated": False, "seed": 0,
        **keys,
    }  # fmt: skip


class Heard(TrainProgress):
    """Keeps what a person is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def message(self, text: str) -> None:
        self.told.append(text)


def run(
    model: Path,
    folder: Path,
    rows: Sequence[dict[str, Any]],
    *,
    more: str = "",
    steps: int = 1,
    max_seq_len: int = 40,
    **keys: Any,
) -> tuple[list[str], list[dict[str, Any]], Any]:
    """What a run says, its metrics, and its summary."""
    path = folder / "out.jsonl"
    if rows:
        path.write_text("".join(f"{json.dumps(one)}\n" for one in rows), encoding="utf-8")
    text = CONFIG.format(model=model, output=folder / "run", path=path, steps=steps, max_seq_len=max_seq_len)
    text += "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    (folder / "warm.toml").write_text(text + more, encoding="utf-8")
    heard = Heard()
    summary = sft.run(load_config(folder / "warm.toml"), progress=heard)
    metrics = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return heard.told, [json.loads(line) for line in metrics], summary


def test_an_evaluation_is_learned_from_and_another_policy_earns_its_rewards(model: Path, tmp_path: Path) -> None:
    environment = toy.demonstrated()
    evaluate(environment.renamed("a"), OraclePolicy(environment), rollouts_per_example=2, output=tmp_path / "out")
    told, _, summary = run(model, tmp_path, [], more=EVALUATED, steps=40)
    assert told[-1] == f"a: 8 of 8 rollouts of {tmp_path / 'out.jsonl'} are learned from"
    assert summary.results is not None
    assert summary.results.mean_reward > 0.8


def test_what_is_wrong_or_earned_too_little_is_left_out_and_counted(model: Path, tmp_path: Path) -> None:
    call = {"name": "", "arguments": {}, "error": "invalid_json", "raw": "{"}
    malformed = row(5)
    malformed["messages"][1]["tool_calls"] = [call]
    rows = [
        row(0), row(1, 0.5), row(2, None), row(3, 0.4), row(4, truncated=True), malformed, row(6, answer="a" * 60),
        row(7, turns=0), row(8, 0.0), row(8, 1.0),
    ]  # fmt: skip
    told, metrics, _ = run(model, tmp_path, rows, min_reward=0.5, more="[eval]\nnum_examples = 0\n")
    [line] = told
    assert line.startswith(f"a: 3 of 9 rollouts of {tmp_path / 'out.jsonl'} are learned from (left out: 1 unscored, ")
    assert line.endswith(
        "1 below min_reward, 1 cut off, 1 with a malformed call, 1 too long for max_seq_len, 1 without an answer)"
    )
    assert metrics[0]["a/tokens"] == 8 * 5.0


def test_only_the_policys_own_answers_carry_loss(model: Path, tmp_path: Path) -> None:
    shown = [{"role": "user", "content": "x?"}, {"role": "assistant", "content": "bbb"}]
    said = [{"role": "user", "content": "y?"}, {"role": "assistant", "content": "aa"}]
    again = [{"role": "user", "content": "z?"}, {"role": "assistant", "content": "aaaa"}]
    _, metrics, _ = run(model, tmp_path, [row(0, messages=[*shown, *said, *again], turns=2)])
    assert metrics[0]["a/tokens"] == 8 * (3 + 5)


def test_each_environment_of_a_file_is_a_stream_of_its_own(model: Path, tmp_path: Path) -> None:
    rows = [row(0), row(0, environment="e", answer="ee"), row(0, environment="i")]
    _, metrics, _ = run(model, tmp_path, rows, name="got", environments=["a", "e"])
    assert (metrics[0]["got/a/tokens"], metrics[0]["got/e/tokens"]) == (40.0, 24.0)
    assert "got/i/tokens" not in metrics[0]


def test_tools_are_those_of_the_row(model: Path, tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "a?"},
        {"role": "assistant", "content": "", "tool_calls": [{"name": "look", "arguments": {}, "id": "1"}]},
        {"role": "tool", "content": "b", "tool_call_id": "1"},
        {"role": "assistant", "content": "a"},
    ]
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}]
    played = row(0, messages=messages, turns=2)
    with pytest.raises(UsageError, match=r"rollouts of 'a' call tools, and their rows do not say which there are: add"):
        run(model, tmp_path, [played], max_seq_len=4000)
    told, _, _ = run(
        model, tmp_path, [played | {"responses_create_params": {"input": "a?", "tools": tools}}], max_seq_len=4000
    )
    assert told == [f"a: 1 of 1 rollouts of {tmp_path / 'out.jsonl'} are learned from"]


@pytest.mark.parametrize(
    ("rows", "keys", "message"),
    [
        ([row(0, 0.0)], {}, r"a: 0 of 1 rollouts of .* are learned from: 1 below min_reward; lower min_reward"),
        ([row(0)], {"environments": ["b"]}, r"holds no rollouts of environment 'b'"),
        ([row(0)], {"path": "no.jsonl"}, r"cannot read rollouts from 'no.jsonl'"),
        (
            [row(0)],
            {"more": '[[env]]\nid = "training_toys:demonstrated"\nname = "a"\n'},
            r"of that name is learned",
        ),
        (
            [row(0)],
            {"more": "[eval]\nnum_examples = 4\n"},
            r"there is no environment to evaluate",
        ),
        (
            [row(0)],
            {"more": '[[env]]\nurl = "http://x"\nrows = "r"\n'},
            r"'env.r.id' is missing",
        ),
    ],
)
def test_rollouts_that_cannot_be_learned_from_are_refused(
    model: Path, tmp_path: Path, rows: list[dict[str, Any]], keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        if "path" in keys:
            config = CONFIG.format(model=model, output=tmp_path / "run", path="no.jsonl", steps=1, max_seq_len=40)
            (tmp_path / "warm.toml").write_text(config)
            sft.run(load_config(tmp_path / "warm.toml"))
        run(model, tmp_path, rows, **keys)
    assert not (tmp_path / "run").exists()
