"""A run that goes on with another config than it had: what may change, and what is told of it.

The one idea: weights, adapters and random streams come from the checkpoint, so what shaped them stays as it was and is
refused otherwise; everything else may change from the next step on, and every changed key is told with both values.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from polygym.errors import UsageError
from polygym.train.config import RunConfig
from polygym.train.config_errors import entry_name
from polygym.train.setup import resolve_device

FIXED = ("model", "seed", "lora_rank")
FIXED_ADAPTERS = ("lora_alpha", "lora_dropout", "lora_target_modules")  # saved with them and read back from there
UNTOLD = ("name", "output")  # say where the run lies, which is known

Table = Mapping[str, Any]


def resolved(config: RunConfig, before: Table | None) -> RunConfig:
    """The config with what this machine decides filled in; a run that goes on keeps its thread count."""
    threads = config.threads or (before or {}).get("threads")
    return config.model_copy(
        update={"threads": threads or os.cpu_count() or 1, "device": resolve_device(config.device)}
    )


def saved_form(config: RunConfig) -> dict[str, Any]:
    """The config as its file holds it."""
    return config.model_dump(mode="json", exclude_none=True)


def check_unchanged(path: Path, before: Table, config: RunConfig) -> None:
    """Refuse a config that the checkpoints in the run folder `path` cannot go on with; `before` is the saved one.

    Raises:
        UsageError: names each such key with both values.
    """
    now = saved_form(config)
    adapters = FIXED_ADAPTERS if config.lora_rank else ()
    changed = [key for key in (*FIXED, *adapters) if before.get(key, now[key]) != now[key]]
    if changed:
        was, says = (", ".join(f"{key}={_text(form[key])}" for key in changed) for form in (before, now))
        raise UsageError(
            f"{path} was trained with {was}, the config says {says}; resume with the same, or start a new run"
        )


def changed_settings(before: Table, config: RunConfig) -> list[str]:
    """What differs from the saved config, a line a key; an entry of a list of tables stands under its name.

    >>> from polygym.train.config import RunConfig
    >>> had = {"batch_size": 16, "kl_coef": 0.1, "env": [{"id": "math_rl"}, {"id": "word_game"}]}
    >>> has = {"batch_size": 16, "kl_coef": 0.0, "env": [{"id": "math_rl", "weight": 2.0}, {"id": "tool_use"}]}
    >>> changed_settings(saved_form(RunConfig.model_validate(had)), RunConfig.model_validate(has))
    ['kl_coef 0.1 -> 0.0', 'env.math_rl.weight 1.0 -> 2.0', 'env.word_game is gone', 'env.tool_use is new']
    """
    return list(_differences(before, saved_form(config), ""))


def _differences(before: Table, now: Table, prefix: str) -> Iterator[str]:
    for key in dict.fromkeys([*before, *now]):
        where = f"{prefix}{key}"
        old, new = _named(before.get(key)), _named(now.get(key))
        if old == new or where in UNTOLD:
            continue
        if _is_entry(old) and new is None:
            yield f"{where} is gone"
        elif _is_entry(new) and old is None:
            yield f"{where} is new"
        elif isinstance(old, Mapping) or isinstance(new, Mapping):
            yield from _differences(old or {}, new or {}, f"{where}.")
        else:
            yield f"{where} {_text(old)} -> {_text(new)}"


def _named(value: Any) -> Any:
    """A list of tables as a table by name."""
    if isinstance(value, list) and value and all(map(_is_entry, value)):
        return {entry_name(entry): entry for entry in value}
    return value


def _is_entry(value: Any) -> bool:
    """Whether a table names an environment."""
    return isinstance(value, Mapping) and not value.keys().isdisjoint(("id", "rows", "eval_rows"))


def _text(value: Any) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)
