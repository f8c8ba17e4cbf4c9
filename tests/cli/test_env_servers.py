"""`polygym env start` and its companions, as commands: processes, signals, files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from serve.stack_worlds import marked_processes

POLYGYM = [sys.executable, "-m", "polygym"]
TWO = ["--resources-server", "example_single_tool_call", "--resources-server", "example_multi_step"]
ORACLE = ["--model-type", "oracle_model"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@dataclass
class Shell:
    """Runs commands with a state folder and a mark of their own."""

    folder: Path
    environ: dict[str, str]
    mark: str

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """A command, to its end."""
        done = subprocess.run(
            [*POLYGYM, "env", *arguments], cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == code, done.stderr
        return done

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A stack in the foreground, ready, in a process group of its own as in a terminal."""
        process = subprocess.Popen(
            [*POLYGYM, "env", "start", "--head-port", "0", *arguments],
            cwd=self.folder,
            env=self.environ,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("all ready"):
                return process
        raise AssertionError("".join(lines))

    def stack(self) -> dict[str, Any]:
        """The only stack, as `status` tells of it."""
        (stack,) = json.loads(self.run("status", "--json").stdout)
        return stack

    def left(self) -> dict[int, str]:
        """Processes that still run."""
        return marked_processes(self.mark)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    mark = f"polygym-test-{uuid.uuid4().hex}"
    drop = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "POLICY_API_KEY", "POLICY_BASE_URL", "POLICY_MODEL_NAME")
    environ = {name: value for name, value in os.environ.items() if name not in drop}
    environ |= {"XDG_STATE_HOME": str(tmp_path / "state"), "TEST_MARK": mark}
    environ["PYTHONPATH"] = str(Path(__file__).parents[1] / "serve")
    yield Shell(tmp_path, environ, mark)
    for pid in marked_processes(mark):
        os.kill(pid, signal.SIGKILL)


def gone(shell: Shell, seconds: float) -> float:
    """How long until nothing is left."""
    began = time.monotonic()
    while left := shell.left():
        assert time.monotonic() - began < seconds, left
        time.sleep(0.02)
    return time.monotonic() - began


