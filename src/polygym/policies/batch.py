"""SlabBatch and DynamicBatch: the model's side of decoding a batch of rows.

The one idea: both take prompts and give next-token logits, one row a request, whatever was shared, reused or moved
to get them. `SlabBatch` (models whose layers all keep plain keys and values) computes equal prompts once, continues
conversations from the keys of their last turn, and moves only the rows that fill the holes of finished ones.
`DynamicBatch` gives any other causal model of transformers the same without reuse between turns.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from polygym.policies.cache import KeptRow, Ranges, Slab

PREFILL_TOKENS = 4096  # padded tokens of one prefill pass; more brings no speed and needs memory for attention
GROWTH_COLUMNS = 64  # columns for new tokens that a slab has at least


class ModelCall:
    """A causal model of transformers, called for the logits of last positions."""

    def __init__(self, model: Any) -> None:
        self.model = model
        inner: Any = model.get_base_model() if hasattr(model, "get_base_model") else model  # below LoRA adapters
        parameters = inspect.signature(inner.forward).parameters
        self.config: Any = inner.config
        self.cache_key = "cache" if "cache" in parameters else "past_key_values"
        self.last_only = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
        layers = DynamicCache(config=self.config).layers
        plain = bool(layers) and all(type(layer) is DynamicLayer for layer in layers)
        attention = getattr(self.config, "_attn_implementation", None)
        # With a four-dimensional mask positions must come from `position_ids`, not from a plain mask (as ALiBi's do).
        self.plain_layers = (
            len(layers)
            if plain
            and attention in ("sdpa", "eager")
            and "position_ids" in parameters
            and not getattr(self.config, "alibi", False)
            else 0
        )
        weight = next(model.parameters())
        self.device, self.dtype = weight.device, weight.dtype

    def tokens_in(self, memory_bytes: int) -> int:
        """Tokens whose keys and values take that much memory, at most; an estimate from the config."""
        config = self.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return memory_bytes // (2 * config.num_hidden_layers * heads * width * self.dtype.itemsize)

    def __call__(self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, cache: Any) -> torch.Tensor:
        """Logits (rows, vocabulary) after the last of `ids` (rows, new tokens)."""
        output = self.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            use_cache=True,
            **{self.cache_key: cache},
            **self.last_only,
        )
        return output.logits[:, -1]


def _left_padded(rows: Sequence[Sequence[int]], width: int, device: torch.device) -> torch.Tensor:
    return torch.tensor([[0] * (width - len(row)) + list(row) for row in rows], device=device)


class SlabBatch:
    """Rows in a slab. Prompts end at one column; each decoding step adds a column for all rows."""

    def __init__(
        self, call: ModelCall, slab: Slab, prompts: Sequence[Sequence[int]], kept: Mapping[int, KeptRow]
    ) -> None:
        """`kept` tells for rows of `prompts` where the keys of their first `length` tokens lie."""
        self.call, self.slab = call, slab
        self.prompts, self.kept = prompts, kept
        first_row: dict[tuple[int, ...], int] = {}
        fresh = sorted((row for row in range(len(prompts)) if row not in kept), key=lambda row: len(prompts[row]))
        self.firsts: list[int] = []  # rows that are the first of their prompt
        self.repeats: list[int] = []  # other rows of those prompts
        self.repeat_of: list[int] = []  # place in `firsts` of the row that each repeats
        for row in fresh:
            key = tuple(prompts[row])
            if key in first_row:
                self.repeats.append(row)
                self.repeat_of.append(first_row[key])
            else:
                first_row[key] = len(self.firsts)
                self.firsts.append(row)
        self.continued = sorted(kept, key=lambda row: (len(prompts[row]) - kept[row].length, row))
        #: slab row -> row of the caller; finished rows stay behind the live ones
        self.owner = [*self.firsts, *self.repeats, *self.continued]
        self.live = len(self.owner)
        self._sampled: dict[int, int] = {}
        self._groups = self._grouped_by_work()
        width = max((len(prompts[row]) for row in self.firsts), default=0)
        # A continued row holds its old keys, then a gap that levels the group, then its new tokens.
        self.prompt_columns = max([width, *(old + new for _, _, old, new in self._groups)])
        self.ranges: list[Ranges] = [
            ((self.prompt_columns - len(prompts[row]), self.prompt_columns),) for row in self.owner
        ]
        self.left = 0
        self.filled = self.prompt_columns

    def _grouped_by_work(self) -> list[tuple[int, int, int, int]]:
        """Groups (first row, row after the last, old columns, new columns) of continued rows with alike additions."""
        offset = self.live - len(self.continued)
        groups, start = [], 0
        news = [len(self.prompts[row]) - self.kept[row].length for row in self.continued]
        for at in range(1, len(news) + 1):
            if (
                at == len(news)
                or (news[at] > 16 and news[at] > 2 * news[start])
                or (at - start + 1) * news[at] > PREFILL_TOKENS
            ):
                old = max(self.kept[row].length for row in self.continued[start:at])
                groups.append((offset + start, offset + at, old, news[at - 1]))
                start = at
        return groups

    def prefill(self, most_new_tokens: int) -> torch.Tensor:
        """Logits after every prompt, in slab order."""
        columns = self.prompt_columns + min(most_new_tokens, max(GROWTH_COLUMNS, self.prompt_columns // 4))
        self.slab.reset(len(self.owner), columns)
        device, dtype = self.call.device, self.call.dtype
        self.hidden = torch.finfo(dtype).min
        self.bias = torch.full((len(self.owner), columns), self.hidden, dtype=dtype, device=device)
        self.positions = torch.tensor([len(self.prompts[row]) for row in self.owner], device=device)
        parts = [*self._prefill_fresh(), *self._prefill_continued()]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _prefill_fresh(self) -> list[torch.Tensor]:
        if not self.firsts:
            return []
        logits, start, end = [], 0, self.prompt_columns
        lengths = [len(self.prompts[row]) for row in self.firsts]
        for stop in range(1, len(lengths) + 1):
            if stop < len(lengths) and (stop - start + 1) * lengths[stop] <= PREFILL_TOKENS:
                continue
            width = lengths[stop - 1]
            for at in range(start, stop):
                self.bias[at, end - lengths[at] : end] = 0
            self.slab.window(start, stop, end - width, end - width)
            ids = _left_padded([self.prompts[row] for row in self.firsts[start:stop]], width, self.call.device)
            logits.append(self._forward_many(ids, start, stop, end - width, end - width))
            start = stop
        if self.repeats:
            first = len(self.firsts)
            width = max(len(self.prompts[row]) for row in self.repeats)
            self.slab.repeat_rows(self.repeat_of, first, slice(end - width, end))
            index = torch.tensor(self.repeat_of, device=self.call.device)
            self.bias[first : first + len(index)] = self.bias[index]
            unique = torch.cat(logits) if len(logits) > 1 else logits[0]
            return [unique, unique[index]]
        return logits

    def _prefill_continued(self) -> list[torch.Tensor]:
        if not self.continued:
            return []
        logits, end, offset = [], self.prompt_columns, self.live - len(self.continued)
        if self.slab.layers[0].key_buffer is None:
            self.slab.adopt(self.kept[self.continued[0]].slab)
        for start, stop, old, new in self._groups:
            left, middle = end - new - old, end - new
            for at in range(start, stop):
                row = self.continued[at - offset]
                kept = self.kept[row]
                fresh = len(self.prompts[row]) - kept.length
                self.slab.copy_row(at, middle - kept.length, kept.slab, kept.row, kept.ranges)
                self.ranges[at] = ((middle - kept.length, middle), (end - fresh, end))
                self.bias[at, middle - kept.length : middle] = 0
                self.bias[at, end - fresh : end] = 0
            rows = self.continued[start - offset : stop - offset]
            ids = _left_padded([self.prompts[row][self.kept[row].length :] for row in rows], new, self.call.device)
            self.slab.window(start, stop, left, middle)
            logits.append(self._forward_many(ids, start, stop, left, middle))
        return logits

    def _forward_many(self, ids: torch.Tensor, start: int, stop: int, left: int, filled: int) -> torch.Tensor:
        """One pass over several columns: each sees the visible columns before it, and itself."""
        new, device = ids.shape[1], ids.device
        columns = torch.arange(left, filled + new, device=device)
        late = columns[None, :] > torch.arange(filled, filled + new, device=device)[:, None]
        mask = self.bias[start:stop, None, left : filled + new].masked_fill(late, self.hidden)[:, None]
        counts = self.positions[start:stop, None] - new + torch.arange(new, device=device)
        return self.call(ids, counts.clamp_min_(0), mask, self.slab)

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits after one more token for every live row."""
        if self.filled == self.slab.columns:
            raise AssertionError("the slab is full: grow() first")
        self.bias[: self.live, self.filled] = 0
        self.slab.window(0, self.live, self.left, self.filled)
        mask = self.bias[: self.live, None, None, self.left : self.filled + 1]
        logits = self.call(ids[:, None], self.positions[:, None], mask, self.slab)
        self.filled += 1
        self.positions += 1
        return logits

    @property
    def full(self) -> bool:
        """Whether the next step needs more columns."""
        return self.filled == self.slab.columns

    def grow(self, slab: Slab, most_new_tokens: int) -> None:
        """Go on in another slab, with room for more tokens; finished rows stay behind in the old one."""
        used = self.filled - self.left
        columns = used + min(most_new_tokens, max(GROWTH_COLUMNS, used // 2))
        old, shift = self.slab, self.left
        slab.reset(self.live, columns)
        slab.adopt(old)
        for mine, other in zip(slab.tensors(), old.tensors(), strict=True):
            mine[:, :, :used] = other[: self.live, :, shift : self.filled]
        bias = torch.full((self.live, columns), self.hidden, dtype=self.bias.dtype, device=self.bias.device)
        bias[:, :used] = self.bias[: self.live, shift : self.filled]
        self.bias, self.slab = bias, slab
        self.owner = self.owner[: self.live]
        self.ranges = [
            tuple((start - shift, stop - shift) for start, stop in ranges) for ranges in self.ranges[: self.live]
        ]
        self.left, self.filled = 0, used

    def drop(self, finished: Sequence[bool], steps: int) -> list[int]:
        """Take rows out that ended with their token number `steps`; the order tells which old row each new one is."""
        live = self.live - sum(finished)
        for row in range(self.live):
            if finished[row]:
                self._sampled[self.owner[row]] = steps
        here = [row for row in range(live) if finished[row]]
        there = [row for row in range(live, self.live) if not finished[row]]
        order = list(range(self.live))
        for hole, row in zip(here, there, strict=True):
            order[hole], order[row] = row, hole
            self.owner[hole], self.owner[row] = self.owner[row], self.owner[hole]
            self.ranges[hole], self.ranges[row] = self.ranges[row], self.ranges[hole]
        if here:
            self.slab.swap_rows(here, there, slice(self.left, self.filled))
            swap_to = torch.tensor([*here, *there], device=self.bias.device)
            self.bias[swap_to] = self.bias[torch.tensor([*there, *here], device=self.bias.device)]
        order, self.live = order[:live], live
        if live:
            self.positions = self.positions[torch.tensor(order, device=self.bias.device)]
            self.left = min(ranges[0][0] for ranges in self.ranges[:live])
        return order

    def kept_rows(self) -> dict[int, KeptRow]:
        """Where the finished rows of the current slab lie, by row of the caller."""
        found = {}
        for row in range(self.live, len(self.owner)):
            owner = self.owner[row]
            *before, (start, stop) = self.ranges[row]
            found[owner] = KeptRow(self.slab, row, (*before, (start, stop + self._sampled[owner] - 1)))
        return found


class DynamicBatch:
    """Rows in the model's own kind of cache (sliding windows, recurrent states), addressed by a plain mask."""

    full = False

    def __init__(self, call: ModelCall, prompts: Sequence[Sequence[int]]) -> None:
        self.call, self.prompts = call, prompts
        self.owner = list(range(len(prompts)))
        self.live = len(prompts)

    def prefill(self, most_new_tokens: int) -> torch.Tensor:
        """Logits after every prompt."""
        unique = {tuple(prompt): 0 for prompt in self.prompts}
        rows = sorted(unique, key=len)
        for at, prompt in enumerate(rows):
            unique[prompt] = at
        width, device = len(rows[-1]), self.call.device
        ids = _left_padded(rows, width, device)
        lengths = torch.tensor([len(row) for row in rows], device=device)
        counts = torch.arange(width, device=device) - (width - lengths[:, None])
        self.cache = DynamicCache(config=self.call.config)
        self.mask = (counts >= 0).long()
        logits = self.call(ids, counts.clamp_min(0), self.mask, self.cache)
        index = torch.tensor([unique[tuple(prompt)] for prompt in self.prompts], device=device)
        self.cache.reorder_cache(index)
        self.mask, self.positions = self.mask[index], lengths[index]
        return logits[index]

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits after one more token for every live row."""
        self.mask = torch.cat([self.mask, self.mask.new_ones(self.live, 1)], dim=1)
        logits = self.call(ids[:, None], self.positions[:, None], self.mask, self.cache)
        self.positions += 1
        return logits

    def drop(self, finished: Sequence[bool], steps: int) -> list[int]:
        """Take finished rows out; the order tells which old row each new one is."""
        order = [row for row in range(self.live) if not finished[row]]
        if order:
            index = torch.tensor(order, device=self.call.device)
            self.cache.reorder_cache(index)
            self.mask, self.positions = self.mask[index], self.positions[index]
        self.owner = [self.owner[row] for row in order]
        self.live = len(order)
        return order
