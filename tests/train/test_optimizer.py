"""Tests of rates by kind of parameter and of the schedule."""

from __future__ import annotations

import pytest
import torch

from polygym.train.config import RunConfig
from polygym.train.config_file import validate
from polygym.train.optimizer import kind_of, learning_rate_at, make_optimizer, set_learning_rate


def config(**changes: object) -> RunConfig:
    return validate(RunConfig, {"batch_size": 16, "learning_rate": 1.0, "env": [{"id": "a"}], **changes}, "test")


def test_a_constant_rate_follows_a_linear_warm_up() -> None:
    rates = [learning_rate_at(step, config(max_steps=5, warmup_steps=3)) for step in range(5)]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_a_linear_decay_starts_where_it_is_told_and_ends_at_its_fraction() -> None:
    settings = config(max_steps=11, lr_schedule="linear", lr_decay_from=0.5, lr_final_fraction=0.1)
    rates = [learning_rate_at(step, settings) for step in range(11)]
    assert rates[:6] == [1.0] * 6
    assert rates[10] == pytest.approx(0.1)
    assert rates[8] == pytest.approx(1 - 0.9 * 2.5 / 4.5)


def test_a_cosine_is_half_way_down_in_the_middle() -> None:
    settings = config(max_steps=101, lr_schedule="cosine", lr_final_fraction=0.0)
    assert learning_rate_at(50, settings) == pytest.approx(0.5)


def test_each_kind_of_parameter_has_its_factor_and_only_matrices_decay() -> None:
    model = torch.nn.ModuleDict(
        {"embed_tokens": torch.nn.Embedding(4, 3), "proj": torch.nn.Linear(3, 3), "norm": torch.nn.LayerNorm(3)}
    )
    optimizer = make_optimizer(
        model, config(weight_decay=0.5, learning_rate_factors={"embedding": 2.0, "vector": 100.0, "matrix": 1.0})
    )
    set_learning_rate(optimizer, 0.01)
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.02, 1.0]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.5, 0.0, 0.0]


def test_kinds_are_told_by_name_and_shape() -> None:
    matrix, vector = torch.zeros(2, 2), torch.zeros(2)
    assert kind_of("model.layers.0.mlp.up_proj.weight", matrix) == "matrix"
    assert kind_of("model.embed_tokens.weight", matrix) == "embedding"
    assert kind_of("lm_head.weight", matrix) == "embedding"
    assert kind_of("model.norm.weight", vector) == "vector"
