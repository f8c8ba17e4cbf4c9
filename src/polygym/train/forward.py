"""Forward passes for training: token sequences in, logits of the trained tokens out.

Two ideas save most of the work. Most positions carry no loss and the head is the widest layer, so the head is applied
to trained tokens only. The rollouts of a group begin with the same prompt, so it is computed once, with their
continuations as branches beside each other that do not see one another, wherever that saves enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from polygym.train.samples import TokenSample

WORTH_SHARING = 0.67  # branches are used where they leave at most this part of the tokens
MAX_SHARED_TOKENS = 1024  # of one row with branches: its attention is dense, so its cost grows with the square


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a batch: its samples' places, and how many tokens at their start they share (0 for a lone one)."""

    members: tuple[int, ...]
    shared: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows padded on the right, and where their N trained tokens stand.

    Shapes: `ids_B_T` (B, T); `rows_N`, `predictors_N` (row and column whose logits predict a trained token), `ids_N`
    (its id) and `owners_N` (its sample) (N,). `positions_B_T` (B, T) and `mask_B_1_T_T` (B, 1, T, T; 0 or minus
    infinity) are None where every row is one plain sequence.
    """

    ids_B_T: Tensor
    rows_N: Tensor
    predictors_N: Tensor
    ids_N: Tensor
    owners_N: Tensor
    positions_B_T: Tensor | None
    mask_B_1_T_T: Tensor | None

    def spread(self, values_S: Sequence[float]) -> Tensor:
        """One value a sample as one value a trained token: (N,), float32."""
        return torch.tensor(values_S, dtype=torch.float32, device=self.ids_B_T.device)[self.owners_N]

    def per_token(self, values_S_T: Sequence[Sequence[float]], samples: Sequence[TokenSample]) -> Tensor:
        """Values beside the ids of each sample as one value a trained token: (N,), float32."""
        chosen = [
            value
            for owner in dict.fromkeys(self.owners_N.tolist())
            for value, trained in zip(values_S_T[owner], samples[owner].mask_T, strict=True)
            if trained
        ]
        return torch.tensor(chosen, dtype=torch.float32, device=self.ids_B_T.device)


def plan_rows(samples: Sequence[TokenSample]) -> list[Row]:
    """Rows for samples: those with the same prompt share one where it saves enough, the others stand alone."""
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    for place, sample in enumerate(samples):
        by_prompt.setdefault(tuple(sample.ids_T[: sample.mask_T.index(1)]), []).append(place)
    rows = []
    for prompt, places in by_prompt.items():
        for members in _shared_rows(len(prompt), places, samples):
            own = sum(len(samples[place].ids_T) - len(prompt) for place in members)
            if len(members) > 1 and len(prompt) + own <= WORTH_SHARING * (len(members) * len(prompt) + own):
                rows.append(Row(tuple(members), len(prompt), len(prompt) + own))
            else:
                rows += [Row((place,), 0, len(samples[place].ids_T)) for place in members]
    return rows


def _shared_rows(prompt: int, places: Sequence[int], samples: Sequence[TokenSample]) -> Iterator[list[int]]:
    """Cut the samples of one prompt so that a row stays within `MAX_SHARED_TOKENS`."""
    members: list[int] = []
    tokens = prompt
    for place in places:
        own = len(samples[place].ids_T) - prompt
        if members and tokens + own > MAX_SHARED_TOKENS:
            yield members
            members, tokens = [], prompt
        members.append(place)
        tokens += own
    yield members


def micro_batches(rows: Iterable[Row], max_tokens: int) -> Iterator[list[Row]]:
    """Cut rows, sorted by length, so that rows times the longest stays within `max_tokens` (one row at least).

    Rows with branches and rows without come in batches of their own: only the former need a mask.
    """
    batch: list[Row] = []
    for row in sorted(rows, key=lambda row: (row.shared > 0, row.tokens)):
        if batch and ((len(batch) + 1) * row.tokens > max_tokens or (row.shared > 0) != (batch[-1].shared > 0)):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def pack(samples: Sequence[TokenSample], rows: Sequence[Row], device: Any) -> Packed:
    """The tensors of some rows of `samples`; trained tokens come row by row, in order of sample and position."""
    width = max(row.tokens for row in rows)
    ids_B_T = torch.zeros(len(rows), width, dtype=torch.long)
    positions_B_T = torch.zeros(len(rows), width, dtype=torch.long)
    branch_B_T = torch.zeros(len(rows), width, dtype=torch.long)
    places: list[tuple[int, int, int, int]] = []
    for number, row in enumerate(rows):
        start = row.shared
        ids_B_T[number, :start] = torch.tensor(samples[row.members[0]].ids_T[:start], dtype=torch.long)
        positions_B_T[number, :start] = torch.arange(start)
        for branch, owner in enumerate(row.members, 1):
            sample = samples[owner]
            end = start + len(sample.ids_T) - row.shared
            ids_B_T[number, start:end] = torch.tensor(sample.ids_T[row.shared :])
            positions_B_T[number, start:end] = torch.arange(row.shared, len(sample.ids_T))
            branch_B_T[number, start:end] = branch
            for place in range(row.shared, len(sample.ids_T)):
                if sample.mask_T[place]:
                    before = start + place - row.shared - 1 if place > row.shared else row.shared - 1
                    places.append((number, before, sample.ids_T[place], owner))
            start = end
    rows_N, predictors_N, ids_N, owners_N = torch.tensor(places, device=device).T
    ids_B_T = ids_B_T.to(device)
    if rows[0].shared == 0:
        return Packed(ids_B_T, rows_N, predictors_N, ids_N, owners_N, None, None)
    seen_B_T_T = (branch_B_T[:, None, :] == 0) | (branch_B_T[:, None, :] == branch_B_T[:, :, None])
    seen_B_T_T &= torch.ones(width, width, dtype=torch.bool).tril()
    mask_B_T_T = torch.zeros(seen_B_T_T.shape).masked_fill(~seen_B_T_T, float("-inf"))
    return Packed(
        ids_B_T, rows_N, predictors_N, ids_N, owners_N, positions_B_T.to(device), mask_B_T_T[:, None].to(device)
    )


def trained_logits(model: Any, packed: Packed) -> Tensor:
    """Logits (N, V) that predict the trained tokens.

    Padding stands on the right, where causal attention never looks. `model` is a causal language model of transformers
    whose logits are its output embeddings applied to its decoder's last hidden states, or a peft model around one
    (`has_plain_head` tells).
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    options: dict[str, Tensor] = {}
    if packed.mask_B_1_T_T is not None and packed.positions_B_T is not None:
        options = {"attention_mask": packed.mask_B_1_T_T.to(base.dtype), "position_ids": packed.positions_B_T}
    hidden_B_T_D = base.get_decoder()(input_ids=packed.ids_B_T, use_cache=False, **options).last_hidden_state
    logits_N_V: Tensor = base.get_output_embeddings()(hidden_B_T_D[packed.rows_N, packed.predictors_N])
    return logits_N_V


@torch.no_grad()
def has_plain_head(model: Any) -> bool:
    """Whether `trained_logits` gives what the whole model gives; some models cap or scale their logits."""
    sample = TokenSample([0, 1, 2, 3], [0, 1, 1, 1])
    packed = pack([sample], plan_rows([sample]), next(model.parameters()).device)
    whole_N_V = model(input_ids=packed.ids_B_T, use_cache=False).logits[0, :-1]
    return bool(torch.allclose(whole_N_V, trained_logits(model, packed), rtol=1e-2, atol=1e-2))
