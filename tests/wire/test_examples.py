"""Examples of every endpoint's requests and responses, read by our code and answered by our servers.

The files in `examples/` are written from the published wire formats, and each names what it follows. In a response,
"<text>", "<number>" and "<any>" stand for any value of that kind, and a server may say more than the example does.
"""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from policies.loopback import Loopback, as_json
from polygym import load_environment
from polygym.environments.wire_rows import check_row, task_of
from polygym.messages import Message, ToolSpec
from polygym.policies.base import Policy, Request, Sampling
from polygym.policies.outcomes import turn_of
from polygym.policies.responses_policy import ResponsesPolicy
from polygym.policies.responses_wire import classify_response, read_create_params, read_output
from polygym.policies.wire import native_turn, read_sample, read_usage
from polygym.policies.wire_input import read_messages
from polygym.rollout import Turn
from polygym.serve.agent import AgentServer
from polygym.serve.config import load_config
from polygym.serve.environment_server import EnvironmentServer
from polygym.serve.model import ModelServer
from polygym.serve.oracle import RowOracle
from polygym.serve.supervisor import Supervisor
from serve.serving import served

EXAMPLES: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_bytes()) for path in sorted((Path(__file__).parent / "examples").glob("*.json"))
}
ROWS = [name for name in EXAMPLES if "row" in EXAMPLES[name]]
ENDPOINTS = [name for name in EXAMPLES if "path" in EXAMPLES[name] and EXAMPLES[name]["kind"] != "head"]
MODEL = [name for name in ENDPOINTS if EXAMPLES[name]["kind"] == "model"]
RESPONSES = [name for name in MODEL if name.startswith("model_responses_") and "status" not in EXAMPLES[name]]
CHATS = [name for name in MODEL if name.startswith("model_chat")]


def read_response(body: Any, tools: Sequence[ToolSpec] = (), position: int = 0) -> Turn:
    """The turn that a client reads in a response."""
    return turn_of(classify_response(200, body), body, tools, position)


class Said(Policy):
    """Answers with given turns, one after the other."""

    name = "m"

    def __init__(self, turns: list[Turn]) -> None:
        self.turns = turns
        self.requests: list[Request] = []

    async def complete(self, request: Request) -> Turn:
        self.requests.append(request)
        return self.turns[len(self.requests) - 1]


def differences(example: Any, actual: Any, where: str = "") -> list[str]:
    """Where a value is not what an example says."""
    kinds = {"<any>": (object,), "<text>": (str,), "<number>": (int, float)}
    if isinstance(example, str) and example in kinds:
        return [] if isinstance(actual, kinds[example]) and actual != "" else [f"{where}: {actual!r} is no {example}"]
    if isinstance(example, dict) and isinstance(actual, dict):
        found = [f"{where}.{key} is missing" for key in example if key not in actual]
        return found + [
            line
            for key in example
            if key in actual
            for line in differences(example[key], actual[key], f"{where}.{key}")
        ]
    if isinstance(example, list) and isinstance(actual, list) and len(example) == len(actual):
        pairs = enumerate(zip(example, actual, strict=True))
        return [line for at, pair in pairs for line in differences(*pair, f"{where}[{at}]")]
    same = example == actual and type(example) in (type(actual), float, int)
    return [] if same else [f"{where}: {actual!r} instead of {example!r}"]


