"""Tests of whole runs on toy environments: they learn, they resume exactly, and they lose nothing when stopped."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

import training_toys as toy
from polygym.collect.unscored import never_scored
from polygym.errors import PolicyError, UsageError
from polygym.policies.engine import Engine
from polygym.train import loop
from polygym.train.config import load_config
from polygym.train.evaluation import HeldOut
from polygym.train.learner import Learner
from polygym.train.progress import TrainProgress

HERE = Path(__file__).parent.parent  # of the toys


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.save_model(tmp_path_factory.mktemp("model"))


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if not key.startswith("time/") and "seconds" not in key}
        for row in rows
    ]


def rollouts(folder: Path) -> list[dict[str, Any]]:
    lines = [line for path in sorted((folder / "rollouts").iterdir()) for line in path.read_text().splitlines()]
    return [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]


def test_a_run_learns_both_environments_and_reports_each(model: Path, tmp_path: Path) -> None:
    config = load_config(toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=30))
    summary = loop.run(config)
    assert summary.steps == 30
    assert summary.comparison is not None
    assert set(summary.comparison.environments) == {"a", "e"}
    first, last = metrics(tmp_path / "run")[1], metrics(tmp_path / "run")[-1]
    assert last["combined/mean_reward"] > first["combined/mean_reward"] + 0.2
    assert last["a/groups"] == last["e/groups"] == 2.0
    assert last["a/loss_share"] == pytest.approx(0.5)
    assert "time/collect" in last
    row = rollouts(tmp_path / "run")[0]
    assert row["schema"] == 1
    assert row["advantage"] is not None
    assert row["messages"][-1]["role"] == "assistant"
    AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "checkpoints" / "step_30" / "model")


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["kl_coef=0.5"],
        ["lora_rank=2", "kl_coef=0.5", "updates_per_batch=2"],
        ["lora_rank=2", "lora_dropout=0.5", "micro_batch_tokens=64"],
    ],
    ids=["plain", "kl", "lora", "dropout"],
)
def test_a_resumed_run_repeats_an_undisturbed_one_to_the_last_digit(
    model: Path, tmp_path: Path, settings: list[str]
) -> None:
    loop.run(load_config(toy.write_config(tmp_path / "whole.toml", model, tmp_path / "whole", steps=4), settings))
    cut = toy.write_config(tmp_path / "cut.toml", model, tmp_path / "cut", steps=4)
    loop.run(load_config(cut, [*settings, "max_steps=3"]))
    for step in ("step_3", "step_3.json"):  # as if it had been killed after its checkpoint of step 2
        for path in (tmp_path / "cut").rglob(step):
            subprocess.run(["rm", "-r", str(path)], check=True)
    loop.run(load_config(cut, settings), resume=True)
    assert without_times(metrics(tmp_path / "cut")) == without_times(metrics(tmp_path / "whole"))
    assert rollouts(tmp_path / "cut") == rollouts(tmp_path / "whole")


def test_a_second_run_of_a_name_gets_a_number_and_resume_takes_the_newest(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = toy.write_config(tmp_path / "mine.toml", model, Path(), steps=1)
    config = load_config(path, ["output=''", "eval.num_examples=0"])
    assert [loop.run(config).run_folder for _ in range(2)] == ["runs/mine", "runs/mine-2"]
    assert loop.run(load_config(path, ["output=''", "max_steps=2"]), resume=True).run_folder == "runs/mine-2"


def test_nothing_to_resume_and_a_folder_in_use_are_refused(model: Path, tmp_path: Path) -> None:
    config = load_config(toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=1))
    with pytest.raises(UsageError, match="nothing to resume"):
        loop.run(config, resume=True)
    loop.run(config)
    with pytest.raises(UsageError, match="is not empty; continue it with --resume"):
        loop.run(config)
    changed = load_config(tmp_path / "run.toml", ["seed=5"])
    with pytest.raises(UsageError, match="was trained with seed=0, the config says seed=5; resume with the same"):
        loop.run(changed, resume=True)


def test_a_resume_tells_every_changed_key_and_keeps_the_config_of_the_steps_before(model: Path, tmp_path: Path) -> None:
    path = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=2)
    run, settings = tmp_path / "run", ["eval.num_examples=0", "keep_checkpoints=9"]
    loop.run(load_config(path, [*settings, "kl_coef=0.1"]))
    first = (run / "config.toml").read_bytes()
    told = Told()
    loop.run(load_config(path, [*settings, "max_steps=4", "env.a.weight=3.0"]), resume=True, progress=told)
    assert told.messages[1:4] == [
        "changed from step 3 on: max_steps 2 -> 4",
        "changed from step 3 on: kl_coef 0.1 -> 0.0",
        "changed from step 3 on: env.a.weight 1.0 -> 3.0",
    ]
    assert all(message in (run / "log.txt").read_text() for message in told.messages[:4])
    assert (run / "config_step_2.toml").read_bytes() == first
    assert tomllib.loads((run / "config.toml").read_text())["kl_coef"] == 0.0

    loop.run(load_config(path, [*settings, "max_steps=5", "env.a.weight=3.0", "clip_low=0.1"]), resume=True)
    assert sorted(path.name for path in run.glob("config*")) == [
        "config.toml",
        "config_step_2.toml",
        "config_step_4.toml",
    ]
    for step in ("step_4", "step_5"):  # back to what the first two steps were made with
        shutil.rmtree(run / "checkpoints" / step)
    told = Told()
    loop.run(load_config(path, [*settings, "kl_coef=0.1"]), resume=True, progress=told)
    assert not [message for message in told.messages if "changed" in message]
    assert [path.name for path in run.glob("config*")] == ["config.toml"]
    assert (run / "config.toml").read_bytes() == first


class Told(TrainProgress):
    """Keeps what a run tells a person."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model=nano", 'was trained with model=".*model.", the config says model="nano"; resume with the same'),
        ("lora_rank=4", "was trained with lora_rank=2, the config says lora_rank=4"),
        ("lora_alpha=3", "was trained with lora_alpha=16, the config says lora_alpha=3"),
        ("lora_dropout=0.5", "was trained with lora_dropout=0.0, the config says lora_dropout=0.5"),
        ("lora_target_modules=['q_proj']", 'lora_target_modules=.., the config says lora_target_modules=."q_proj".'),
    ],
)
def test_what_shaped_the_weights_cannot_change_on_resume(
    model: Path, tmp_path: Path, setting: str, message: str
) -> None:
    path = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=1)
    settings = ["lora_rank=2", "eval.num_examples=0"]
    loop.run(load_config(path, settings))
    saved = (tmp_path / "run" / "config.toml").read_bytes()
    with pytest.raises(UsageError, match=message):
        loop.run(load_config(path, [*settings, setting]), resume=True)
    assert (tmp_path / "run" / "config.toml").read_bytes() == saved