def catches_sigterm(pid: int) -> bool:
    """Whether a process handles SIGTERM, as a command does once it has begun (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


@linux
def test_ctrl_c_ends_everything_within_five_seconds(shell: Shell):
    process = shell.start(*ORACLE, *TWO)
    assert len(shell.left()) == 7  # the supervisor, its fork server, five servers
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=5) == 130
    assert gone(shell, 0.5) < 0.5
    assert process.stderr is not None and process.stderr.read().endswith("interrupted\n")


@linux
def test_ctrl_c_while_starting_ends_everything(shell: Shell):
    arguments = [*POLYGYM, "env", "start", "--head-port", "0", *ORACLE, *TWO]
    for seconds in (0.0, 0.3, 0.7):
        process = subprocess.Popen(
            arguments, cwd=shell.folder, env=shell.environ, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        while not catches_sigterm(process.pid):  # before that it is Python that starts
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGINT)
        try:
            _, told = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:  # Python drops an interrupt in a callback of its imports: press again
            os.killpg(process.pid, signal.SIGINT)
            _, told = process.communicate(timeout=10)
        assert told.endswith("interrupted\n")
        assert "Traceback" not in told or "Exception ignored in" in told
        # Interrupted inside exec(), as in the making of a dataclass, Python ends by SIGINT whatever the exit code.
        assert process.returncode in (130, -signal.SIGINT)
        gone(shell, 5.0)


@linux
def test_a_stack_that_is_still_starting_is_stopped_within_five_seconds(shell: Shell):
    config = shell.folder / "slow.yaml"
    config.write_text("slow:\n  resources_servers:\n    slow: {entrypoint: 'stack_worlds:Slow'}\n", encoding="utf-8")
    process = subprocess.Popen(
        [*POLYGYM, "env", "start", "--detach", "--head-port", "0", *ORACLE, "--config", str(config)],
        cwd=shell.folder, env=shell.environ, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not list((shell.folder / "state").glob("polygym/stacks/*/stack.json")):
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)
    began = time.monotonic()
    shell.run("stop", "--all")
    assert time.monotonic() - began < 5
    _, told = process.communicate(timeout=5)
    assert (process.returncode, told) == (1, "error: the stack was stopped before it was ready\n")
    gone(shell, 1.0)


@linux
def test_a_second_ctrl_c_waits_for_nothing(shell: Shell):
    config = shell.folder / "echo.yaml"
    config.write_text("echo:\n  resources_servers:\n    echo: {entrypoint: 'stack_worlds:Echo'}\n", encoding="utf-8")
    process = shell.start(*ORACLE, "--config", str(config))
    (url,) = (one["url"] for one in shell.stack()["servers"] if one["name"] == "echo")
    hang = urllib.request.Request(url + "/hang", b"{}", {"Content-Type": "application/json"})
    with pytest.raises(TimeoutError):
        urllib.request.urlopen(hang, timeout=0.3)
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=5) == 130
    assert time.monotonic() - began < 2
    gone(shell, 0.5)
    assert process.stderr is not None
    process.stderr.close()


@linux
@pytest.mark.slow
def test_stop_ends_a_supervisor_that_hangs(shell: Shell):
    shell.run("start", "--detach", "--head-port", "0", *ORACLE, "--resources-server", "example_multi_step")
    os.kill(shell.stack()["pid"], signal.SIGSTOP)
    assert "does not answer" in shell.run("status", code=1).stderr
    assert "stopped the stack" in shell.run("stop").stdout
    gone(shell, 1.0)


@linux
def test_killing_the_supervisor_leaves_no_process(shell: Shell):
    process = shell.start(*ORACLE, *TWO)
    process.kill()
    process.wait()
    gone(shell, 2.0)
    assert "no stack runs" in shell.run("status", code=1).stderr
    assert process.stderr is not None
    process.stderr.close()


@linux
def test_killing_the_supervisor_ends_servers_that_hang_or_are_stopped(shell: Shell):
    config = shell.folder / "echo.yaml"
    config.write_text("echo:\n  resources_servers:\n    echo: {entrypoint: 'stack_worlds:Echo'}\n", encoding="utf-8")
    process = shell.start(*ORACLE, "--config", str(config))
    servers = {one["name"]: one for one in shell.stack()["servers"]}
    os.kill(servers["policy_model"]["pid"], signal.SIGSTOP)
    hang = urllib.request.Request(servers["echo"]["url"] + "/hang", b"{}", {"Content-Type": "application/json"})
    with pytest.raises(TimeoutError):
        urllib.request.urlopen(hang, timeout=0.3)
    process.kill()
    process.wait()
    gone(shell, 2.0)
    assert process.stderr is not None
    process.stderr.close()


def test_in_the_background_a_stack_is_found_and_stopped(shell: Shell):
    began = time.monotonic()
    told = shell.run("start", "--detach", "--head-port", "0", *ORACLE, *TWO).stdout
    assert time.monotonic() - began < 10
    stack = shell.stack()
    assert told.count("ready") == 5 and f"stop with: polygym env stop --head-port {stack['head_port']}\n" in told
    assert [one["status"] for one in stack["servers"]] == ["ready"] * 5
    assert "example_multi_step_simple_agent" in shell.run("status").stdout
    port = str(stack["head_port"])
    assert f"stopped the stack at head port {port}" in shell.run("stop", "--head-port", port).stdout
    assert shell.left() == {}
    assert "no stack runs" in shell.run("status", code=1).stderr
    assert "head ports of the stacks that run: none" in shell.run("stop", code=2).stderr


def test_a_second_start_on_a_busy_head_port_fails_before_starting_anything(shell: Shell):
    shell.run("start", "--detach", "--head-port", "0", *ORACLE, "--resources-server", "example_multi_step")
    port = str(shell.stack()["head_port"])
    before = shell.left()
    done = shell.run("start", "--head-port", port, *ORACLE, "--resources-server", "math_rl", code=2)
    assert done.stderr.startswith(f"error: head port {port} is in use") and "--join" in done.stderr
    assert "math_rl" not in done.stderr
    assert shell.left() == before
    added = shell.run("start", "--join", "--head-port", port, "--resources-server", "math_rl").stdout
    assert "math_rl_simple_agent" in added
    assert len(shell.stack()["servers"]) == 5
    shell.run("stop", "--all")
    assert shell.left() == {}


def test_a_stack_that_cannot_come_up_in_the_background_says_why(shell: Shell):
    config = shell.folder / "broken.yaml"
    config.write_text("broken:\n  resources_servers:\n    broken: {entrypoint: 'stack_worlds:Broken'}\n", "utf-8")
    done = shell.run("start", "--detach", "--head-port", "0", *ORACLE, "--config", str(config), code=1)
    assert "server 'broken' ended with exit code 1" in done.stderr and "the disk is on fire" in done.stderr
    gone(shell, 1.0)


@linux
def test_secrets_are_in_no_log_argument_environment_or_answer(shell: Shell):
    secrets = ("sk-argument-1", "sk-yaml-2", "t0ken-3")
    (shell.folder / "env.yaml").write_text("other_api_key: sk-yaml-2\npolicy_model_name: m\n", encoding="utf-8")
    shell.environ["POLYGYM_TOKEN"] = secrets[2]
    process = shell.start(
        "--model-type", "openai_model", "--model-url", "http://127.0.0.1:9/v1", "--model-api-key", secrets[0],
        "--resources-server", "example_multi_step",
    )  # fmt: skip
    stack = shell.stack()
    asked = urllib.request.Request(stack["url"] + "/server_instances", headers={"Authorization": "Bearer t0ken-3"})
    seen = [urllib.request.urlopen(asked).read().decode()]
    asked = urllib.request.Request(
        stack["url"] + "/global_config_dict_yaml", headers={"Authorization": "Bearer t0ken-3"}
    )
    document = json.loads(urllib.request.urlopen(asked).read())
    assert "openai_api_key: '****'" in document and "other_api_key: '****'" in document
    model = next(one for one in stack["servers"] if one["name"] == "policy_model")
    body = json.dumps({"model": "m", "input": "hi"}).encode()
    headers = {"Authorization": "Bearer t0ken-3", "Content-Type": "application/json"}
    with pytest.raises(urllib.error.HTTPError) as failed:  # nobody listens at that endpoint
        urllib.request.urlopen(urllib.request.Request(model["url"] + "/v1/responses", body, headers))
    seen += [document, failed.value.read().decode(), json.dumps(stack)]
    left = shell.left()
    assert len(left) == 5
    for pid, arguments in left.items():
        environ = "" if pid == process.pid else Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")
        seen += [arguments, environ]
    process.terminate()
    assert process.wait(timeout=5) == 0
    assert process.stderr is not None
    logs = [path.read_text() for path in Path(stack["logs"]).iterdir()]
    assert len(logs) == 5  # three servers, what starts them, and who keeps them up
    told = process.stderr.read()
    assert told.endswith("stopped\n")
    for text in (*seen, *logs, told):
        assert not [secret for secret in secrets if secret in text], text


def test_resolve_prints_the_merged_configuration_without_secrets(shell: Shell):
    (shell.folder / "env.yaml").write_text(
        "policy_base_url: http://a/v1\npolicy_api_key: sk-secret\n", encoding="utf-8"
    )
    arguments = ["--model-type", "vllm_model", "--model", "m", "--resources-server", "example_multi_step"]
    told = shell.run("resolve", *arguments).stdout
    assert "sk-secret" not in told
    (shell.folder / "resolved.yaml").write_text(told, encoding="utf-8")
    (shell.folder / "env.yaml").unlink()
    assert shell.run("resolve", "--config", "resolved.yaml").stdout == told
    assert "return_token_id_information: true" in told and "base_url: http://a/v1" in told


def test_validate_tells_everything_wrong_with_servers_and_rows(shell: Shell):
    rows = shell.folder / "rows.jsonl"
    reference = {"type": "responses_api_agents", "name": "example_mutli_step_simple_agent"}
    row = {"responses_create_params": {"input": "hi"}, "agent_ref": reference}
    rows.write_text(f"{json.dumps(row)}\n{json.dumps(row)}\nnot json\n", encoding="utf-8")
    done = shell.run("validate", *ORACLE, *TWO, "--input", str(rows), code=2)
    assert done.stderr.splitlines() == [
        (
            f"error: {rows}, lines 1, 2: agent 'example_mutli_step_simple_agent' is unknown; did you mean "
            "'example_multi_step_simple_agent'? Allowed: example_multi_step_simple_agent, "
            "example_single_tool_call_simple_agent"
        ),
        (
            f"error: {rows}, line 3: not JSON (Expecting value: line 1 column 1 (char 0)); each line holds one whole "
            "object"
        ),
    ]
    good = {**row, "agent_ref": {**reference, "name": "example_multi_step_simple_agent"}}
    rows.write_text(json.dumps(good) + "\n", encoding="utf-8")
    assert shell.run("validate", *ORACLE, *TWO, "--input", str(rows)).stdout == f"all is well: 5 servers, {rows}\n"
    assert (
        "no stack runs at head port 11999"
        in shell.run("validate", "--input", str(rows), "--head-port", "11999", code=2).stderr
    )
    done = shell.run("validate", "--model-type", "openai_model", "--input", str(rows), "--model", "m", code=2)
    assert done.stderr.count("error: ") == 2 and "policy_base_url is missing" in done.stderr
    assert f"{rows}, line 1: agent 'example_multi_step_simple_agent' is unknown" in done.stderr
