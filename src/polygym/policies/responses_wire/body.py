"""Response objects: the body that answers `POST /v1/responses`, and the `response` of a whole rollout.

The one idea: writing is exact and reading is total. Any body has a meaning (`classify_response`): a sample, a reason to
try again, or a reason to give up.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from polygym.messages import Message
from polygym.policies.outcomes import Outcome, classify, hidden_error, shape_of
from polygym.policies.responses_wire.items import Item, output_items, reply_items
from polygym.policies.responses_wire.params import tool_items
from polygym.policies.wire import (
    TOKEN_FIELDS,
    Sample,
    WireCall,
    content_texts,
    log_probs,
    read_usage,
    token_ids,
    with_call_ids,
)
from polygym.policies.wire_input import read_tools
from polygym.rollout import Turn

_ECHOED = (
    "instructions",
    "max_output_tokens",
    "metadata",
    "reasoning",
    "temperature",
    "text",
    "top_p",
    "truncation",
    "user",
)


def response_body(
    turns: Sequence[Turn],
    replies: Sequence[Sequence[Message]] = (),
    *,
    model: str,
    params: Mapping[str, Any] | None = None,
    position: int = 0,
    token_fields: bool = False,
    truncated: bool = False,
    response_id: str | None = None,
    created_at: float | None = None,
) -> dict[str, Any]:
    """The Response object of one or more turns.

    Args:
        replies: what the environment said after each turn; may end early.
        model: name of the policy.
        params: the request's parameters; some of them are repeated in the response.
        position: number of messages before the first turn, which names calls without an id.
        token_fields: whether the last item of each turn carries its token ids and log-probabilities.
        truncated: whether a token limit ended it; a last turn that was cut says so by itself.
        response_id: default is a random one; the ids of the items follow from it.
    """
    params = params or {}
    response_id = response_id or f"resp_{secrets.token_hex(16)}"
    base = response_id.removeprefix("resp_")
    output: list[Item] = []
    for number, turn in enumerate(turns):
        reply = replies[number] if number < len(replies) else ()
        output += output_items(turn, token_fields, base=f"{base}_{number}", position=position)
        output += reply_items(with_call_ids([turn.message, *reply], position)[1:])
        position += 1 + len(reply)
    truncated = truncated or (bool(turns) and turns[-1].finish_reason in ("length", "context"))
    read = sum(turn.usage.prompt_tokens for turn in turns)
    written = sum(turn.usage.completion_tokens for turn in turns)
    tools = params.get("tools") or []
    return {
        "id": response_id,
        "object": "response",
        "created_at": int(time.time() if created_at is None else created_at),
        "status": "incomplete" if truncated else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if truncated else None,
        "model": model,
        "output": output,
        "parallel_tool_calls": params.get("parallel_tool_calls", True),
        "tool_choice": params.get("tool_choice") or "auto",
        "tools": [tool if "name" in tool else tool_items(read_tools([tool]))[0] for tool in tools],
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + written,
        },
        **{name: params[name] for name in _ECHOED if params.get(name) is not None},
    }


def classify_response(status: int, body: Any, retry_after: float | None = None) -> Outcome:
    """The meaning of an HTTP answer of a server of the Responses API, as `outcomes.classify` tells it for chat.

    >>> classify_response(200, {"output": [], "error": {"message": "overloaded"}}).reason
    'rate_limited'
    """
    return classify(status, body, retry_after, _success)


def _success(body: Any, retry_after: float | None) -> Outcome:
    if not isinstance(body, Mapping):
        return Outcome(
            "retry", "empty_response", f"status 200 with {shape_of(body)} in place of a response", retry_after
        )
    output, status = body.get("output"), body.get("status")
    if body.get("error") or body.get("object") == "error":
        return hidden_error(body, retry_after)
    if not isinstance(output, Sequence) or isinstance(output, str):
        return Outcome("retry", "empty_response", f"status 200 without output: {shape_of(body)}", retry_after)
    if status in ("failed", "cancelled"):
        return Outcome("retry", "server_error", f"the server broke off the response (status {status!r})", retry_after)
    details = body.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    if reason == "content_filter":
        return Outcome("fail", "content_filter", "the endpoint filtered the response")
    sample = _sample([item for item in output if isinstance(item, Mapping)])
    if reason or status == "incomplete":
        return Outcome("stop", "truncated", "the response was cut by a token limit", sample=sample)
    if not sample.is_empty or read_usage(body, None).completion_tokens:
        return Outcome("continue", sample=sample)
    detail = "status 200 with neither text, reasoning nor tool call"
    return Outcome("retry", "empty_response", detail, retry_after, sample)


def _sample(output: Sequence[Mapping[str, Any]]) -> Sample:
    """What the items of one turn say."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls = []
    tokens: Mapping[str, Any] = {}
    for item in output:
        kind = item.get("type", "message")
        if kind == "message" and item.get("role", "assistant") == "assistant":
            visible, thought = content_texts(item.get("content"))
            texts.append(visible)
            thoughts.append(thought)
        elif kind == "reasoning":
            parts = item.get("content") or item.get("summary")
            parts = parts if isinstance(parts, Sequence) and not isinstance(parts, str) else [parts]
            thoughts += ["".join(content_texts([part])) for part in parts]
        elif kind == "function_call":
            name, call_id = item.get("name"), item.get("call_id")
            calls.append(
                WireCall(
                    name if isinstance(name, str) else "",
                    item.get("arguments"),
                    call_id if isinstance(call_id, str) else "",
                    item.get("error"),
                )
            )
        if item.get("generation_token_ids") is not None:
            tokens = item
    prompt, ids, logprobs = (tokens.get(name) for name in TOKEN_FIELDS)
    ids = token_ids(ids)
    return Sample(
        "".join(texts),
        "\n".join(thought for thought in thoughts if thought),
        tuple(calls),
        token_ids(prompt),
        ids,
        log_probs(logprobs, ids),
    )
