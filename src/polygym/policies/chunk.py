"""Chunk: the sampling side of decoding a batch of rows: what each row drew, and when it ends.

The one idea: whatever happens once a token is done for all rows at once on the device; Python looks at a row only when
it ends, or when it has stop strings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from polygym.policies.base import Sampling
from polygym.policies.sampling import RowSampler

LOOK_STEPS = 8  # decoding steps between looks for rows that are cancelled or watched


@dataclass(slots=True)
class Generation:
    """One row: a prompt to go on from, and what was sampled.

    `known` is the length of the prefix whose keys the wave before may have left behind. `max_new` is the number of
    tokens that `sampling` and the context allow. `stop_text` is the stop string that ended the row. `cancelled` may be
    set from another thread at any time: the row ends early and its result is of no interest. `watch` is told the ids so
    far, every few steps, in the computing thread.
    """

    prompt: Sequence[int]
    sampling: Sampling
    seed: int
    max_new: int
    known: int = 0
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str = "length"
    stop_text: str | None = None
    cancelled: bool = False
    watch: Callable[[list[int]], None] | None = None


class Chunk:
    """Rows that are decoded together; `rows` are the live ones, in the order of the batch."""

    def __init__(
        self,
        rows: Sequence[Generation],
        stop_ids: frozenset[int],
        decode: Callable[[Sequence[int]], str],
        device: torch.device,
    ) -> None:
        self.rows = list(rows)
        self.stop_ids, self.decode, self.device = stop_ids, decode, device
        self.most_new = max(row.max_new for row in rows)
        self.steps = 0
        self.sampler = RowSampler(
            [row.seed for row in rows],
            [row.sampling.temperature for row in rows],
            [row.sampling.top_p for row in rows],
            device,
            self.most_new,
        )
        self._all = list(rows)
        self._counts: dict[int, int] = {}
        self._line = list(range(len(rows)))  # line of the matrices below that a live row writes to
        self._lines = torch.arange(len(rows), device=device)
        self._ids = torch.zeros(len(rows), self.most_new, dtype=torch.int32, device=device)
        self._logprobs = torch.zeros(len(rows), self.most_new, dtype=torch.float32, device=device)
        self._limits = torch.tensor([row.max_new for row in rows], device=device)
        self._stop_ids = torch.tensor(sorted(stop_ids), device=device)
        self._history: dict[int, list[int]] = {line: [] for line, row in enumerate(rows) if row.sampling.stop}

    def sample(self, logits: torch.Tensor) -> torch.Tensor:
        """One more token for every live row."""
        ids, logprobs = self.sampler.sample(logits)
        self._ids[self._lines, self.steps] = ids.int()
        self._logprobs[self._lines, self.steps] = logprobs
        self.steps += 1
        self._last = ids
        return ids

    def ended(self) -> list[bool] | None:
        """Which live rows end with the token just sampled; None when all go on."""
        stopped = (self._last[:, None] == self._stop_ids).any(dim=1)
        over = stopped | (self._limits == self.steps)
        ended = over.tolist() if bool(over.any()) else None
        if self._history:
            ended = self._find_stop_strings(ended)
        if self.steps % LOOK_STEPS == 0 and any(row.cancelled for row in self.rows):
            ended = [row.cancelled or (ended is not None and ended[at]) for at, row in enumerate(self.rows)]
        if ended is not None:
            for at, row in enumerate(self.rows):
                if ended[at]:
                    self._counts[self._line[at]] = self.steps
                    if row.stop_text is not None or int(self._last[at]) in self.stop_ids:
                        row.finish_reason = "stop"
        if self.steps % LOOK_STEPS == 0:
            for line, row in zip(self._line, self.rows, strict=True):
                if row.watch is not None:
                    row.watch(self._ids[line, : self.steps].tolist())
        return ended

    def _find_stop_strings(self, ended: list[bool] | None) -> list[bool] | None:
        last = self._last.tolist()
        for at, (line, row) in enumerate(zip(self._line, self.rows, strict=True)):
            history = self._history.get(line)
            if history is None or last[at] in self.stop_ids:
                continue
            history.append(last[at])
            # A character takes at most four tokens; the text before this tail held no stop string.
            tail = self.decode(history[-4 * max(map(len, row.sampling.stop)) - 4 :])
            row.stop_text = next((stop for stop in row.sampling.stop if stop in tail), None)
            if row.stop_text is not None:
                ended = ended or [False] * len(last)
                ended[at] = True
        return ended

    def keep(self, order: Sequence[int]) -> None:
        """Live row i becomes what row `order[i]` was; the others have ended."""
        self.rows = [self.rows[at] for at in order]
        self._line = [self._line[at] for at in order]
        index = torch.tensor(order, device=self.device)
        self._lines, self._limits = self._lines[index], self._limits[index]
        self.sampler.keep(order)

    def collect(self) -> None:
        """Hand every row its ids and log-probabilities."""
        ids, logprobs = self._ids[:, : self.steps].tolist(), self._logprobs[:, : self.steps].tolist()
        for line, row in enumerate(self._all):
            count = self._counts[line]
            row.ids, row.logprobs = ids[line][:count], logprobs[line][:count]
