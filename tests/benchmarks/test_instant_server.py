"""The server that the benchmarks over HTTP talk to."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from polygym.messages import Message, ToolCall, ToolSpec
from polygym.policies.base import Request, Sampling
from polygym.policies.openai import OpenAIPolicy

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "instant_server.py"
COUNT = ToolSpec("count", "Count.", {"type": "object", "properties": {"text": {"type": "string"}}})
REPLIES = {"Use the tools": [[{"name": "count", "arguments": {"text": "a b"}}], "2", "2 again"], "": ["\\boxed{1}"]}


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    replies = tmp_path / "replies.json"
    replies.write_text(json.dumps(REPLIES), "utf-8")
    server = subprocess.Popen(
        [sys.executable, SCRIPT, "--port", "0", "--replies", replies], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
    server.kill()
    server.wait()
    server.stdout.close()


def test_replies_are_chosen_by_the_request_and_its_turn(url: str) -> None:
    policy = OpenAIPolicy("m", url)

    async def talk() -> list[Message]:
        messages = [Message("user", "Use the tools: count 'a b'")]
        said = []
        for turn in range(4):
            answer = (await policy.complete(Request(messages, (COUNT,), Sampling(), turn))).message
            said.append(answer)
            messages += [answer, Message("user", "and?")]
        other = await policy.complete(Request([Message("user", "1+0")], (), Sampling(), 0))
        return [*said, other.message]

    said = asyncio.run(talk())
    assert said[0].tool_calls == (ToolCall("count", {"text": "a b"}, "call_0"),)
    assert [message.content for message in said] == ["", "2", "2 again", "2 again", "\\boxed{1}"]


def test_a_call_costs_the_client_less_than_a_millisecond_of_cpu(url: str) -> None:
    policy = OpenAIPolicy("m", url)
    request = Request([Message("user", "x" * 500)], (), Sampling(), 0)

    async def calls(count: int) -> float:
        started = time.process_time()
        await asyncio.gather(*[policy.complete(request) for _ in range(count)])
        return time.process_time() - started

    async def measure() -> float:
        await calls(100)
        return min([await calls(300) for _ in range(3)]) / 300

    assert asyncio.run(measure()) < 0.8e-3
