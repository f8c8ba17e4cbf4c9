"""`polygym model serve` as a process: what it prints, whom it lets in, how it ends, what memory it takes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from policies.loopback import dead_url
from polygym.serve.sockets import bind

COMMAND = [sys.executable, "-m", "polygym", "model", "serve"]
TOKEN = "token-0123456789"


@contextmanager
def serving(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """The process, the address it announced, and all that it printed first. It is gone at the end of the block."""
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout is not None
        printed = process.stdout.readline()
        found = re.search(r"at (http://\S+/v1) ", printed)
        assert found, (printed, process.stderr and process.stderr.read())
        yield process, found[1], printed
    finally:
        process.kill()
        process.communicate(timeout=10)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )


def resident_megabytes(process: subprocess.Popen[str]) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024  # type: ignore[index]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nano_is_served_until_ctrl_c(number: signal.Signals) -> None:
    with serving("nano") as (process, url, printed):
        assert printed == f"nano answers at {url} (chat/completions, responses, models); Ctrl-C stops it\n"
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
            messages: Any = [{"role": "user", "content": "What is 2 + 3?"}]
            answer = client.chat.completions.create(model="nano", messages=messages, temperature=0)
            assert answer.choices[0].message.content
            assert answer.usage is not None and answer.usage.completion_tokens > 0
        started = time.monotonic()
        process.send_signal(number)
        _, err = process.communicate(timeout=10)
    assert time.monotonic() - started < 5
    assert process.returncode == 130
    assert err == "interrupted\n"


def test_the_command_that_is_printed_gets_an_answer() -> None:
    with serving("nano", "--token", TOKEN) as (process, _, _):
        assert process.stdout is not None
        printed = [process.stdout.readline() for _ in range(3)]
        command = "".join(printed).replace("\\\n", " ").strip()
        done = subprocess.run(
            command, shell=True, capture_output=True, text=True, timeout=30, env={**os.environ, "POLYGYM_TOKEN": TOKEN}
        )
    assert json.loads(done.stdout)["object"] == "chat.completion"
    assert TOKEN not in command


def test_ctrl_c_does_not_wait_for_an_answer_that_takes_long() -> None:
    with serving(f"{dead_url()}#big") as (process, url, _):
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client, pytest.raises(openai.APIStatusError):
            client.responses.create(model="big", input="2+2?")
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.02)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_other_machines_are_let_in_with_a_token_only() -> None:
    refused = run("oracle", "--host", "0.0.0.0")
    assert refused.returncode == 2
    assert refused.stderr == (
        "error: --host 0.0.0.0 lets other machines in, so requests must bring a token: set POLYGYM_TOKEN, "
        "or give --token\n"
    )
    with serving("oracle", "--host", "0.0.0.0", POLYGYM_TOKEN=TOKEN) as (process, url, printed):
        assert TOKEN not in printed
        assert TOKEN not in Path(f"/proc/{process.pid}/cmdline").read_text()
        with pytest.raises(urllib.error.HTTPError) as info:
            urllib.request.urlopen(f"{url}/models", timeout=5)
        assert info.value.code == 401
        request = urllib.request.Request(f"{url}/models", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            assert json.load(answer)["data"][0]["id"] == "oracle"


def test_a_port_that_is_taken_and_a_model_that_is_not_there_are_one_line() -> None:
    with bind("127.0.0.1", 0, "test") as listening:
        port = str(listening.getsockname()[1])
        taken = run("nano", "--port", port)
    assert (taken.returncode, taken.stdout) == (2, "")
    assert f"port {port} of 127.0.0.1 is in use" in taken.stderr
    unknown = run("nanoo", "--port", "0")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "did you mean 'nano'" in unknown.stderr


@pytest.mark.parametrize("model", ["oracle", "http://127.0.0.1:9/v1#big"])
def test_a_server_that_computes_nothing_takes_less_than_90_megabytes(model: str) -> None:
    from polygym.environments import load_environment
    from polygym.environments.wire_rows import row_of

    environment = load_environment("tool_use")
    rows = [row_of(environment, task) for task in environment.tasks()[:50]]
    with serving(model) as (process, url, _), openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        for row in rows:
            params = row["responses_create_params"]
            task = {"environment": "tool_use", "row": row}
            with contextlib.nullcontext() if model == "oracle" else pytest.raises(openai.APIStatusError):
                client.responses.create(
                    model=model, input=params["input"], tools=params["tools"], extra_body={"task": task}
                )
        assert resident_megabytes(process) < 90
