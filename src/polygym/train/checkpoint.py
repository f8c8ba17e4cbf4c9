"""Checkpoints: everything that moves, written aside and renamed, so that a resumed run is the same run.

The one idea: a checkpoint exists whole or not at all. `model/` loads with transformers' `from_pretrained` (adapters,
for LoRA); `optimizer.pt` and `state.json` hold the rest.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from polygym.errors import PolygymError, UsageError


def save_checkpoint(path: Path, *, model: Any, tokenizer: Any, optimizer: Any, state: dict[str, Any]) -> None:
    """Write a checkpoint to `path`; an existing one is replaced only by a whole new one.

    `state` is plain JSON: floats come back to the last digit.

    Raises:
        PolygymError: when it cannot be written, because the disk is full, say; the checkpoints before it stay.
    """
    import torch
    from safetensors import SafetensorError

    aside = path.with_name(f".{path.name}.tmp")
    try:
        if aside.exists():
            shutil.rmtree(aside)
        aside.mkdir(parents=True)
        save_model(aside / "model", model, tokenizer)
        torch.save(optimizer.state_dict(), aside / "optimizer.pt")
        (aside / "state.json").write_text(json.dumps(state), encoding="utf-8")
        for file in aside.rglob("*"):
            if file.is_file():
                with file.open("rb") as stream:
                    os.fsync(stream.fileno())
        if path.exists():
            shutil.rmtree(path)
        aside.rename(path)
    except (OSError, RuntimeError, SafetensorError) as error:  # torch and safetensors have words of their own for it
        reason = str(error).partition("\n")[0]
        raise PolygymError(
            f"checkpoint {path} could not be written: {reason}; make room on the disk, then go on with --resume"
        ) from error


def save_model(path: Path, model: Any, tokenizer: Any) -> None:
    """Write what `from_pretrained` reads."""
    from polygym.policies.fetch import quiet_transformers

    with quiet_transformers():
        model.save_pretrained(path)
        tokenizer.save_pretrained(path)


def load_state(path: Path) -> dict[str, Any]:
    """The `state` of a checkpoint.

    Raises:
        UsageError: when the file cannot be read.
    """
    with reading(path):
        state: dict[str, Any] = json.loads((path / "state.json").read_text(encoding="utf-8"))
    return state


def load_optimizer(path: Path, optimizer: Any) -> None:
    """Give `optimizer` the moving averages of a checkpoint.

    Raises:
        UsageError: when the file cannot be read, or belongs to other parameters.
    """
    import torch

    with reading(path):
        try:
            optimizer.load_state_dict(torch.load(path / "optimizer.pt", weights_only=True, map_location="cpu"))
        except RuntimeError as error:  # torch's word for a broken file
            raise ValueError(str(error)) from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Held while the checkpoint `path` is read.

    Raises:
        UsageError: where a file of it is torn or missing, whatever word the library that read it has for that.
    """
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, KeyError, EOFError, UnpicklingError, SafetensorError, UsageError) as error:
        cause = error.__cause__ if isinstance(error, UsageError) and error.__cause__ else error
        reason = re.split(r"\n|\. |; ", str(cause))[0].rstrip(".: ") or type(cause).__name__
        raise UsageError(
            f"checkpoint {path} cannot be read: {reason}; remove that folder to resume from an older one"
        ) from error
