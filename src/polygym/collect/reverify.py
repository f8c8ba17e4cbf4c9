"""Scoring stored rollouts again, without the model: after a change of the rewards, say.

The one idea: an episode is played again with a policy that says what was said then, so it makes no difference whether
the rewards need the last answer, a state that the tools left, or a server's `/verify`. Where the environment now says
something else than it did, the old answers belong to other questions: such a rollout is unscored, as `diverged`.

What was not played to its end then (`stop_reason` is `error`) stays as it is. Of all others the reward, the rewards,
the metrics and the cause are new, and nothing else is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from polygym.collect.collector import check_timeout
from polygym.collect.evaluate import DEFAULT_TIMEOUT_SECONDS
from polygym.collect.progress import Progress
from polygym.collect.results import Results
from polygym.collect.rewrite import metrics_beside, shares_of, write_whole
from polygym.collect.rollout_rows import RolloutRows, own_keys
from polygym.collect.store import EvaluationFiles
from polygym.environments.base import SPLITS, Environment
from polygym.environments.episode import play
from polygym.environments.remote import RemoteEnvironment, remote_task
from polygym.environments.remote_session import GRADING_KINDS
from polygym.environments.wire_rows import ROLLOUT_INDEX, TASK_INDEX, task_of
from polygym.errors import PolicyError, UsageError, nearest
from polygym.messages import Message
from polygym.policies.base import Policy, Request, Sampling
from polygym.rollout import Cause, Rollout, Task, TaskId, Turn
from polygym.rows import Row

DIVERGED = "diverged"
GONE = "no_task"
"""The cause of a rollout whose task the environment does not have any more."""
AT_ONCE = 128
_FROM_OUTSIDE = frozenset({"context", "time_budget", "token_budget", "truncated"})
"""Stop reasons that the environment knows nothing of: it would have gone on."""


@dataclass(slots=True)
class Reverified:
    """New results, and what became of the old ones."""

    results: Results
    changed_E: dict[str, int] = field(default_factory=dict)
    """Rollouts whose reward is another one, by environment."""
    kept_E: dict[str, int] = field(default_factory=dict)
    """Rollouts that stay as they were, because they had not been played to their end."""

    def lines(self) -> list[str]:
        """What a person is told of each environment."""
        return [
            f"{name}: {self.changed_E.get(name, 0)} of {found.rollouts} rewards changed"
            + (f", {kept} rollouts that had failed left as they are" if (kept := self.kept_E.get(name)) else "")
            for name, found in self.results.environments.items()
        ]


def reverify(
    path: str | Path,
    environments: Mapping[str, Environment],
    output: str | Path,
    *,
    timeout: float | None = DEFAULT_TIMEOUT_SECONDS,
    overwrite: bool = False,
    progress: Progress | None = None,
    seed: int = 0,
) -> Reverified:
    """Score the rollouts of a file again, into OUT.jsonl, OUT_failures.jsonl and OUT_metrics.json.

    Args:
        path: OUT.jsonl of an evaluation.
        environments: by the name that the rollouts give; one in process, or a `RemoteEnvironment`, which needs rollouts
            that were collected from rows.
        output: OUT of the new ones.
        timeout: seconds of one rollout's replay.
        overwrite: whether an earlier evaluation of that name is replaced.
        progress: who is told how it goes.
        seed: of the bootstrap.

    Raises:
        UsageError: for a file or an output that cannot be used, and for an environment that is not given.
        BadRewardError: at the first reward that is no number; nothing is written.
    """
    files, told = EvaluationFiles(output, overwrite=overwrite), metrics_beside(path)
    check_timeout(timeout)
    progress = progress or Progress()
    with RolloutRows(path) as stored, asyncio.Runner() as runner:
        if Path(path).resolve() == files.rollouts.resolve():
            raise UsageError(f"output {str(path)!r} is the file that is scored again; give another one (-o)")
        for name in stored.counts_E:
            if name not in environments:
                raise UsageError(
                    f"{path} has rollouts of environment {name!r}, which is not given; {nearest(name, environments)}"
                )
        counts_E = stored.counts_E
        scorers = {name: _Scorer(environments[name], name, timeout) for name in counts_E}
        found = Reverified(Results("", {}, {}, {}))

        async def score(rows: list[Row]) -> list[Rollout | None]:
            return await asyncio.gather(*(scorers[row["environment"]].score(row) for row in rows))

        def scored_again() -> Iterator[Row]:
            rows = stored.rows()
            while chunk := list(islice(rows, AT_ONCE)):
                for row, rollout in zip(chunk, runner.run(score(chunk)), strict=True):
                    name = row["environment"]
                    if rollout is None:
                        found.kept_E[name] = found.kept_E.get(name, 0) + 1
                        yield row
                        continue
                    progress.rollout(rollout)
                    found.changed_E[name] = found.changed_E.get(name, 0) + (rollout.reward != row["reward"])
                    yield _with_score(row, rollout)

        progress.start(counts_E)
        try:
            builders = write_whole(files, scored_again(), counts_E)
        finally:
            progress.finish()
            for scorer in scorers.values():
                runner.run(scorer.close())
        found.results = Results.of_builders(
            builders,
            model=str(told.get("model", "unknown")),
            settings={"reverified": str(path), "settings": told.get("settings", {})},
            shares=shares_of([told], counts_E),
            complete=bool(told.get("complete", True)),
            seed=seed,
        )
    files.write_metrics(found.results.to_dict())
    return found


class StoredPolicy(Policy):
    """Says what was said in a stored rollout, as long as it is asked the same.

    `complete` raises a PolicyError of kind `diverged` where it is not.
    """

    name = "stored"

    def __init__(self, row: Row) -> None:
        self.messages = [Message.from_dict(message) for message in row["messages"]]
        said = [place for place, message in enumerate(self.messages) if message.role == "assistant"]
        self.places = said[-row["turns"] :] if row["turns"] else []
        self.asked = 0
        self._stop_reason = row["stop_reason"]

    async def complete(self, request: Request) -> Turn:
        """The next thing that was said."""
        if self.asked == len(self.places):
            if self._stop_reason not in _FROM_OUTSIDE:
                raise PolicyError("the environment goes on where the episode had ended", DIVERGED)
            return Turn(Message("assistant", ""), "context")
        place = self.places[self.asked]
        if list(request.messages) != self.messages[:place]:
            raise PolicyError("the environment says something else than it did", DIVERGED)
        self.asked += 1
        return Turn(self.messages[place])


class _Scorer:
    """Scores rollouts of one environment."""

    def __init__(self, environment: Environment, name: str, timeout: float | None) -> None:
        self._environment = environment
        self._name = name
        self._timeout = timeout
        self._tasks: dict[TaskId, Task] = {}
        if not isinstance(environment, RemoteEnvironment):
            self._tasks = {task.id: task for split in SPLITS for task in environment.tasks(split)}

    async def score(self, row: Row) -> Rollout | None:
        """The rollout with its new score; None for one that was not played to its end."""
        cause = row.get("cause") or {}
        graded = row["reward"] is not None or cause.get("class") in (*GRADING_KINDS, DIVERGED, GONE)
        if row["stop_reason"] == "error" and not graded:
            return None
        rollout = Rollout(self._name, row["task_id"], row["group_id"], row["rollout_index"], row["seed"])
        try:
            task = self._task(row)
            policy = StoredPolicy(row)
        except (UsageError, TypeError, KeyError) as error:  # also what can be read as no messages
            rollout.cause = Cause(GONE, str(error))
            return rollout
        turns = len(policy.places)
        # One turn more than there was shows whether the environment would go on now, but for the limit it met then.
        more = 0 if row["stop_reason"] in ("max_turns", "error", "") else 1
        try:
            rollout = await play(
                self._environment,
                task,
                policy,
                sampling=Sampling(),
                seed=row["seed"],
                group_id=row["group_id"],
                rollout_index=row["rollout_index"],
                max_turns=turns + more,
                timeout_seconds=self._timeout,
            )
        except UsageError:
            raise
        except Exception as error:  # the wall between environments, as in a collection
            rollout.cause = Cause("internal", f"{type(error).__name__}: {error}")
            return rollout
        if rollout.cause is None and policy.asked < turns:
            rollout.reward, rollout.cause = None, Cause(DIVERGED, "the episode ends earlier than it did")
        return rollout

    async def close(self) -> None:
        """Close connections."""
        if isinstance(self._environment, RemoteEnvironment):
            await self._environment.close()

    def _task(self, row: Row) -> Task:
        """The task of a rollout: in its row where it was collected from rows, else the environment's own.

        Raises:
            UsageError: when there is none.
        """
        if "responses_create_params" in row:
            numbers = {key: row[key] for key in (TASK_INDEX, ROLLOUT_INDEX) if key in row}
            wire = {**own_keys(row), **numbers}
            if isinstance(self._environment, RemoteEnvironment):
                return remote_task(wire, self._name)
            return task_of(wire, self._environment)
        if isinstance(self._environment, RemoteEnvironment):
            raise UsageError("the rollout has no responses_create_params, so no server can be asked; score in process")
        if row["task_id"] not in self._tasks:
            raise UsageError(f"environment {self._name!r} has no task {row['task_id']!r:.80} any more")
        return self._tasks[row["task_id"]]


def _with_score(row: Row, rollout: Rollout) -> Row:
    """The row with the score of `rollout`, also where a server's reply has put parts of it at the top."""
    cause = rollout.cause.to_dict() if rollout.cause else None
    old = row.get("metrics") or {}
    served = "responses_create_params" in row
    new: dict[str, Any] = {name: value for name, value in row.items() if not (served and name in old)}
    new |= {"reward": rollout.reward, "rewards": rollout.rewards, "metrics": rollout.metrics}
    new |= {"scored": rollout.scored, "cause": cause}
    if rollout.scored:
        new.pop("attempts", None)  # how often a rollout was played that had failed
    if served:
        new["mask_sample"] = rollout.reward is None
        new["failure_kind"] = cause["class"] if cause else None
        new["failure_reason"] = cause["message"] if cause else None
        for name, value in rollout.metrics.items():
            new.setdefault(name, value)
    return new
