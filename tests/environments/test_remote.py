"""An environment at a distance: servers that die, forget, never answer, or know less than ours."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response

from environments.worlds import Countdown, Script, call, rows, single
from polygym.environments import EnvGroup, State, ToolEnv, cleanup, play
from polygym.environments.episode import play_session
from polygym.environments.http import Cookies, HttpClient, ServerError
from polygym.environments.remote import RemoteEnvironment, remote_task
from polygym.environments.remote_session import RemoteSession
from polygym.environments.wire_rows import row_of
from polygym.errors import PolicyError, UsageError
from polygym.messages import Message, ToolCall
from polygym.policies.base import Policy, Sampling
from polygym.policies.base import Request as Asked
from polygym.rewards.rubric import Rubric
from polygym.rollout import Cause, Rollout, Turn
from polygym.serve.environment_server import EnvironmentServer
from serve.serving import process, served

WORDS = [
    {"type": "function", "name": name, "parameters": {"properties": {key: {"type": "integer"}}}}
    for name, key in (("look", "size"), ("drop", "status"))
]
ROW = {"id": "a", "responses_create_params": {"input": "Look.", "tools": WORDS}, "answer": 3}
COUNTDOWN = """
from environments.worlds import Countdown, rows
from polygym.serve.environment_server import EnvironmentServer
app = EnvironmentServer(Countdown(rows(2))).app()
"""


def at(url: str, row: dict[str, Any], policy: Policy, **options: Any) -> Rollout:
    """One rollout of `row` with the server at `url`."""
    environment = RemoteEnvironment(url, deadline_seconds=options.pop("deadline_seconds", 20))
    arguments = {"sampling": Sampling(), "seed": 0, **options}
    return asyncio.run(play(environment, remote_task(row), policy, **arguments))


class Acting(Script):
    """Does something before one of its turns."""

    def __init__(self, turn: int, act: Any, *lines: Any) -> None:
        super().__init__(*lines)
        self.turn, self.act = turn, act

    async def complete(self, request: Asked) -> Turn:
        if len(self.requests) == self.turn:
            self.act()
            await asyncio.sleep(0.05)  # for connections to notice
        return await super().complete(request)


def countdown_row() -> dict[str, Any]:
    environment = Countdown(rows(2))
    return row_of(environment, environment.tasks()[0])


# ------------------------------------------------------------------------------------------------ servers that fail


def test_a_server_that_is_killed_ends_the_episode_at_once_and_unscored() -> None:
    with process(COUNTDOWN) as (url, child):
        started = time.monotonic()
        rollout = at(url, countdown_row(), Acting(1, lambda: (child.kill(), child.wait()), "go"))
        assert time.monotonic() - started < 10
    assert (rollout.reward, rollout.stop_reason) == (None, "error")
    assert rollout.cause is not None
    assert rollout.cause.kind == "server"
    assert rollout.cause.message.startswith(f"{url}/env_response: ")
    assert [message.content for message in rollout.messages if message.role == "assistant"] == ["go", "go"]


def test_a_server_that_is_started_anew_has_lost_the_session() -> None:
    with process(COUNTDOWN) as (url, child):
        port = int(url.rsplit(":", 1)[1])
        anew: list[Any] = []

        def restart() -> None:
            child.kill()
            child.wait()
            anew.append(process(COUNTDOWN, port))
            anew[0].__enter__()

        try:
            rollout = at(url, countdown_row(), Acting(1, restart, "go"))
            assert rollout.cause is not None
            assert (rollout.reward, rollout.cause.kind) == (None, "server")
            assert "this session has ended, or the server has been restarted since" in rollout.cause.message
            assert at(url, countdown_row(), Script("go")).reward == 1.0
        finally:
            anew[0].__exit__(None, None, None)


def test_a_session_is_seeded_as_soon_as_the_server_is_there() -> None:
    with process(COUNTDOWN) as (url, child):
        child.kill()
        child.wait()
        port = int(url.rsplit(":", 1)[1])
        later = process(COUNTDOWN, port)
        timer = threading.Timer(0.2, later.__enter__)
        timer.start()
        try:
            assert at(url, countdown_row(), Script("go")).reward == 1.0
        finally:
            timer.join()
            later.__exit__(None, None, None)


def test_nobody_there_is_told_after_a_bounded_time() -> None:
    rollout = at("http://127.0.0.1:9", ROW, Script("x"), deadline_seconds=1.0)
    assert rollout.cause is not None
    assert (rollout.reward, rollout.cause.kind, rollout.messages) == (None, "server", [])
    assert "Connect call failed" in rollout.cause.message


def test_a_server_that_accepts_and_never_answers_meets_the_deadline() -> None:
    async def main() -> Rollout:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(60)

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        environment = RemoteEnvironment(url, deadline_seconds=0.2)
        rollout = await play(environment, remote_task(ROW), Script("x"), sampling=Sampling(), seed=0)
        server.close()
        return rollout

    cause = asyncio.run(main()).cause
    assert cause is not None
    assert (cause.kind, cause.message.split(": ", 1)[1]) == ("server", "no answer within 0.2 s")


def test_an_episode_that_fails_or_runs_late_closes_its_session_there() -> None:
    class Waits(Countdown):
        cleaned = 0

        async def env_response(self, messages: list[Message], state: State) -> Any:
            await asyncio.sleep(60 if messages[-1].content == "wait" else 0)
            return super().env_response(messages, state)

        @cleanup
        def count(self, state: State) -> None:
            Waits.cleaned += 1

    environment = Waits(rows(2))
    row = row_of(environment, environment.tasks()[0])
    server = EnvironmentServer(environment)
    with served(server.app()) as url:
        failed = at(url, row, Script("go", PolicyError("down")))
        assert (failed.cause, Waits.cleaned) == (Cause("endpoint", "turn 1: down"), 1)
        started = time.monotonic()
        late = at(url, row, Script("go", "wait"), timeout_seconds=0.3)
        assert (late.cause and late.cause.kind, Waits.cleaned) == ("timeout", 2)
        assert time.monotonic() - started < 5
        assert len(server._sessions) == 0
        assert at(url, row, Script("go")).reward == 1.0


# -------------------------------------------------------------------------------------- servers that are not polygym's


class Plain:
    """A resources server of the published wire and no more: signed cookies that change, JSON answers, no closing."""

    def __init__(self, verdict: dict[str, Any]) -> None:
        self.verdict = verdict
        self.seen: list[tuple[str, Any, str]] = []
        app = self.app = FastAPI()

        @app.post("/{path:path}")
        async def answer(path: str, request: Request) -> Response:
            body = await request.json()
            self.seen.append((path, body, request.headers.get("cookie", "")))
            status, content = 200, "null"
            if path == "look":
                content = json.dumps({"seen": "é" * body.get("size", 1)}, ensure_ascii=False)
            elif path == "drop":
                status, content = body["status"], "Internal Server Error"
            elif path == "verify":
                content = json.dumps({**body, **self.verdict})
            headers = {"Set-Cookie": f"session=s{len(self.seen)}; path=/; Max-Age=1209600; httponly; samesite=lax"}
            return Response(content, status, headers, "application/json")


def test_a_server_that_knows_only_the_published_wire_is_played() -> None:
    plain = Plain({"reward": 0.5, "accuracy": True, "note": "text", "answer": 4, "set_overlap": 0.25})
    script = Script(call("look", "1"), call("drop", "2", status=500), call("drop", "3", status=404), "done")
    with served(plain.app) as url:
        rollout = at(url, ROW, script, seed=7)
    assert (rollout.reward, rollout.rewards, rollout.cause) == (0.5, {"reward": 0.5}, None)
    assert rollout.metrics == {"accuracy": 1.0, "set_overlap": 0.25}
    assert [message.content for message in rollout.messages if message.role == "tool"] == [
        '{"seen": "é"}', "Internal Server Error", "Internal Server Error",
    ]  # fmt: skip
    assert [path for path, _, _ in plain.seen] == ["seed_session", "look", "drop", "drop", "verify"]
    assert [cookie for _, _, cookie in plain.seen] == ["", "session=s1", "session=s2", "session=s3", "session=s4"]
    assert plain.seen[0][1] == {**ROW, "_ng_seed": 7}
    sent = plain.seen[-1][1]
    assert {key: sent[key] for key in ROW} == ROW
    assert [item["type"] for item in sent["response"]["output"]] == [
        "function_call", "function_call_output", "function_call", "function_call_output",
        "function_call", "function_call_output", "message",
    ]  # fmt: skip


def test_ten_megabytes_of_output_are_cut_for_the_policy() -> None:
    plain = Plain({"reward": 1})
    with served(plain.app) as url:
        rollout = at(url, ROW, Script(call("look", "1", size=10_000_000), "done"))
    [result] = [message.content for message in rollout.messages if message.role == "tool"]
    assert result == '{"seen": "' + "é" * 19_990 + "\n[cut: the first 20000 of 10000012 characters]"
    assert rollout.reward == 1.0


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_gateway_that_finds_no_server_behind_it_is_no_text_for_the_policy(status: int) -> None:
    plain = Plain({"reward": 1})
    with served(plain.app) as url:
        rollout = at(url, ROW, Script(call("drop", "1", status=status), "done"))
    assert rollout.cause == Cause("server", f"{url}/drop: status {status}: Internal Server Error")
    assert rollout.reward is None


def test_a_verdict_that_masks_itself_or_has_no_reward_is_unscored() -> None:
    for verdict, cause in (
        ({"reward": 0.0, "mask_sample": True, "failure_kind": "judge_failed", "failure_reason": "no judge"},
         Cause("judge_failed", "no judge")),
        ({"reward": None}, Cause("server", "the server gave the reward None")),
        ({}, Cause("server", "the server gave the reward None")),
        ({"reward": "good"}, Cause("server", "the server gave the reward 'good'")),
    ):  # fmt: skip
        with served(Plain(verdict).app) as url:
            rollout = at(url, ROW, Script("x"))
        assert (rollout.reward, rollout.cause) == (None, cause)


def test_what_is_refused_here_is_never_posted() -> None:
    plain = Plain({"reward": 1})
    malformed = Message("assistant", "", (ToolCall("look", {}, "1", "invalid_json", "{"), ToolCall("none", {}, "2")))
    tools = [*WORDS, {"type": "function", "name": "verify"}, {"type": "function", "name": "v1/responses"}]
    row = {**ROW, "responses_create_params": {"input": "x", "tools": tools}}
    with served(plain.app) as url:
        rollout = at(url, row, Script(malformed, call("verify", "3"), call("v1/responses", "4"), "done"))
    assert [path for path, _, _ in plain.seen] == ["seed_session", "verify"]
    texts = [message.content for message in rollout.messages if message.role == "tool"]
    assert texts[0] == "Error: this call was not run: invalid_json"
    assert [text[:24] for text in texts[1:]] == [
        "Error: unknown tool 'non",
        "Error: unknown tool 'ver",
        "Error: unknown tool 'v1/",
    ]


# ------------------------------------------------------------------------------------------------------- being one


def test_the_server_says_how_many_turns_there_are_unless_fewer_are_allowed_here() -> None:
    environment = Countdown(rows(2), max_turns=14)
    row = row_of(environment, environment.tasks()[0])

    async def turns(url: str, **options: Any) -> int:
        remote = RemoteEnvironment(url, **options)
        return len((await play(remote, remote_task(row), Script("stay"), sampling=Sampling(), seed=0)).turns)

    with served(EnvironmentServer(environment).app()) as url:
        assert [asyncio.run(turns(url, max_turns=limit)) for limit in (None, 3, 20)] == [14, 3, 14]
    with served(Plain({"reward": 1}).app) as url:
        rollout = at(url, ROW, Script(call("look", "1")))
    assert (len(rollout.turns), rollout.stop_reason) == (10, "max_turns")
    with pytest.raises(UsageError, match="max_turns=0 must be an integer of at least 1"):
        RemoteEnvironment("http://127.0.0.1:1", max_turns=0)


def test_independent_calls_run_at_the_same_time_where_the_environment_says_so() -> None:
    async def nap(place: int) -> int:
        """Sleep."""
        await asyncio.sleep(0.2)
        return place

    def reward(state: State) -> float:
        return 1.0

    turn = Message("assistant", tool_calls=tuple(ToolCall("nap", {"place": n}, str(n)) for n in range(5)))
    for parallel, least, most in ((True, 0.2, 0.6), (False, 1.0, 3.0)):
        environment = ToolEnv(rows(2), tools=[nap], parallel_tool_calls=parallel, rubric=Rubric([reward]))
        row = row_of(environment, environment.tasks()[0])
        with served(EnvironmentServer(environment).app()) as url:
            rollout = at(url, row, Script(turn, "done"))
        assert [message.content for message in rollout.messages if message.role == "tool"] == list("01234")
        assert least <= rollout.seconds["environment"] < most


def test_it_is_an_environment_like_any_other() -> None:
    environment = single(6)
    rows_ = [row_of(environment, task) for task in environment.tasks()]
    with served(EnvironmentServer(environment).app()) as url:
        remote = RemoteEnvironment(url, name="far", rows=rows_)
        group = EnvGroup([remote, single(6)], ["far", "near"])
        task = next(task for task in group.tasks() if task.environment == "far")
        assert [message.content for message in group.prompt(task)] == [f"{task.answer}?"]
        for _ in range(2):  # connections belong to an event loop
            rollout = asyncio.run(play(group, task, Script(task.answer), sampling=Sampling(), seed=0))
            assert (rollout.environment, rollout.task_id, rollout.reward) == ("far", task.id, 1.0)


def test_a_session_can_be_joined_and_is_then_left_as_it_is() -> None:
    plain = Plain({"reward": 1})
    with served(plain.app) as url:
        task = remote_task(ROW)
        session = RemoteSession(RemoteEnvironment(url), task, seed=0, joined="session=mine; other=2")
        rollout = asyncio.run(play_session(session, Script(call("look", "1"), "done"), sampling=Sampling()))
    assert [(path, cookie) for path, _, cookie in plain.seen] == [("look", "session=mine; other=2")]
    assert (rollout.reward, rollout.cause, rollout.stop_reason) == (None, None, "answered")
    assert session.cookies.header == "session=s1; other=2"


def test_a_token_is_sent_and_a_missing_one_is_a_refusal() -> None:
    environment = single(4)
    row = row_of(environment, environment.tasks()[0])

    async def main(url: str, token: str | None) -> Rollout:
        remote = RemoteEnvironment(url, token=token)
        return await play(remote, remote_task(row), Script(row["answer"]), sampling=Sampling(), seed=0)

    with served(EnvironmentServer(environment, token="s3cret").app()) as url:
        assert asyncio.run(main(url, "s3cret")).reward == 1.0
        cause = asyncio.run(main(url, None)).cause
    assert cause is not None
    assert (cause.kind, "s3cret" in cause.message) == ("refused", False)
    with pytest.raises(UsageError, match="give a token instead"):
        RemoteEnvironment("http://me:pass@localhost:1")


def test_cookies_are_those_of_the_last_answers() -> None:
    cookies = Cookies.of("a=1; b=x")
    assert cookies.header == "a=1; b=x"
    cookies.update(("a=2; Path=/; HttpOnly", 'c="q r"; Max-Age=1', "bad cookie name=3"))
    assert cookies.header == 'a=2; b=x; c="q r"'
    cookies.update(())
    assert cookies.header == 'a=2; b=x; c="q r"'


def test_a_request_that_may_have_been_executed_is_not_sent_again() -> None:
    seen = []

    async def main() -> None:
        async def drops(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.append((await reader.readuntil(b"\r\n")).split()[1].decode())
            writer.close()

        server = await asyncio.start_server(drops, "127.0.0.1", 0)
        client = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(ServerError, match="/once: ServerDisconnectedError"):
            await client.post("/once", {})
        with pytest.raises(ServerError, match=r"/again: .*tries\)"):
            await client.post("/again", {}, repeatable=True, seconds=1.5)
        server.close()

    asyncio.run(main())
    assert seen[0] == "/once"
    assert len(seen) >= 3
    assert set(seen[1:]) == {"/again"}
