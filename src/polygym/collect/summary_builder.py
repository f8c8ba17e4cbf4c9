"""Summing up rollouts one by one, without holding them.

The one idea: of a rollout only its numbers are kept (a few dozen bytes: task, reward, tokens, seconds, and which answer
it gave), so a summary of a hundred thousand needs no more room than their rewards; and what it says is the same in
whatever order they come.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import Any

from polygym.collect.majority import LARGEST_K, NO_VOTE, Ballot, mean_majority_at_k, vote_of
from polygym.collect.summary import EnvironmentSummary, passes
from polygym.collect.unscored import Unscored
from polygym.rollout import Cause, Rollout, TaskId
from polygym.statistics import ExactMean, Reward, estimate, finite_number, percentile, powers_of_two, spread

LATENCY_PERCENT = 99
LARGEST_COUNT = 2**62


class SummaryBuilder:
    """Takes the rollouts of one environment, each once, and sums them up at any time.

    >>> builder = SummaryBuilder("math")
    >>> builder.add(Rollout("math", 7, "g", 0, seed=0, reward=1.0))
    >>> builder.summary().mean_reward
    1.0
    """

    def __init__(self, environment: str) -> None:
        self.environment = environment
        self._numbers: dict[TaskId, int] = {}  # of each task, in the order of first sight
        # A number a rollout; NaN where there is none.
        self._tasks, self._indices = array("q"), array("q")
        self._rewards, self._seconds = array("d"), array("d")
        self._read, self._written = array("q"), array("q")
        self._votes = array("q")
        self._truncated = self._turns = 0
        self._failures = Unscored()
        self._functions: dict[str, ExactMean] = {}
        self._metrics: dict[str, ExactMean] = {}

    def __len__(self) -> int:
        """Rollouts taken in."""
        return len(self._rewards)

    def add(self, rollout: Rollout, extracted_answer: object = None) -> None:
        """Take in a rollout that has ended; `extracted_answer` is the answer in it, where a server has told one."""
        usage = rollout.usage
        completion = "\n".join([turn.message.content for turn in rollout.turns])
        self._take(
            rollout.task_id,
            rollout.rollout_index,
            rollout.reward if rollout.scored else None,
            rewards=rollout.rewards,
            metrics=rollout.metrics,
            cause=rollout.cause,
            vote=vote_of(completion, rollout.answer, extracted_answer) if rollout.scored else NO_VOTE,
            turns=len(rollout.turns),
            truncated=rollout.truncated,
            tokens=(usage.prompt_tokens, usage.completion_tokens),
            seconds=rollout.seconds.get("total"),
        )

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Take in a rollout as a line of OUT.jsonl has it (`Rollout.to_row`, docs/run_folder.md)."""
        reward, cause, usage = finite_number(row["reward"]), row.get("cause"), row.get("usage") or {}
        self._take(
            row["task_id"],
            row["rollout_index"],
            reward,
            rewards=row.get("rewards") or {},
            metrics=row.get("metrics") or {},
            cause=Cause(str(cause.get("class")), str(cause.get("message"))) if cause else None,
            vote=NO_VOTE
            if reward is None
            else vote_of(_completion(row), row.get("answer"), row.get("extracted_answer")),
            turns=row["turns"],
            truncated=bool(row.get("truncated")),
            tokens=(usage.get("prompt_tokens"), usage.get("completion_tokens")),
            seconds=(row.get("seconds") or {}).get("total"),
        )

    def _take(
        self,
        task_id: TaskId,
        index: int,
        reward: Reward,
        *,
        rewards: Mapping[str, object],
        metrics: Mapping[str, object],
        cause: Cause | None,
        vote: int,
        turns: int,
        truncated: bool,
        tokens: tuple[object, object],
        seconds: object,
    ) -> None:
        self._tasks.append(self._numbers.setdefault(task_id, len(self._numbers)))
        self._indices.append(index)
        self._rewards.append(math.nan if reward is None else reward)
        self._votes.append(vote)
        self._read.append(_count(tokens[0]))
        self._written.append(_count(tokens[1]))
        took = finite_number(seconds)
        self._seconds.append(math.nan if took is None else took)
        self._turns += turns
        self._truncated += truncated
        self._failures.take(reward is not None, cause)
        if reward is not None:
            _add_named(self._functions, rewards)
            _add_named(self._metrics, metrics)

    def summary(self, *, seed: int = 0) -> EnvironmentSummary:
        """What the rollouts so far come to; `seed` is that of the bootstrap. Tasks are in the order of their ids."""
        tasks, ballots = self._by_task()
        of_mean = estimate(tasks, seed=seed)
        rollouts, failures = len(self), self._failures.in_order()
        return EnvironmentSummary(
            n=len(tasks),
            rollouts=rollouts,
            unscored=failures.unscored,
            mean_reward=of_mean.value,
            interval=of_mean.interval,
            pass_at_k=passes(tasks),
            majority_at_k=_majorities(ballots),
            rewards={name: found.value for name, found in self._functions.items()},
            metrics={name: found.value for name, found in self._metrics.items()},
            causes=failures.causes,
            messages=failures.messages,
            truncated_fraction=self._truncated / rollouts if rollouts else None,
            turns_mean=self._turns / rollouts if rollouts else None,
            reward_spread=spread(self._rewards),
            prompt_tokens=spread(self._read),
            completion_tokens=spread(self._written),
            seconds=spread(self._seconds),
            seconds_p99=percentile(self._seconds, LATENCY_PERCENT),
            tasks=tasks,
        )

    def _by_task(self) -> tuple[dict[TaskId, list[Reward]], dict[TaskId, list[Ballot]]]:
        """The rewards of each task in the order of its rollouts, and the ballots of those scored."""
        ordered: dict[TaskId, list[Reward]] = {task: [] for task in sorted(self._numbers, key=by_id)}
        names = list(self._numbers)
        ballots: dict[TaskId, list[Ballot]] = {task: [] for task in ordered}
        one: dict[float, float] = {}  # equal rewards share an object: most are 0 or 1
        for place in sorted(range(len(self)), key=self._indices.__getitem__):
            task, reward = names[self._tasks[place]], self._rewards[place]
            if math.isnan(reward):
                ordered[task].append(None)
                continue
            reward = one.setdefault(reward, reward)
            ordered[task].append(reward)
            ballots[task].append((reward, self._votes[place]))
        return ordered, ballots


