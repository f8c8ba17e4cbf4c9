"""Forward passes for training: token sequences in, logits of the trained tokens out.

The one idea: most positions carry no loss and the head is the widest layer, so the head is applied to trained tokens
only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from polygym.train.samples import TokenSample

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Packed:
    """Sequences padded on the right, and where their N trained tokens stand.

    Shapes: `ids_B_T` (B, T); `rows_N`, `columns_N`, `ids_N` (N,): sequence, position and id of each trained token.
    """

    ids_B_T: Tensor
    rows_N: Tensor
    columns_N: Tensor
    ids_N: Tensor

    def spread(self, values_B: Sequence[float]) -> Tensor:
        """One value a sequence as one value a trained token: (N,), float32."""
        return torch.tensor(values_B, dtype=torch.float32, device=self.ids_B_T.device)[self.rows_N]

    def per_token(self, values_B_N: Sequence[Sequence[float]]) -> Tensor:
        """The values of each sequence's trained tokens, joined: (N,), float32."""
        joined = [value for values_N in values_B_N for value in values_N]
        return torch.tensor(joined, dtype=torch.float32, device=self.ids_B_T.device)


def pack(samples: Sequence[TokenSample], device: Any) -> Packed:
    """Pad samples into one batch; trained tokens come in order of sample and position."""
    width = max(len(sample.ids_T) for sample in samples)
    ids_B_T = torch.zeros(len(samples), width, dtype=torch.long)
    mask_B_T = torch.zeros(len(samples), width, dtype=torch.bool)
    for row, sample in enumerate(samples):
        ids_B_T[row, : len(sample.ids_T)] = torch.tensor(sample.ids_T)
        mask_B_T[row, : len(sample.mask_T)] = torch.tensor(sample.mask_T, dtype=torch.bool)
    ids_B_T, mask_B_T = ids_B_T.to(device), mask_B_T.to(device)
    rows_N, columns_N = mask_B_T.nonzero(as_tuple=True)
    return Packed(ids_B_T, rows_N, columns_N, ids_B_T[rows_N, columns_N])


def trained_logits(model: Any, packed: Packed) -> Tensor:
    """Logits (N, V) that predict the trained tokens.

    Padding stands on the right, where causal attention never looks, so no mask is needed. `model` is a causal language
    model of transformers whose logits are its output embeddings applied to its decoder's last hidden states, or a peft
    model around one (`has_plain_head` tells).
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    hidden_B_T_D = base.get_decoder()(input_ids=packed.ids_B_T, use_cache=False).last_hidden_state
    logits_N_V: Tensor = base.get_output_embeddings()(hidden_B_T_D[packed.rows_N, packed.columns_N - 1])
    return logits_N_V


@torch.no_grad()
def has_plain_head(model: Any) -> bool:
    """Whether `trained_logits` gives what the whole model gives; some models cap or scale their logits."""
    device = next(model.parameters()).device
    packed = pack([TokenSample([0, 1, 2, 3], [0, 1, 1, 1])], device)
    whole_N_V = model(input_ids=packed.ids_B_T, use_cache=False).logits[0, :-1]
    return bool(torch.allclose(whole_N_V, trained_logits(model, packed), rtol=1e-2, atol=1e-2))


def micro_batches(items: Sequence[Item], length: Callable[[Item], int], max_tokens: int) -> Iterator[list[Item]]:
    """Cut items, sorted by length, so that rows times the longest row stays within `max_tokens` (one row at least)."""
    batch: list[Item] = []
    for item in sorted(items, key=length):
        if batch and (len(batch) + 1) * length(item) > max_tokens:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch
