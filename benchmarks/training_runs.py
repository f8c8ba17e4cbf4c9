"""Real training runs for the experiments here: each is the command line's own `polygym rl run`, and is kept and reused.

The one idea: an experiment is a list of named override lists; a run that is finished in its folder is not run again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class FinishedRun:
    """One run: its label, the end summary, and its lines of `metrics.jsonl`."""

    label: str
    seconds: float
    comparison: Row
    steps: list[Row]


def train(label: str, config: str, settings: list[str], folder: Path) -> FinishedRun:
    """Run `polygym rl run CONFIG --set ...` into a folder of its own in `folder`, or read the run that is there."""
    output = folder / label.replace(" ", "_")
    summary_file = output / "summary.json"
    if not summary_file.exists():
        overrides = [part for setting in [*settings, f"output={output}"] for part in ("--set", setting)]
        here = Path(__file__).parent
        command = [sys.executable, "-m", "polygym", "rl", "run", config, "--json", *overrides]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])}
        print(f"{label}: polygym rl run {config} {' '.join(overrides)}", file=sys.stderr, flush=True)
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        summary_file.write_text(done.stdout, encoding="utf-8")
    summary = json.loads(summary_file.read_text(encoding="utf-8"))
    lines = (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return FinishedRun(label, summary["seconds"], summary["comparison"], [json.loads(line) for line in lines])


def smoothed(values: list[float], width: int = 10) -> list[float]:
    """Means over the last `width` values at each place."""
    return [sum(values[max(0, end - width) : end]) / min(width, end) for end in range(1, len(values) + 1)]


def change_table(runs: list[FinishedRun]) -> str:
    """A Markdown table, a row a run: each environment's held-out reward before, after, and the paired difference."""
    names = list(runs[0].comparison["environments"])
    lines = [f"| run | {' | '.join(names)} | seconds |", "|---" * (len(names) + 2) + "|"]
    for run in runs:
        cells = []
        for name in names:
            found = run.comparison["environments"][name]
            low, high = found["interval"]
            cells.append(
                f"{found['before']:.3f} → {found['after']:.3f} ({found['difference']:+.3f} [{low:+.3f}, {high:+.3f}])"
            )
        lines.append(f"| {run.label} | {' | '.join(cells)} | {run.seconds:.0f} |")
    return "\n".join(lines)
