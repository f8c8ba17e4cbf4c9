"""Environments as resources servers: what their endpoints say to any agent."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import aiohttp
import pytest

from environments.worlds import Countdown, exact, rows, single
from polygym.environments import EnvGroup, State, ToolEnv, cleanup, load_environment
from polygym.environments.wire_rows import row_of
from polygym.errors import UsageError
from polygym.rewards.rubric import Rubric
from polygym.serve.environment_server import EnvironmentServer
from serve.serving import served


class Counting(ToolEnv):
    """A counter a session."""

    def setup_state(self, state: State) -> None:
        state["count"] = 0

    def reward(self, state: State, messages: list[Any]) -> float:
        return state["count"] + state["turn"] / 10


def increase(amount: int, state: State) -> int:
    """Add to the counter.

    Args:
        amount: how much
    """
    state["count"] += amount
    if amount < 0:
        raise ValueError("down is not possible")
    return int(state["count"])


def asking(environment: Any, *requests: tuple[str, Any], **options: Any) -> list[tuple[int, Any]]:
    """(status, JSON or text) of POST requests one after another, in one client that keeps cookies."""

    async def main(url: str) -> list[tuple[int, Any]]:
        answers = []
        async with aiohttp.ClientSession(url, cookie_jar=aiohttp.CookieJar(unsafe=True)) as client:
            for path, body in requests:
                data = {"data": body} if isinstance(body, bytes) else {"json": body}
                async with client.post(path, **data) as response:
                    text = await response.text()
                    answers.append(
                        (
                            response.status,
                            await response.json() if response.content_type == "application/json" else text,
                        )
                    )
        return answers

    with served(EnvironmentServer(environment, **options).app()) as url:
        return asyncio.run(main(url))


def test_an_agent_that_knows_only_tools_plays_a_tool_environment() -> None:
    environment = Counting(rows(2), tools=[increase], system_prompt="Count.")
    row = row_of(environment, environment.tasks()[0])
    output = [
        {"type": "function_call", "call_id": "a", "name": "increase", "arguments": '{"amount": 2}'},
        {"type": "function_call_output", "call_id": "a", "output": "2"},
        {"type": "function_call", "call_id": "b", "name": "increase", "arguments": '{"amount": '},
        {"type": "function_call_output", "call_id": "b", "output": "refused by the agent"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ]
    answers = asking(
        environment,
        ("/seed_session", row),
        ("/increase", {"amount": 2}),
        ("/increase", {"amount": "3"}),
        ("/increase", {"amount": "many"}),
        ("/increase", b'{"amount": '),
        ("/increase", b"[]"),
        ("/increase", {"amount": -1}),
        ("/decrease", {}),
        ("/verify", {**row, "response": {"output": output}}),
        ("/increase", {"amount": 1}),
    )
    assert answers[0] == (
        200, {"env_response": False, "parallel_tool_calls": False, "cuts_text": True, "max_turns": 10},
    )  # fmt: skip
    assert answers[1:3] == [(200, "2"), (200, "5")]
    assert answers[3] == (422, "Error: increase: amount must be of type integer, got 'many'")
    assert [status for status, _ in answers[4:6]] == [422, 422]
    assert answers[6] == (200, "Error: increase raised ValueError: down is not possible")
    assert answers[7] == (404, "Error: unknown tool 'decrease'; did you mean 'increase'? Allowed: increase")
    verdict = answers[8][1]
    assert (verdict["reward"], verdict["rewards"]) == (4.3, {"reward": 4.3})
    assert verdict["metrics"] == {"tool_calls": 6, "tool_errors": 4}
    assert (verdict["tool_calls"], verdict["mask_sample"], verdict["failure_kind"]) == (6, False, None)
    assert (answers[9][0], answers[9][1]["error"]["class"]) == (410, "session_lost")


CALLED = [
    {"type": "function_call", "call_id": "a", "name": "increase", "arguments": '{"amount": 2}'},
    {"type": "function_call_output", "call_id": "a", "output": "2"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
]


def test_calls_that_come_without_their_session_are_not_graded_where_state_is_kept() -> None:
    environment = Counting(rows(2), tools=[increase])
    row = row_of(environment, environment.tasks()[0])
    called, said = asking(
        environment,
        ("/verify", {**row, "response": {"output": CALLED}}),
        ("/verify", {**row, "response": {"output": CALLED[2:]}}),
    )
    assert (called[1]["reward"], called[1]["failure_kind"], called[1]["mask_sample"]) == (None, "no_session", True)
    assert said[1]["reward"] == 0.1

    def double(amount: int) -> int:
        """Twice as much."""
        return 2 * amount

    stateless = ToolEnv(rows(2), tools=[double], rubric=Rubric([exact]))
    output = [{**CALLED[0], "name": "double"}, *CALLED[1:]]
    [(_, verdict)] = asking(stateless, ("/verify", {**row, "response": {"output": output}}))
    assert (verdict["reward"], verdict["failure_kind"]) == (0.0, None)


@pytest.mark.parametrize("seeded", [False, True])
def test_a_response_that_the_model_broke_off_is_not_graded(seeded: bool) -> None:
    environment = single()
    row = row_of(environment, environment.tasks()[0])
    response = {"status": "failed", "error": {"code": "server_error", "message": "out of memory"}, "output": []}
    requests = [("/verify", {**row, "response": response})]
    verdict = asking(environment, *([("/seed_session", row)] if seeded else []), *requests)[-1][1]
    assert (verdict["reward"], verdict["failure_kind"]) == (None, "model")
    assert "out of memory" in verdict["failure_reason"]


def test_an_environment_that_replies_in_words_says_that_it_must_be_asked() -> None:
    environment = Countdown(rows(2), max_turns=4)
    row = row_of(environment, environment.tasks()[0])
    go, stay = ([{"role": "assistant", "content": text}] for text in ("go", "stay"))
    answers = asking(
        environment,
        ("/env_response", {"messages": go}),
        ("/seed_session", row),
        ("/env_response", {"messages": go}),
        ("/env_response", {"messages": stay}),
        ("/env_response", {"messages": []}),
        ("/env_response", {"messages": [{"role": "boss", "content": "x"}]}),
        ("/env_response", {"messages": go}),
        ("/env_response", {"messages": go}),
        ("/verify", {**row, "response": {"output": []}}),
    )
    assert (answers[0][0], answers[0][1]["error"]["class"]) == (409, "no_session")
    assert answers[1][1]["env_response"] is True
    assert answers[2][1] == {"messages": [{"role": "user", "content": "2 left"}], "done": False, "stop_reason": None}
    assert answers[3][1]["messages"][0]["content"] == "2 left"
    assert [status for status, _ in answers[4:6]] == [422, 422]
    assert answers[6][1] == {"messages": [{"role": "user", "content": "1 left"}], "done": False, "stop_reason": None}
    assert answers[7][1] == {"messages": [{"role": "user", "content": "0 left"}], "done": True, "stop_reason": "landed"}
    assert answers[8][1]["reward"] == 1.0


def test_calls_are_read_in_the_form_of_rollouts_and_of_chat() -> None:
    class Mixed(Counting):
        async def env_response(self, messages: list[Any], state: State) -> Any:
            return await super().env_response(messages, state)

    environment = Mixed(rows(2), tools=[increase])
    chat = {"id": "1", "type": "function", "function": {"name": "increase", "arguments": '{"amount": 2}'}}
    ours = {"id": "2", "name": "increase", "arguments": {"amount": 3}}
    answers = asking(
        environment,
        ("/seed_session", row_of(environment, environment.tasks()[0])),
        ("/env_response", {"messages": [{"role": "assistant", "content": None, "tool_calls": [chat]}]}),
        ("/env_response", {"messages": [{"role": "assistant", "content": "", "tool_calls": [ours]}]}),
        ("/env_response", {"messages": [{"role": "assistant", "content": "that is all"}]}),
    )
    assert answers[1][1]["messages"] == [{"role": "tool", "content": "2", "tool_call_id": "1"}]
    assert answers[2][1]["messages"] == [{"role": "tool", "content": "5", "tool_call_id": "2"}]
    assert answers[3][1] == {"messages": [], "done": True, "stop_reason": "answered"}


def test_a_single_turn_needs_no_session_to_be_graded() -> None:
    environment = single(4, system_prompt="Count.")
    row = row_of(environment, environment.tasks()[0])
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": row["answer"]}]}
    [(_, seeded)] = asking(environment, ("/seed_session", row))
    assert seeded["env_response"] is False
    right, wrong, malformed, empty = asking(
        environment,
        ("/verify", {**row, "response": {"output": [said]}}),
        ("/verify", {**row, "response": {"output": [{**said, "content": "7"}]}}),
        ("/verify", {**row, "response": "x"}),
        ("/verify", {**row, "response": {"output": [{"type": "reasoning", "summary": []}, {"bad": 1}, 3]}}),
    )
    assert right == (200, {**right[1], **row, "reward": 1.0, "rewards": {"exact": 1.0}})
    assert (wrong[1]["reward"], empty[1]["reward"]) == (0.0, 0.0)
    assert (malformed[0], malformed[1]["error"]["class"]) == (422, "invalid_request")


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"responses_create_params": {}},
        {"responses_create_params": {"input": 3}},
        {"responses_create_params": {"input": [{"role": "boss", "content": "x"}]}},
        {"responses_create_params": {"input": "x"}, "id": [1]},
        {"responses_create_params": {"input": "x"}, "_ng_seed": "many"},
    ],
)
def test_a_malformed_row_is_refused_with_what_is_wrong(row: dict[str, Any]) -> None:
    [(status, told)] = asking(single(2), ("/seed_session", row))
    assert (status, told["error"]["class"]) == (422, "invalid_request")
    assert told["error"]["message"]


def test_an_environments_state_has_the_seed_and_the_task_of_the_row() -> None:
    seen: list[State] = []

    class Sees(Counting):
        def setup_state(self, state: State) -> None:
            super().setup_state(state)
            seen.append(state)

    environment = Sees(rows(2), tools=[increase], system_prompt="Count.")
    task = environment.tasks()[0]
    row = row_of(environment, task)
    asking(environment, ("/seed_session", {**row, "_ng_seed": 2**62}), ("/seed_session", row), ("/seed_session", row))
    assert [state["seed"] for state in seen[:1]] == [2**62]
    assert seen[1]["seed"] == seen[2]["seed"]
    assert [state["task"] for state in seen] == [task] * 3
    assert [message.content for message in seen[0]["messages"]] == ["Count.", task.prompt[0].content]


def test_only_one_environment_can_be_served_and_no_tool_hides_an_endpoint() -> None:
    with pytest.raises(UsageError, match="environment 'group' is a group; serve its environments one by one: a, b"):
        EnvironmentServer(EnvGroup([single(), single()], ["a", "b"]))

    def verify(text: str) -> str:
        """Check."""
        return text

    with pytest.raises(UsageError, match="a tool cannot be called 'verify'"):
        EnvironmentServer(ToolEnv(rows(2), tools=[verify], rubric=Rubric([exact])))


def test_a_server_stays_light() -> None:
    code = (
        "import sys; from polygym.environments import load_environment\n"
        "from polygym.serve.environment_server import EnvironmentServer\n"
        "for name in ('word_game', 'tool_use', 'math_rl'):\n"
        "    EnvironmentServer(load_environment(name)).app()\n"
        "heavy = ('numpy', 'torch', 'transformers', 'datasets', 'matplotlib', 'math_verify', 'rich', 'typer')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_recipes_are_served_by_their_id() -> None:
    environment = load_environment("tool_use", num_examples=2, num_eval_examples=2)
    row = row_of(environment, environment.tasks()[0])
    name, arguments = environment.tasks()[0].info["tool"], environment.tasks()[0].info["arguments"]
    answers = asking(environment, ("/seed_session", row), (f"/{name}", dict(arguments)))
    assert answers[1] == (200, row["answer"])


def test_sessions_that_nobody_ends_are_cleaned_up_and_bounded() -> None:
    class Tidy(Counting):
        tidied = 0

        @cleanup
        def tidy(self, state: State) -> None:
            Tidy.tidied += 1

    environment = Tidy(rows(2), tools=[increase])
    row = row_of(environment, environment.tasks()[0])

    async def main(url: str) -> None:
        async with aiohttp.ClientSession(url, cookie_jar=aiohttp.DummyCookieJar()) as client:
            statuses = []
            for _ in range(3):
                async with client.post("/seed_session", json=row) as response:
                    statuses.append(response.status)
            assert statuses == [200, 200, 503]
            assert response.headers["Retry-After"] == "5"
            for _ in range(100):
                if Tidy.tidied == 2:
                    break
                await asyncio.sleep(0.05)
            async with client.post("/seed_session", json=row) as response:
                assert response.status == 200

    with served(EnvironmentServer(environment, ttl_seconds=0.4, max_sessions=2).app()) as url:
        asyncio.run(main(url))
    assert Tidy.tidied == 3  # a server that ends closes what is open
