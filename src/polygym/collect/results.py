"""Results of an evaluation.

The one idea: every environment is reported on its own; `combined` is their mean weighted by the shares, `macro` their
plain mean, `all` the mean over rollouts. A combined mean needs all its environments: without one of them it would be
another quantity.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from polygym.collect.summary import EnvironmentSummary
from polygym.collect.summary_builder import SummaryBuilder
from polygym.collect.unscored import Unscored, unscored_lines
from polygym.errors import UsageError
from polygym.rollout import Rollout
from polygym.rows import dump_document, write_aside
from polygym.statistics import Array, bootstrap_means, mean, percentile_interval, weighted_mean
from polygym.tables import number, plain_table, span

RESULTS_SCHEMA = 1
COMBINED = "combined"
_NOT_COMBINED = re.compile(r"rollouts|unscored|interval_.*|.*_(min|max|p99)|reward/.*")


@dataclass(slots=True, repr=False)
class Results:
    """Rewards of one policy on environments.

    Args:
        model: name of the policy.
        settings: what was asked, as plain data.
        shares: weight of each environment in the combined mean.
        environments: a summary of each.
        rollouts: every rollout in the order of the tasks; empty where results were read from a file.
        complete: False where the evaluation was stopped before its end.
    """

    model: str
    settings: dict[str, Any]
    shares: dict[str, float]
    environments: dict[str, EnvironmentSummary]
    rollouts: list[Rollout] = field(default_factory=list)
    complete: bool = True

    @classmethod
    def of(
        cls,
        rollouts: Iterable[Rollout],
        *,
        model: str,
        settings: Mapping[str, Any],
        shares: Mapping[str, float],
        complete: bool = True,
        seed: int = 0,
    ) -> Results:
        """Sum up rollouts, those of each environment in `shares`, also where it has none."""
        kept = list(rollouts)
        builders = {name: SummaryBuilder(name) for name in shares}
        for rollout in kept:
            builders[rollout.environment].add(rollout)
        found = cls.of_builders(builders, model=model, settings=settings, shares=shares, complete=complete, seed=seed)
        found.rollouts = kept
        return found

    @classmethod
    def of_builders(
        cls,
        builders: Mapping[str, SummaryBuilder],
        *,
        model: str,
        settings: Mapping[str, Any],
        shares: Mapping[str, float],
        complete: bool = True,
        seed: int = 0,
    ) -> Results:
        """What builders have taken in, one an environment of `shares`. The rollouts themselves are not kept."""
        environments = {name: builders[name].summary(seed=seed) for name in shares}
        return cls(model, dict(settings), dict(shares), environments, complete=complete)

    @property
    def mean_reward(self) -> float | None:
        """The combined mean reward; None if an environment has no scored rollout."""
        return weighted_mean({name: found.mean_reward for name, found in self.environments.items()}, self.shares)

    @property
    def macro_mean_reward(self) -> float | None:
        """The plain mean over the environments that have a share; None if one of them has no scored rollout."""
        return self.means(self._equal_shares()).get("mean_reward")

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the combined mean reward."""
        return combined_interval(self._draws(), self.shares)

    def means(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Each number of the environments (`EnvironmentSummary.numbers`) as their weighted mean.

        Left out are counts, extremes, intervals and reward functions, and what not all environments of weight have.
        """
        numbers_E = {name: self.environments[name].numbers() for name, weight in weights.items() if weight > 0}
        names = dict.fromkeys(name for numbers in numbers_E.values() for name in numbers)
        combined = {
            name: weighted_mean({route: numbers.get(name) for route, numbers in numbers_E.items()}, weights)
            for name in names
            if not _NOT_COMBINED.fullmatch(name)
        }
        return {name: value for name, value in combined.items() if value is not None}

    @property
    def all_mean_reward(self) -> float | None:
        """Mean reward over the rollouts of all environments."""
        return mean(
            reward for found in self.environments.values() for rewards in found.tasks.values() for reward in rewards
        )

    @property
    def failures(self) -> dict[str, Unscored]:
        """The unscored rollouts of each environment."""
        return {name: found.failures for name, found in self.environments.items()}

    def to_dict(self) -> dict[str, Any]:
        """The results as JSON data: the content of `eval/*.json` and OUT_metrics.json."""
        return {
            "schema": RESULTS_SCHEMA,
            "model": self.model,
            "settings": self.settings,
            "complete": self.complete,
            "environments": {name: found.to_dict() for name, found in self.environments.items()},
            COMBINED: self._combined(),
            "all": {"mean_reward": self.all_mean_reward},
        }

    def save(self, path: str | Path) -> None:
        """Write `to_dict` to `path`, aside and renamed."""
        write_aside(path, dump_document(self.to_dict()))

    def metrics(self) -> dict[str, float]:
        """`<env>/mean_reward`, `<env>/pass@k`, ..., `combined/mean_reward`, `all/mean_reward`; no value, no key."""
        metrics = {
            f"{name}/{metric}": value
            for name, found in self.environments.items()
            for metric, value in found.numbers().items()
        }
        overall = {
            f"{COMBINED}/mean_reward": self.mean_reward,
            f"{COMBINED}/macro_mean_reward": self.macro_mean_reward,
            "all/mean_reward": self.all_mean_reward,
        }
        return metrics | {name: value for name, value in overall.items() if value is not None}

    def __repr__(self) -> str:
        means = ", ".join(f"{name}={number(found.mean_reward)}" for name, found in self.environments.items())
        return f"Results(model={self.model!r}, {means}, combined={number(self.mean_reward)})"

    def __str__(self) -> str:
        passes = sorted({k for found in self.environments.values() for k in found.pass_at_k if k > 1})
        header = ["environment", "tasks", "rollouts", "mean reward", "95 % interval"]
        header += [*(f"pass@{k}" for k in passes), "unscored"]
        rows = [
            [name, str(found.n), str(found.rollouts), number(found.mean_reward), span(found.interval)]
            for name, found in self.environments.items()
        ]
        for row, found in zip(rows, self.environments.values(), strict=True):
            row += [*(number(found.pass_at_k.get(k)) for k in passes), str(found.unscored)]
        if len(rows) > 1:
            tasks, rollouts, unscored = self._counts()
            row = [COMBINED, str(tasks), str(rollouts), number(self.mean_reward), span(self.interval)]
            rows.append([*row, *("" for _ in passes), str(unscored)])
        lines = [plain_table(header, rows), *unscored_lines(self.failures)]
        return "\n".join([*lines, *([] if self.complete else ["stopped before the end; what was collected is shown"])])

    def spread_table(self) -> str:
        """What `str` leaves out: how the rewards lie, majority@k, tokens read and written, seconds."""
        votes = sorted({k for found in self.environments.values() for k in found.majority_at_k if k > 1})[-1:]
        header = ["environment", "std", "min", "median", "max", *(f"majority@{k}" for k in votes)]
        header += ["tokens in", "out", "seconds", "p99"]
        rows = []
        for name, found in self.environments.items():
            reward, read = found.reward_spread, found.prompt_tokens
            lies = (reward.std, reward.min, reward.median, reward.max) if reward else (None,) * 4
            row = [name, *map(number, lies), *(number(found.majority_at_k.get(k)) for k in votes)]
            tokens = (read.mean if read else None, found.completion_tokens_mean)
            row += ["-" if value is None else f"{value:.1f}" for value in tokens]
            rows.append([*row, number(found.seconds_mean), number(found.seconds_p99)])
        return plain_table(header, rows)

    def _combined(self) -> dict[str, Any]:
        tasks, rollouts, unscored = self._counts()
        draws, equal = self._draws(), self._equal_shares()
        return {
            "n": tasks,
            "rollouts": rollouts,
            "unscored": unscored,
            "mean_reward": self.mean_reward,
            "interval": combined_interval(draws, self.shares),
            "shares": self.shares,
            "means": self.means(self.shares),
            "macro": {
                "mean_reward": self.macro_mean_reward,
                "interval": combined_interval(draws, equal),
                "means": self.means(equal),
            },
        }

    def _counts(self) -> tuple[int, int, int]:
        """Tasks, rollouts and unscored ones of all environments."""
        found = self.environments.values()
        return sum(of.n for of in found), sum(of.rollouts for of in found), sum(of.unscored for of in found)

    def _equal_shares(self) -> dict[str, float]:
        return {name: 1.0 for name, share in self.shares.items() if share > 0}

    def _draws(self) -> dict[str, Array | None]:
        """Bootstrap means of the environments that have a share, drawn independently."""
        weighed = [name for name in self.environments if self.shares.get(name, 0) > 0]
        return {name: bootstrap_means(self.environments[name].tasks, seed=place) for place, name in enumerate(weighed)}


def read_results(path: str | Path) -> dict[str, Any]:
    """The saved form of results (`Results.save`), for `paired_difference` and for planning.

    Raises:
        UsageError: when there is no such file, or it holds something else.
    """
    try:
        found = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read results from {str(path)!r}: {error}; {_where_results_are(path)}") from error
    if not isinstance(found, dict) or not isinstance(found.get("environments"), dict):
        raise UsageError(f"{str(path)!r} holds no results: it has no environments; {_where_results_are(path)}")
    return found


def _where_results_are(path: str | Path) -> str:
    """What to give instead of `path`: the file of the same evaluation where that is there."""
    stem = Path(path).name.removesuffix(".jsonl").removesuffix("_failures").removesuffix("_metrics.json")
    beside = Path(path).with_name(f"{stem}_metrics.json")
    if stem and beside.is_file() and beside != Path(path):
        return f"did you mean {beside}?"
    return "give OUT_metrics.json of an evaluation, eval/*.json of a run, or what Results.save wrote"


def combined_interval(draws: Mapping[str, Array | None], weights: Mapping[str, float]) -> tuple[float, float] | None:
    """Interval of the weighted mean of environments that were drawn independently; None when one has no interval."""
    arrays: Sequence[Array] = [drawn for drawn in draws.values() if drawn is not None]
    if not arrays or len(arrays) < len(draws):
        return None
    return percentile_interval(np.average(np.stack(arrays), axis=0, weights=[weights[name] for name in draws]))
