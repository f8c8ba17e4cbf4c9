"""Servers are started together, kept up on the address they have, and gone afterwards. Real processes."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from polygym.environments.wire_rows import row_of
from polygym.errors import UsageError
from polygym.serve.config import StackConfig, load_config
from polygym.serve.server import StartError
from polygym.serve.sockets import request
from polygym.serve.stacks import find_stack, running_stacks, state_folder
from polygym.serve.supervisor import Supervisor
from serve.stack_worlds import alive, load_repeat

MODEL = {"model_type": "oracle_model"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configure(folder: Path, blocks: str = "", **options: Any) -> StackConfig:
    file = folder / "servers.yaml"
    file.write_text(blocks or "{}", encoding="utf-8")
    return load_config([file], head_port=0, environ={}, **{**MODEL, **options})


def echo(name: str = "echo", **settings: object) -> str:
    lines = [f"{name}:", "  resources_servers:", f"    {name}:", "      entrypoint: stack_worlds:Echo"]
    return "\n".join([*lines, *(f"      {key}: {value}" for key, value in settings.items()), ""])


def instance(supervisor: Supervisor, name: str) -> dict[str, Any]:
    return next(found for found in supervisor.instances() if found["name"] == name)


async def until(condition: Any, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)


async def call(url: str, tool: str) -> Any:
    return (await request(url, f"/{tool}", method="POST", body={}, headers={"Content-Type": "application/json"}))[1]


def test_all_servers_answer_inside_and_are_gone_afterwards(folder: Path):
    async def check() -> list[int]:
        config = configure(folder, resources_servers=["example_single_tool_call", "example_multi_step"])
        async with Supervisor(config) as stack:
            found = stack.instances()
            assert [one["status"] for one in found] == ["ready"] * 5
            assert len({one["pid"] for one in found}) == 5
            for one in found:
                status, body = await request(one["url"])
                assert (status, body["name"], body["kind"]) == (200, one["name"], one["server_type"])
            assert (await request(stack.url, "/server_instances"))[1][0]["name"] == "example_single_tool_call"
            assert find_stack(stack.port) == running_stacks()[0]
            document = yaml.safe_load((await request(stack.url, "/global_config_dict_yaml"))[1])
            block = document["example_multi_step"]["resources_servers"]["example_multi_step"]
            assert block == {"entrypoint": "app.py", "host": "127.0.0.1", "port": found[1]["port"]}
            assert document["head_server"] == {"host": "127.0.0.1", "port": stack.port}
        assert running_stacks() == []
        return [one["pid"] for one in found]

    assert [pid for pid in asyncio.run(check()) if alive(pid)] == []


def test_rollouts_of_one_environment_with_different_arguments_are_played_behind_a_token(folder: Path):
    """The agents, the oracle and the resources servers of a stack agree on names, arguments and the token."""
    lengths = {"short": 3, "long": 6}
    game = "game: {{entrypoint: stack_worlds:load_repeat, args: {{length: {length}}}}}"
    blocks = "".join(
        f"{name}:\n  resources_servers:\n    {game.format(length=length)}\n" for name, length in lengths.items()
    )

    async def check() -> None:
        headers = {"Authorization": "Bearer t0ken-2", "Content-Type": "application/json"}
        async with Supervisor(configure(folder, blocks, token="t0ken-2")) as stack:
            for name, length in lengths.items():
                environment = load_repeat(length)
                row = row_of(environment, environment.tasks("held_out")[0])
                url = instance(stack, f"{name}_simple_agent")["url"]
                status, reply = await request(url, "/run", method="POST", body=row, headers=headers)
                assert (status, reply["reward"], reply["environment"]) == (200, float(length), name)

    asyncio.run(check())


def test_a_killed_server_comes_back_on_its_port_and_is_counted(folder: Path):
    async def check() -> None:
        async with Supervisor(configure(folder, echo())) as stack:
            before = instance(stack, "echo")
            os.kill(before["pid"], signal.SIGKILL)
            assert (await call(before["url"], "pid"))["pid"] != before["pid"]  # it waits for the next process
            await until(lambda: instance(stack, "echo")["status"] == "ready")
            after = instance(stack, "echo")
            assert (after["port"], after["restarts"]) == (before["port"], 1)
            assert after["pid"] != before["pid"]

    asyncio.run(check())


def test_a_crash_loop_backs_off_and_whoever_connects_is_told_so(folder: Path):
    marks = folder / "marks"
    blocks = echo(args=f"{{marks: {marks}}}").replace("Echo", "Crashing")

    async def check() -> None:
        async with Supervisor(configure(folder, blocks)) as stack:
            found = instance(stack, "echo")
            os.kill(found["pid"], signal.SIGKILL)
            await until(lambda: instance(stack, "echo")["restarts"] >= 3)
            status, body = await request(found["url"], "/pid", method="POST", body={})
            assert (status, body["error"]["class"]) == (503, "server_down")
            assert instance(stack, "echo")["status"] == "restarting"
            began = time.monotonic()
        assert time.monotonic() - began < 3  # stopping does not wait for the pause
        log = Path(found["log"]).read_text()
        assert "no luck" in log and log.count("ended with exit code 7; restart ") == 2
        told = [line.partition(" ")[2] for line in (stack.logs / "supervisor.log").read_text().splitlines()]
        about = [line.removeprefix("echo: ") for line in told if line.startswith("echo: ")]
        assert about[:5] == [
            f"started as process {found['pid']} at {found['url']}",
            "ready",
            f"process {found['pid']} was killed by signal 9",
            "restart 1, at once",
            about[4],
        ]
        assert about[4].startswith("started as process ")
        assert "restart 2, after a pause of 1 s" in about and told[-1] == "stopped"

    asyncio.run(check())
    times = [float(line) for line in marks.read_text().splitlines()]
    pauses = [later - earlier for earlier, later in itertools.pairwise(times[1:])]
    assert 1.0 <= pauses[0] < 2.0


def test_a_taken_port_is_told_before_anything_starts(folder: Path):
    async def check(**options: Any) -> str:
        with pytest.raises(UsageError) as caught:
            async with Supervisor(configure(folder, **options)):
                pass
        return str(caught.value)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        began = time.monotonic()
        told = asyncio.run(check(blocks=echo(port=port)))
        assert (
            told == f"server 'echo': port {port} of 127.0.0.1 is in use; give another port, or none to have a free one"
        )
        assert time.monotonic() - began < 0.5
    assert not state_folder().exists()


def test_a_server_that_does_not_come_up_ends_the_start_with_its_own_words(folder: Path):
    async def check(blocks: str) -> Exception:
        with pytest.raises((UsageError, StartError)) as caught:
            async with Supervisor(configure(folder, blocks)):
                pass
        assert running_stacks() == []
        return caught.value

    broken = asyncio.run(check(echo().replace("Echo", "Broken")))
    assert isinstance(broken, StartError)
    assert "server 'echo' ended with exit code 1 before it was ready" in str(broken)
    assert "RuntimeError: the disk is on fire" in str(broken)
    wrong = asyncio.run(check("math_rl:\n  resources_servers:\n    math_rl: {args: {num_exmples: 3}}\n"))
    assert isinstance(wrong, UsageError)
    assert str(wrong).startswith("server 'math_rl': environment 'math_rl' has no argument 'num_exmples'; did you mean")


def test_a_server_that_hangs_is_shown_and_does_not_hold_up_the_end(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("polygym.serve.server.CHECK_SECONDS", 0.3)

    async def check() -> None:
        async with Supervisor(configure(folder, echo())) as stack:
            found = instance(stack, "echo")
            hanging = asyncio.create_task(call(found["url"], "hang"))
            await until(lambda: instance(stack, "echo")["status"] == "not answering")
            began = time.monotonic()
        assert time.monotonic() - began < 5
        assert not alive(found["pid"])
        with pytest.raises((OSError, EOFError)):
            await hanging

    asyncio.run(check())


def test_requests_under_way_do_not_hold_up_the_end(folder: Path):
    async def check() -> None:
        async with Supervisor(configure(folder, echo())) as stack:
            slow = asyncio.create_task(call(instance(stack, "echo")["url"], "slow"))
            await asyncio.sleep(0.2)
            began = time.monotonic()
        assert time.monotonic() - began < 5
        await asyncio.gather(slow, return_exceptions=True)

    asyncio.run(check())


def test_the_fork_servers_death_is_a_crash_of_all_and_they_come_back(folder: Path):
    async def check() -> None:
        async with Supervisor(configure(folder, echo())) as stack:
            before = {one["name"]: one["pid"] for one in stack.instances()}
            parent = int(Path(f"/proc/{before['echo']}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(parent, signal.SIGKILL)
            await until(lambda: all(one["restarts"] == 1 and one["status"] == "ready" for one in stack.instances()))
            assert not [pid for pid in before.values() if alive(pid)]

    if sys.platform == "linux":
        asyncio.run(check())


def test_servers_join_a_stack_and_are_refused_where_they_do_not_fit(folder: Path):
    async def check() -> None:
        async with Supervisor(configure(folder, echo())) as stack:
            record = find_stack(stack.port)
            assert record is not None
            running = {one["name"]: one["server_type"] for one in await record.instances()}
            more = load_config(resources_servers=["math_rl"], running=running, environ={})
            added = await record.join(more)
            assert [one["name"] for one in added] == ["math_rl", "math_rl_simple_agent"]
            assert [one["status"] for one in stack.instances()] == ["ready"] * 5
            with pytest.raises(UsageError, match="'math_rl' runs already"):
                await record.join(more)
            bad = folder / "bad.yaml"
            bad.write_text("bad:\n  resources_servers:\n    tool_use: {args: {nonsense: 1}}\n", encoding="utf-8")
            with pytest.raises(UsageError, match="no argument 'nonsense'"):
                await record.join(load_config([bad], running=running, environ={}))
            assert [one["status"] for one in stack.instances()] == ["ready"] * 5
            status, _body = await request(stack.url, "/stop", method="POST", body={})
            assert status == 403 and not stack.stop_asked.is_set()
            status, _ = await request(
                stack.url, "/join", method="POST", body={}, headers={"x-polygym-control": "guess"}
            )
            assert status == 403

    asyncio.run(check())


def test_one_process_is_enough(folder: Path):
    async def check() -> None:
        config = configure(folder, resources_servers=["example_single_tool_call", "example_multi_step"])
        async with Supervisor(config, single_process=True) as stack:
            assert {one["pid"] for one in stack.instances()} == {os.getpid()}
            assert [one["status"] for one in stack.instances()] == ["ready"] * 5
            url = instance(stack, "example_multi_step")["url"]
            assert (await request(url))[1]["name"] == "example_multi_step"
        with pytest.raises(OSError):
            await request(url)

    asyncio.run(check())


def test_settings_that_one_process_refuses_are_told(folder: Path):
    async def check() -> str:
        config = configure(folder, "math_rl:\n  resources_servers:\n    math_rl: {args: {num_exmples: 3}}\n")
        with pytest.raises(UsageError) as caught:
            async with Supervisor(config, single_process=True):
                pass
        return str(caught.value)

    assert asyncio.run(check()).startswith("server 'math_rl': environment 'math_rl' has no argument 'num_exmples'")


def test_with_a_token_nothing_but_liveness_is_open(folder: Path):
    async def check() -> None:
        async with Supervisor(configure(folder, echo(), token="t0ken-1")) as stack:
            url = instance(stack, "echo")["url"]
            assert (await request(url))[0] == 200
            assert (await request(url, "/pid", method="POST", body={}))[0] == 401
            assert (await request(stack.url, "/server_instances"))[0] == 401
            record = find_stack(stack.port)
            assert record is not None and len(await record.instances()) == 3

    asyncio.run(check())


def test_the_state_file_is_its_owners_alone(folder: Path):
    async def check() -> None:
        async with Supervisor(configure(folder, echo())) as stack:
            file = state_folder() / str(stack.port) / "stack.json"
            assert file.stat().st_mode & 0o777 == 0o600
            assert stack.control in file.read_text()
            assert stack.control not in repr(find_stack(stack.port))

    asyncio.run(check())