@pytest.mark.parametrize(
    ("settings", "file"),
    [
        ([], "model/model.safetensors"),
        ([], "model/config.json"),
        (["lora_rank=2"], "model/adapter_model.safetensors"),
        (["lora_rank=2"], "model/adapter_config.json"),
        ([], "optimizer.pt"),
        ([], "state.json"),
    ],
)
def test_a_torn_checkpoint_is_named_with_the_way_on(
    model: Path, tmp_path: Path, settings: list[str], file: str
) -> None:
    path = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=1)
    config = load_config(path, [*settings, "eval.num_examples=0"])
    loop.run(config)
    torn = tmp_path / "run" / "checkpoints" / "step_1" / file
    whole = torn.read_bytes()
    for left in (whole[: len(whole) // 2], b""):
        torn.write_bytes(left)
        with pytest.raises(UsageError, match=r"checkpoint .*step_1 cannot be read: .+; remove that folder to resume"):
            loop.run(config, resume=True)
    torn.unlink()
    with pytest.raises(UsageError, match=r"checkpoint .*step_1 cannot be read: .+; remove that folder to resume"):
        loop.run(config, resume=True)


def test_adapters_for_layers_that_are_not_there_are_refused_with_those_that_are(model: Path, tmp_path: Path) -> None:
    path = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=1)
    config = load_config(path, ["lora_rank=2", "lora_target_modules=['q_proj', 'query']", "eval.num_examples=0"])
    with pytest.raises(UsageError, match=r"named 'query'; its linear layers are down_proj, gate_proj, k_proj, o_proj"):
        loop.run(config)
    assert not (tmp_path / "run").exists()


def test_the_rollouts_of_a_step_lie_in_the_order_in_which_they_were_assigned(model: Path, tmp_path: Path) -> None:
    path = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=1)
    slow = ["env.a.id=training_toys:later_first", "env.a.args={}"]
    broken = ["env.e.id=training_toys:broken", "env.e.args={kind = 'raises'}"]
    loop.run(load_config(path, [*slow, *broken, "eval.num_examples=0"]))
    played = [(row["group_id"], row["rollout_index"]) for row in rollouts(tmp_path / "run")]
    assert played == [(f"1/{place}", index) for place in range(4) for index in range(4) for _ in range(1 + place // 2)]


def test_ctrl_c_keeps_a_checkpoint_and_the_rollouts_and_exits_with_130(model: Path, tmp_path: Path) -> None:
    config = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=1000, seconds=0.05)
    command = [sys.executable, "-m", "polygym", "rl", "run", str(config), "--set", "checkpoint_interval=500"]
    process = subprocess.Popen(
        [*command, "--set", "eval.num_examples=0"],
        env={**os.environ, "PYTHONPATH": str(HERE)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    run = tmp_path / "run"
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and not (run / "metrics.jsonl").exists():
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.2)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    steps = len(metrics(run))
    (kept,) = (run / "checkpoints").iterdir()
    assert kept.name == f"step_{steps}"
    played = rollouts(run)
    assert len([row for row in played if row["step"] <= steps]) == 16 * steps
    resumed = subprocess.run(
        [*command, "--set", "eval.num_examples=0", "--set", f"max_steps={steps + 1}", "--resume"],
        env={**os.environ, "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert [row["step"] for row in metrics(run)] == list(range(1, steps + 2))


def test_a_reward_that_is_no_number_stops_the_run_and_keeps_what_was_collected(model: Path, tmp_path: Path) -> None:
    config = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run")
    with pytest.raises(UsageError, match=r"returned .good. \(str\)"):
        loop.run(load_config(config, ["env.e.id=training_toys:bad_reward", "env.e.args={}", "eval.num_examples=0"]))
    assert (tmp_path / "run" / "config.toml").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model=gone/", "does not exist"),
        ("env.a.id=training_toys:gone", "no function 'gone'"),
        ("eval.num_examples=5", "more than the 4 held-out tasks of environment 'a'"),
        ("eval.rollouts_per_example=0", "rollouts_per_example=0"),
    ],
)
def test_a_mistake_leaves_no_folder_behind_so_that_the_mended_config_runs(
    model: Path, tmp_path: Path, override: str, message: str
) -> None:
    path = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=1)
    with pytest.raises(UsageError, match=message):
        loop.run(load_config(path, [override]))
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_made_is_the_users_mistake(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for output in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(UsageError, match="cannot be used as run folder"):
            loop.run(load_config(toy.write_config(tmp_path / "run.toml", model, output, steps=1)))


def test_every_environment_has_its_counts_in_every_step(model: Path, tmp_path: Path) -> None:
    path = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=4)
    flat = ["env.e.id=training_toys:broken", "env.e.args={kind = 'flat'}"]  # every answer earns 1
    loop.run(load_config(path, [*flat, "batch_size=4", "eval.num_examples=0"]))  # they take turns
    counts = ("groups", "rollouts", "absent", "loss", "loss_share", "tokens", "unscored", "errors", "share")
    lines = metrics(tmp_path / "run")
    assert {f"{name}/{count}" for name in "ae" for count in counts} <= set.intersection(*map(set, lines))
    assert [line["a/groups"] + line["e/groups"] for line in lines] == [1.0] * 4
    for line in lines:
        assert (line["e/tokens"] > 0, line["a/tokens"] > 0) == (line["e/groups"] == 1, line["a/groups"] == 1)
        assert (line["e/loss"], "e/entropy" in line) == (0.0, False)


def test_a_run_prints_nothing_of_its_own(model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    loop.run(load_config(toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=1)))
    assert capfd.readouterr() == ("", "")


BROKEN = [
    ("raises", "reward function 'graded' raised RuntimeError: no judge"),
    ("none", "reward function 'graded' returned None"),
    ("nan", "reward function 'graded' returned nan"),
    ("setup", "setup_state raised ValueError: no database"),
    ("context", "the prompt does not fit the policy's context"),
]


@pytest.mark.parametrize(("kind", "cause"), BROKEN)
def test_an_environment_that_cannot_be_scored_stops_no_other_and_its_rollouts_are_kept(
    model: Path, tmp_path: Path, kind: str, cause: str
) -> None:
    path = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=1)
    broken = ["env.e.id=training_toys:broken", f"env.e.args={{kind = '{kind}'}}", "eval.num_examples=1"]
    summary = loop.run(load_config(path, [*broken, "max_seq_len=64"]))
    played = rollouts(tmp_path / "run")
    assert [row["reward"] is None for row in played] == [row["environment"] == "e" for row in played]
    # both groups of "e" were played twice before they were given up
    assert [sum(row["environment"] == name for row in played) for name in ("a", "e")] == [8, 16]
    assert all(cause in row["cause"]["message"] for row in played if row["environment"] == "e")
    line = metrics(tmp_path / "run")[-1]
    assert (line["a/unscored"], line["e/rollouts"]) == (0.0, 0.0)
    assert "e/mean_reward" not in line
    log = (tmp_path / "run" / "log.txt").read_text()
    assert f"e: group 1/2 was dropped: e: {cause}" in log
    assert "evaluation: e: none of 1 rollouts was scored" in log
    assert re.search(r"step 1: a \d\.\d\d\d  e -  ", log)
    assert (never_scored(summary.failures), summary.failures["e"].rollouts) == (["e"], 16)


