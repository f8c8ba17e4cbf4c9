"""Slab: the keys and values of a batch in buffers that are allocated once and written in place.

The one idea: rows of a batch share one clock of columns. A forward pass sees a window (some rows, some columns) of the
buffers as views, so that prefill, decoding, dropping of finished rows and the next turn of a conversation copy no more
than the few rows that move. Columns a row must not see are hidden by an additive mask, never by moving data.

Works for models whose layers all keep plain keys and values; others are decoded through their own cache
(`polygym.policies.batch.DynamicBatch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

Ranges = tuple[tuple[int, int], ...]


class _SlabLayer(DynamicLayer):
    """One layer of a slab, as transformers' attention modules expect it."""

    def __init__(self, slab: Slab) -> None:
        super().__init__()
        self.slab = slab
        self.flat_keys: torch.Tensor | None = None
        self.flat_values: torch.Tensor | None = None
        self.key_buffer: torch.Tensor | None = None  # (rows, heads, columns, dim)
        self.value_buffer: torch.Tensor | None = None

    def shape_to(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Give the buffers the slab's rows and columns; memory is taken anew only when it must grow."""
        self.flat_keys, self.key_buffer = self._shaped(self.flat_keys, key_states)
        self.flat_values, self.value_buffer = self._shaped(self.flat_values, value_states)

    def _shaped(self, flat: torch.Tensor | None, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (self.slab.rows, like.shape[1], self.slab.columns, like.shape[3])
        count = shape[0] * shape[1] * shape[2] * shape[3]
        if flat is None or flat.numel() < count or flat.dtype != like.dtype or flat.device != like.device:
            # Zeroed once: a masked column counts for nothing only while what it holds is finite.
            # A quarter more than needed, since the next wave may be a little larger.
            flat = torch.zeros(count * 5 // 4, dtype=like.dtype, device=like.device)
        return flat, flat[:count].view(shape)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new keys and values behind the window and return the window's."""
        if self.key_buffer is None or self.value_buffer is None:
            self.shape_to(key_states, value_states)
        slab, new = self.slab, key_states.shape[2]
        top, bottom, left, filled = slab.top, slab.bottom, slab.left, slab.filled
        assert self.key_buffer is not None and self.value_buffer is not None
        self.key_buffer[top:bottom, :, filled : filled + new] = key_states
        self.value_buffer[top:bottom, :, filled : filled + new] = value_states
        return (
            self.key_buffer[top:bottom, :, left : filled + new],
            self.value_buffer[top:bottom, :, left : filled + new],
        )

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that the next forward pass sees."""
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        """Columns of the window that are filled."""
        return self.slab.filled - self.slab.left


class Slab(Cache):
    """Buffers of all layers, and the window of them that the next forward pass reads and extends."""

    def __init__(self, layers: int) -> None:
        self.rows = self.columns = 0
        self.top = self.bottom = self.left = self.filled = 0
        super().__init__(layers=[_SlabLayer(self) for _ in range(layers)])

    @property
    def tokens(self) -> int:
        """Tokens that the buffers hold room for."""
        return self.rows * self.columns

    def reset(self, rows: int, columns: int) -> None:
        """Start over with this many rows and columns; what the buffers hold is stale from here on."""
        self.rows, self.columns = rows, columns
        for layer in self.layers:
            layer.key_buffer = layer.value_buffer = None

    def window(self, top: int, bottom: int, left: int, filled: int) -> None:
        """Choose what the next forward pass sees: rows [top, bottom), columns [left, filled) and what it adds."""
        self.top, self.bottom, self.left, self.filled = top, bottom, left, filled

    def tensors(self) -> list[torch.Tensor]:
        """Every buffer, (rows, heads, columns, dim) each."""
        return [buffer for layer in self.layers for buffer in (layer.key_buffer, layer.value_buffer)]

    def repeat_rows(self, sources: Sequence[int], first: int, columns: slice) -> None:
        """Copy row `sources[i]` to row `first + i`, for the given columns."""
        index = torch.tensor(sources, device=self.tensors()[0].device)
        for buffer in self.tensors():
            buffer[first : first + len(sources), :, columns] = buffer[:, :, columns].index_select(0, index)

    def swap_rows(self, here: Sequence[int], there: Sequence[int], columns: slice) -> None:
        """Exchange the rows `here[i]` and `there[i]`, for the given columns."""
        device = self.tensors()[0].device
        target, source = torch.tensor([*here, *there], device=device), torch.tensor([*there, *here], device=device)
        for buffer in self.tensors():
            view = buffer[:, :, columns]
            view[target] = view[source]

    def adopt(self, layout: Slab) -> None:
        """Shape the buffers like those of another slab before any forward pass has."""
        for mine, other in zip(self.layers, layout.layers, strict=True):
            mine.shape_to(other.key_buffer, other.value_buffer)

    def copy_row(self, row: int, column: int, source: Slab, source_row: int, ranges: Ranges) -> None:
        """Lay the column ranges of another slab's row side by side into this row, from `column` on."""
        for mine, other in zip(self.tensors(), source.tensors(), strict=True):
            at = column
            for start, stop in ranges:
                mine[row, :, at : at + stop - start] = other[source_row, :, start:stop]
                at += stop - start


@dataclass(frozen=True, slots=True)
class KeptRow:
    """Where the keys and values of a finished turn lie: its tokens but the last, which was sampled and never fed."""

    slab: Slab
    row: int
    ranges: Ranges

    @property
    def length(self) -> int:
        """Tokens kept."""
        return sum(stop - start for start, stop in self.ranges)
