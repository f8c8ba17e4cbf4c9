"""Engine: sampled ids and exact log-probabilities for many prompts at once.

The one idea: a wave of rows is cut into chunks that fit the memory bound, equal prompts side by side; a chunk is
decoded until its last row ends, and rows leave as they finish. What a row samples depends on its prompt, its settings
and its seed only, up to the rounding of floating point. The keys of finished rows are kept until the next wave is
computed, so that the next turn of a conversation computes only what was added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch

from polygym.errors import PolicyError
from polygym.policies.batch import DynamicBatch, ModelCall, SlabBatch
from polygym.policies.cache import KeptRow, Slab
from polygym.policies.chunk import Chunk, Generation

CPU_BYTES = 2**30  # keys and values of one chunk where no bound is given; as much again is kept for the next wave
GPU_FRACTION = 0.15  # the same of a GPU's memory, which the learner needs too
CHUNK_ROWS = 512  # more brings no speed

Kept = dict[tuple[int, ...], KeptRow]


class Engine:
    """Generates with a causal model of transformers, whose weights may change between calls.

    Args:
        stop_ids: a row ends when it samples one of them.
        decode: text of ids, to look for stop strings.
        max_batch_tokens: bound of rows x (longest prompt + most new tokens) decoded together; memory grows with it.
            The default is what fits in a gigabyte, or in a part of a GPU's memory.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        stop_ids: Sequence[int],
        decode: Callable[[Sequence[int]], str],
        max_batch_tokens: int | None = None,
    ) -> None:
        self.model = model
        self.stop_ids = frozenset(stop_ids)
        self.decode = decode
        self.max_batch_tokens = max_batch_tokens
        self._kept: Kept = {}
        self._free: list[Slab] = []
        self._weights: object = None

    def generate(
        self, rows: Sequence[Generation], done: Callable[[list[Generation]], None] = lambda rows: None
    ) -> None:
        """Fill `ids`, `logprobs` and `finish_reason` of every row; `done` is told of each chunk when it is finished.

        Raises:
            PolicyError: when the model's probabilities are not finite.
        """
        training = self.model.training
        self.model.eval()
        try:
            with torch.inference_mode():
                call = ModelCall(self.model)
                self._forget_if_changed(call)
                known, self._kept = self._kept, {}
                used: list[Slab] = []
                bound = self.max_batch_tokens or call.tokens_in(_memory_bytes(call.device))
                for chunk in self._chunks(rows, bound):
                    slabs, places = self._decode(chunk, call, known)
                    used += slabs
                    if sum(slab.tokens for slab in used) <= bound:
                        self._kept |= places
                    done(chunk)
                self._recycle(used, known, bound)
        finally:
            self.model.train(training)

    def forget(self) -> None:
        """Release all buffers and what is known of earlier turns."""
        self._kept, self._free = {}, []

    def _forget_if_changed(self, call: ModelCall) -> None:
        """Keys of earlier turns are good only for the weights that made them; in-place changes bump their counters."""
        weights = (sum(weight._version for weight in self.model.parameters()), call.device, call.dtype)
        if weights != self._weights:
            self.forget()
            self._weights = weights

    def _chunks(self, rows: Sequence[Generation], bound: int) -> Iterator[list[Generation]]:
        """Rows in a fixed order (length, prompt, then as given), cut where one more would pass the bounds."""
        chunk: list[Generation] = []
        most_new = 0
        for row in sorted(rows, key=lambda row: (len(row.prompt), row.prompt)):
            most_new = max(most_new, row.max_new)
            if chunk and ((len(chunk) + 1) * (len(row.prompt) + most_new) > bound or len(chunk) == CHUNK_ROWS):
                yield chunk
                chunk, most_new = [], row.max_new
            chunk.append(row)
        if chunk:
            yield chunk

    def _decode(self, rows: list[Generation], call: ModelCall, known: Kept) -> tuple[list[Slab], Kept]:
        """Sample every row to its end; returns the slabs that were written and where each row lies in them."""
        prompts = [row.prompt for row in rows]
        places: dict[int, KeptRow] = {}
        slabs: list[Slab] = []
        batch: SlabBatch | DynamicBatch
        if call.plain_layers:
            found = {at: known.get(tuple(row.prompt[: row.known])) for at, row in enumerate(rows) if row.known}
            slabs.append(self._slab(call))
            batch = SlabBatch(call, slabs[0], prompts, {at: place for at, place in found.items() if place})
        else:
            batch = DynamicBatch(call, prompts)
        chunk = Chunk([rows[owner] for owner in batch.owner], self.stop_ids, self.decode, call.device)
        logits = batch.prefill(chunk.most_new)
        while True:
            ids = chunk.sample(logits)
            ended = chunk.ended()
            if ended is not None:
                order = batch.drop(ended, chunk.steps)
                if not order:
                    break
                chunk.keep(order)
                ids = ids[torch.tensor(order, device=ids.device)]
            if isinstance(batch, SlabBatch) and batch.full:
                places |= batch.kept_rows()
                slabs.append(self._slab(call))
                batch.grow(slabs[-1], chunk.most_new - chunk.steps)
            logits = batch.step(ids)
        chunk.collect()
        if not all(math.isfinite(row.logprobs[-1]) for row in rows):
            # The buffers are left to be freed: no mask could hide a NaN in them from a later wave.
            raise PolicyError(
                "the model gave no finite probabilities: its weights or the dtype are broken", "generation"
            )
        if isinstance(batch, SlabBatch):
            places |= batch.kept_rows()
        return slabs, {(*rows[at].prompt, *rows[at].ids): place for at, place in places.items()}

    def _slab(self, call: ModelCall) -> Slab:
        return self._free.pop() if self._free else Slab(call.plain_layers)

    def _recycle(self, used: list[Slab], known: Kept, bound: int) -> None:
        """Buffers that hold no row of the wave just made are free for the next, within the bound."""
        held = {id(place.slab) for place in self._kept.values()}
        candidates = {id(slab): slab for slab in (*used, *(place.slab for place in known.values()), *self._free)}
        self._free = []
        for key, slab in candidates.items():
            if key not in held and slab.tokens <= bound:
                self._free.append(slab)
                bound -= slab.tokens


def _memory_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(GPU_FRACTION * torch.cuda.get_device_properties(device).total_memory)
    return CPU_BYTES
