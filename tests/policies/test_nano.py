"""Tests of the shipped nano: what it is made of, and that it starts where the README says."""

from __future__ import annotations

import importlib.util
from importlib import resources
from pathlib import Path
from types import ModuleType

import pytest
import torch

import polygym as pg
from polygym.policies import nano_blueprint
from polygym.policies.base import Sampling
from polygym.policies.load import load_model_and_tokenizer
from polygym.recipes.multi_env import load_environment

FOLDER = Path(str(resources.files("polygym.policies"))) / "nano"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).parent.parent.parent / "scripts" / "make_nano_blueprint.py"
    spec = importlib.util.spec_from_file_location("make_nano_blueprint", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_nano_is_small() -> None:
    model, _ = load_model_and_tokenizer("nano")
    assert sum(parameter.numel() for parameter in model.parameters()) < 2_000_000
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 5_000_000


def test_the_shipped_tokenizer_is_what_the_script_makes_from_the_recipes(script: ModuleType) -> None:
    _, shipped = load_model_and_tokenizer("nano")
    made = nano_blueprint.build_tokenizer(script.phrases())
    assert made.get_vocab() == shipped.get_vocab()
    assert made.chat_template == shipped.chat_template


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("<guess>crane</guess>", 1), ("1sB 2hG", 2), ("What is 12 + 7?", 6), ("zebra-", 6)],
)
def test_phrases_are_one_token_and_the_rest_is_read_by_character(text: str, tokens: int) -> None:
    _, tokenizer = load_model_and_tokenizer("nano")
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert len(ids) == tokens
    assert tokenizer.decode(ids) == text


def test_words_that_share_letters_share_their_vectors_at_the_start() -> None:
    tokenizer = nano_blueprint.build_tokenizer(["<guess>crane</guess>", "<guess>crate</guess>", "<guess>moldy</guess>"])
    vectors = nano_blueprint.build_model(tokenizer, seed=0).get_input_embeddings().weight.detach()
    crane, crate, moldy = (
        vectors[tokenizer.convert_tokens_to_ids(f"<guess>{word}</guess>")] for word in ("crane", "crate", "moldy")
    )
    assert torch.cosine_similarity(crane, crate, dim=0) > 0.6
    assert abs(torch.cosine_similarity(crane, moldy, dim=0)) < 0.3


def test_untrained_weights_repeat_for_a_seed() -> None:
    tokenizer = nano_blueprint.build_tokenizer(["<guess>crane</guess>"])
    one, same, other = (nano_blueprint.build_model(tokenizer, seed=seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


def test_nano_starts_with_room_on_both_sides() -> None:
    results = pg.evaluate(
        load_environment(eval_examples=200), "nano", num_examples=200, rollouts_per_example=1,
        sampling=Sampling(max_tokens=48),
    )  # fmt: skip
    means = {name: found.mean_reward for name, found in results.environments.items()}
    assert means["math"] == pytest.approx(0.70, abs=0.1)
    assert means["tools"] == pytest.approx(0.30, abs=0.1)
    assert means["word"] == pytest.approx(0.15, abs=0.07)
