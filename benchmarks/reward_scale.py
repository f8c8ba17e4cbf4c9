"""What the reward scale of an environment does to the others: one environment's rewards times 100 and times 0.001.

    python benchmarks/reward_scale.py [--folder runs/reward_scale]

With `reward_normalization = "env"` the three curves are the same to floating point. With `"none"` the environment whose
rewards are large takes the gradient, and the others lose a part of their held-out gain. Writes `docs/reward_scale.png`.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from training_runs import FinishedRun, change_table, smoothed, train

from polygym import Rubric, SingleTurnEnv, load_environment

CONFIG = "multi_env"
DOCS = Path(__file__).parent.parent / "docs"
SCALED = "math"
FACTORS = (1.0, 100.0, 0.001)


def scaled_math(factor: float, **arguments: Any) -> SingleTurnEnv:
    """The math recipe with every reward multiplied by `factor`."""
    plain = load_environment("math_rl", **arguments)
    rows = {
        split: [
            {"id": task.id, "prompt": [message.to_dict() for message in task.prompt], "answer": task.answer}
            for task in plain.tasks(split)
        ]
        for split in ("train", "held_out")
    }
    return SingleTurnEnv(
        rows["train"],
        eval_dataset=rows["held_out"],
        system_prompt=plain.system_prompt,
        rubric=Rubric(plain.rubric.funcs, [factor] * len(plain.rubric.funcs)),
    )


def variants() -> dict[str, list[str]]:
    """The runs by label, as overrides of the shipped config."""
    return {
        f"{mode} times {factor:g}": [
            f"reward_normalization={mode}",
            f"env.{SCALED}.id=reward_scale:scaled_math",
            f"env.{SCALED}.args.factor={factor}",
        ]
        for mode in ("env", "none")
        for factor in FACTORS
    }


def draw(runs: dict[str, FinishedRun], path: Path) -> None:
    """A row a mode, a panel an environment: rewards over the factor, by step."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(next(iter(runs.values())).comparison["environments"])
    figure, panels = pyplot.subplots(
        2, len(names), figsize=(4 * len(names), 5.6), sharex=True, sharey="col", constrained_layout=True
    )
    for row, mode in enumerate(("env", "none")):
        for name, panel in zip(names, panels[row], strict=True):
            for place, factor in enumerate(FACTORS):
                steps = [step for step in runs[f"{mode} times {factor:g}"].steps if f"{name}/mean_reward" in step]
                unit = factor if name == SCALED else 1.0
                rewards = smoothed([step[f"{name}/mean_reward"] / unit for step in steps])
                panel.plot([step["step"] for step in steps], rewards, color=f"C{place}", label=f"x {factor:g}")
            panel.set(title=f"{name}, normalization {mode}", xlabel="step", ylabel="mean reward")
            panel.grid(alpha=0.3)
    panels[0][0].legend(title=f"{SCALED} rewards", fontsize=8)
    figure.savefig(path, dpi=110)


def in_own_unit(run: FinishedRun, factor: float) -> FinishedRun:
    """The run with the scaled environment's rewards divided by their factor again."""
    environments = dict(run.comparison["environments"])
    found = environments[SCALED]
    numbers = {key: found[key] / factor for key in ("before", "after", "difference")}
    environments[SCALED] = found | numbers | {"interval": [bound / factor for bound in found["interval"]]}
    return replace(run, comparison=run.comparison | {"environments": environments})


def largest_difference(runs: dict[str, FinishedRun]) -> float:
    """Largest difference, over steps and environments, between the curves of `"env"` at different factors."""
    curves = []
    for factor in FACTORS:
        steps = runs[f"env times {factor:g}"].steps
        curves.append(
            [
                value / (factor if key == f"{SCALED}/mean_reward" else 1.0)
                for step in steps
                for key, value in sorted(step.items())
                if key.count("/") == 1 and key.endswith("/mean_reward") and key.split("/")[0] not in ("all", "combined")
            ]
        )
    return max(abs(one - other) for curve in curves[1:] for one, other in zip(curves[0], curve, strict=True))


def main(argv: list[str] | None = None) -> None:
    """Run what is missing, then print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/reward_scale"))
    parser.add_argument("--docs", type=Path, default=DOCS)
    parser.add_argument(
        "--set", action="append", default=[], help="further overrides of every run, such as max_steps=2"
    )
    arguments = parser.parse_args(argv)
    runs = {
        label: train(label, CONFIG, [*settings, *arguments.set], arguments.folder)
        for label, settings in variants().items()
    }
    arguments.docs.mkdir(parents=True, exist_ok=True)
    draw(runs, arguments.docs / "reward_scale.png")
    factors = [factor for _ in ("env", "none") for factor in FACTORS]
    print(change_table([in_own_unit(run, factor) for run, factor in zip(runs.values(), factors, strict=True)]))
    print(f'\nlargest difference of the training curves with "env": {largest_difference(runs):.2g}')


if __name__ == "__main__":
    main()
