"""From the planned groups of a step to the rollouts to be played.

The one idea: a rollout's place in the step and its seed are settled before anything is played, so neither depends on
which rollout ends first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from polygym.collect.collector import Assignment
from polygym.rollout import Rollout
from polygym.seeds import derive_seed
from polygym.train.setup import RouteSettings


def step_assignments(
    planned: Sequence[tuple[str, int]], settings_E: Mapping[str, RouteSettings], *, step: int, seed: int
) -> list[list[Assignment]]:
    """The K assignments of each planned group, whose id is `STEP/PLACE`.

    Args:
        planned: (environment, task number) of each group.
        settings_E: of each environment.
        step: 1, 2, ...
        seed: of the run.
    """
    wanted = []
    for place, (name, index) in enumerate(planned):
        setting = settings_E[name]
        task = setting.environment.tasks("train")[index]
        wanted.append(
            [
                Assignment(
                    environment=setting.environment,
                    task=task,
                    group_id=f"{step}/{place}",
                    rollout_index=number,
                    seed=derive_seed(seed, name, task.id, step, place, number),
                    sampling=setting.sampling,
                    step=step,
                    max_turns=setting.max_turns,
                    timeout_seconds=setting.timeout_seconds,
                )
                for number in range(setting.rollouts_per_example)
            ]
        )
    return wanted


def as_assigned(rollouts: Iterable[Rollout]) -> list[Rollout]:
    """Rollouts of a step in the order of their assignments; one that was played again stands after its first try."""
    return sorted(rollouts, key=lambda rollout: (int(rollout.group_id.rpartition("/")[2]), rollout.rollout_index))
