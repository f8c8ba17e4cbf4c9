"""Server-sent events of a finished answer: chunks of a chat completion, events of a response.

The one idea: events are cut from the same body that a request without `stream` gets, so that both say the same. The
answer is complete before its first event is sent; what a client gains is the protocol, not an earlier first word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from polygym.serve.app import encode_json

MEDIA_TYPE = "text/event-stream"
DONE = b"data: [DONE]\n\n"
_PIECES = re.compile(r"\s*\S+\s*$|\s*\S+|\s+")


def pieces(text: str) -> list[str]:
    """Text in pieces of a word each; joined they are the text.

    >>> pieces("It is 4. ")
    ['It', ' is', ' 4. ']
    """
    return _PIECES.findall(text)


def chat_chunks(body: Mapping[str, Any], include_usage: bool) -> bytes:
    """A chat completion as its stream."""
    head = {key: body[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    lines: list[bytes] = []

    def send(choices: list[dict[str, Any]], **more: Any) -> None:
        lines.append(b"data: " + encode_json({**head, "choices": choices, **more}) + b"\n\n")

    for choice in body["choices"]:
        for delta, more in _deltas(choice):
            send([{"index": choice["index"], "delta": delta, "finish_reason": None, "logprobs": None, **more}])
    if include_usage:
        send([], usage=body["usage"])
    return b"".join([*lines, DONE])


def _deltas(choice: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """What is new in each chunk of one choice: fields of the message, and of the choice."""
    message = choice["message"]
    yield {"role": "assistant", "content": ""}, {}
    for piece in pieces(message.get("reasoning_content") or ""):
        yield {"reasoning_content": piece}, {}
    for piece in pieces(message["content"] or ""):
        yield {"content": piece}, {}
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        yield {"tool_calls": [{"index": index, **call, "function": {"name": function["name"], "arguments": ""}}]}, {}
        yield {"tool_calls": [{"index": index, "function": {"arguments": function["arguments"]}}]}, {}
    told = {"role", "content", "refusal", "reasoning_content", "tool_calls"}
    yield (
        {key: value for key, value in message.items() if key not in told},
        {key: value for key, value in choice.items() if key not in ("index", "message")},
    )


def response_events(body: Mapping[str, Any]) -> bytes:
    """A response as its stream."""
    lines: list[bytes] = []

    def send(kind: str, **fields: Any) -> None:
        data = encode_json({"type": kind, "sequence_number": len(lines), **fields})
        lines.append(b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n")

    begun = {**body, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    send("response.created", response=begun)
    send("response.in_progress", response=begun)
    for index, item in enumerate(body["output"]):
        place = {"item_id": item.get("id"), "output_index": index}
        opened = {**item, "status": "in_progress"}
        if item["type"] == "message":
            send("response.output_item.added", output_index=index, item={**opened, "content": []})
            for at, part in enumerate(item["content"]):
                _send_text(send, {**place, "content_index": at}, part)
        elif item["type"] == "function_call":
            send("response.output_item.added", output_index=index, item={**opened, "arguments": ""})
            send("response.function_call_arguments.delta", **place, delta=item["arguments"])
            send("response.function_call_arguments.done", **place, name=item["name"], arguments=item["arguments"])
        else:
            send("response.output_item.added", output_index=index, item={**opened, "summary": []})
            for at, part in enumerate(item.get("summary") or ()):
                where = {**place, "summary_index": at}
                send("response.reasoning_summary_part.added", **where, part={**part, "text": ""})
                for piece in pieces(part["text"]):
                    send("response.reasoning_summary_text.delta", **where, delta=piece)
                send("response.reasoning_summary_text.done", **where, text=part["text"])
                send("response.reasoning_summary_part.done", **where, part=part)
        send("response.output_item.done", output_index=index, item=item)
    send("response.incomplete" if body.get("status") == "incomplete" else "response.completed", response=body)
    return b"".join(lines)


def _send_text(send: Any, where: Mapping[str, Any], part: Mapping[str, Any]) -> None:
    send("response.content_part.added", **where, part={**part, "text": ""})
    for piece in pieces(part["text"]):
        send("response.output_text.delta", **where, delta=piece, logprobs=[])
    send("response.output_text.done", **where, text=part["text"], logprobs=[])
    send("response.content_part.done", **where, part=part)
