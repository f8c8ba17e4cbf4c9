"""Environments that get worse: one environment must not be paid for by another without a word.

The one idea: an environment has regressed when its held-out reward lies below its best so far by more than the half
width of a 95 % interval: the new value's or the best's, whichever is wider, since few tasks that all fail have no
width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Regressions:
    """The best held-out reward of each environment, and which environments lie below theirs now."""

    def __init__(self) -> None:
        self.best_E: dict[str, float] = {}
        self.half_width_E: dict[str, float] = {}  # of the best
        self.regressed_E: dict[str, bool] = {}

    def observe(self, environments: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Take in one evaluation: `{name: {mean_reward, interval}}`; one warning line for each environment that
        regressed."""
        warnings = []
        for name, result in environments.items():
            mean, interval = result.get("mean_reward"), result.get("interval")
            if mean is None or interval is None:
                continue
            own_width = (interval[1] - interval[0]) / 2
            best = self.best_E.setdefault(name, mean)
            half_width = max(own_width, self.half_width_E.setdefault(name, own_width))
            self.regressed_E[name] = best - mean > half_width
            if mean > best:
                self.best_E[name], self.half_width_E[name] = mean, own_width
            if self.regressed_E[name]:
                warnings.append(
                    f"{name} has regressed: held-out reward {mean:.3f} +- {half_width:.3f} against its best of "
                    f"{best:.3f}; raise its weight, lower learning_rate, or set kl_coef"
                )
        return warnings

    def metrics(self) -> dict[str, float]:
        """`<env>/regressed` for every environment evaluated so far."""
        return {f"{name}/regressed": float(flag) for name, flag in self.regressed_E.items()}

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs."""
        return {"best": dict(self.best_E), "half_width": dict(self.half_width_E), "regressed": dict(self.regressed_E)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back the state of `state_dict`."""
        self.best_E, self.half_width_E = dict(state["best"]), dict(state["half_width"])
        self.regressed_E = dict(state["regressed"])
