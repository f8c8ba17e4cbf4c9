"""LocalPolicy: a causal language model of transformers that answers from this process.

The one idea: requests of all episodes, whatever their environment and sampling, are computed together in waves
(`polygym.policies.waves`) by one engine in one thread, while the event loop stays free. The module in `model` may be
trained in place between waves, inside `learning()`; its owner raises `version`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from polygym.errors import PolicyError, UsageError
from polygym.messages import Message, ToolSpec
from polygym.parsing.reasoning import strip_reasoning
from polygym.parsing.tool_calls import parse_tool_calls
from polygym.policies.base import Policy, Request
from polygym.policies.chat import ChatRenderer
from polygym.policies.chunk import Generation
from polygym.policies.engine import Engine
from polygym.policies.live_text import shown_so_far
from polygym.policies.waves import WaveDesk
from polygym.rollout import Turn, Usage

PATIENCE_SECONDS = 2.0
_AS_WRITTEN = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}


class LocalPolicy(Policy):
    """Samples from `model` with `tokenizer`'s chat template.

    Args:
        model: a causal language model of transformers, or a PEFT model around one.
        device: `cpu`, `cuda`, `cuda:1`, `mps`, ...; default: where the model is.
        dtype: `float32`, `bfloat16` or `float16`; default: as the model is.
        max_context: tokens of prompt and answer together; default: what the model's config says.
        max_batch_tokens: bound of rows x (longest prompt + most new tokens) computed together; memory grows with it.
            The default is what fits in a gigabyte, or in a part of a GPU's memory.
        patience_seconds: how long a wave waits, after the last arrival, for an episode that is busy elsewhere.
        gather_seconds: how long a wave waits for more requests from outside any episode (`polygym.policies.waves`).

    Raises:
        UsageError: for an unknown device or dtype, or a context of less than two tokens.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str,
        device: str | None = None,
        dtype: str | None = None,
        max_context: int | None = None,
        max_batch_tokens: int | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
        gather_seconds: float = 0.0,
    ) -> None:
        self.name = name
        self.version = 0
        self.model = model.to(device=as_device(device) if device else None, dtype=as_dtype(dtype) if dtype else None)
        self.tokenizer = tokenizer
        self.renderer = ChatRenderer(tokenizer)
        self.max_context = max_context or getattr(model.config, "max_position_embeddings", None) or 2**31
        if self.max_context < 2:
            raise UsageError(f"max_context={max_context!r} leaves no room for a prompt and an answer; give at least 2")
        self.engine = Engine(self.model, _stop_ids(model, self.renderer), self.renderer.decode, max_batch_tokens)
        self._desk: WaveDesk[Generation] = WaveDesk(self._compute, _order, _cancel, patience_seconds, gather_seconds)
        self._computing = threading.Lock()
        self._vocabulary = self.model.get_input_embeddings().num_embeddings

    def episode(self) -> AbstractContextManager[None]:
        """Held while an episode is under way: a wave waits for all that are."""
        return self._desk.episode()

    def learning(self) -> AbstractContextManager[Any]:
        """Held while the model's weights or its training mode are changed: it waits for the end of a wave, which goes
        on for a moment after its last answer, and for longer where an episode was given up; no wave starts inside."""
        return self._computing

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """The text of each token by itself; a token that is a part of a character shows as U+FFFD."""
        return [str(text) for text in self.tokenizer.batch_decode([[token] for token in ids], **_AS_WRITTEN)]

    async def complete(self, request: Request) -> Turn:
        """Answer once; see `Policy.complete`."""
        prompt = self.renderer.render(request.messages, request.tools, request.previous)
        room = self.max_context - len(prompt)
        if room < 1:
            return Turn(Message("assistant"), "context", Usage(len(prompt)), prompt, [], [], self.version)
        previous = request.previous
        known = 0
        if previous is not None and previous.prompt_token_ids is not None and previous.token_ids is not None:
            known = len(previous.prompt_token_ids) + len(previous.token_ids)
            self._check_ids(prompt)
        sampling = request.sampling
        row = Generation(prompt, sampling, request.seed, min(sampling.max_tokens, room), known)
        if request.on_text is not None and not self._opens_reasoning(prompt):
            row.watch = self._told(request, request.on_text)
        version = self.version
        try:
            await self._desk.ask(row)
        except RuntimeError as error:
            raise PolicyError(f"{self.name} could not generate: {error}", "generation") from error
        message = self._read(row, request.tools)
        usage = Usage(len(prompt), len(row.ids))
        return Turn(message, row.finish_reason, usage, prompt, row.ids, row.logprobs, version)

    async def close(self) -> None:
        """End the thread and release the buffers. The model stays as it is."""
        self._desk.close()
        self.engine.forget()

    def _told(self, request: Request, on_text: Callable[[str], None]) -> Callable[[list[int]], None]:
        """What tells `on_text` of a row's ids, from the computing thread."""
        loop, calls, stops = asyncio.get_running_loop(), bool(request.tools), request.sampling.stop

        def watch(ids: list[int]) -> None:
            text = shown_so_far(self.renderer.decode(ids), calls=calls, stops=stops)
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody reads any more
                loop.call_soon_threadsafe(on_text, text)

        return watch

    def _opens_reasoning(self, prompt: Sequence[int]) -> bool:
        """Whether the chat template begins the answer with reasoning, so that its text is none to show."""
        tail = str(self.tokenizer.decode(prompt[-16:], skip_special_tokens=False))
        return tail.rstrip().endswith(("<think>", "<thinking>"))

    def _check_ids(self, ids: Sequence[int]) -> None:
        """Ids of earlier turns may come from a client, and one that is no token would fail the whole wave."""
        if not 0 <= min(ids) <= max(ids) < self._vocabulary:
            wrong = next(id for id in ids if not 0 <= id < self._vocabulary)
            most = self._vocabulary - 1
            raise UsageError(f"token id {wrong} of an earlier turn is none of {self.name}'s 0 to {most}")

    def _compute(self, rows: list[Generation], ready: Callable[[Sequence[Generation]], None]) -> None:
        with self._computing:
            self.engine.generate([row for row in rows if not row.cancelled], ready)

    def _read(self, row: Generation, tools: Sequence[ToolSpec]) -> Message:
        """The message that the sampled ids say."""
        ids = row.ids[:-1] if row.ids and row.ids[-1] in self.engine.stop_ids else row.ids
        text = self.renderer.decode(ids)
        if row.stop_text is not None:
            text = text[: text.find(row.stop_text)]
        if tools:
            parsed = parse_tool_calls(text, tools, finish_reason=row.finish_reason)
            return Message("assistant", parsed.content, parsed.calls, reasoning=parsed.reasoning)
        if "think" in text:
            text, reasoning = strip_reasoning(text)
            return Message("assistant", text, reasoning=reasoning)
        return Message("assistant", text)


def as_device(name: str) -> torch.device:
    """The device of that name.

    Raises:
        UsageError: when torch does not know it or it is not there.
    """
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        others = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        there = ["cpu", *(kind for kind, here in others.items() if here)]
        raise UsageError(f"device={name!r} cannot be used here; available: {', '.join(there)}") from error
    return device


def as_dtype(name: str) -> torch.dtype:
    """The floating-point type of that name.

    Raises:
        UsageError: for any other name.
    """
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name not in dtypes:
        raise UsageError(f"dtype={name!r} is unknown; allowed: {', '.join(dtypes)}")
    return dtypes[name]


def _stop_ids(model: Any, renderer: ChatRenderer) -> list[int]:
    """What ends an answer: the renderer's ids and those of the model's generation config."""
    given = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    more = [given] if isinstance(given, int) else list(given or [])
    return sorted({*renderer.stop_ids, *more})


def _order(row: Generation) -> int:
    return row.seed


def _cancel(row: Generation) -> None:
    row.cancelled = True
