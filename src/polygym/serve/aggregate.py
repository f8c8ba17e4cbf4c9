"""Statistics of many verify replies, as `/aggregate_metrics` answers them.

The one idea: every number at the top level of a reply is a metric, with `mean/NAME`, `max/NAME`, `min/NAME`,
`median/NAME` and `std/NAME`, once for each task and once over all. A reply without a reward is counted as unscored and
left out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from polygym.environments.wire_rows import ROLLOUT_INDEX, SEED, TASK_INDEX

_NOT_METRICS = {TASK_INDEX, ROLLOUT_INDEX, SEED, "id", "mask_sample"}


def aggregate(replies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`group_level_metrics` (a task each), `agent_metrics` (all) and `key_metrics` of verify replies.

    >>> replies = [{"_ng_task_index": 0, "reward": 1.0}, {"_ng_task_index": 0, "reward": None}]
    >>> aggregate(replies)["key_metrics"]
    {'mean/reward': 1.0, 'rollouts': 2, 'unscored': 1}
    """
    groups: dict[Any, list[Mapping[str, Any]]] = {}
    for reply in replies:
        groups.setdefault(reply.get(TASK_INDEX), []).append(reply)
    overall = _describe(replies)
    return {
        "group_level_metrics": [{TASK_INDEX: task, **_describe(group)} for task, group in groups.items()],
        "agent_metrics": overall,
        "key_metrics": {name: overall[name] for name in ("mean/reward", "rollouts", "unscored") if name in overall},
    }


def _describe(replies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    columns: dict[str, list[float]] = {}
    scored = [numbers for numbers in map(_numbers, replies) if "reward" in numbers]
    for numbers in scored:
        for name, value in numbers.items():
            columns.setdefault(name, []).append(value)
    described: dict[str, Any] = {}
    for name, values in columns.items():
        described[f"mean/{name}"] = statistics.fmean(values)
        described[f"max/{name}"] = max(values)
        described[f"min/{name}"] = min(values)
        described[f"median/{name}"] = statistics.median(values)
        described[f"std/{name}"] = statistics.stdev(values) if len(values) > 1 else 0.0
    return {**described, "rollouts": len(replies), "unscored": len(replies) - len(scored)}


def _numbers(reply: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers at the top level of a reply, and its usage."""
    response = reply.get("response")
    usage = response.get("usage") if isinstance(response, Mapping) else None
    found = {**reply, **(usage if isinstance(usage, Mapping) else {})}
    return {
        name: float(value)
        for name, value in found.items()
        if isinstance(value, (int, float)) and name not in _NOT_METRICS and math.isfinite(value)
    }
