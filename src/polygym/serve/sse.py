"""Server-sent events of an answer: chunks of a chat completion, events of a response.

The one idea: `more` tells of text while it is written, as far as the policy can tell early, and `end` sends the rest of
the finished body, so that a stream says what the body of a request without `stream` says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

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


def error_event(body: Mapping[str, Any]) -> bytes:
    """An error after the stream has begun."""
    return b"event: error\ndata: " + encode_json({"type": "error", **body}) + b"\n\n"


class EventStream(Protocol):
    """One answer as events."""

    def more(self, text: str) -> bytes:
        """Events of what `text`, the visible text so far, has beyond what was sent."""
        ...

    def end(self, body: Mapping[str, Any]) -> bytes:
        """Events of what the finished body has beyond what was sent."""
        ...


class ChatStream:
    """Chunks of a chat completion.

    Args:
        head: `id`, `created` and `model` of the completion.
        include_usage: whether a last chunk tells the tokens used.
    """

    def __init__(self, head: Mapping[str, Any], include_usage: bool) -> None:
        self._head = {**head, "object": "chat.completion.chunk"}
        self._include_usage = include_usage
        self._sent: str | None = None

    def more(self, text: str) -> bytes:
        """See `EventStream`; the text is that of the first choice."""
        chunks = [] if self._sent is not None else [self._chunk(0, {"role": "assistant", "content": ""})]
        if rest := _rest(text, self._sent):
            chunks.append(self._chunk(0, {"content": rest}))
        self._sent = text
        return b"".join(chunks)

    def end(self, body: Mapping[str, Any]) -> bytes:
        """See `EventStream`."""
        chunks = []
        for choice in body["choices"]:
            sent = self._sent if choice["index"] == 0 else None
            chunks += [self._chunk(choice["index"], delta, more) for delta, more in _deltas(choice, sent)]
        if self._include_usage:
            chunks.append(_data({**self._head, "choices": [], "usage": body["usage"]}))
        return b"".join([*chunks, DONE])

    def _chunk(self, index: int, delta: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> bytes:
        choice = {"index": index, "delta": delta, "finish_reason": None, "logprobs": None, **(more or {})}
        return _data({**self._head, "choices": [choice]})


def _deltas(choice: Mapping[str, Any], sent: str | None) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """What is new in each chunk of one choice: fields of the message, and of the choice."""
    message = choice["message"]
    if sent is None:
        yield {"role": "assistant", "content": ""}, {}
    for piece in pieces(message.get("reasoning_content") or ""):
        yield {"reasoning_content": piece}, {}
    for piece in pieces(_rest(message["content"] or "", sent)):
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


class ResponseStream:
    """Events of a response.

    Args:
        begun: the response before there is any output.
        message_id: id of the message whose text is told early.
    """

    def __init__(self, begun: Mapping[str, Any], message_id: str) -> None:
        self._begun = begun
        self._message_id = message_id
        self._count = 0
        self._items = 0
        self._sent: str | None = None

    def more(self, text: str) -> bytes:
        """See `EventStream`."""
        events = [self._open()] if self._sent is None else []
        if rest := _rest(text, self._sent):
            events.append(self._event("response.output_text.delta", **self._part(), delta=rest, logprobs=[]))
        self._sent = text
        return b"".join(events)

    def end(self, body: Mapping[str, Any]) -> bytes:
        """See `EventStream`."""
        events = [] if self._count else [self._start()]
        # The message that has begun comes first, also where reasoning turns out to belong before it.
        early = [item for item in body["output"] if self._sent is not None and item["type"] == "message"]
        for item in [*early, *(item for item in body["output"] if item not in early)]:
            events += self._item(item)
            self._items += 1
        kind = "response.incomplete" if body["status"] == "incomplete" else "response.completed"
        return b"".join([*events, self._event(kind, response=body)])

    def _start(self) -> bytes:
        started = self._event("response.created", response=self._begun)
        return started + self._event("response.in_progress", response=self._begun)

    def _open(self) -> bytes:
        """The beginning of the message."""
        item = {"type": "message", "id": self._message_id, "role": "assistant", "status": "in_progress", "content": []}
        part = {"type": "output_text", "text": "", "annotations": []}
        return (
            self._start()
            + self._event("response.output_item.added", output_index=0, item=item)
            + self._event("response.content_part.added", **self._part(), part=part)
        )

    def _part(self) -> dict[str, Any]:
        return {"item_id": self._message_id, "output_index": 0, "content_index": 0}

    def _item(self, item: Mapping[str, Any]) -> Iterator[bytes]:
        """All events of one item, those that were sent left out."""
        place = {"item_id": item["id"], "output_index": self._items}
        opened = {**item, "status": "in_progress"}
        if item["type"] == "message":
            [part] = item["content"]
            where = {**place, "content_index": 0}
            sent = self._sent if self._items == 0 else None
            if sent is None:
                yield self._event(
                    "response.output_item.added", output_index=self._items, item={**opened, "content": []}
                )
                yield self._event("response.content_part.added", **where, part={**part, "text": ""})
            for piece in pieces(_rest(part["text"], sent)):
                yield self._event("response.output_text.delta", **where, delta=piece, logprobs=[])
            yield self._event(
                "response.output_text.done", **where, text=part["text"], logprobs=part.get("logprobs", [])
            )
            yield self._event("response.content_part.done", **where, part=part)
        elif item["type"] == "function_call":
            name, arguments = item["name"], item["arguments"]
            yield self._event("response.output_item.added", output_index=self._items, item={**opened, "arguments": ""})
            yield self._event("response.function_call_arguments.delta", **place, delta=arguments)
            yield self._event("response.function_call_arguments.done", **place, name=name, arguments=arguments)
        else:
            yield self._event("response.output_item.added", output_index=self._items, item={**opened, "summary": []})
            for at, part in enumerate(item["summary"]):
                where = {**place, "summary_index": at}
                yield self._event("response.reasoning_summary_part.added", **where, part={**part, "text": ""})
                for piece in pieces(part["text"]):
                    yield self._event("response.reasoning_summary_text.delta", **where, delta=piece)
                yield self._event("response.reasoning_summary_text.done", **where, text=part["text"])
                yield self._event("response.reasoning_summary_part.done", **where, part=part)
        yield self._event("response.output_item.done", output_index=self._items, item=item)

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = _data({"type": kind, "sequence_number": self._count, **fields})
        self._count += 1
        return b"event: " + kind.encode() + b"\n" + data


def _rest(text: str, sent: str | None) -> str:
    """What comes after the text that was sent; nothing where it was another, which cannot be taken back."""
    return text if sent is None else text[len(sent) :] if text.startswith(sent) else ""


def _data(value: Mapping[str, Any]) -> bytes:
    return b"data: " + encode_json(value) + b"\n\n"
