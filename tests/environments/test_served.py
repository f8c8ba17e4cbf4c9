"""An environment by its server's address."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from environments.worlds import Countdown, Script, rows
from polygym.environments import RemoteEnvironment, load_environment, play
from polygym.environments.wire_rows import row_of
from polygym.errors import UsageError
from polygym.policies.base import Sampling
from polygym.rows import dump_row
from polygym.serve.app import create_app
from polygym.serve.environment_server import EnvironmentServer
from serve.serving import served

COUNTDOWN = Countdown(rows(10))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "countdown.jsonl"
    path.write_bytes(b"".join(dump_row(row_of(COUNTDOWN, task)) for task in COUNTDOWN.tasks()))
    return path


def test_an_address_and_rows_are_an_environment_that_plays(file: Path) -> None:
    with served(EnvironmentServer(COUNTDOWN).app()) as url:
        environment = load_environment(url, rows=str(file), held_out=0.5)
        assert isinstance(environment, RemoteEnvironment)
        assert (environment.name, len(environment.tasks("train")), len(environment.tasks("held_out"))) == (
            "countdown", 4, 4,
        )  # fmt: skip
        task = environment.tasks("held_out")[0]
        assert asyncio.run(play(environment, task, Script("go"), sampling=Sampling(), seed=0)).reward == 1.0
        only_held_out = load_environment(url, eval_rows=str(file), name="far")
        assert (only_held_out.name, len(only_held_out.tasks("train")), len(only_held_out.tasks("held_out"))) == (
            "far", 0, 8,
        )  # fmt: skip


def test_a_server_that_asks_for_a_token_gets_the_one_of_the_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(EnvironmentServer(COUNTDOWN, token="t0ken").app()) as url:
        monkeypatch.setenv("POLYGYM_TOKEN", "t0ken")
        environment = load_environment(url, rows=str(file))
        task = environment.tasks()[0]
        assert asyncio.run(play(environment, task, Script("go"), sampling=Sampling(), seed=0)).reward == 1.0


def test_what_cannot_be_loaded_by_address_is_told_at_once(file: Path) -> None:
    with pytest.raises(UsageError, match=r"no server answers at http://127.0.0.1:9: .*; start it"):
        load_environment("http://127.0.0.1:9", rows=str(file))
    with pytest.raises(UsageError, match=r"needs its tasks: give rows=FILE"):
        load_environment("http://127.0.0.1:9")
    with pytest.raises(UsageError, match=r"has no argument 'row'; did you mean 'rows'\?"):
        load_environment("http://127.0.0.1:9", row=str(file))
    with (
        served(create_app("agent", "responses_api_agents")) as url,
        pytest.raises(UsageError, match=r"is one of the responses_api_agents, no environment; give the address of"),
    ):
        load_environment(url, rows=str(file))
