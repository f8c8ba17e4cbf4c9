"""The training loop: plan, collect, credit, update, measure; step by step, until the run is done.

The one idea: a step is a fixed sequence of named parts, each of which lives in its own module, and all that moves
between steps (weights, optimizer, mixture, scales, regressions) is in the checkpoint, so a resumed run is the same
run.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from polygym.collect.collector import Collector
from polygym.collect.groups import collect_groups
from polygym.collect.store import RolloutStore
from polygym.collect.unscored import Unscored, unscored_lines
from polygym.errors import PolicyError
from polygym.mixture import Mixture
from polygym.policies.remembering import RememberingPolicy
from polygym.rollout import Rollout, RolloutGroup
from polygym.rows import append
from polygym.tables import number
from polygym.train import checkpoint as checkpoints
from polygym.train.agents import ModelServer, asked_by_agents
from polygym.train.assignments import as_assigned, step_assignments
from polygym.train.batch import StepShares, make_batch
from polygym.train.clock import StepClock
from polygym.train.config import RunConfig
from polygym.train.evaluation import HeldOut, fewer_examples
from polygym.train.metrics import step_metrics
from polygym.train.progress import Tracker, TrainProgress
from polygym.train.regression import Regressions
from polygym.train.resume import changed_settings, check_unchanged, resolved
from polygym.train.run_folder import RunFolder
from polygym.train.scale import RewardScale
from polygym.train.setup import (
    build_environment,
    groups_per_step,
    load_reference,
    load_trainable,
    loss_weights,
    route_settings,
)
from polygym.train.summary import Summary


def run(
    config: RunConfig,
    *,
    resume: bool = False,
    progress: TrainProgress | None = None,
    tracker: Tracker | None = None,
    model_server: ModelServer | None = None,
) -> Summary:
    """Train a policy on the environments of `config`; with `resume`, continue its newest run from the last checkpoint.

    `model_server` serves the policy for agents that play themselves; `polygym.serve.beside.serving` does.

    Ctrl-C ends with a checkpoint of the last whole step and every finished rollout kept, then KeyboardInterrupt.

    Raises:
        UsageError: for a config that cannot run, or nothing to resume.
        PolicyError: when no group of a step could be scored.
    """
    return asyncio.run(_run(config, resume, progress or TrainProgress(), tracker, model_server))


async def _run(
    config: RunConfig,
    resume: bool,
    progress: TrainProgress,
    tracker: Tracker | None,
    model_server: ModelServer | None,
) -> Summary:
    folder = RunFolder.newest(config) if resume else None
    trainer = Trainer(config, folder, progress, tracker)
    try:
        async with asked_by_agents(trainer.held_out.environment, trainer.remembering, model_server, config.policy_port):
            return await trainer.train()
    finally:
        await trainer.close()


class Trainer:
    """One run: its parts, and the steps done so far.

    Args:
        config: the run's configuration.
        folder: the folder to continue in; None makes a new one.
        progress: who is told how it goes.
        tracker: where metrics go besides `metrics.jsonl`.
    """

    def __init__(
        self, config: RunConfig, folder: RunFolder | None, progress: TrainProgress, tracker: Tracker | None
    ) -> None:
        from polygym.policies.local import LocalPolicy
        from polygym.train.learner import Learner

        self.progress, self.tracker = progress, tracker
        self.environment = build_environment(config.env)
        self.settings = route_settings(self.environment, config)
        self.groups_per_step = groups_per_step(config, len(self.settings))
        weights_E = {name: share for name, share in self.environment.shares().items() if name in self.settings}
        sizes_E = {name: len(setting.environment.tasks("train")) for name, setting in self.settings.items()}
        self.mixture = Mixture(weights_E, sizes_E, self.groups_per_step, config.seed)
        self.planned = StepShares(
            weights_E=weights_E,
            shares_E=self.mixture.shares,
            groups_per_step=self.groups_per_step,
            loss_weights_E=loss_weights(self.settings, weights_E),
            temperatures_E={name: setting.sampling.temperature for name, setting in self.settings.items()},
        )

        self.folder = folder or RunFolder.create(config)
        steps = self.folder.checkpoint_steps()
        self.done = steps[-1] if steps else 0
        saved = self.folder.checkpoint(self.done) if steps else None
        before = self.folder.saved_config(self.done) if folder else None
        self.config = resolved(config, before)
        if before:
            check_unchanged(self.folder.path, before, self.config)
        model, tokenizer = load_trainable(self.config, saved)
        self.policy = LocalPolicy(
            model, tokenizer, name=config.model, device=self.config.device, max_context=config.max_seq_len
        )
        self.remembering = RememberingPolicy(self.policy)  # for agents that play themselves
        self.learner = Learner(model, self.config, load_reference(self.config) if saved else None)
        self.tokenizer = tokenizer
        self.collector = Collector(
            self.policy,
            concurrency=config.concurrency,
            timeout_seconds=config.timeout,
            progress=progress,
            on_rollout=self._keep,
        )
        self.scales = {name: RewardScale(name, config.reward_scale_decay) for name in self.settings}
        self.regressions = Regressions()
        self.held_out = HeldOut(self.environment, self.settings, self.policy, self.config, self.folder, progress)
        if not folder:
            self.folder.make(config)  # only now: a mistake in the config leaves nothing behind
        self.whole = True  # False while weights are being updated: what is half-updated is never saved
        self.unsaved: list[Rollout] = []
        self.unrecorded: dict[str, float] = {}
        self.failures: dict[str, Unscored] = {}
        if saved:
            self._load(saved)
        self.folder.lock()
        self.store = RolloutStore(self.folder.rollouts)
        self.saved_mixture = self.mixture.state_dict()
        if before:
            self.folder.cut_metrics(self.done)
            self.store.cut_back(self.done)
            changes = changed_settings(before, self.config)
            self.folder.continue_config(self.config, self.done, changed=bool(changes))
            for line in changes:
                self._say(f"changed from step {self.done + 1} on: {line}")
        else:
            self.folder.save_config(self.config)
        if tracker:
            tracker.open(self.folder.path, self.done)

    async def train(self) -> Summary:
        """Evaluate, train the steps that are left, evaluate again."""
        started = time.perf_counter()
        if self.groups_per_step < len(self.settings):
            self._say(
                f"{self.groups_per_step} groups a step are fewer than the {len(self.settings)} environments: they take "
                "turns, and a step does not hold each of them; raise batch_size or give groups_per_environment"
            )
        if line := fewer_examples(self.held_out.environment, self.config):
            self._say(line)
        try:
            if not self.held_out.has(0):
                self._record(0, await self._evaluate(0))
            while self.done < self.config.max_steps:
                await self._step()
            if not self.held_out.has(self.done):  # the run was stopped in its last evaluation
                await self._evaluate(self.done)
        except BaseException:
            self._rescue()
            raise
        comparison, notes = self.held_out.comparison(0, self.done)
        for line in (*notes, *unscored_lines(self.failures)):
            self._log(line)
        return Summary(
            str(self.folder.path),
            self.done,
            time.perf_counter() - started,
            comparison,
            notes,
            failures=self.failures,
        )

    async def close(self) -> None:
        """Release the policy and the tracker."""
        await self.policy.close()
        self.folder.release()
        if self.tracker:
            self.tracker.close()

    async def _step(self) -> None:
        clock = StepClock()
        planned = self.mixture.plan_step()
        self.progress.phase("collect")
        groups = await self._collect(planned)
        clock.mark("collect")
        if not groups:
            raise PolicyError(f"step {self.done + 1}: no group could be scored: {_causes(self.unsaved)}")
        batch = make_batch(groups, self.scales, self.planned, self.config)
        planned_E = dict.fromkeys(self.settings, 0) | Counter(name for name, _ in planned)
        metrics = step_metrics(groups, planned_E, self.planned.weights_E, batch, self.policy.version)
        clock.mark("credit")

        self.progress.phase("update")
        self.whole = False
        with self.policy.learning():
            metrics |= self.learner.update(batch.samples, self.done, self.settings)
        self.policy.version += 1
        self.remembering.forget()
        self.done += 1
        self.saved_mixture = self.mixture.state_dict()
        self.unrecorded = metrics
        self._count(self.unsaved)
        self.whole = True
        clock.mark("update")

        self.store.append(self.done, as_assigned(self.unsaved))
        self.unsaved = []
        for name, scale in self.scales.items():
            metrics.update({f"{name}/{metric}": value for metric, value in scale.metrics().items()})
        clock.mark("save")
        last = self.done == self.config.max_steps
        interval = self.config.eval.interval
        if last or (interval and self.done % interval == 0):
            metrics.update(await self._evaluate(self.done))
            clock.mark("evaluate")
        metrics.update(self.regressions.metrics() | clock.metrics())
        self._record(self.done, metrics)
        self.unrecorded = {}
        means = "  ".join(f"{name} {number(metrics.get(f'{name}/mean_reward'))}" for name in self.settings)
        self._log(f"{means}  {metrics['time/step']:.1f} s")
        self.progress.step(self.done, self.config.max_steps, metrics)
        if last or self.done % self.config.checkpoint_interval == 0:
            self._save()

    async def _collect(self, planned: list[tuple[str, int]]) -> list[RolloutGroup]:
        """The K rollouts of every planned task; groups that could not be scored twice are left out, and said."""
        wanted = step_assignments(planned, self.settings, step=self.done + 1, seed=self.config.seed)
        collected = await collect_groups(self.collector, wanted)
        for group in collected.dropped:
            self._say(f"{group.environment}: group {group.group_id} was dropped: {_causes(group.rollouts)}")
        return collected.groups

    async def _evaluate(self, step: int) -> dict[str, float]:
        self.progress.phase("evaluate")
        results = await self.held_out.evaluate(step)
        if results is None:
            return {}
        self._count(rollout for rollout in results.rollouts if rollout.environment not in self.settings)
        for line in unscored_lines(results.failures):
            self._say(f"evaluation: {line}")
        for warning in self.regressions.observe(results.to_dict()["environments"]):
            self._say(warning)
        return {f"eval/{metric}": value for metric, value in results.metrics().items()}

    def _keep(self, rollout: Rollout) -> None:
        self.unsaved.append(rollout)

    def _count(self, rollouts: Iterable[Rollout]) -> None:
        for rollout in rollouts:
            self.failures.setdefault(rollout.environment, Unscored()).count(rollout)

    def _record(self, step: int, metrics: Mapping[str, float]) -> None:
        if not metrics:
            return
        append(self.folder.metrics, {"step": step, **metrics})
        if self.tracker:
            self.tracker.log(step, metrics)

    def _say(self, text: str) -> None:
        """Tell a person, and the log."""
        self.progress.message(text)
        self._log(text)

    def _log(self, text: str) -> None:
        with self.folder.log.open("a", encoding="utf-8") as stream:
            stream.write(f"{datetime.now().isoformat(timespec='seconds')} step {self.done}: {text}\n")

    def _save(self) -> None:
        self.progress.phase("checkpoint")
        state = {
            "step": self.done,
            "policy_version": self.policy.version,
            "mixture": self.saved_mixture,
            "scales": {name: scale.state_dict() for name, scale in self.scales.items()},
            "regressions": self.regressions.state_dict(),
            "failures": {name: asdict(found) for name, found in self.failures.items()},
        }
        checkpoints.save_checkpoint(
            self.folder.checkpoint(self.done),
            model=self.policy.model,
            tokenizer=self.tokenizer,
            optimizer=self.learner.optimizer,
            state=state,
        )
        self.folder.prune(self.config.keep_checkpoints)

    def _load(self, saved: Path) -> None:
        state = checkpoints.load_state(saved)
        checkpoints.load_optimizer(saved, self.learner.optimizer)
        self.policy.version = state["policy_version"]
        if change := self.mixture.load_state_dict(state["mixture"]):
            self._say(change)
        for name, scale in self.scales.items():
            if name in state["scales"]:
                scale.load_state_dict(state["scales"][name])
        self.regressions.load_state_dict(state["regressions"])
        asked = self.held_out.environment.leaves()
        self.failures = {name: Unscored(**found) for name, found in state["failures"].items() if name in asked}

    def _rescue(self) -> None:
        """Keep what a broken or interrupted step had collected, and the state after the last whole step."""
        if self.unrecorded:
            self._record(self.done, self.unrecorded)
        if self.unsaved:
            self.store.append(self.done + 1, as_assigned(self.unsaved))
        if self.whole and self.done and self.done not in self.folder.checkpoint_steps():
            self._save()
        if steps := self.folder.checkpoint_steps():
            self.progress.message(f"step {steps[-1]} is kept; to go on from there: the same command with --resume")


def _causes(rollouts: list[Rollout]) -> str:
    counts: Counter[str] = Counter(
        f"{rollout.environment}: {rollout.cause.message}" for rollout in rollouts if rollout.cause
    )
    return "; ".join(f"{cause} ({count} times)" for cause, count in counts.most_common(3)) or "no cause was recorded"
