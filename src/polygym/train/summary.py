"""How a run ended: every environment's held-out reward before and after, on the same tasks.

The one idea: what counts is the paired difference on the same tasks, with its interval, environment by environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from polygym.collect.compare import Comparison
from polygym.collect.results import Results
from polygym.collect.unscored import Unscored, unscored_lines


@dataclass(frozen=True, slots=True)
class Summary:
    """The end of a run.

    `steps` were trained in `seconds`. `comparison` is the held-out reward before and after a GRPO run, with `notes` on
    what of it cannot be compared, `results` that at the end of a supervised run; each is None where nothing was
    evaluated. `failures` counts the unscored rollouts of a GRPO run by environment: those that it trained on, and in
    evaluations those of the others.
    """

    run_folder: str
    steps: int
    seconds: float
    comparison: Comparison | None = None
    notes: tuple[str, ...] = ()
    results: Results | None = None
    failures: Mapping[str, Unscored] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain data."""
        return {
            "run_folder": self.run_folder,
            "steps": self.steps,
            "seconds": round(self.seconds, 1),
            "comparison": self.comparison.to_dict() if self.comparison else None,
            "notes": list(self.notes),
            "results": self.results.to_dict() if self.results else None,
            "failures": {name: asdict(found) for name, found in self.failures.items()},
        }

    def __str__(self) -> str:
        minutes, seconds = divmod(round(self.seconds), 60)
        end = f"{self.steps} steps in {minutes} min {seconds:02d} s; run folder: {self.run_folder}"
        notes, failed = "\n".join(self.notes) or None, "\n".join(unscored_lines(self.failures)) or None
        parts = (self.comparison, notes, self.results, failed, end)
        return "\n\n".join(str(part) for part in parts if part is not None)
