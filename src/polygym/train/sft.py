"""Supervised training on demonstrations and good rollouts: how `nano` is made, and a warm start for any model.

The one idea: a demonstration is rendered to exactly the ids that the policy would see and write at rollout time, and
only what the policy would write carries loss. Demonstrations are clean and limited in amount; nothing wrong is ever
taught.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from typing import Any

from polygym.collect.evaluate import evaluate_async
from polygym.collect.results import Results
from polygym.environments import Environment
from polygym.errors import UsageError
from polygym.messages import as_messages
from polygym.mixture.cursor import TaskCursor
from polygym.rows import append
from polygym.train.checkpoint import save_model
from polygym.train.evaluation import (
    check_examples,
    examples_by_environment,
    fewer_examples,
    held_out_environment,
)
from polygym.train.optimizer import parameter_groups
from polygym.train.progress import TrainProgress
from polygym.train.run_folder import RunFolder
from polygym.train.samples import TokenSample
from polygym.train.setup import build_environment, resolve_device
from polygym.train.sft_config import SFTConfig, SFTEnvConfig
from polygym.train.sft_rollouts import RolloutStream, rollout_streams
from polygym.train.summary import Summary

ENOUGH = 4  # an environment that has reached its target gets its batch over this, to keep what it knows


def run(config: SFTConfig, *, progress: TrainProgress | None = None) -> Summary:
    """Train on the demonstrations and rollouts that `config` names; the model lies in the run folder's `model/`.

    Ctrl-C ends with the model of the last whole step saved there, then KeyboardInterrupt.

    Raises:
        UsageError: for a config that cannot run, an environment that demonstrates nothing, or no good rollouts.
    """
    return asyncio.run(_run(config, progress or TrainProgress()))


async def _run(config: SFTConfig, progress: TrainProgress) -> Summary:
    with ExitStack() as files:
        trainer = SupervisedTrainer(config, progress, files)
        try:
            return await trainer.train()
        finally:
            await trainer.policy.close()


class Demonstrations:
    """An endless stream of one environment's demonstrations, every training task once an epoch."""

    def __init__(self, name: str, environment: Environment, entry: SFTEnvConfig, seed: int) -> None:
        self.name, self.environment = name, environment
        self.batch_size, self.loss_weight, self.target = entry.batch_size, entry.loss_weight, entry.target
        self.reached = False
        self._tasks = environment.tasks("train")
        self._cursor = TaskCursor(seed, name, len(self._tasks))
        self._rendered: dict[int, TokenSample] = {}

    def draw(self, renderer: Any, max_tokens: int) -> list[TokenSample]:
        """The next samples: a batch, or a part of one once the target is reached."""
        count = max(1, self.batch_size // ENOUGH) if self.reached else self.batch_size
        return [self._render(index, renderer, max_tokens) for index in self._cursor.draw(count)]

    def _render(self, index: int, renderer: Any, max_tokens: int) -> TokenSample:
        if index not in self._rendered:
            task = self._tasks[index]
            demonstration = self.environment.demonstrate(task)
            if not demonstration:
                raise UsageError(f"{self.name} demonstrates nothing for task {task.id!r}; give it a demonstrate(task)")
            if isinstance(demonstration, str):
                demonstration = [{"role": "assistant", "content": demonstration}]
            prompt = self.environment.prompt(task)
            messages = [*prompt, *as_messages(demonstration)]
            ids, mask = renderer.render_training(messages, self.environment.tools, prompt_messages=len(prompt))
            if len(ids) > max_tokens:
                raise UsageError(
                    f"{self.name}: the demonstration of task {task.id!r} has {len(ids)} tokens; "
                    f"raise max_seq_len above {max_tokens}"
                )
            self._rendered[index] = TokenSample(list(ids), [int(flag) for flag in mask], None)
        return self._rendered[index]


class SupervisedTrainer:
    """One supervised run: its policy, its streams of samples, its optimizers. `files` closes what it reads."""

    def __init__(self, config: SFTConfig, progress: TrainProgress, files: ExitStack) -> None:
        import os

        import torch

        from polygym.policies.load import load_model_and_tokenizer
        from polygym.policies.local import LocalPolicy

        torch.set_num_threads(config.threads or os.cpu_count() or 1)
        self.config, self.progress = config, progress
        trained = build_environment(config.env) if config.env else None
        self.environment = _evaluated(trained, config)
        leaves = {} if trained is None else trained.leaves()
        if len(leaves) != len(config.env):
            raise UsageError(f"a group was given as one [[env]]; list its environments instead: {', '.join(leaves)}")
        demonstrations = [
            Demonstrations(name, leaf, entry, config.seed)
            for (name, leaf), entry in zip(leaves.items(), config.env, strict=True)
        ]
        known = {} if self.environment is None else self.environment.leaves()
        self.rollouts = rollout_streams(config, known, files)
        self.streams: list[Demonstrations | RolloutStream] = [*demonstrations, *self.rollouts]
        device = resolve_device(config.device)
        model, self.tokenizer = load_model_and_tokenizer(config.model, device, config.dtype)
        if config.from_scratch:
            model = _untrained(config.model, model, self.tokenizer, config.seed).to(device=device, dtype=model.dtype)
        self.policy = LocalPolicy(
            model, self.tokenizer, name=config.model, device=device, max_context=config.max_seq_len
        )
        self.optimizers = _make_optimizers(model, config)
        self.folder = RunFolder.create(config)

    async def train(self) -> Summary:
        """Train until every target is reached or the steps are done, then save and evaluate."""
        started = time.perf_counter()
        if self.environment is not None and (line := fewer_examples(self.environment, self.config)):
            self.progress.message(line)
        for stream in self.rollouts:
            self.progress.message(stream.choose(self.policy.renderer, self.config.max_seq_len, self.config.seed))
        done = 0
        try:
            while done < self.config.max_steps and not self._finished():
                self.progress.phase("update")
                with self.policy.learning():
                    metrics = self._step(done)
                if done == 0:  # only now: a demonstration that cannot be learned from leaves no folder behind
                    self.folder.make(self.config)
                    self.folder.save_config(self.config)
                done += 1
                interval = self.config.eval.interval
                if interval and done % interval == 0:
                    metrics |= self._judge(await self._evaluate(done), done)
                append(self.folder.metrics, {"step": done, **metrics})
                self.progress.step(done, self.config.max_steps, metrics)
                await asyncio.sleep(0)  # Ctrl-C reaches a coroutine only where it waits
        except asyncio.CancelledError:
            self._save()
            self.progress.message(f"the model so far is in {self.folder.path / 'model'}")
            raise
        self._save()
        results = await self._evaluate(done)
        return Summary(str(self.folder.path), done, time.perf_counter() - started, results=results)

    def _save(self) -> None:
        self.progress.phase("checkpoint")
        save_model(self.folder.path / "model", self.policy.model, self.tokenizer)

    def _step(self, number: int) -> dict[str, float]:
        """One update on the weighted mean over environments of each one's token mean: answers differ in length."""
        import torch

        from polygym.train.forward import micro_batches, pack, plan_rows, trained_logits

        model = self.policy.model
        drawn = {stream.name: stream.draw(self.policy.renderer, self.config.max_seq_len) for stream in self.streams}
        samples = [(name, sample) for name, own in drawn.items() for sample in own]
        tokens_E = {name: sum(sample.trained_tokens for sample in own) for name, own in drawn.items()}
        total = sum(stream.loss_weight for stream in self.streams)
        weight_E = {stream.name: stream.loss_weight / total / tokens_E[stream.name] for stream in self.streams}
        factor = _rate_factor(number, self.config)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor
        sums = dict.fromkeys(drawn, 0.0)
        model.train()
        names, tokens = [name for name, _ in samples], [sample for _, sample in samples]
        for rows in micro_batches(plan_rows(tokens), self.config.micro_batch_tokens):
            packed = pack(tokens, rows, model.device)
            losses_N = torch.nn.functional.cross_entropy(
                trained_logits(model, packed).float(), packed.ids_N, reduction="none"
            )
            (losses_N * packed.spread([weight_E[name] for name in names])).sum().backward()
            for owner, value in zip(packed.owners_N.tolist(), losses_N.tolist(), strict=True):
                sums[names[owner]] += value
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), self.config.max_grad_norm))
        for optimizer in self.optimizers:
            optimizer.step()
        model.eval()
        metrics = {f"{name}/loss": sums[name] / tokens for name, tokens in tokens_E.items()}
        metrics |= {f"{name}/tokens": float(tokens) for name, tokens in tokens_E.items()}
        return metrics | {"grad_norm": norm, "lr": self.config.learning_rate * factor}

    async def _evaluate(self, step: int) -> Results | None:
        if self.environment is None:
            return None
        examples_E = examples_by_environment(self.environment, self.config)
        if not any(examples_E.values()):
            return None
        self.progress.phase("evaluate")
        results = await evaluate_async(
            self.environment,
            self.policy,
            num_examples=examples_E,
            rollouts_per_example=self.config.eval.rollouts_per_example,
            sampling=self.config.sampling.to_sampling(),
            seed=self.config.seed,
            progress=self.progress,
        )
        results.save(self.folder.evals / f"step_{step}.json")
        return results

    def _judge(self, results: Results | None, step: int) -> dict[str, float]:
        """An environment that has reached its target gets a smaller batch from here on."""
        if results is None:
            return {}
        metrics = results.metrics()
        for stream in self.streams:
            mean = metrics.get(f"{stream.name}/mean_reward")
            if stream.target is not None and mean is not None and mean >= stream.target and not stream.reached:
                stream.reached = True
                self.progress.message(f"{stream.name} reached {mean:.3f} at step {step}; its batch is a quarter now")
        return {f"eval/{metric}": value for metric, value in metrics.items()}

    def _finished(self) -> bool:
        return all(stream.reached for stream in self.streams)