def by_id(task_id: TaskId) -> tuple[bool, TaskId]:
    """Sorts ids: numbers by their value, then texts."""
    return isinstance(task_id, str), task_id


def _majorities(ballots: Mapping[TaskId, list[Ballot]]) -> dict[int, float | None]:
    """Mean majority@k for k = 1, 2, 4, ...; empty where no rollout gave an answer."""
    if not any(vote != NO_VOTE for given in ballots.values() for _, vote in given):
        return {}
    largest = min(LARGEST_K, max(map(len, ballots.values())))
    return {k: mean_majority_at_k(ballots, k) for k in powers_of_two(largest)}


def _completion(row: Mapping[str, Any]) -> str:
    """The text of the policy's turns, of which the row has no more than their number."""
    messages = [message for message in row["messages"] if isinstance(message, Mapping)]
    said = [str(message.get("content") or "") for message in messages if message.get("role") == "assistant"]
    return "\n".join(said[-row["turns"] :]) if row["turns"] else ""


def _count(tokens: object) -> int:
    """A number of tokens as servers tell it, held to what an array takes."""
    return max(0, min(tokens, LARGEST_COUNT)) if isinstance(tokens, int) else 0


def _add_named(means: dict[str, ExactMean], named: Mapping[str, object]) -> None:
    for name, value in named.items():
        if name not in means:
            means[name] = ExactMean()
        means[name].add(value)
