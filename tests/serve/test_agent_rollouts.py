"""What a row, its environment and its model bring about in an agent: the rollout is the one in process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from polygym.environments import Environment, OraclePolicy, SingleTurnEnv, load_environment, play
from polygym.environments.wire_rows import row_of
from polygym.errors import UsageError
from polygym.policies.base import Sampling
from polygym.rewards.rubric import Rubric
from polygym.rollout import Rollout
from polygym.serve.agent import AgentServer
from polygym.serve.environment_server import EnvironmentServer
from polygym.serve.model import ModelServer
from polygym.serve.oracle import RowOracle
from serve.agent_processes import Answer, get_text, post
from serve.serving import served

SECRET = "s3cret-of-the-stack"


@contextmanager
def stack(environment: Environment, model: Any, **settings: Any) -> Iterator[str]:
    """The address of an agent between an environment and a model."""
    token = settings.get("token")
    with (
        served(EnvironmentServer(environment, token=token).app()) as resources_url,
        served(model) as model_url,
        served(
            AgentServer("agent", resources_url, model_url, environment=environment.name, **settings).app()
        ) as agent_url,
    ):
        yield agent_url


def run(url: str, rows: list[dict[str, Any]]) -> list[Answer]:
    """Let an agent play rows at the same time."""

    async def all_rows() -> list[Answer]:
        return await asyncio.gather(*[post(f"{url}/run", row) for row in rows])

    return asyncio.run(all_rows())


@pytest.mark.parametrize(
    "name", ["example_single_tool_call", "example_multi_step", "example_session_state", "word_game", "tool_use"]
)
def test_a_rollout_behind_two_servers_is_the_rollout_in_process(name: str) -> None:
    environment = load_environment(name, num_examples=4, num_eval_examples=4)
    tasks = list(environment.tasks("held_out"))[:4]
    oracle = RowOracle({name: (name, {"num_examples": 4, "num_eval_examples": 4})})

    async def in_process() -> list[Rollout]:
        policy = OraclePolicy(environment)
        return [await play(environment, task, policy, sampling=Sampling(), seed=5) for task in tasks]

    with stack(environment, ModelServer(oracle, name="policy_model").app()) as url:
        answers = run(url, [{**row_of(environment, task), "_ng_seed": 5} for task in tasks])
    for here, there in zip(asyncio.run(in_process()), answers, strict=True):
        row = here.to_row()
        own = ("seconds", "group_id", "usage")
        assert {key: there.body[key] for key in row if key not in own} == {
            key: json.loads(json.dumps(value)) for key, value in row.items() if key not in own
        }


def test_the_index_of_a_rollout_and_its_seed_come_from_the_row() -> None:
    environment = load_environment("example_session_state", num_examples=2, num_eval_examples=2)
    row = row_of(environment, environment.tasks("held_out")[0])
    with stack(environment, ModelServer(RowOracle(), name="policy_model").app()) as url:
        named, first, again, second = run(
            url,
            [
                {**row, "_ng_seed": 9, "_ng_rollout_index": 3},
                {**row, "_ng_rollout_index": 0},
                row,
                {**row, "_ng_rollout_index": 1},
            ],
        )
    assert (named.body["seed"], named.body["rollout_index"]) == (9, 3)
    assert first.body["seed"] == again.body["seed"] != second.body["seed"]
    assert named.body["group_id"] == first.body["group_id"]


def test_how_to_sample_is_the_rows_and_goes_to_the_model_as_it_stands() -> None:
    asked: list[dict[str, Any]] = []
    environment = _quiz(lambda completion: 1.0)
    row = row_of(environment, environment.tasks()[0])
    own = {"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 7, "user": "me", "metadata": {"k": "v"}}
    row["responses_create_params"].update(own, stream=True)
    with stack(environment, _says_one(asked)) as url:
        [answer] = run(url, [row])
    assert answer.body["reward"] == 1.0
    assert {key: value for key, value in asked[0].items() if key != "input"} == own


def test_a_token_of_the_stack_is_wanted_and_sent_on() -> None:
    environment = load_environment("example_session_state", num_examples=1, num_eval_examples=1)
    row = row_of(environment, environment.tasks("held_out")[0])
    model = ModelServer(RowOracle(), name="policy_model", token=SECRET).app()
    with stack(environment, model, token=SECRET) as url:
        refused, let_in = asyncio.run(_with_and_without(url, row))
    assert refused.status == 401
    assert let_in.body["reward"] == 1.0
    assert SECRET not in json.dumps(let_in.body)


def test_a_reward_that_is_no_number_is_told_as_what_it_is() -> None:
    environment = _quiz(lambda completion: "much")  # type: ignore[arg-type, return-value]
    with stack(environment, _says_one()) as url:
        [answer] = run(url, [row_of(environment, environment.tasks()[0])])
    assert (answer.status, answer.body["reward"], answer.body["scored"], answer.body["retry"]) == (
        200,
        None,
        False,
        False,
    )
    assert answer.body["cause"]["class"] == "bad_reward"
    assert "'much'" in answer.body["cause"]["message"]


def test_a_reward_function_that_raises_leaves_the_rollout_unscored_and_is_not_tried_again() -> None:
    def broken(completion: str) -> float:
        raise ZeroDivisionError("no tasks yet")

    environment = _quiz(broken)
    with stack(environment, _says_one()) as url:
        [answer] = run(url, [row_of(environment, environment.tasks()[0])])
    assert (answer.body["reward"], answer.body["stop_reason"], answer.body["retry"]) == (None, "answered", False)
    assert answer.body["cause"]["class"] == "reward"
    assert "no tasks yet" in answer.body["cause"]["message"]


def test_a_model_that_is_gone_is_an_error_of_the_loop_alone() -> None:
    environment = _quiz(lambda completion: 1.0)
    params = row_of(environment, environment.tasks()[0])["responses_create_params"]
    with stack(environment, Starlette(), timeout_seconds=2) as url:
        answer = asyncio.run(post(f"{url}/v1/responses", params))
    assert answer.status == 502
    assert answer.body["error"]["class"] == "refused"


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"max_steps": 0}, "max_steps=0"),
        ({"max_total_tokens": True}, "max_total_tokens=True"),
        ({"timeout_seconds": 0}, "timeout_seconds=0"),
        ({"resources_url": "nowhere"}, "nowhere"),
    ],
)
def test_a_limit_or_an_address_that_cannot_be_used_is_refused(settings: dict[str, Any], words: str) -> None:
    arguments = {"resources_url": "http://127.0.0.1:1", "model_url": "http://127.0.0.1:2", **settings}
    with pytest.raises(UsageError, match=words):
        AgentServer("agent", **arguments)


def test_how_rollouts_ended_is_counted() -> None:
    environment = _quiz(lambda completion: 1.0)
    row = row_of(environment, environment.tasks()[0])
    with stack(environment, _says_one()) as url:
        run(url, [row, row])
        assert 'polygym_rollouts_total{outcome="scored"} 2.0' in asyncio.run(get_text(f"{url}/metrics"))


def _quiz(reward: Any) -> Environment:
    def judged(completion: str) -> float:
        value: float = reward(completion)
        return value

    return SingleTurnEnv(
        [{"question": "0 + 1?", "answer": "1"}, {"question": "1?", "answer": "1"}], rubric=Rubric([judged]), name="quiz"
    )


def _says_one(asked: list[dict[str, Any]] | None = None) -> Starlette:
    """A model that says "1"; the bodies that it is sent go to `asked`."""

    async def responses(request: HttpRequest) -> Response:
        if asked is not None:
            asked.append(await request.json())
        text = {"type": "output_text", "text": "1", "annotations": []}
        message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
        return JSONResponse({"id": "r", "object": "response", "output": [message]})

    return Starlette(routes=[Route("/v1/responses", responses, methods=["POST"])])


async def _with_and_without(url: str, row: dict[str, Any]) -> tuple[Answer, Answer]:
    return await post(f"{url}/run", row), await post(f"{url}/run", row, token=SECRET)