RUN = [sys.executable, "-m", "polygym", "rl", "run"]


def test_an_environment_that_was_never_scored_is_named_at_the_end_and_is_exit_code_1(
    model: Path, tmp_path: Path
) -> None:
    path = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=2)
    broken = ["env.e.id=training_toys:broken", "env.e.args={kind = 'raises'}", "eval.num_examples=0"]
    options = {"env": {**os.environ, "PYTHONPATH": str(HERE)}, "capture_output": True, "text": True, "check": False}
    settings = [part for setting in broken for part in ("--set", setting)]
    subprocess.run([*RUN, str(path), *settings, "--set", "max_steps=1"], **options)
    done = subprocess.run([*RUN, str(path), *settings, "--resume"], **options)
    # two groups of four a step, each played twice, in both steps
    told = (
        "e: none of 32 rollouts was scored (reward 32); reward: reward function 'graded' raised RuntimeError: no judge"
    )
    assert done.returncode == 1
    assert told in done.stdout
    assert done.stderr.splitlines()[-1] == "error: no rollout of e was scored; the cause stands with the results"
    assert told in (tmp_path / "run" / "log.txt").read_text().splitlines()[-1]


def test_an_environment_that_fails_now_and_then_is_told_with_its_count(model: Path, tmp_path: Path) -> None:
    path = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=1)
    settings = ["env.e.id=training_toys:unsteady", "env.e.args={}", "eval.num_examples=0"]
    summary = loop.run(load_config(path, settings))
    assert never_scored(summary.failures) == []
    told = "e: 1 of 8 rollouts unscored (reward 1), left out of the means; reward: reward function 'graded' raised "
    assert told in str(summary)
    assert summary.to_dict()["failures"]["e"]["causes"] == {"reward": 1}


