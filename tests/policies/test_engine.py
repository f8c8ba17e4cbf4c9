"""The engine's ids and log-probabilities are those of the model, however rows are batched, shared or continued."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from model_toys import END, END_OF_TEXT, toy_model  # noqa: E402
from polygym.errors import PolicyError  # noqa: E402
from polygym.policies.base import Sampling  # noqa: E402
from polygym.policies.chunk import Generation  # noqa: E402
from polygym.policies.engine import Engine  # noqa: E402


def engine(model: Any, **settings: Any) -> Engine:
    return Engine(model, [END_OF_TEXT, END], lambda ids: "".join(chr(29 + i) for i in ids), **settings)


def requests(prompts: int, group: int = 3, most_new: int = 70) -> list[Generation]:
    draw = random.Random(0)
    rows = []
    for prompt in range(prompts):
        ids = [draw.randrange(3, 99) for _ in range(draw.randrange(2, 40))]
        for member in range(group):
            sampling = Sampling(temperature=draw.choice([1.0, 0.7, 0.0]))
            rows.append(Generation(ids, sampling, 10 * prompt + member, draw.randrange(1, most_new)))
    return rows


def again(rows: list[Generation]) -> list[Generation]:
    return [Generation(row.prompt, row.sampling, row.seed, row.max_new) for row in rows]


def next_turns(rows: list[Generation], added: int = 9) -> list[Generation]:
    turns = []
    for at, row in enumerate(rows):
        before = [*row.prompt, *row.ids]
        new = [5 + (at + index) % 60 for index in range(1 + at % added)]
        turns.append(Generation([*before, *new], Sampling(), 1000 + at, 12, known=len(before)))
    return turns


def worst_error(model: Any, rows: list[Generation]) -> float:
    """Largest difference to the log-probabilities of a plain forward pass over each whole row."""
    worst = 0.0
    for row in rows:
        with torch.no_grad():
            logits = model(torch.tensor([[*row.prompt, *row.ids]])).logits[0, len(row.prompt) - 1 : -1]
        expected = torch.log_softmax(logits / (row.sampling.temperature or 1.0), dim=-1)
        got = expected.gather(1, torch.tensor(row.ids)[:, None])[:, 0]
        worst = max(worst, (got - torch.tensor(row.logprobs)).abs().max().item())
    return worst


def test_log_probabilities_are_the_models_own() -> None:
    model, rows = toy_model(), requests(12)
    engine(model).generate(rows)
    assert len({len(row.ids) for row in rows}) > 10, "rows end at different steps"
    assert worst_error(model, rows) < 1e-4


def test_what_a_row_samples_does_not_depend_on_its_batch() -> None:
    model, rows = toy_model(), requests(8)
    engine(model).generate(rows)
    chunked, alone = again(rows), again(rows)
    engine(model, max_batch_tokens=300).generate(chunked)
    one = engine(model)
    for row in alone:
        one.generate([row])
    assert [row.ids for row in chunked] == [row.ids for row in rows]
    assert [row.ids for row in alone] == [row.ids for row in rows]


def test_the_same_wave_repeats_to_the_last_digit() -> None:
    model, rows = toy_model(), requests(8)
    same, first = engine(model), again(rows)
    engine(model).generate(rows)
    same.generate(first)
    same.generate(second := again(rows))
    assert [row.logprobs for row in first] == [row.logprobs for row in rows]
    assert [row.logprobs for row in second] == [row.logprobs for row in rows]


def test_a_later_turn_continues_from_kept_keys_as_if_it_were_computed_anew() -> None:
    model, rows = toy_model(), requests(10, most_new=90)
    one = engine(model)
    one.generate(rows)
    fed: list[int] = []
    model.model.register_forward_pre_hook(
        lambda module, args, kwargs: fed.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    for _ in range(2):
        fed.clear()
        rows = next_turns(rows)
        one.generate(rows)
        assert sum(fed) < sum(len(row.prompt) for row in rows), "old tokens are not fed again"
        assert worst_error(model, rows) < 1e-4


def test_kept_keys_are_forgotten_when_the_weights_change() -> None:
    model, rows = toy_model(), requests(4)
    one = engine(model)
    one.generate(rows)
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight.add_(0.5)
    rows = next_turns(rows)
    one.generate(rows)
    assert worst_error(model, rows) < 1e-4


def test_equal_prompts_are_computed_once() -> None:
    model = toy_model()
    fed: list[int] = []
    model.model.register_forward_pre_hook(
        lambda module, args, kwargs: fed.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    engine(model).generate([Generation([5, 6, 7, 8], Sampling(), seed, 1) for seed in range(8)])
    assert fed == [4]


def test_half_precision_and_adapters_are_sampled_as_they_are() -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(toy_model(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    rows = requests(4)
    one = engine(model)
    one.generate(rows)
    assert worst_error(model, rows) < 1e-4
    rows = next_turns(rows)
    one.generate(rows)
    assert worst_error(model, rows) < 1e-4

    half, rows = toy_model().bfloat16(), requests(4, most_new=20)
    engine(half).generate(rows)
    assert worst_error(half, rows) < 0.3


def test_buffers_kept_for_later_turns_stay_within_the_bound() -> None:
    model, rows = toy_model(), requests(30, group=1)
    one = engine(model, max_batch_tokens=1000)
    one.generate(rows)
    held = {id(place.slab): place.slab.tokens for place in one._kept.values()}
    assert 0 < sum(held.values()) <= 1000
    assert sum(slab.tokens for slab in one._free) <= 1000
    rows = next_turns(rows)
    one.generate(rows)
    assert worst_error(model, rows) < 1e-4


@pytest.mark.parametrize("kind", ["sliding", "alibi", "gpt2"])
def test_models_of_other_kinds_give_their_own_log_probabilities(kind: str) -> None:
    from transformers import AutoModelForCausalLM, BloomConfig, GPT2Config, MistralConfig

    small = {"vocab_size": 99, "hidden_size": 32, "initializer_range": 0.2}
    configs = {
        "sliding": MistralConfig(
            **small, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
            sliding_window=8, max_position_embeddings=256,
        ),
        "alibi": BloomConfig(**small, n_layer=2, n_head=4),
        "gpt2": GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=256, initializer_range=0.2),
    }  # fmt: skip
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(configs[kind]).eval()
    rows = requests(5, group=2, most_new=30)
    one = engine(model)
    one.generate(rows)
    assert worst_error(model, rows) < 1e-4
    rows = next_turns(rows)
    one.generate(rows)
    assert worst_error(model, rows) < 1e-4


def test_a_row_ends_with_a_stop_id_or_its_limit() -> None:
    model, rows = toy_model(), requests(20)
    engine(model).generate(rows)
    stopped = [row for row in rows if row.finish_reason == "stop"]
    cut = [row for row in rows if row.finish_reason == "length"]
    assert stopped and cut
    assert all(row.ids[-1] in (END_OF_TEXT, END) and len(row.ids) <= row.max_new for row in stopped)
    assert all(len(row.ids) == row.max_new for row in cut)
    assert not any(token in (END_OF_TEXT, END) for row in rows for token in row.ids[:-1])


def test_a_stop_string_ends_only_the_rows_that_have_it() -> None:
    model = toy_model()
    free = [Generation([7, 8, 9], Sampling(), seed, 40) for seed in range(6)]
    engine(model).generate(free)
    text = "".join(chr(29 + i) for i in free[0].ids)
    stop = text[3:5]
    rows = [Generation([7, 8, 9], Sampling(stop=(stop,) if seed == 0 else ()), seed, 40) for seed in range(6)]
    engine(model).generate(rows)
    assert rows[0].finish_reason == "stop" and rows[0].stop_text == stop
    assert rows[0].ids == free[0].ids[: text.index(stop) + 2]
    assert [row.ids for row in rows[1:]] == [row.ids for row in free[1:]]


def test_cancelled_rows_leave_the_batch() -> None:
    model = toy_model()
    rows = [Generation([7, 8, 9], Sampling(), seed, 200) for seed in range(4)]
    for row in rows:
        row.cancelled = True
    engine(model).generate(rows)
    assert max(len(row.ids) for row in rows) <= 8


def test_weights_of_nan_are_an_error_and_do_not_spoil_what_is_sampled_after_them() -> None:
    model, rows = toy_model(), requests(4)
    one = engine(model)
    weight = model.model.norm.weight
    with torch.no_grad():
        weight.fill_(float("nan"))
    with pytest.raises(PolicyError, match="no finite probabilities"):
        one.generate(again(rows))
    with torch.no_grad():
        weight.fill_(1.0)
    one.generate(rows)
    assert worst_error(model, rows) < 1e-4


def test_the_mode_of_the_model_is_put_back() -> None:
    model = toy_model().train()
    engine(model).generate(requests(1))
    assert model.training
