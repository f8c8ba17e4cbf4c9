"""What is found out about a run without starting it."""

from __future__ import annotations

from pathlib import Path

import pytest

import training_toys as toy
from polygym.errors import UsageError
from polygym.train import loop
from polygym.train.config import load_config
from polygym.train.dry_run import check_run
from polygym.train.setup import build_environment

LONG = ("env.e.id=training_toys:broken", "env.e.args={kind = 'context'}")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.save_model(tmp_path_factory.mktemp("model"))


def check(path: Path, *settings: str, resume: bool = False) -> list[str]:
    config = load_config(path, settings)
    return check_run(config, build_environment(config.env), resume=resume)


def test_a_run_that_can_start_is_told_what_was_not_checked_and_leaves_nothing(model: Path, tmp_path: Path) -> None:
    path = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run")
    (line,) = check(path, "lora_rank=2", "lora_target_modules=['q_proj']")
    assert line == f"not checked: the weights of {model}, and whether a step fits into memory"
    assert not (tmp_path / "run").exists()


def test_no_weights_are_read(tmp_path: Path) -> None:
    (toy.save_model(tmp_path / "model") / "model.safetensors").unlink()
    assert check(toy.write_config(tmp_path / "run.toml", tmp_path / "model", tmp_path / "run"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["device=cuda:7"], "device='cuda:7' cannot be used here; available: cpu"),
        (["lora_rank=2", "lora_target_modules=['query']"], "no layer of the model is named 'query'"),
        (["model=gone/"], "does not exist"),
        (["model=http://127.0.0.1:9/v1"], "does not run in this process"),
        ([*LONG, "max_seq_len=64"], "e: every prompt is too long for max_seq_len=64: the shortest has 206 tokens"),
        (["env.a.loss_weight=0", "env.e.loss_weight=0"], "every loss_weight is 0"),
    ],
)
def test_what_cannot_run_is_refused(model: Path, tmp_path: Path, settings: list[str], message: str) -> None:
    path = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run")
    with pytest.raises(UsageError, match=message):
        check(path, *settings)


def test_prompts_that_leave_room_are_accepted(model: Path, tmp_path: Path) -> None:
    assert check(toy.write_config(tmp_path / "run.toml", model, tmp_path / "run"), *LONG, "max_seq_len=207")


def test_an_output_that_cannot_be_made_is_refused_before_anything_is_loaded(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for output in (tmp_path / "file", tmp_path / "file" / "deep" / "run"):
        path = toy.write_config(tmp_path / "run.toml", model, output)
        with pytest.raises(UsageError, match=r"cannot be used as run folder: .*file is no folder"):
            check(path)
        with pytest.raises(UsageError, match=r"cannot be used as run folder: .*file is no folder"):
            loop.run(load_config(path, ["model=gone/"]))


def test_a_resume_is_told_what_it_would_change_and_refused_what_it_cannot(model: Path, tmp_path: Path) -> None:
    path = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run", steps=2)
    with pytest.raises(UsageError, match="nothing to resume"):
        check(path, resume=True)
    loop.run(load_config(path, ["eval.num_examples=0"]))
    assert check(path, "eval.num_examples=0", "kl_coef=0.1", resume=True) == [
        "changed from step 3 on: kl_coef 0.0 -> 0.1",
        f"not checked: the weights of {model} and the checkpoint, and whether a step fits into memory",
    ]
    with pytest.raises(UsageError, match="was trained with seed=0, the config says seed=3"):
        check(path, "seed=3", resume=True)
    with pytest.raises(UsageError, match="is not empty"):
        check(path)


def test_a_model_that_is_still_to_be_fetched_is_left_to_the_run(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYGYM_CACHE", str(tmp_path / "cache"))
    path = toy.write_config(tmp_path / "run.toml", model, tmp_path / "run")
    (line,) = check(path, "model=smollm2-135m")
    assert line.startswith("not checked: smollm2-135m, which the run fetches first")
