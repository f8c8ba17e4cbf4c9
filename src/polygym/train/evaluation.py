"""Held-out evaluation during a run: the same tasks and seeds each time, kept in `eval/`, compared in pairs at the end.

The one idea: progress is measured on tasks that training never asks, and only differences on the same tasks are told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from polygym.collect.compare import Comparison
from polygym.collect.evaluate import evaluate_async
from polygym.collect.results import Results, read_results
from polygym.collect.sample import sample_tasks
from polygym.environments import EnvGroup, Environment
from polygym.errors import UsageError
from polygym.policies.base import Policy
from polygym.train.comparison import before_and_after
from polygym.train.config import RunConfig, TrainingConfig
from polygym.train.progress import TrainProgress
from polygym.train.run_folder import RunFolder
from polygym.train.setup import RouteSettings, build_environment

DEFAULT_EXAMPLES = 50  # held-out tasks of an environment, where `[eval]` names no number


class HeldOut:
    """Evaluates the environments of a run, and those that are only evaluated.

    Args:
        environment: what is trained on.
        settings: of its leaves, by route.
        policy: the policy of the run.
        config: its `[eval]` table says how much is asked; `[[eval.env]]` adds environments.
        folder: where `eval/step_N.json` and the rollouts beside it go.
        progress: who is told how it goes.

    Raises:
        UsageError: as `held_out_environment`.
    """

    def __init__(
        self,
        environment: Environment,
        settings: Mapping[str, RouteSettings],
        policy: Policy,
        config: RunConfig,
        folder: RunFolder,
        progress: TrainProgress,
    ) -> None:
        self.settings, self.policy, self.config, self.folder, self.progress = settings, policy, config, folder, progress
        self.environment = held_out_environment(environment, config)
        self.examples_E = examples_by_environment(self.environment, config)
        self.shares = environment.shares()
        self.sampling = config.sampling.to_sampling()

    def has(self, step: int) -> bool:
        """Whether the evaluation after `step` steps is done already, or none is wanted."""
        return not any(self.examples_E.values()) or self._file(step).exists()

    async def evaluate(self, step: int) -> Results | None:
        """Evaluate the policy after `step` steps; None where nothing is to be evaluated."""
        if not any(self.examples_E.values()):
            return None
        leaves = self.environment.leaves()
        turns_E = {name: setting.max_turns for name, setting in self.settings.items() if setting.max_turns}
        results = await evaluate_async(
            self.environment,
            self.policy,
            num_examples=self.examples_E,
            rollouts_per_example=self.config.eval.rollouts_per_example,
            sampling={
                name: self.settings[name].sampling if name in self.settings else self.sampling for name in leaves
            },
            max_turns=turns_E,
            concurrency=self.config.concurrency,
            seed=self.config.seed,
            timeout={
                name: self.settings[name].timeout_seconds if name in self.settings else self.config.timeout
                for name in leaves
            },
            progress=self.progress,
            output=self.folder.evals / f"step_{step}_rollouts",
            overwrite=True,  # of an evaluation that was stopped
        )
        # What is only evaluated has no share: it counts in no combined reward.
        results = replace(results, shares={name: self.shares.get(name, 0.0) for name in results.environments})
        results.save(self._file(step))
        return results

    def comparison(self, before: int, after: int) -> tuple[Comparison | None, tuple[str, ...]]:
        """The evaluations after `before` and after `after` steps, compared on the same tasks, and notes on that."""
        if not (self._file(before).exists() and self._file(after).exists()):
            return None, ()
        return before_and_after(read_results(self._file(before)), read_results(self._file(after)), self.shares)

    def _file(self, step: int) -> Path:
        return self.folder.evals / f"step_{step}.json"


def held_out_environment(environment: Environment, config: TrainingConfig) -> Environment:
    """What a run evaluates: what it trains on, and the environments that are only evaluated.

    Raises:
        UsageError: when one that is only evaluated has the name of one that is trained on, or when more tasks are
            wanted than an environment holds out.
    """
    if config.eval.env:
        environment = _joined(environment, build_environment(config.eval.env))
    check_examples(environment, config)
    return environment


def examples_by_environment(environment: Environment, config: TrainingConfig) -> dict[str, int]:
    """Held-out tasks of each leaf that `[eval]` asks: as many as it says, else 50 or what there is."""
    given = config.eval.num_examples
    return {
        route: min(DEFAULT_EXAMPLES, len(leaf.tasks("held_out"))) if given is None else given
        for route, leaf in environment.leaves().items()
    }


def check_examples(environment: Environment, config: TrainingConfig) -> None:
    """Check that there is what `[eval]` asks.

    Raises:
        UsageError: when more tasks are wanted than an environment holds out.
    """
    try:
        sample_tasks(environment, num_examples=examples_by_environment(environment, config), seed=config.seed)
    except UsageError as error:
        raise UsageError(f"[eval] {error}") from error


def fewer_examples(environment: Environment, config: TrainingConfig) -> str:
    """A line about the environments that hold out fewer tasks than are asked where `[eval]` names no number."""
    fewer = {
        route: count
        for route, count in examples_by_environment(environment, config).items()
        if count < DEFAULT_EXAMPLES
    }
    if config.eval.num_examples is not None or not fewer:
        return ""
    counts = ", ".join(f"{count} of {route}" for route, count in fewer.items())
    return f"evaluation: all held-out tasks are asked where there are fewer than {DEFAULT_EXAMPLES}: {counts}"


def _joined(trained: Environment, evaluated: Environment) -> Environment:
    """Both as one group; the names of the leaves stay as they are."""
    leaves = {**trained.leaves()}
    for name, leaf in evaluated.leaves().items():
        if name in leaves:
            raise UsageError(f"[[eval.env]] {name!r} is also the name of an environment that is trained on; rename it")
        leaves[name] = leaf
    return EnvGroup(list(leaves.values()), env_names=list(leaves))
