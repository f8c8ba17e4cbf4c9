"""Tests of the learner: an update is one weighted sum over trained tokens, however it is cut."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from polygym.errors import UsageError
from polygym.train.batch import TrainSample
from polygym.train.config import RunConfig
from polygym.train.config_file import validate
from polygym.train.forward import Row, has_plain_head, micro_batches, pack, plan_rows, trained_logits
from polygym.train.learner import Learner, stratify
from polygym.train.samples import TokenSample


def tiny_model(seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    shape = LlamaConfig(
        vocab_size=17, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True,
    )  # fmt: skip
    return LlamaForCausalLM(shape).eval()


def config(**changes: object) -> RunConfig:
    return validate(RunConfig, {"batch_size": 16, "learning_rate": 1e-2, "env": [{"id": "a"}], **changes}, "test")


def sample(
    model: LlamaForCausalLM, ids: list[int], start: int, advantage: float, name: str = "a", weight: float = 0.1
) -> TrainSample:
    """A sequence sampled by `model` itself from position `start` on: the recorded log-probabilities are its own."""
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0], dim=-1)
    own = [float(logprobs[place - 1, ids[place]]) if place >= start else 0.0 for place in range(len(ids))]
    mask = [int(place >= start) for place in range(len(ids))]
    return TrainSample(TokenSample(ids, mask, own), name, advantage, weight, 1.0)


def samples(model: LlamaForCausalLM) -> list[TrainSample]:
    return [
        sample(model, [1, 2, 3, 4, 5], 2, 1.0),
        sample(model, [1, 2, 9, 8], 2, -1.0),
        sample(model, [3, 3, 3, 4, 5, 6, 7, 8], 3, 0.5, "b"),
        sample(model, [3, 3, 3, 1], 3, -0.5, "b"),
        sample(model, [5, 6, 7], 1, 0.0, "b"),
    ]


def gradients(model: LlamaForCausalLM) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_logits_are_those_of_the_whole_model_at_the_tokens_before() -> None:
    model = tiny_model()
    tokens = [TokenSample([1, 2, 3], [0, 1, 1], None), TokenSample([4, 5], [0, 1], None)]
    packed = pack(tokens, plan_rows(tokens), "cpu")
    whole = model(torch.tensor([[1, 2, 3]])).logits[0]
    other = model(torch.tensor([[4, 5]])).logits[0]
    torch.testing.assert_close(trained_logits(model, packed), torch.stack([whole[0], whole[1], other[0]]))
    assert packed.ids_N.tolist() == [2, 3, 5]
    assert has_plain_head(model)


def test_a_prompt_that_is_shared_is_computed_once_and_gives_the_same_logits() -> None:
    model = tiny_model()
    prompt = [1, 2, 3, 4, 5, 6]
    tokens = [
        TokenSample([*prompt, 7, 8], [0] * 6 + [1, 1], None),
        TokenSample([9, 9, 9], [0, 0, 1], None),
        TokenSample([*prompt, 9], [0] * 6 + [1], None),
        TokenSample([*prompt, 3, 2, 1], [0] * 6 + [1, 0, 1], None),
    ]
    rows = plan_rows(tokens)
    assert rows == [Row((0, 2, 3), 6, 12), Row((1,), 0, 3)]
    shared = pack(tokens, rows[:1], "cpu")
    assert shared.ids_B_T.tolist() == [[*prompt, 7, 8, 9, 3, 2, 1]]
    assert shared.owners_N.tolist() == [0, 0, 2, 3, 3]
    alone = [pack([sample], [Row((0,), 0, len(sample.ids_T))], "cpu") for sample in (tokens[0], tokens[2], tokens[3])]
    torch.testing.assert_close(
        trained_logits(model, shared), torch.cat([trained_logits(model, packed) for packed in alone])
    )
    assert shared.per_token([range(8), (), range(10, 17), range(20, 29)], tokens).tolist() == [6, 7, 16, 26, 28]


def test_prompts_are_not_shared_where_it_saves_little_or_makes_rows_long() -> None:
    short = [TokenSample([1, 2, 3, 4, number], [0, 1, 1, 1, 1], None) for number in range(3)]
    assert [row.shared for row in plan_rows(short)] == [0, 0, 0]
    long = [TokenSample([1] * 600 + [number] * 100, [0] * 600 + [1] * 100, None) for number in range(6)]
    assert [(row.members, row.tokens) for row in plan_rows(long)] == [((0, 1, 2, 3), 1000), ((4, 5), 800)]


def test_a_model_whose_head_does_more_is_refused() -> None:
    model = tiny_model()
    plain = model.forward
    model.forward = lambda *args, **kwargs: _capped(plain(*args, **kwargs))  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="caps or scales its logits"):
        Learner(model, config())


def _capped(output: object) -> object:
    output.logits = torch.tanh(output.logits * 10)  # type: ignore[attr-defined]
    return output


def test_an_update_is_the_same_however_it_is_cut_into_micro_batches() -> None:
    model = tiny_model()
    batch = samples(model)
    whole, cut = copy.deepcopy(model), copy.deepcopy(model)
    first = Learner(whole, config(micro_batch_tokens=10_000)).update(batch, 0)
    second = Learner(cut, config(micro_batch_tokens=8)).update(batch, 0)
    assert first["grad_norm"] == pytest.approx(second["grad_norm"], rel=1e-5)
    for one, other in zip(gradients(whole), gradients(cut), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_the_gradient_is_that_of_the_formula() -> None:
    model = tiny_model()
    batch = samples(model)
    mine = copy.deepcopy(model)
    norm = Learner(mine, config(max_grad_norm=1e9)).update(batch, 0)["grad_norm"]
    loss = torch.zeros(())
    for item in batch:
        logprobs = torch.log_softmax(model(torch.tensor([item.tokens.ids_T])).logits[0], dim=-1)
        for place, trained in enumerate(item.tokens.mask_T):
            if trained:
                assert item.tokens.logprobs_T is not None
                ratio = (logprobs[place - 1, item.tokens.ids_T[place]] - item.tokens.logprobs_T[place]).exp()
                loss = loss - item.weight * item.advantage * ratio
    loss.backward()
    expected = math.sqrt(sum(float((parameter.grad**2).sum()) for parameter in model.parameters()))
    assert norm == pytest.approx(expected, rel=1e-4)


def test_metrics_are_kept_per_environment_and_on_policy_nothing_is_clipped() -> None:
    model = tiny_model()
    metrics = Learner(model, config()).update(samples(model), 0)
    assert (metrics["a/tokens"], metrics["b/tokens"]) == (5.0, 8.0)
    assert metrics["a/clip_fraction"] == metrics["b/clip_fraction"] == 0.0
    assert abs(metrics["a/mismatch_kl"]) < 1e-6
    assert 0 < metrics["a/entropy"] <= math.log(17)
    assert "a/kl" not in metrics


def test_an_environment_without_signal_keeps_its_counts_and_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model()
    computed = []
    monkeypatch.setattr(
        "polygym.train.learner.trained_logits",
        lambda model, packed: computed.append(packed.ids_N.tolist()) or trained_logits(model, packed),
    )
    batch = [sample(model, [1, 2, 3, 4, 5], 2, 1.0), sample(model, [5, 6, 7], 1, 0.0, "b")]
    metrics = Learner(model, config(updates_per_batch=2)).update(batch, 0, ["a", "b", "c"])
    assert computed == [[3, 4, 5]]
    assert {key: metrics[key] for key in metrics if key[0] in "bc"} == {
        "b/loss": 0.0,
        "b/tokens": 2.0,
        "c/loss": 0.0,
        "c/tokens": 0.0,
    }
    assert (metrics["a/tokens"], metrics["a/loss"]) == (3.0, pytest.approx(-0.3))


def test_means_are_over_the_tokens_that_were_computed() -> None:
    model = tiny_model()
    signal = [sample(model, [1, 2, 3, 4, 5], 2, 1.0)]
    alone = Learner(copy.deepcopy(model), config()).update(signal, 0)
    among = Learner(model, config()).update([*signal, sample(model, [5, 6, 7], 1, 0.0)], 0)
    assert (alone["a/tokens"], among["a/tokens"]) == (3.0, 5.0)
    assert {key: alone[key] for key in alone if key != "a/tokens"} == {
        key: among[key] for key in among if key != "a/tokens"
    }


def test_a_kl_term_trains_also_on_tokens_without_advantage_and_is_measured() -> None:
    model = tiny_model()
    only = [sample(model, [5, 6, 7], 1, 0.0, "b")]
    assert "b/entropy" in Learner(copy.deepcopy(model), config(kl_coef=0.1)).update(only, 0)
    learner = Learner(model, config(kl_coef=0.1))
    learner.update(samples(model), 0)
    assert learner.update(samples(model), 1)["a/kl"] > 0


def test_updates_raise_what_was_good_and_lower_what_was_bad() -> None:
    model = tiny_model()
    good, bad = [1, 2, 3, 4], [1, 2, 5, 6]
    batch = [sample(model, good, 2, 1.0), sample(model, bad, 2, -1.0)]
    Learner(model, config()).update(batch, 0)
    after = [sample(model, ids, 2, 0.0).tokens.logprobs_T for ids in (good, bad)]
    before = [item.tokens.logprobs_T for item in batch]
    assert sum(after[0] or []) > sum(before[0] or [])
    assert sum(after[1] or []) < sum(before[1] or [])


def test_a_poisoned_gradient_is_dropped_and_counted() -> None:
    model = tiny_model()
    batch = [sample(model, [1, 2, 3, 4], 2, float("nan"))]
    before = gradients(model)
    metrics = Learner(model, config()).update(batch, 0)
    assert metrics["updates_skipped"] == 1.0
    assert all(torch.equal(one, other) for one, other in zip(before, gradients(model), strict=True))


def test_parts_of_a_batch_hold_each_environment_alike() -> None:
    model = tiny_model()
    batch = [sample(model, [1, 2, 3], 1, 1.0, name) for name in "aaaabb"]
    parts = stratify(batch, 2)
    assert [[item.environment for item in part] for part in parts] == [["a", "a", "b"], ["a", "a", "b"]]


def test_micro_batches_are_bounded_by_padded_tokens_and_hold_at_least_one() -> None:
    rows = [Row((place,), 0, tokens) for place, tokens in enumerate([5, 1, 9, 2])] + [Row((4, 5), 2, 3)]
    sizes = [[row.tokens for row in batch] for batch in micro_batches(rows, 6)]
    assert sizes == [[1, 2], [5], [9], [3]]


def test_adapters_alone_are_trained_and_turned_off_for_the_reference() -> None:
    from peft import LoraConfig, get_peft_model

    model = tiny_model()
    batch = samples(model)
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"))
    learner = Learner(adapted, config(kl_coef=0.1))
    learner.update(batch, 0)
    metrics = learner.update(batch, 1)
    assert metrics["a/kl"] > 0
    assert all("lora" in name for name, parameter in adapted.named_parameters() if parameter.requires_grad)
