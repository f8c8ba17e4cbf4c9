"""An OpenAI-compatible server that costs as little as a server can: what is measured against it is the client.

    python benchmarks/instant_server.py --port 0          # prints the port it listens on, then serves until killed
    python benchmarks/instant_server.py --replies replies.json

Without `--replies` every request gets the text "1". With it, the file names what to say: an object whose keys are
looked for in the request, in the file's order, and whose values are the replies turn by turn (the last one is
repeated). A reply is a text, or a list of tool calls `{"name": ..., "arguments": {...}}`. An empty key fits all.

    {"Use the tools": [[{"name": "count_words", "arguments": {"text": "a b"}}], "2"], "": ["\\\\boxed{1}"]}

The one idea: requests are not parsed. The turn is the number of assistant messages in the body, found by searching its
bytes (written as `"role":"assistant"`, without spaces); replies are whole HTTP answers built at start.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

ASSISTANT = b'"role":"assistant"'


def http_answer(reply: str | list[dict[str, Any]]) -> bytes:
    """The bytes of a whole answer."""
    message: dict[str, Any] = {"role": "assistant", "content": reply}
    if not isinstance(reply, str):
        calls = [
            {
                "id": f"call_{index}",
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
            }
            for index, call in enumerate(reply)
        ]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "stop" if isinstance(reply, str) else "tool_calls"}
    usage = {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60}
    body = json.dumps({"id": "instant", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Instant(asyncio.Protocol):
    """One connection."""

    def __init__(self, replies: list[tuple[bytes, list[bytes]]]) -> None:
        self.replies = replies
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to answer on."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

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
            body = buffer[head_end + 4 : end]
            turn = body.count(ASSISTANT)
            answers = next((answers for key, answers in self.replies if key in body), self.replies[-1][1])
            self.transport.write(answers[min(turn, len(answers) - 1)])
            buffer = buffer[end:]
        self.buffer = buffer


def read_replies(path: Path | None) -> list[tuple[bytes, list[bytes]]]:
    """Keys and whole answers, in the file's order; a key is compared as it stands inside JSON text."""
    script = json.loads(path.read_text("utf-8")) if path else {"": ["1"]}
    return [
        (json.dumps(key, ensure_ascii=False)[1:-1].encode(), [http_answer(reply) for reply in turns])
        for key, turns in script.items()
    ]


async def serve(port: int, replies: list[tuple[bytes, list[bytes]]]) -> None:
    """Listen, print the port, and answer for ever."""
    server = await asyncio.get_running_loop().create_server(lambda: Instant(replies), "127.0.0.1", port, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    """Read the options and serve."""
    parser = argparse.ArgumentParser(description="An OpenAI-compatible server that answers at once, without a model.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--replies", type=Path, help="JSON file of what to say")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(options.port, read_replies(options.replies)))


if __name__ == "__main__":
    main()