def test_what_is_only_evaluated_and_never_scored_is_named_too(model: Path, tmp_path: Path) -> None:
    path = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=1)
    extra = '[[eval.env]]\nid = "training_toys:broken"\nname = "u"\nargs = { kind = "none" }\n'
    path.write_text(path.read_text(encoding="utf-8") + extra, encoding="utf-8")
    assert never_scored(loop.run(load_config(path, ["eval.num_examples=1"])).failures) == ["u"]


def test_a_step_without_any_score_ends_the_run_with_the_cause_and_keeps_what_was_played(
    model: Path, tmp_path: Path
) -> None:
    path = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=1)
    both = [f"env.{name}.{key}" for name in "ae" for key in ("id=training_toys:broken", "args={kind = 'none'}")]
    with pytest.raises(PolicyError, match=r"step 1: no group could be scored: .* returned None"):
        loop.run(load_config(path, [*both, "eval.num_examples=0"]))
    assert len(rollouts(tmp_path / "run")) == 32


def test_an_update_keeps_its_dropout_where_a_wave_works_on_after_its_last_answer(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accumulate, recycle = Learner._accumulate, Engine._recycle
    learning, modes = threading.Event(), []

    def slow(self: Engine, *arguments: Any) -> None:
        learning.wait(0.3)
        recycle(self, *arguments)

    def watched(self: Learner, *arguments: Any, **options: Any) -> None:
        learning.set()
        time.sleep(0.1)
        modes.append(self.model.training)
        accumulate(self, *arguments, **options)

    monkeypatch.setattr(Engine, "_recycle", slow)
    monkeypatch.setattr(Learner, "_accumulate", watched)
    path = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=1)
    loop.run(load_config(path, ["lora_rank=2", "lora_dropout=0.5", "eval.num_examples=0", "micro_batch_tokens=64"]))
    assert modes
    assert all(modes)


