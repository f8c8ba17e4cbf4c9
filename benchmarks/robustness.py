"""Does the demo hang on one lucky setting? Three seeds, and half and twice the learning rate, five whole runs.

    python benchmarks/robustness.py [--folder runs/robustness] [--steps N]

Prints a table of held-out rewards and writes `docs/curves.json` and the picture `docs/curves.png`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from training_runs import FinishedRun, change_table, smoothed, train

from polygym.train.config import load_config

CONFIG = "multi_env"
DOCS = Path(__file__).parent.parent / "docs"


def variants(learning_rate: float) -> dict[str, list[str]]:
    """The runs by label, as overrides of the shipped config."""
    runs = {f"seed {seed}": [f"seed={seed}"] for seed in (0, 1, 2)}
    runs["half the rate"] = ["seed=0", f"learning_rate={learning_rate / 2:g}"]
    runs["twice the rate"] = ["seed=0", f"learning_rate={learning_rate * 2:g}"]
    return runs


def draw(runs: list[FinishedRun], path: Path) -> None:
    """One panel an environment: reward of the training rollouts by step, and held-out reward before and after."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(runs[0].comparison["environments"])
    figure, panels = pyplot.subplots(1, len(names), figsize=(4 * len(names), 3.4), constrained_layout=True)
    for name, panel in zip(names, panels, strict=True):
        for place, run in enumerate(runs):
            rows = [row for row in run.steps if f"{name}/mean_reward" in row]
            steps = [row["step"] for row in rows]
            colour = f"C{place}"
            panel.plot(
                steps,
                smoothed([row[f"{name}/mean_reward"] for row in rows]),
                color=colour,
                linewidth=1.2,
                label=run.label,
            )
            found = run.comparison["environments"][name]
            panel.plot(
                [0, steps[-1]], [found["before"], found["after"]], "o", color=colour, markersize=4, clip_on=False
            )
        panel.set(title=name, xlabel="step", ylabel="mean reward")
        panel.grid(alpha=0.3)
    panels[0].legend(fontsize=8)
    figure.suptitle("lines: training rollouts, mean of 10 steps; dots: held-out tasks before and after", fontsize=9)
    figure.savefig(path, dpi=110)


def main(argv: list[str] | None = None) -> None:
    """Run what is missing, then print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/robustness"))
    parser.add_argument("--docs", type=Path, default=DOCS)
    parser.add_argument(
        "--set", action="append", default=[], help="further overrides of every run, such as max_steps=2"
    )
    arguments = parser.parse_args(argv)
    rate = load_config(CONFIG).learning_rate
    runs = [
        train(label, CONFIG, [*settings, *arguments.set], arguments.folder)
        for label, settings in variants(rate).items()
    ]
    arguments.docs.mkdir(parents=True, exist_ok=True)
    curves = {
        run.label: {
            "seconds": run.seconds,
            "comparison": run.comparison,
            "mean_reward": {
                name: [round(row[f"{name}/mean_reward"], 4) for row in run.steps if f"{name}/mean_reward" in row]
                for name in run.comparison["environments"]
            },
        }
        for run in runs
    }
    (arguments.docs / "curves.json").write_text(json.dumps(curves) + "\n", encoding="utf-8")
    draw(runs, arguments.docs / "curves.png")
    print(change_table(runs))


if __name__ == "__main__":
    main()
