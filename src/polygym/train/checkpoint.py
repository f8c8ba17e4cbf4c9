"""Checkpoints: everything that moves, written aside and renamed, so that a resumed run is the same run.

The one idea: a checkpoint exists whole or not at all. `model/` loads with transformers' `from_pretrained` (adapters,
for LoRA); `optimizer.pt` and `state.json` hold the rest.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from polygym.errors import UsageError


def save_checkpoint(path: Path, *, model: Any, tokenizer: Any, optimizer: Any, state: dict[str, Any]) -> None:
    """Write a checkpoint to `path`; an existing one is replaced only by a whole new one.

    `state` is plain JSON: floats come back to the last digit.
    """
    import torch

    aside = path.with_name(f".{path.name}.tmp")
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
    try:
        state: dict[str, Any] = json.loads((path / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"checkpoint {path} cannot be read: {error}; remove that folder to resume from an older one"
        ) from error
    return state


def load_optimizer(path: Path, optimizer: Any) -> None:
    """Give `optimizer` the moving averages of a checkpoint."""
    import torch

    optimizer.load_state_dict(torch.load(path / "optimizer.pt", weights_only=True, map_location="cpu"))
