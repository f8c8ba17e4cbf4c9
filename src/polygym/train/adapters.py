"""LoRA adapters: which layers get them, new ones, and those of a checkpoint.

The one idea: a layer is named by the last part of its path, and a name that no layer has is refused, because peft only
does so where none of the names is one.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polygym.errors import UsageError
from polygym.seeds import derive_seed
from polygym.train.checkpoint import reading
from polygym.train.config import RunConfig


def check_targets(model: Any, targets: Sequence[str]) -> None:
    """Check `lora_target_modules` against the layers of a model, which may be without weights.

    Raises:
        UsageError: for a name that no layer has which can be adapted; lists the linear ones.
    """
    from torch.nn import Embedding, Linear
    from transformers.pytorch_utils import Conv1D

    paths = {path: module for path, module in model.named_modules() if isinstance(module, (Linear, Conv1D, Embedding))}
    head = model.get_output_embeddings()
    linear = {
        path.rpartition(".")[2]
        for path, found in paths.items()
        if found is not head and not isinstance(found, Embedding)
    }
    for target in targets:
        if not any(path == target or path.endswith(f".{target}") for path in paths):
            raise UsageError(
                f"lora_target_modules: no layer of the model is named {target!r}; its linear layers are "
                f"{', '.join(sorted(linear))}; leave the key out to adapt all of them"
            )


def add_adapters(model: Any, config: RunConfig, checkpoint: Path | None) -> Any:
    """The model with new adapters, or with those of a checkpoint; in evaluation mode, their dropout too.

    Raises:
        UsageError: for targets that are no layers, or a broken checkpoint.
    """
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model

    check_targets(model, config.lora_target_modules)
    lora = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules=list(config.lora_target_modules) or "all-linear",
        task_type="CAUSAL_LM",
    )
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore", FutureWarning)  # between peft and transformers; no user can act on it
        if checkpoint is not None:
            with reading(checkpoint):
                return PeftModel.from_pretrained(model, str(checkpoint / "model"), is_trainable=True).eval()
        torch.manual_seed(derive_seed(config.seed, "adapters"))
        return get_peft_model(model, lora).eval()
