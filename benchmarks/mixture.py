"""Does every environment get its share, always, and is planning cheap? Random mixes against two other ways to draw.

    python benchmarks/mixture.py [--mixes 480] [--steps 1000] [--seed 0] [--json FILE]

Every mix has random weights (even, skewed, or far apart) and a random number of groups a step. The same water-filled
shares go to three planners:

    schedule      polygym's: earliest deadline (Tijdeman 1980)
    remainder     each step gives the whole part of the carried credit, and what is left to the largest remainders
    independent   every group is drawn by itself

and the same is counted for each: how far the cumulative count of an environment strays from its share, how far a
window of any length does, and what part of the steps leaves an environment out although there are
groups for all of them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polygym.mixture import GroupSchedule, Mixture, water_fill

Counts = NDArray[np.int64]
LARGEST_MIX = 50  # environments
TIMED_GROUPS = 128  # groups a step of the timed mix


def random_mix(rng: np.random.Generator) -> tuple[dict[str, float], int]:
    """Shares and groups a step of one mix."""
    environments = int(rng.choice([2, 3, 5, 8, 13, 21, LARGEST_MIX]))
    groups = int(rng.integers(1, 3 * environments + 1))
    even, far = rng.random(environments), 10.0 ** rng.uniform(-6, 0, environments)
    weights = (even, even**4, far)[int(rng.integers(3))]
    return water_fill({f"env{place}": float(weight) for place, weight in enumerate(weights)}, groups), groups


def scheduled(shares_E: dict[str, float], groups: int, steps: int, rng: np.random.Generator) -> Counts:
    """Counts (steps, environments) by earliest deadline."""
    schedule = GroupSchedule(shares_E, groups)
    return np.array([list(schedule.next().values()) for _ in range(steps)])


def largest_remainder(shares_E: dict[str, float], groups: int, steps: int, rng: np.random.Generator) -> Counts:
    """Counts (steps, environments) by largest remainder over carried credit."""
    quota_E = np.array(list(shares_E.values())) * groups
    credit_E = np.zeros(len(quota_E))
    rows = []
    for _ in range(steps):
        credit_E += quota_E
        row_E = np.maximum(0, np.floor(credit_E + 1e-9)).astype(int)
        while (missing := groups - int(row_E.sum())) > 0:
            row_E[np.argsort(-(credit_E - row_E), kind="stable")[:missing]] += 1
        while (excess := int(row_E.sum()) - groups) > 0:
            given = np.where(row_E > 0, credit_E - row_E, np.inf)
            row_E[np.argsort(given, kind="stable")[:excess]] -= 1
        credit_E -= row_E
        rows.append(row_E)
    return np.array(rows)


def independent(shares_E: dict[str, float], groups: int, steps: int, rng: np.random.Generator) -> Counts:
    """Counts (steps, environments) of independent draws."""
    shares = np.array(list(shares_E.values()))
    return rng.multinomial(groups, shares / shares.sum(), size=steps)


PLANNERS: dict[str, Callable[[dict[str, float], int, int, np.random.Generator], Counts]] = {
    "schedule": scheduled,
    "remainder": largest_remainder,
    "independent": independent,
}


def measure(counts: Counts, shares_E: dict[str, float], groups: int) -> dict[str, float]:
    """Worst cumulative and window deviation in groups, and the steps that leave someone out (if groups suffice)."""
    steps, environments = counts.shape
    owed = np.arange(1, steps + 1)[:, None] * (np.array(list(shares_E.values())) * groups)
    ahead = np.vstack([np.zeros(environments), counts.cumsum(axis=0) - owed])
    suffices = groups >= environments
    return {
        "cumulative": float(np.abs(ahead).max()),
        "window": float((ahead.max(axis=0) - ahead.min(axis=0)).max()),
        "steps": steps if suffices else 0,
        "absent_steps": int((counts == 0).any(axis=1).sum()) if suffices else 0,
    }


def compare(mixes: int, steps: int, seed: int) -> dict[str, dict[str, float]]:
    """The worst of all mixes for each planner, and in how many mixes and steps an environment was left out."""
    rng = np.random.default_rng(seed)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in PLANNERS}
    for _ in range(mixes):
        shares_E, groups = random_mix(rng)
        for name, plan in PLANNERS.items():
            found[name].append(measure(plan(shares_E, groups, steps, rng), shares_E, groups))
    return {
        name: {
            "worst_cumulative": max(row["cumulative"] for row in rows),
            "worst_window": max(row["window"] for row in rows),
            "mixes_with_an_absence": sum(row["absent_steps"] > 0 for row in rows),
            "absent_fraction": sum(row["absent_steps"] for row in rows) / max(1, sum(row["steps"] for row in rows)),
        }
        for name, rows in found.items()
    }


def planning_seconds(steps: int, seed: int) -> float:
    """CPU seconds to plan `steps` steps, tasks included, over 50 environments; the least of three tries."""
    weights_E = {f"env{place}": float(w) for place, w in enumerate(np.random.default_rng(seed).random(LARGEST_MIX))}
    tries = []
    for _ in range(3):
        started = time.process_time()
        mixture = Mixture(weights_E, dict.fromkeys(weights_E, 1000), TIMED_GROUPS, seed)
        for _ in range(steps):
            mixture.plan_step()
        tries.append(time.process_time() - started)
    return min(tries)


def run(mixes: int, steps: int, seed: int) -> dict[str, Any]:
    """All figures."""
    example = {"math": 0.55, "tools": 0.30, "word": 0.15}
    rng = np.random.default_rng(seed)
    return {
        "mixes": mixes,
        "steps": steps,
        "planners": compare(mixes, steps, seed),
        "example": {
            "shares": example,
            "groups": 8,
            "absent_fraction": {
                name: measure(plan(example, 8, steps, rng), example, 8)["absent_steps"] / steps
                for name, plan in PLANNERS.items()
            },
        },
        "planning": {
            "environments": LARGEST_MIX,
            "groups": TIMED_GROUPS,
            "cpu_seconds": planning_seconds(steps, seed),
        },
    }


def table(found: dict[str, Any]) -> str:
    """The figures as Markdown."""
    lines = [
        f"{found['mixes']} random mixes of 2 to {LARGEST_MIX} environments, {found['steps']} steps each (in groups):",
        "",
        "| planner | worst cumulative | worst window | steps that leave one out | mixes with such a step |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {row['worst_cumulative']:.3f} | {row['worst_window']:.3f} | {100 * row['absent_fraction']:.2f} % "
        f"| {row['mixes_with_an_absence']} |"
        for name, row in found["planners"].items()
    ]
    absent = ", ".join(f"{name} {100 * value:.1f} %" for name, value in found["example"]["absent_fraction"].items())
    seconds, environments = found["planning"]["cpu_seconds"], found["planning"]["environments"]
    lines += [
        "",
        f"Shares .55/.30/.15 with 8 groups a step, steps that leave one out: {absent}.",
        f"Planning {found['steps']} steps over {environments} environments: {seconds:.2f} CPU-s.",
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print the table, and write the figures where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mixes", type=int, default=480)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args(arguments)
    found = run(given.mixes, given.steps, given.seed)
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(table(found))


if __name__ == "__main__":
    main()