def test_dropout_of_adapters_is_for_learning_only(model: Path, tmp_path: Path) -> None:
    path = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=1)
    assert loop.run(load_config(path, ["lora_rank=2", "lora_dropout=0.5", "eval.num_examples=0"])).steps == 1
    assert metrics(tmp_path / "run")[-1]["a/mismatch_kl"] >= 0


def test_a_run_that_is_stopped_in_its_last_evaluation_keeps_its_last_step_and_ends_when_resumed(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=2))
    evaluate = HeldOut.evaluate

    async def stopped(self: HeldOut, step: int) -> Any:
        if step == 2:
            raise KeyboardInterrupt
        return await evaluate(self, step)

    monkeypatch.setattr(HeldOut, "evaluate", stopped)
    with pytest.raises(KeyboardInterrupt):
        loop.run(config)
    assert [row["step"] for row in metrics(tmp_path / "run")] == [0, 1, 2]
    monkeypatch.setattr(HeldOut, "evaluate", evaluate)
    summary = loop.run(config, resume=True)
    assert summary.comparison is not None
    assert [row["step"] for row in metrics(tmp_path / "run")] == [0, 1, 2]


def test_what_is_only_evaluated_counts_in_no_combined_reward(model: Path, tmp_path: Path) -> None:
    path = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=1)
    extra = '[[eval.env]]\nid = "training_toys:load_environment"\nname = "u"\nargs = { letter = "u" }\n'
    path.write_text(path.read_text(encoding="utf-8") + extra, encoding="utf-8")
    summary = loop.run(load_config(path, ["env.e.weight=3.0"]))
    last = metrics(tmp_path / "run")[-1]
    expected = 0.25 * last["eval/a/mean_reward"] + 0.75 * last["eval/e/mean_reward"]
    assert last["eval/combined/mean_reward"] == pytest.approx(expected)
    assert "eval/u/mean_reward" in last
    assert summary.comparison is not None
    assert summary.comparison.combined.after == pytest.approx(expected)
    assert summary.comparison.combined.tasks == 8
