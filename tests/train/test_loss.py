"""The loss of trained tokens, with exact numbers."""

import math

import pytest

torch = pytest.importorskip("torch")

from polygym.train.loss import entropy_and_logprobs, k3, mismatch_kl, token_losses  # noqa: E402


def vector(*values, grad=False):
    return torch.tensor(values, dtype=torch.float64, requires_grad=grad)


def of_ratios(ratios, advantages, **settings):
    old_N = torch.full((len(ratios),), -1.0, dtype=torch.float64)
    logprobs_N = (old_N + torch.tensor(ratios, dtype=torch.float64).log()).requires_grad_()
    found = token_losses(logprobs_N, old_N, vector(*advantages), **({"clip_low": 0.2, "clip_high": 0.28} | settings))
    return logprobs_N, found


def test_inside_the_clip_the_loss_is_the_ratio_times_the_advantage():
    _, found = of_ratios([1.0, 1.25, 0.85], [2.0, 1.0, -1.0])
    assert found.losses_N.tolist() == pytest.approx([-2.0, -1.25, 0.85])
    assert found.clipped_N.tolist() == [False, False, False]
    assert found.kl_N is None


def test_the_clip_acts_only_where_the_advantage_pushes_outwards():
    logprobs_N, found = of_ratios([2.0, 0.5, 0.5, 2.0], [1.0, -1.0, 1.0, -1.0])
    assert found.losses_N.tolist() == pytest.approx([-1.28, 0.8, -0.5, 2.0])
    assert found.clipped_N.tolist() == [True, True, False, False]
    found.losses_N.sum().backward()
    assert logprobs_N.grad.tolist() == pytest.approx([0.0, 0.0, -0.5, 2.0])


def test_on_the_sampling_policy_the_gradient_is_minus_the_advantage():
    logprobs_N, found = of_ratios([1.0, 1.0, 1.0], [0.75, -0.25, 0.0])
    found.losses_N.sum().backward()
    assert logprobs_N.grad.tolist() == pytest.approx([-0.75, 0.25, 0.0])


def test_k3_is_exact_on_known_numbers_and_pulls_towards_the_reference():
    assert k3(vector(0.0, 1.0, -1.0)).tolist() == pytest.approx([0.0, math.e - 2, 1 / math.e])
    logprobs_N = vector(-1.0, -1.0, grad=True)
    found = token_losses(
        logprobs_N,
        logprobs_N.detach(),
        vector(0.0, 0.0),
        clip_low=0.2,
        clip_high=0.2,
        kl_coef=0.1,
        reference_logprobs_N=vector(-2.0, -0.5),
    )
    assert found.kl_N.tolist() == pytest.approx([math.exp(-1), math.exp(0.5) - 1.5])
    found.losses_N.sum().backward()
    # d k3(ref - logp) / d logp = 1 - exp(ref - logp): descent lowers a log-probability above the reference's.
    assert logprobs_N.grad.tolist() == pytest.approx([0.1 * (1 - math.exp(-1)), 0.1 * (1 - math.exp(0.5))])


def test_a_reference_without_coefficient_is_measured_and_adds_nothing():
    _, found = of_ratios([1.0], [1.0], reference_logprobs_N=vector(-3.0))
    assert found.losses_N.item() == pytest.approx(-1.0)
    assert found.kl_N.item() == pytest.approx(math.exp(-2.0) + 1.0)


def test_ratios_that_would_overflow_stay_finite():
    found = token_losses(
        torch.zeros(2), torch.tensor([-500.0, 500.0]), torch.tensor([-1.0, 1.0]), clip_low=0.2, clip_high=0.2
    )
    assert torch.isfinite(found.losses_N).all()


def test_the_mean_of_k3_is_the_kl_divergence():
    p, q = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.5, 0.3, 0.2])
    assert (p * mismatch_kl(p.log(), q.log())).sum().item() == pytest.approx((p * (p / q).log()).sum().item(), rel=1e-5)
    assert mismatch_kl(p.log(), p.log()).tolist() == [0.0, 0.0, 0.0]


def test_logprobs_and_entropy_follow_each_tokens_temperature():
    logits_N_V = torch.tensor([[2.0, 0.0], [0.0, 0.0], [2.0, 0.0]])
    logprobs_N, entropy_N = entropy_and_logprobs(logits_N_V, torch.tensor([0, 1, 0]), torch.tensor([2.0, 2.0, 1.0]))
    p, sharper = 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(-2))
    assert logprobs_N.tolist() == pytest.approx([math.log(p), math.log(0.5), math.log(sharper)])
    entropies = [-q * math.log(q) - (1 - q) * math.log(1 - q) for q in (p, 0.5, sharper)]
    assert entropy_N.tolist() == pytest.approx(entropies)


def test_a_masked_vocabulary_entry_adds_no_entropy_and_no_gradient():
    logits_N_V = torch.tensor([[0.0, 0.0, -math.inf]], requires_grad=True)
    logprobs_N, entropy_N = entropy_and_logprobs(logits_N_V, torch.tensor([1]))
    assert entropy_N.item() == pytest.approx(math.log(2))
    logprobs_N.sum().backward()
    assert logits_N_V.grad.tolist() == [[-0.5, 0.5, 0.0]]


@pytest.mark.parametrize("name", ["old_logprobs_N", "advantages_N", "reference_logprobs_N"])
def test_misaligned_tensors_are_refused_by_name(name):
    tensors = {"old_logprobs_N": torch.zeros(3), "advantages_N": torch.zeros(3), "reference_logprobs_N": torch.zeros(3)}
    tensors[name] = torch.zeros(1)
    with pytest.raises(ValueError, match=rf"{name} has shape \(1,\), logprobs_N has \(3,\)"):
        token_losses(torch.zeros(3), **tensors, clip_low=0.2, clip_high=0.2)


def test_a_kl_coefficient_without_reference_is_refused():
    with pytest.raises(ValueError, match=r"kl_coef=0.1 needs"):
        token_losses(torch.zeros(1), torch.zeros(1), torch.zeros(1), clip_low=0.2, clip_high=0.2, kl_coef=0.1)
