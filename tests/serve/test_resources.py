"""Resources servers written directly: typed tools, state, grading, and what is told when they fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from pydantic import BaseModel, Field

from environments.worlds import Script, call
from polygym.environments import RemoteEnvironment, play
from polygym.environments.remote import remote_task
from polygym.errors import UsageError
from polygym.messages import Message, ToolCall
from polygym.policies.base import Sampling
from polygym.rollout import Cause, Rollout, Turn, Usage
from polygym.serve.aggregate import aggregate
from polygym.serve.resources import ResourcesServer, VerifyRequest, tool
from polygym.serve.sessions import Session
from serve.serving import served


class City(BaseModel):
    city: str = Field(min_length=2)


class Weather(BaseModel):
    city: str
    weather: str


class WeatherVerify(VerifyRequest):
    expected_city: str = "Rome"


class WeatherServer(ResourcesServer):
    """Counts its calls a session."""

    async def seed_session(self, body: dict[str, Any], session: Session) -> None:
        if body.get("broken"):
            raise ValueError("no seed")
        session.data["calls"] = 0

    @tool
    async def get_weather(self, body: City, session: Session) -> Weather:
        session.data["calls"] += 1
        return Weather(city=body.city, weather="cold")

    @tool
    async def fail(self, body: dict[str, Any], session: Session) -> str:
        session.data["calls"] += 10
        raise KeyError("lost")

    @tool
    async def cancelled(self, body: dict[str, Any]) -> str:
        raise asyncio.CancelledError("inner")

    @tool
    def much(self, body: dict[str, Any]) -> str:
        return "x" * 10_000_000

    async def verify(self, body: WeatherVerify, session: Session) -> dict[str, Any]:
        outputs = [item["output"] for item in body.response["output"] if item["type"] == "function_call_output"]
        self.last = body.response
        return {"reward": float(any(body.expected_city in text for text in outputs)), "calls": session.data["calls"]}

    async def close_session(self, session: Session) -> None:
        self.closed = session.data


TOOLS = [
    {"type": "function", "name": name, "description": "", "parameters": {"type": "object", "properties": properties}}
    for name, properties in (
        ("get_weather", {"city": {"type": "string"}}),
        ("fail", {}),
        ("cancelled", {}),
        ("much", {}),
        ("verify", {}),
        ("../metrics", {}),
    )
]
ROW = {"id": 3, "responses_create_params": {"input": "How is Oslo?", "tools": TOOLS}, "expected_city": "Oslo"}


def asking(server: ResourcesServer, use: Callable[[aiohttp.ClientSession], Awaitable[Any]]) -> Any:
    """What `use` finds out with a client that keeps cookies."""

    async def main(url: str) -> Any:
        jar = aiohttp.CookieJar(unsafe=True)  # cookies of an address that is a number
        async with aiohttp.ClientSession(url, cookie_jar=jar) as session:
            return await use(session)

    with served(server.app()) as url:
        return asyncio.run(main(url))


def played(server: ResourcesServer, *lines: Any, row: dict[str, Any] = ROW) -> Rollout:
    async def main(url: str) -> Rollout:
        return await play(RemoteEnvironment(url), remote_task(row), Script(*lines), sampling=Sampling(), seed=1)

    with served(server.app()) as url:
        return asyncio.run(main(url))


def test_a_rollout_calls_typed_tools_and_is_verified_with_the_rows_own_keys() -> None:
    server = WeatherServer("weather")
    said = Turn(
        Message("assistant", tool_calls=(ToolCall("get_weather", {"city": "Oslo"}, "c1"),)),
        usage=Usage(7, 3), prompt_token_ids=[1, 2], token_ids=[3, 4, 5], logprobs=[-0.1, -0.2, -0.3],
    )  # fmt: skip
    rollout = played(server, said, "It is cold.")
    assert (rollout.reward, rollout.metrics, rollout.stop_reason) == (1.0, {"calls": 1}, "answered")
    assert rollout.messages[2] == Message("tool", '{"city":"Oslo","weather":"cold"}', tool_call_id="c1")
    assert server.closed == {"calls": 1}
    kinds = [item["type"] for item in server.last["output"]]
    assert kinds == ["function_call", "function_call_output", "message"]
    assert server.last["output"][0]["generation_token_ids"] == [3, 4, 5]
    assert server.last["usage"]["total_tokens"] == 10


def test_what_goes_wrong_in_a_call_is_for_the_policy_to_read_and_the_session_goes_on() -> None:
    server = WeatherServer("weather")
    rollout = played(
        server,
        call("get_weather", "1", city="x"),
        call("fail", "2"),
        call("verify", "3"),
        call("../metrics", "4"),
        call("nothing", "5"),
        Message("assistant", "", (ToolCall("get_weather", {}, "6", "invalid_json", "{"),)),
        call("much", "7"),
        call("cancelled", "8"),
        call("get_weather", "9", city="Oslo"),
        "done",
    )
    results = [message.content for message in rollout.messages if message.role == "tool"]
    assert results[:2] == [
        "Error: get_weather: city: String should have at least 2 characters",
        "Error: fail raised KeyError: 'lost'",
    ]
    for result, name in zip(results[2:5], ("verify", "../metrics", "nothing"), strict=True):
        assert result.startswith(f"Error: unknown tool {name!r}")
    assert results[5] == "Error: this call was not run: invalid_json"
    assert results[6] == "x" * 20_000 + "\n[cut: the first 20000 of 10000000 characters]"
    assert results[7] == "Error: cancelled raised CancelledError: inner"
    assert (rollout.reward, rollout.metrics, rollout.cause) == (1.0, {"calls": 11}, None)


def test_a_seed_that_fails_is_the_environments_failure_and_never_a_reward_of_0() -> None:
    rollout = played(WeatherServer("weather"), "x", row={**ROW, "broken": True})
    assert (rollout.reward, rollout.cause) == (None, Cause("environment", "seed_session raised ValueError: no seed"))


@pytest.mark.parametrize(
    ("returned", "reward", "cause"),
    [
        (0.5, 0.5, None),
        ({"reward": 1, "ok": True}, 1.0, None),
        (None, None, Cause("reward", "verify returned None")),
        (
            {**ROW, "reward": 0, "mask_sample": True, "failure_kind": "judge_failed", "failure_reason": "no judge"},
            None,
            Cause("judge_failed", "no judge"),
        ),
        (float("nan"), None, Cause("reward", "verify returned nan")),
        (ValueError("oh"), None, Cause("reward", "verify raised ValueError: oh")),
    ],
)
def test_what_verify_returns_is_a_reward_or_unscored(returned: Any, reward: float | None, cause: Cause | None) -> None:
    class Judge(ResourcesServer):
        async def verify(self, body: dict[str, Any]) -> Any:
            if isinstance(returned, Exception):
                raise returned
            return returned

    rollout = played(Judge("judge"), "x")
    assert (rollout.reward, rollout.cause) == (reward, cause)
    assert rollout.metrics == ({"ok": True} if isinstance(returned, dict) and "ok" in returned else {})


def test_the_wire_is_that_of_resources_servers() -> None:
    server = WeatherServer("weather")

    async def use(client: aiohttp.ClientSession) -> None:
        async with client.post("/seed_session", json=ROW) as response:
            assert response.status == 200
            cookie = response.cookies["polygym_session"]
            assert (cookie["httponly"], cookie["samesite"], len(cookie.value)) == (True, "Strict", 43)
            assert await response.json() == {"env_response": False, "parallel_tool_calls": False, "cuts_text": True}
        async with client.post("/get_weather", json={"city": "Oslo"}) as response:
            # Agents take the cookies of a later request from the last answer.
            assert response.cookies["polygym_session"].value == cookie.value
            assert (response.status, response.content_type) == (200, "application/json")
        async with client.post("/nothing", json={}) as response:
            assert (response.status, response.content_type) == (404, "text/plain")
            assert (await response.text()).startswith("Error: unknown tool 'nothing'")
        for body in (b"{", b"[1]", b'{"city": 3}', b""):
            async with client.post("/get_weather", data=body) as response:
                assert (response.status, response.content_type) == (422, "text/plain")
        output = [{"type": "function_call_output", "call_id": "c", "output": "Oslo"}]
        sent = {**ROW, "_ng_task_index": 4, "response": {"output": output}}
        async with client.post("/verify", json=sent) as response:
            told = await response.json()
        assert told == {
            **sent, "reward": 1.0, "rewards": {"reward": 1.0}, "metrics": {"calls": 1}, "calls": 1,
            "mask_sample": False, "failure_kind": None, "failure_reason": None,
        }  # fmt: skip
        for path in ("/get_weather", "/verify"):  # the session has ended
            async with client.post(path, json={**sent, "city": "Oslo"}) as response:
                assert (response.status, (await response.json())["error"]["class"]) == (410, "session_lost")
        client.cookie_jar.clear()
        async with client.post("/verify", json=sent) as response:  # a fresh session of its own
            assert (await response.json())["calls"] == 0
        async with client.post("/verify", json=ROW) as response:
            assert (response.status, (await response.json())["error"]["message"]) == (422, "response: Field required")
        async with client.post("/close_session") as response:
            assert (await response.json())["closed"] is False
        async with client.post("/aggregate_metrics", json={"verify_responses": [told, {"reward": None}]}) as response:
            metrics = await response.json()
        assert metrics["key_metrics"] == {"mean/reward": 1.0, "rollouts": 2, "unscored": 1}
        assert metrics["agent_metrics"]["mean/calls"] == 1.0
        async with client.get("/metrics") as response:
            assert "polygym_sessions 0.0" in (await response.text()).splitlines()

    asking(server, use)


def test_a_tool_that_needs_no_seed_opens_a_session_of_its_own() -> None:
    async def use(client: aiohttp.ClientSession) -> list[str]:
        texts = []
        for _ in range(2):
            async with client.post("/get_weather", json={"city": "Oslo"}) as response:
                texts.append(await response.text())
        return texts

    assert asking(WeatherServer("weather"), use) == ['{"city":"Oslo","weather":"cold"}'] * 2


def test_sessions_are_apart_and_a_stranger_finds_none() -> None:
    async def use(client: aiohttp.ClientSession) -> list[Any]:
        async def post(path: str, body: dict[str, Any], id: str = "") -> aiohttp.ClientResponse:
            client.cookie_jar.clear()
            response = await client.post(path, json=body, headers={"Cookie": f"polygym_session={id}"} if id else {})
            await response.read()
            return response

        first, second = [(await post("/seed_session", ROW)).cookies["polygym_session"].value for _ in range(2)]
        found: list[Any] = []
        for id in (first, first, second, "guess", first[:-1] + "_"):
            found.append((await post("/get_weather", {"city": "Oslo"}, id)).status)
        for id in (first, second):
            found.append((await (await post("/verify", {**ROW, "response": {"output": []}}, id)).json())["calls"])
        return found

    assert asking(WeatherServer("weather"), use) == [200, 200, 200, 410, 410, 2, 1]


def test_a_server_that_cannot_work_is_refused_when_it_is_made() -> None:
    class Collides(ResourcesServer):
        @tool
        async def verify_all(self, body: dict[str, Any]) -> str:
            return ""

        @tool
        async def close_session(self, session: Session) -> None:
            pass

    with pytest.raises(UsageError, match="a tool cannot be called 'close_session', which is an endpoint"):
        Collides("collides")

    class Local(BaseModel):
        x: int

    class Hidden(ResourcesServer):
        @tool
        async def use(self, body: Local) -> str:
            return ""

    with pytest.raises(UsageError, match=r"use: its annotations cannot be read .*; write models at the top"):
        Hidden("hidden")


def test_metrics_are_described_for_each_task_and_over_all() -> None:
    replies = [
        {
            "_ng_task_index": 0,
            "_ng_rollout_index": 0,
            "reward": 1.0,
            "ok": True,
            "response": {"usage": {"input_tokens": 4}},
        },
        {"_ng_task_index": 0, "_ng_rollout_index": 1, "reward": 0.0, "ok": False, "text": "x"},
        {"_ng_task_index": 1, "_ng_rollout_index": 0, "reward": None, "ok": True},
    ]
    described = aggregate(replies)
    first, second = described["group_level_metrics"]
    assert (first["_ng_task_index"], first["mean/reward"], first["max/ok"], first["mean/input_tokens"]) == (
        0,
        0.5,
        1.0,
        4.0,
    )
    assert first["std/reward"] == pytest.approx(0.7071, abs=1e-4)
    assert second == {"_ng_task_index": 1, "rollouts": 1, "unscored": 1}
    assert described["agent_metrics"]["median/reward"] == 0.5
    assert aggregate([])["key_metrics"] == {"rollouts": 0, "unscored": 0}
