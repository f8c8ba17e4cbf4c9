"""AgentEnvironment: rows that an agent server plays itself, asking the policy of whoever collects.

The one idea: an agent plays as it likes and hands in a response; what its rollout is worth for learning are the turns
that our policy sampled in it. A rollout in which somebody else answered, or whose token ids did not come back, is
unscored: it is no evidence of our policy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from polygym.collect.agents import Agent, Reply
from polygym.collect.wire_rollout import fill
from polygym.environments.base import Split
from polygym.environments.remote import RemoteEnvironment
from polygym.environments.remote_session import RemoteSession
from polygym.environments.wire_rows import ROLLOUT_INDEX, SEED
from polygym.errors import UsageError
from polygym.policies.base import Sampling
from polygym.policies.responses_wire import read_turns
from polygym.rewards.rubric import BadRewardError
from polygym.rollout import Cause, Rollout, Task, Turn

NOT_OURS = "not_our_policy"
"""Cause of a rollout in which somebody else answered."""


class AgentEnvironment(RemoteEnvironment):
    """What an agent server plays.

    Args:
        url: address of the agent.
        agent: its name.
        name: of the environment, in records and metrics.
        tasks: of each split, whose infos are wire rows.
        token: what the agent wants to be sent.

    `recall` gives the turn that our policy sampled, for a turn with its token ids; it is set by whoever collects, and
    the policy has to be where the agent looks for its model.
    """

    def __init__(
        self, url: str, *, agent: str, name: str, tasks: Mapping[Split, Sequence[Task]], token: str | None = None
    ) -> None:
        super().__init__(url, name=name, tasks=tasks, token=token)
        self.agent = Agent(agent, url, token=token)
        self.recall: Callable[[Turn], Turn | None] | None = None

    def open_session(self, task: Task, *, seed: int) -> RemoteSession:
        """Not to be had: the agent opens its sessions itself."""
        raise UsageError(
            f"{self.name}: agent {self.agent.name!r} plays itself, in a training run or by `polygym eval run --input`; "
            'with play = "here" its rows are played without it'
        )

    async def rollout(
        self,
        task: Task,
        *,
        sampling: Sampling,
        seed: int,
        group_id: str,
        rollout_index: int,
        step: int | None,
        timeout_seconds: float | None,
    ) -> Rollout:
        """One rollout of the task by the agent. The limit of turns is its own.

        Raises:
            BadRewardError: when the environment's reward is no number.
        """
        if self.recall is None:
            self.open_session(task, seed=seed)  # refuses
        rollout = Rollout(task.environment, task.id, group_id, rollout_index, seed, answer=task.answer, step=step)
        row = {**task.info, ROLLOUT_INDEX: rollout_index, SEED: seed}
        row["responses_create_params"] = {**row["responses_create_params"], **_parameters(sampling)}
        started = time.perf_counter()
        try:
            async with asyncio.timeout(timeout_seconds):
                reply = await self.agent.run(row, timeout_seconds)
        except TimeoutError:
            reply = Reply(None, Cause("timeout", f"the rollout took longer than {timeout_seconds:g} s"))
        if reply.body is None:
            rollout.cause, rollout.stop_reason = reply.cause, "error"
        else:
            fill(rollout, row, reply.body)
            self._take_turns(rollout, reply.body)
        rollout.seconds.setdefault("total", time.perf_counter() - started)
        if rollout.cause is not None and rollout.cause.kind == BadRewardError.code:
            raise BadRewardError(rollout.cause.message)
        return rollout

    def _take_turns(self, rollout: Rollout, reply: Mapping[str, object]) -> None:
        """Put the turns that our policy sampled in place of those that were told; all of them, or none is scored."""
        assert self.recall is not None
        response = reply.get("response")
        told = read_turns(response.get("output") if isinstance(response, Mapping) else None)
        turns = [self.recall(turn) for turn in told]
        ours = [turn for turn in turns if turn is not None]
        answers = max(len(turns), len(rollout.turns))
        if rollout.cause is None and len(ours) < answers:
            without = any(turn.token_ids is None for turn in told)
            why = "came without token ids" if without else "were not sampled by this run's policy"
            rollout.reward, rollout.stop_reason = None, "error"
            rollout.cause = Cause(
                NOT_OURS,
                f"{answers - len(ours)} of {answers} answers {why}; the model of agent {self.agent.name!r} has to be "
                "this run's: start its stack with --model-type vllm_model --model-url http://127.0.0.1:PORT/v1, where "
                "PORT is the run's policy_port",
            )
        if len(ours) == len(turns):
            rollout.turns = ours


def _parameters(sampling: Sampling) -> dict[str, object]:
    """How to sample, as parameters of a row's request."""
    own: dict[str, object] = {
        "max_output_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
    }
    return {**own, "stop": list(sampling.stop)} if sampling.stop else own
