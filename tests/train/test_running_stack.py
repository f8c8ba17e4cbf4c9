"""What a head tells of a stack, and who plays the rows of which agent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi import FastAPI

from polygym.collect.agent_play import AgentEnvironment
from polygym.environments import RemoteEnvironment
from polygym.errors import UsageError
from polygym.train.config import EnvConfig
from polygym.train.served import load_entry
from serve.serving import served

INSTANCES = [
    {"name": "books", "server_type": "resources_servers", "impl": "books", "url": "http://127.0.0.1:9001"},
    {"name": "books_agent", "server_type": "responses_api_agents", "impl": "simple_agent", "url": "http://127.0.0.1:9002"},
    {"name": "crew", "server_type": "responses_api_agents", "impl": "crew_agent", "url": "http://127.0.0.1:9003"},
    {"name": "lost", "server_type": "responses_api_agents", "impl": "simple_agent", "url": "http://127.0.0.1:9004"},
    {"name": "policy", "server_type": "responses_api_models", "impl": "vllm_model", "url": "http://127.0.0.1:9005"},
    {"name": "starting", "server_type": "resources_servers", "impl": "books", "url": None},
]  # fmt: skip
DOCUMENT = {
    "books": {"resources_servers": {"books": {}}},
    "books_agent": {"responses_api_agents": {"simple_agent": {"resources_server": {"name": "books"}}}},
    "crew": {"responses_api_agents": {"crew_agent": {"resources_server": {"name": "books"}}}},
    "lost": {"responses_api_agents": {"simple_agent": {}}},
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    app = FastAPI()
    app.get("/server_instances")(lambda: INSTANCES)
    app.get("/global_config_dict_yaml")(lambda: yaml.safe_dump(DOCUMENT))
    with served(app) as url:
        yield int(url.rpartition(":")[2])


def loaded(port: int, folder: Path, agents: list[str], **keys: Any) -> Any:
    rows = [
        {"id": number, "responses_create_params": {"input": f"{number}"}, "agent_ref": {"name": agent}}
        for number, agent in enumerate(agents)
    ]
    path = folder / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return load_entry(EnvConfig.model_validate({"rows": str(path), "head_port": port, "held_out": 0.0} | keys))


def test_a_simple_agents_rows_are_played_here_and_any_other_agent_plays_itself(port: int, tmp_path: Path) -> None:
    group = loaded(port, tmp_path, ["books_agent", "crew", "crew", "books_agent", "crew"])
    assert group.shares() == pytest.approx({"books_agent": 0.4, "crew": 0.6})
    books, crew = group.leaves().values()
    assert (type(books), books.client.url) == (RemoteEnvironment, "http://127.0.0.1:9001")
    assert (type(crew), crew.agent.name, crew.client.url) == (AgentEnvironment, "crew", "http://127.0.0.1:9003")
    assert [[task.id for task in leaf.tasks("train")] for leaf in (books, crew)] == [[0, 3], [1, 2, 4]]


@pytest.mark.parametrize(
    ("agent", "keys", "kind", "address"),
    [
        ("crew", {"play": "here"}, RemoteEnvironment, "http://127.0.0.1:9001"),
        ("books_agent", {"play": "agent"}, AgentEnvironment, "http://127.0.0.1:9002"),
        ("anybody", {"server": "books"}, RemoteEnvironment, "http://127.0.0.1:9001"),
        ("anybody", {"server": "crew"}, AgentEnvironment, "http://127.0.0.1:9003"),
    ],
)
def test_who_plays_can_be_said(
    port: int, tmp_path: Path, agent: str, keys: dict[str, str], kind: type, address: str
) -> None:
    environment = loaded(port, tmp_path, [agent] * 2, **keys)
    [leaf] = environment.leaves().values()
    assert (type(leaf), leaf.client.url) == (kind, address)


def test_an_agent_whose_environment_is_not_known_is_told_with_the_way_out(port: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'agent \'lost\' says no resources server .*: play = "agent"'):
        loaded(port, tmp_path, ["lost"])
    with pytest.raises(UsageError, match=r"has no environment or agent 'starting'"):
        loaded(port, tmp_path, ["x"], server="starting")