def _evaluated(trained: Environment | None, config: SFTConfig) -> Environment | None:
    """What the run evaluates; None where it has rollouts to learn from and no environment."""
    if trained is not None:
        return held_out_environment(trained, config)
    if not config.eval.env:
        return None
    environment = build_environment(config.eval.env)
    check_examples(environment, config)
    return environment


def _untrained(name: str, model: Any, tokenizer: Any, seed: int) -> Any:
    """A model of the same shape with random weights; nano's vectors of words start composed of letters."""
    import torch

    if name == "nano":
        from polygym.policies.nano_blueprint import untrained

        return untrained(model.config, tokenizer, seed)
    torch.manual_seed(seed)
    return type(model)(model.config)


def _make_optimizers(model: Any, config: SFTConfig) -> list[Any]:
    """AdamW with a rate by kind of parameter; with `muon`, Muon for the matrices (Jordan et al. 2024)."""
    import torch

    groups = parameter_groups(model, config.learning_rate_factors, config.weight_decay)
    for group in groups:
        group["peak"] = config.learning_rate * group["factor"]
    if config.optimizer == "adamw":
        return [torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.adam_betas)]
    matrices = [group for group in groups if group["kind"] == "matrix"]
    others = [group for group in groups if group["kind"] != "matrix"]
    for group in matrices:
        group["peak"] = config.matrix_learning_rate
    return [
        torch.optim.Muon(matrices, lr=config.matrix_learning_rate, weight_decay=config.weight_decay),
        torch.optim.AdamW(others, lr=config.learning_rate, betas=config.adam_betas),
    ]


def _rate_factor(step: int, config: SFTConfig) -> float:
    """The rate of step 0, 1, ... as a fraction of its peak: linear warm-up, plateau, linear decay."""
    if step < config.warmup_steps:
        return (step + 1) / (config.warmup_steps + 1)
    start = config.lr_decay_from * config.max_steps
    progress = max(0.0, (step - start) / max(1.0, config.max_steps - 1 - start))
    return 1 - (1 - config.lr_final_fraction) * min(1.0, progress)
