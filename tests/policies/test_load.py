"""What the name of a model leads to, and what is said when it leads nowhere."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from model_toys import toy_model, toy_tokenizer
from polygym.errors import UsageError
from polygym.messages import Message
from polygym.policies.base import Request, Sampling
from polygym.policies.load import is_local, load_model_and_tokenizer, load_outline, load_policy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    toy_model().save_pretrained(tmp_path / "model")
    toy_tokenizer().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_folder_is_loaded_and_answers(folder: Path) -> None:
    policy = load_policy(str(folder), device="cpu")
    turn = asyncio.run(policy.complete(Request([Message("user", "hi")], (), Sampling(max_tokens=4), 0)))
    assert turn.usage.completion_tokens in range(1, 5)


def test_loading_shows_no_progress_bar(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load_model_and_tokenizer(str(folder), "cpu", "float32")
    assert capfd.readouterr().err == ""


def test_nano_is_in_the_package() -> None:
    model, tokenizer = load_model_and_tokenizer("nano", "cpu")
    assert sum(weight.numel() for weight in model.parameters()) < 2_100_000
    assert tokenizer.chat_template


@pytest.mark.parametrize(
    "name,local",
    [
        ("nano", True),
        ("smollm2-135m", True),
        ("hf:gpt2", True),
        ("organisation/name", True),
        ("openai:organisation/name", False),
        ("http://localhost:8000/v1", False),
        ("gpt-4.1-mini", False),
    ],
)
def test_a_name_says_where_a_model_runs(name: str, local: bool) -> None:
    assert is_local(name) is local


def test_other_names_are_models_of_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert load_policy("some-model").name == "some-model"
    assert load_policy("openai:organisation/name").name == "organisation/name"


def test_a_url_takes_the_model_behind_the_hash_or_the_first_it_lists() -> None:
    assert load_policy("http://127.0.0.1:9/v1#mine").name == "mine"
    assert load_policy("http://127.0.0.1:9/v1").name == "default"


@pytest.mark.parametrize(
    "name,message",
    [
        ("nanno", "did you mean 'nano'"),
        ("", "must be a name"),
        ("oracle", "oracle answers with an environment's demonstrations"),
        ("./not/there", "model folder './not/there' does not exist"),
        ("organisation/not-there", "could not be read from organisation/not-there"),
        ("hf:not..there", "could not be read from not..there: Cannot have"),
    ],
)
def test_a_name_that_leads_nowhere_says_what_would(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_policy(name)


def test_a_folder_above_the_model_is_answered_with_the_model_in_it(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"has no config\.json; did you mean .*model"):
        load_policy(str(folder.parent))


def test_a_model_of_an_endpoint_is_not_loaded_here() -> None:
    with pytest.raises(UsageError, match="does not run in this process"):
        load_model_and_tokenizer("gpt-4.1-mini")


def test_an_unreadable_folder_is_a_usage_error(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="could not be read"):
        load_policy(str(folder))


def test_torn_weights_are_a_usage_error(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    with pytest.raises(UsageError, match=r"could not be read from .*not fully covered"):
        load_policy(str(folder))


def test_an_outline_has_layers_and_a_tokenizer_and_needs_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    model, tokenizer = load_outline(str(folder))
    assert next(model.parameters()).is_meta
    assert len(tokenizer) > 0


@pytest.mark.parametrize("name", ["./nofolder", "../nofolder", "-x/y", ".hidden/model"])
def test_a_name_that_can_be_no_hub_id_is_a_folder_that_does_not_exist(name: str) -> None:
    with pytest.raises(UsageError, match=r"model folder .* does not exist"):
        load_model_and_tokenizer(name)


@pytest.mark.parametrize(("name", "source"), [("no/such", "no/such"), ("hf:no/such", "no/such"), ("hf:such", "such")])
def test_a_hub_that_cannot_be_reached_is_told_at_once_and_in_one_line(tmp_path: Path, name: str, source: str) -> None:
    code = f"from polygym.policies.load import load_policy\ntry: load_policy({name!r})\n"
    code += "except ValueError as error: print(error)"
    environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"}
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert time.monotonic() - started < 30
    assert done.stderr == ""
    assert done.stdout.startswith(f"model {name!r} could not be read from {source}: ")


@pytest.mark.parametrize("url", ["https://user:pass-word@host/v1", "http://host:port/v1", "http://host:99999/v1"])
def test_an_address_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(UsageError, match="base_url=") as caught:
        load_policy(url)
    assert "pass-word" not in str(caught.value)
