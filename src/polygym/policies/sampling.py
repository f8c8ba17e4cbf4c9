"""RowSampler: the next token of each row, from its own temperature, top-p and random stream.

The one idea: a row draws one uniform number a token from a Philox generator keyed by its request's seed and picks the
token by inverting the cumulative distribution, so that what a row samples does not depend on its neighbours.

Log-probabilities are those of the temperature-scaled distribution before top-p cuts it (at temperature 0: of
temperature 1), which is what a learner that divides its logits by the temperature computes again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

BLOCK_TOKENS = 128  # uniforms drawn ahead for a row
BLOCK_VOCABULARY = 256  # words summed together before the cumulative distribution of a large vocabulary is built
SMALL_VOCABULARY = 2048


class RowSampler:
    """Sampling state of the rows of a batch; `keep` follows the batch when rows leave or move."""

    def __init__(
        self,
        seeds: Sequence[int],
        temperatures: Sequence[float],
        top_ps: Sequence[float],
        device: torch.device,
        most_tokens: int,
    ) -> None:
        self.device = device
        # MPS has no float64; elsewhere it keeps the cumulative sum exact to far below one token's probability.
        self.precise = torch.float32 if device.type == "mps" else torch.float64
        self.block = min(BLOCK_TOKENS, most_tokens)
        self.generators = [np.random.Generator(np.random.Philox(key=seed)) for seed in seeds]
        self.greedy_rows = torch.tensor([t == 0 for t in temperatures], device=device)
        self.temperatures = torch.tensor([t or 1.0 for t in temperatures], dtype=torch.float32, device=device)
        self.top_ps = torch.tensor(top_ps, dtype=torch.float32, device=device)
        self.drawn = 0
        self.uniforms = torch.empty(0)
        self._refresh()

    def _refresh(self) -> None:
        self.any_greedy = bool(self.greedy_rows.any())
        self.scaled = bool((self.temperatures != 1).any())
        self.cut_rows = (self.top_ps < 1).nonzero()[:, 0]

    def _draw(self) -> torch.Tensor:
        """The next uniform of every row, (rows, 1)."""
        at = self.drawn % self.block
        if at == 0:
            block = np.stack([generator.random(self.block) for generator in self.generators])
            self.uniforms = torch.from_numpy(block).to(self.precise).to(self.device)
        self.drawn += 1
        return self.uniforms[:, at : at + 1]

    def keep(self, order: Sequence[int]) -> None:
        """Row i becomes what row `order[i]` was."""
        index = torch.tensor(order, device=self.device)
        self.generators = [self.generators[i] for i in order]
        self.greedy_rows, self.temperatures = self.greedy_rows[index], self.temperatures[index]
        self.top_ps, self.uniforms = self.top_ps[index], self.uniforms[index]
        self._refresh()

    def sample(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and log-probabilities, (rows,) each, from logits (rows, vocabulary)."""
        logits = logits.float()
        if self.scaled:
            logits = logits / self.temperatures[:, None]
        log_normalizer = torch.logsumexp(logits, dim=-1, keepdim=True)
        uniforms = self._draw()
        probabilities = (logits - log_normalizer).exp_()
        if len(self.cut_rows):
            rows = self.cut_rows
            probabilities[rows] = keep_top_p(probabilities[rows], self.top_ps[rows, None])
        ids = invert(probabilities, uniforms)
        if self.any_greedy:
            ids = torch.where(self.greedy_rows, logits.argmax(dim=-1), ids)
        return ids, (logits.gather(1, ids[:, None]) - log_normalizer)[:, 0]


def keep_top_p(probabilities: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Probabilities with everything outside the smallest set of most likely tokens that reaches `top_p` set to 0.

    The sum is left as it is: `invert` scales by it. The most likely token always stays.
    """
    ordered, index = probabilities.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(dim=-1) - ordered
    return torch.zeros_like(probabilities).scatter(1, index, ordered.masked_fill(before >= top_p, 0.0))


def invert(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """The token whose share of the cumulative distribution holds the uniform; unnormalised probabilities are fine.

    A large vocabulary is cut into blocks: first the block is found, then the token in it.
    """
    rows, words = probabilities.shape
    if words <= SMALL_VOCABULARY:
        cumulative = probabilities.cumsum(dim=-1, dtype=uniforms.dtype)
        return _first_above(cumulative, uniforms * cumulative[:, -1:])
    probabilities = torch.nn.functional.pad(probabilities, (0, -words % BLOCK_VOCABULARY))
    blocks = probabilities.view(rows, -1, BLOCK_VOCABULARY)
    cumulative = blocks.sum(dim=-1, dtype=uniforms.dtype).cumsum(dim=-1)
    target = uniforms * cumulative[:, -1:]
    block = _first_above(cumulative, target)
    inside = blocks[torch.arange(rows, device=block.device), block].cumsum(dim=-1, dtype=uniforms.dtype)
    below = torch.where(block > 0, cumulative.gather(1, (block - 1).clamp_min(0)[:, None])[:, 0], 0.0)
    return block * BLOCK_VOCABULARY + _first_above(inside, target - below[:, None])


def _first_above(cumulative: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Index of the first entry above the target: never a token of probability 0, whose entry equals the one before.

    Sums that round differently may put the target at or above the last entry by a bit; it counts as just below.
    """
    last = cumulative[:, -1:]
    target = torch.minimum(target, torch.nextafter(last, torch.zeros_like(last)))
    # Sums of NaN have no entry above anything; the engine refuses them by their log-probability.
    return torch.searchsorted(cumulative, target, right=True)[:, 0].clamp_max_(cumulative.shape[1] - 1)