def ask(url: str, method: str, path: str, body: Any = None, cookie: str | None = None) -> tuple[int, str, str | None]:
    """Status, text and cookie of an answer."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    headers = {"Content-Type": "application/json", **({"Cookie": cookie} if cookie else {})}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    text, cookies = answer.read().decode(), answer.headers.get("Set-Cookie")
    connection.close()
    return answer.status, text, cookies and cookies.partition(";")[0]


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    """Addresses of servers of the kinds that hold no script."""
    with ExitStack() as stack:
        found = {
            kind: stack.enter_context(served(EnvironmentServer(load_environment(name, num_examples=4)).app()))
            for kind, name in (("resources", "example_multi_step"), ("word_game", "word_game"))
        }
        model = stack.enter_context(served(ModelServer(RowOracle(), name="policy_model").app()))
        agent = AgentServer("a", found["resources"], model, environment="example_multi_step")
        found["agent"] = stack.enter_context(served(agent.app()))
        yield found


def scripted_turns(example: dict[str, Any]) -> list[Turn]:
    """What a policy would have to say to be answered with by the server as in the example."""
    if "turns" in example:
        return [Turn(Message.from_dict(row)) for row in example["turns"]]
    body = example["response"]
    if body.get("object") == "response":
        return [read_response(body, read_create_params(example["request"]).tools)]
    if body.get("object") == "chat.completion":
        sample = read_sample(body, body["choices"][0])
        tools = read_create_params({"input": "-", "tools": example["request"].get("tools")}).tools
        return [native_turn(sample, tools, 0, "stop", read_usage(body, sample))]
    return []


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_names_what_it_follows(name: str) -> None:
    example = EXAMPLES[name]
    assert example["about"].endswith(".")
    assert example["follows"]
    assert all(source.startswith("https://") for source in example["follows"])


def test_there_is_an_example_of_every_endpoint() -> None:
    said = {(example["kind"], example["path"]) for example in EXAMPLES.values() if "path" in example}
    tools = {
        ("resources", "/get_synonym_value"),
        ("resources", "/extract_synonym_values"),
        ("resources", "/get_weather"),
    }
    assert said - tools == {
        ("resources", "/"),
        ("resources", "/seed_session"),
        ("resources", "/verify"),
        ("resources", "/aggregate_metrics"),
        ("resources", "/close_session"),
        ("word_game", "/env_response"),
        ("agent", "/run"),
        ("agent_scripted", "/v1/responses"),
        ("agent", "/aggregate_metrics"),
        ("model", "/v1/responses"),
        ("model", "/v1/chat/completions"),
        ("model", "/v1/models"),
        ("head", "/"),
        ("head", "/server_instances"),
        ("head", "/global_config_dict_yaml"),
    }


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_the_task_that_it_says(name: str) -> None:
    example = EXAMPLES[name]
    check_row(example["row"])
    task = task_of(example["row"], "env")
    assert [message.to_dict() for message in task.prompt] == example["messages"]
    assert {"answer": task.answer, "info": task.info} == example["task"]
    params = read_create_params(example["row"]["responses_create_params"])
    assert params.sampling == example["sampling"]
    assert [tool.name for tool in params.tools] == [
        tool["name"] for tool in example["row"]["responses_create_params"].get("tools", [])
    ]


@pytest.mark.parametrize("name", ENDPOINTS)
def test_a_server_answers_as_the_example_says(name: str, urls: dict[str, str]) -> None:
    example = EXAMPLES[name]
    with ExitStack() as stack:
        kind = example["kind"]
        if kind in ("model", "agent_scripted"):
            policy = Said(scripted_turns(example))
            url = stack.enter_context(served(ModelServer(policy, name="m").app()))
            if kind == "agent_scripted":
                url = stack.enter_context(served(AgentServer("a", urls["resources"], url).app()))
        else:
            url = urls[kind]
        cookie = None
        if "session" in example:
            server = urls["resources"] if kind == "agent_scripted" else url
            _, _, cookie = ask(server, "POST", "/seed_session", example["session"])
        status, text, _ = ask(url, example["method"], example["path"], example.get("request"), cookie)
    assert status == example.get("status", 200), text
    if "text" in example:
        assert differences(example["text"], text) == []
    else:
        assert differences(example["response"], json.loads(text)) == []


@pytest.mark.parametrize("name", RESPONSES)
def test_a_response_is_read_and_is_one_of_the_official_client(name: str) -> None:
    example = EXAMPLES[name]
    body = {**example["response"], "id": "resp_1", "created_at": 1.0}
    Response.model_validate(body, strict=True)
    params = read_create_params(example["request"])
    turn = read_response(body, params.tools, len(params.messages))
    assert [turn.message] == read_output(body["output"])
    assert classify_response(200, body).action == ("stop" if body["incomplete_details"] else "continue")
    assert turn.usage.prompt_tokens == body["usage"]["input_tokens"]


@pytest.mark.parametrize("name", RESPONSES)
def test_our_client_asks_as_the_example_does_and_reads_the_answer(name: str) -> None:
    example = EXAMPLES[name]
    asked = read_create_params(example["request"])
    request = Request(asked.messages, asked.tools, Sampling(**asked.sampling), 0, asked.previous, extra=asked.extra)
    with Loopback([as_json(example["response"])]) as server:
        turn = asyncio.run(ResponsesPolicy(server.url).complete(request))
    assert turn == read_response(example["response"], asked.tools, len(asked.messages))
    sent = read_create_params(server.requests[0].body)
    assert (sent.messages, sent.tools, sent.previous) == (asked.messages, asked.tools, asked.previous)
    assert sent.sampling.items() >= asked.sampling.items()
    assert sent.extra == asked.extra


@pytest.mark.parametrize("name", CHATS)
def test_a_chat_completion_is_read_and_is_one_of_the_official_client(name: str) -> None:
    example = EXAMPLES[name]
    body = {**example["response"], "id": "c", "created": 1}
    choice = body["choices"][0]
    choice = {**choice, "logprobs": None} if name == "model_chat_tokens" else choice  # vLLM leaves out their bytes
    official = ChatCompletion.model_validate({**body, "choices": [choice]})
    assert read_sample(body, body["choices"][0]).content == (official.choices[0].message.content or "")
    read_messages(example["request"]["messages"])


def test_a_conversation_with_token_fields_is_gone_on_from_them() -> None:
    example = EXAMPLES["model_responses_tokens"]
    policy = Said(scripted_turns(example))
    with served(ModelServer(policy, name="m").app()) as url:
        ask(url, "POST", "/v1/responses", example["request"])
    previous = policy.requests[0].previous
    assert previous is not None
    assert (previous.prompt_token_ids, previous.token_ids, previous.logprobs) == ([1, 2, 3], [4, 5], [-0.25, -1.5])


def test_the_head_answers_as_the_examples_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    config = load_config(
        resources_servers=["example_multi_step"], model_type="oracle_model", head_port=0, directory=tmp_path
    )

    async def answers() -> dict[str, tuple[int, Any]]:
        async with Supervisor(config, single_process=True) as stack:
            told = {}
            for name in EXAMPLES:
                if EXAMPLES[name].get("kind") == "head":
                    answer = await asyncio.to_thread(ask, stack.url, "GET", EXAMPLES[name]["path"])
                    told[name] = (answer[0], json.loads(answer[1]))
            return told

    told = asyncio.run(answers())
    assert len(told) == 3
    for name, (status, body) in told.items():
        assert status == 200
        assert differences(EXAMPLES[name]["response"], body) == []
    example = EXAMPLES["head_global_config_dict_yaml"]
    assert differences(example["yaml"], yaml.safe_load(told["head_global_config_dict_yaml"][1])) == []


def test_differences_are_found() -> None:
    assert differences({"a": ["<text>", 1.0]}, {"a": ["x", 1.0], "b": 2}) == []
    assert differences({"a": 1, "b": None}, {"a": "1"}) == [".b is missing", ".a: '1' instead of 1"]
    assert differences(["<number>"], ["1"]) == ["[0]: '1' is no <number>"]
    assert differences([1], [1, 2]) == [": [1, 2] instead of [1]"]
    assert differences(False, 0) == [": 0 instead of False"]
