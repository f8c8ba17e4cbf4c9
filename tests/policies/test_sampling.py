"""RowSampler draws from the distribution it reports, a row at a time."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from polygym.policies.sampling import RowSampler, invert, keep_top_p  # noqa: E402

CPU = torch.device("cpu")


def sampler(rows: int, temperature: float = 1.0, top_p: float = 1.0, first_seed: int = 0) -> RowSampler:
    return RowSampler(range(first_seed, first_seed + rows), [temperature] * rows, [top_p] * rows, CPU, 64)


def test_sampled_frequencies_are_the_probabilities() -> None:
    probabilities = torch.tensor([0.5, 0.25, 0.125, 0.125])
    ids, logprobs = sampler(8000).sample(probabilities.log().expand(8000, 4))
    frequencies = torch.bincount(ids, minlength=4) / 8000
    assert torch.allclose(frequencies, probabilities, atol=0.02)
    assert torch.allclose(logprobs, probabilities.log()[ids], atol=1e-6)


def test_temperature_scales_the_logits_and_the_log_probabilities() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    ids, logprobs = sampler(1, temperature=0.5).sample(logits)
    assert logprobs[0].item() == pytest.approx(torch.log_softmax(logits / 0.5, dim=-1)[0, ids[0]].item(), abs=1e-6)


def test_temperature_zero_takes_the_most_likely_token_and_reports_its_log_probability_at_one() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0]])
    ids, logprobs = sampler(1, temperature=0.0).sample(logits)
    assert ids.tolist() == [1]
    assert logprobs[0].item() == pytest.approx(torch.log_softmax(logits, dim=-1)[0, 1].item(), abs=1e-6)


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    probabilities = torch.tensor([[0.1, 0.5, 0.25, 0.15]])
    kept = keep_top_p(probabilities, torch.tensor([[0.7]]))
    assert kept[0].tolist() == pytest.approx([0.0, 0.5, 0.25, 0.0])
    assert keep_top_p(probabilities, torch.tensor([[0.01]]))[0].count_nonzero() == 1


def test_log_probabilities_are_those_before_top_p_cuts() -> None:
    probabilities = torch.tensor([0.1, 0.5, 0.25, 0.15])
    ids, logprobs = sampler(500, top_p=0.7).sample(probabilities.log().expand(500, 4))
    assert set(ids.tolist()) == {1, 2}
    assert torch.allclose(logprobs, probabilities.log()[ids], atol=1e-6)


@pytest.mark.parametrize("words", [5, 5000])
def test_a_uniform_picks_the_token_whose_share_of_the_sum_holds_it(words: int) -> None:
    probabilities = torch.zeros(4, words)
    probabilities[:, 1], probabilities[:, words - 2] = 1.0, 3.0
    uniforms = torch.tensor([[0.0], [0.2499], [0.2501], [1 - 2**-53]], dtype=torch.float64)
    assert invert(probabilities, uniforms).tolist() == [1, 1, words - 2, words - 2]


def test_blocks_of_a_large_vocabulary_pick_what_a_plain_sum_picks() -> None:
    torch.manual_seed(0)
    probabilities = torch.rand(300, 3000)
    uniforms = torch.rand(300, 1, dtype=torch.float64)
    cumulative = probabilities.double().cumsum(dim=-1)
    plain = torch.searchsorted(cumulative, uniforms * cumulative[:, -1:], right=True)[:, 0]
    assert torch.equal(invert(probabilities, uniforms), plain)


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    logits = torch.tensor([0.0, -math.inf, 0.0, -math.inf]).expand(2000, 4)
    assert set(sampler(2000).sample(logits)[0].tolist()) == {0, 2}


def test_a_row_draws_the_same_numbers_whoever_is_beside_it_and_after_the_block_runs_out() -> None:
    logits = torch.zeros(3, 1000)
    together, alone = sampler(3, first_seed=5), sampler(1, first_seed=7)
    beside = []
    for step in range(150):
        beside.append(together.sample(logits[: len(together.generators)])[0][-1].item())
        if step == 40:
            together.keep([0, 2])
    assert beside == [alone.sample(logits[:1])[0][0].item() for _ in range(150)]
