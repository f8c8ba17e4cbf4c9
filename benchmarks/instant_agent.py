"""A head and agents that cost as little as servers can: what is measured against them is who collects.

    python benchmarks/instant_agent.py             # prints the port of the head, then serves until killed
    python benchmarks/instant_agent.py --wait 0.5  # answers after half a second

Every `POST` is answered with a rollout as polygym's agents tell one; its reward is made of the row's seed, so that a
rollout that is played twice earns the same. Requests are not parsed: the seed is found by searching the body.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re

AGENTS = ("instant_simple_agent", "other_simple_agent")
SEED = re.compile(rb'"_ng_seed": ?(\d+)')
QUESTION = "Which of the two towns is colder today? " * 10
ANSWER = "The northern one, as the tool says. " * 10
ROLLOUT = {
    "schema": 1,
    "messages": [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}],
    "reward": "REWARD",
    "rewards": {"exact": "REWARD"},
    "metrics": {"tool_calls": 1.0},
    "scored": True,
    "cause": None,
    "stop_reason": "answered",
    "truncated": False,
    "turns": 1,
    "usage": {"prompt_tokens": 120, "completion_tokens": 60},
    "seconds": {"policy": 0.1, "environment": 0.1, "grading": 0.1, "total": 0.3},
    "response": {
        "output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]},
        ],
        "usage": {"input_tokens": 120, "output_tokens": 60},
    },
}
BEFORE, BETWEEN, BEHIND = json.dumps(ROLLOUT).encode().split(b'"REWARD"')


def http_answer(body: bytes) -> bytes:
    """The bytes of a whole answer."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Instant(asyncio.Protocol):
    """One connection."""

    def __init__(self, wait_seconds: float) -> None:
        self.wait_seconds = wait_seconds
        self.buffer = b""
        self.port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to answer on."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.port = transport.get_extra_info("sockname")[1]

    def data_received(self, data: bytes) -> None:
        """Answer each whole request in the buffer."""
        buffer = self.buffer + data if self.buffer else data
        while (head_end := buffer.find(b"\r\n\r\n")) >= 0:
            head = buffer[:head_end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            end = head_end + 4 + length
            if len(buffer) < end:
                break
            answer = http_answer(self.answer_to(head, buffer[head_end + 4 : end]))
            if self.wait_seconds and length:
                asyncio.get_running_loop().call_later(self.wait_seconds, self.transport.write, answer)
            else:
                self.transport.write(answer)
            buffer = buffer[end:]
        self.buffer = buffer

    def answer_to(self, head: bytes, body: bytes) -> bytes:
        """A rollout, or what a head and a model server tell of themselves."""
        if head.startswith(b"get /server_instances"):
            url = f"http://127.0.0.1:{self.port}"
            return json.dumps(
                [{"name": name, "server_type": "responses_api_agents", "url": url} for name in AGENTS]
            ).encode()
        if head.startswith(b"get"):
            return b'{"polygym": true, "model": "instant"}'
        found = SEED.search(body)
        reward = json.dumps(int(found[1]) % 8 / 8 if found else 0.0).encode()
        return BEFORE + reward + BETWEEN + reward + BEHIND


async def serve(wait_seconds: float) -> None:
    """Listen, print the port, and answer for ever."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Instant(wait_seconds), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    """Read the options and serve."""
    parser = argparse.ArgumentParser(description="A head and agents that answer at once, without a model.")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds before a rollout is answered")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(parser.parse_args().wait))


if __name__ == "__main__":
    main()
