"""What an agent that plays itself hands in counts only where this run's policy sampled it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastapi import FastAPI, Request

from polygym.collect.agent_play import AgentEnvironment
from polygym.collect.collector import Collector, assign_group
from polygym.environments.base import Split
from polygym.environments.remote import remote_task
from polygym.errors import UsageError
from polygym.messages import Message
from polygym.policies.base import Policy, Sampling
from polygym.policies.base import Request as Asked
from polygym.policies.remembering import RememberingPolicy
from polygym.policies.responses_wire import read_turns, response_body
from polygym.rewards.rubric import BadRewardError
from polygym.rollout import Rollout, Task, Turn, Usage
from serve.serving import served

ROW = {"id": 5, "responses_create_params": {"input": "2 + 3?"}, "answer": "5"}
TASKS: dict[Split, list[Task]] = {"train": [remote_task(ROW, "far")], "held_out": []}
SAID = [{"role": "assistant", "content": "5"}]
TURN = Turn(Message("assistant", "5"), "stop", Usage(3, 2), [1, 2, 3], [7, 8], [-0.25, -0.5], policy_version=4)


class Fixed(Policy):
    """Always says the same."""

    name = "fixed"

    async def complete(self, request: Asked) -> Turn:
        return TURN


class Told:
    """An agent that replies with a body, and notes what it was asked."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body, self.asked = body, []
        self.app = FastAPI()
        self.app.add_route("/run", self._run, methods=["POST"])

    async def _run(self, request: Request) -> Any:
        from starlette.responses import JSONResponse

        self.asked.append(await request.json())
        return JSONResponse(self.body)


def rollout_of(body: dict[str, Any], *, ours: bool = True) -> tuple[Rollout, dict[str, Any]]:
    """The rollout that a reply means, and the row that the agent was sent."""
    agent, policy = Told(body), RememberingPolicy(Fixed())

    async def main(url: str) -> Rollout:
        if ours:
            await policy.complete(Asked([], [], Sampling(), 0))
        environment = AgentEnvironment(
            url, agent="mine", name="far", tasks={"train": [remote_task(ROW, "far")], "held_out": []}
        )
        environment.recall = policy.recall
        [task] = environment.tasks()
        sampling = Sampling(max_tokens=9, temperature=0.5, stop=("x",))
        [rollout] = await Collector(Fixed()).collect(assign_group(environment, task, 1, seed=1, sampling=sampling))
        await environment.close()
        return rollout

    with served(agent.app) as url:
        return asyncio.run(main(url)), agent.asked[0]


def reply(*turns: Turn, token_fields: bool = True, **keys: Any) -> dict[str, Any]:
    return {**ROW, "reward": 1.0, "response": response_body(turns, model="m", token_fields=token_fields), **keys}


def test_turns_that_this_policy_sampled_are_the_rollouts_turns() -> None:
    rollout, asked = rollout_of(reply(TURN))
    assert (rollout.reward, rollout.cause, rollout.turns) == (1.0, None, [TURN])
    assert (rollout.environment, rollout.task_id, rollout.policy_version) == ("far", 5, 4)
    assert asked["responses_create_params"] == {
        "input": "2 + 3?", "max_output_tokens": 9, "temperature": 0.5, "top_p": 1.0, "stop": ["x"],
    }  # fmt: skip
    assert (asked["_ng_rollout_index"], asked["_ng_seed"]) == (0, rollout.seed)


@pytest.mark.parametrize(
    ("body", "ours", "message"),
    [
        (
            reply(TURN),
            False,
            "1 of 1 answers were not sampled by this run's policy; the model of agent 'mine' has to",
        ),
        (reply(TURN, token_fields=False), True, "1 of 1 answers came without token ids"),
        (reply(TURN, Turn(Message("assistant", "b"))), True, "1 of 2 answers came without token ids"),
        (
            {**ROW, "reward": 1.0, "turns": 1, "messages": [{"role": "assistant", "content": "5"}]},
            True,
            "1 of 1 answers",
        ),
    ],
)
def test_an_answer_that_is_somebody_elses_leaves_the_rollout_unscored(
    body: dict[str, Any], ours: bool, message: str
) -> None:
    rollout, _ = rollout_of(body, ours=ours)
    assert (rollout.reward, rollout.stop_reason) == (None, "error")
    assert rollout.cause is not None
    assert rollout.cause.kind == "not_our_policy"
    assert message in rollout.cause.message


def test_a_failure_keeps_its_own_cause_and_a_reward_that_is_no_number_stops_all() -> None:
    rollout, _ = rollout_of({**ROW, "reward": None, "failure_kind": "grader", "failure_reason": "broken"})
    assert (rollout.reward, rollout.cause and rollout.cause.kind) == (None, "grader")
    with pytest.raises(BadRewardError, match="text"):
        rollout_of({**ROW, "reward": None, "failure_kind": "bad_reward", "failure_reason": "text"})


def test_an_agent_that_plays_itself_is_refused_where_nobody_has_a_policy_for_it() -> None:
    environment = AgentEnvironment(
        "http://127.0.0.1:9", agent="mine", name="far", tasks={"train": [remote_task(ROW, "far")], "held_out": []}
    )
    work = Collector(Fixed()).collect(assign_group(environment, environment.tasks()[0], 1, seed=1, sampling=Sampling()))
    with pytest.raises(UsageError, match=r"far: agent 'mine' plays itself, in a training run or by"):
        asyncio.run(work)


def test_a_policy_remembers_what_it_said_until_it_is_told_to_forget() -> None:
    policy = RememberingPolicy(Fixed())
    asyncio.run(policy.complete(Asked([], [], Sampling(), 0)))
    assert policy.recall(Turn(Message("assistant"), prompt_token_ids=(1, 2, 3), token_ids=(7, 8))) is TURN
    assert policy.recall(Turn(Message("assistant"), prompt_token_ids=(1, 2), token_ids=(3, 7, 8))) is None
    assert policy.recall(Turn(Message("assistant", "5"))) is None
    policy.forget()
    assert policy.recall(TURN) is None


def test_malformed_token_fields_leave_an_answer_without() -> None:
    output = response_body([TURN], model="m", token_fields=True)["output"]
    output[0]["generation_log_probs"] = [0.5]
    assert read_turns([*output, {"type": "web_search_call"}, 3]) == [Turn(Message("assistant", "5"))]
    assert read_turns(None) == []
