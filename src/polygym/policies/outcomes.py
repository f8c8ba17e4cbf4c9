"""What one answer of a model endpoint means: go on, try again, stop the episode, or give up.

The one idea: an answer (status and body) maps to one of four actions, in one pure function that never raises, so that
every server's way of saying "too long", "busy" or nothing at all is told apart in one place.

    continue    a sample: text, reasoning, tool calls or token ids
    stop        the policy's own doing ends the episode: `truncated` by a token limit, or the prompt fills the context
    retry       may pass by itself: server_error, rate_limited, timeout, empty_response
    fail        will not pass by itself: auth_error, not_found, bad_request, quota_exceeded, content_filter

An empty sample with status 200 is retried only where the endpoint returned no token ids: with token ids it is what the
policy sampled, and drawing again would bias training. Whoever asks (`polygym.policies.asking`) tries it twice more, and
then takes it for the policy's answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from polygym.messages import Message, ToolSpec
from polygym.policies.wire import Sample, native_turn, read_sample, read_usage
from polygym.rollout import Turn

Action = Literal["continue", "retry", "stop", "fail"]

DETAIL_CHARACTERS = 300
"""How much of a server's own words goes into an error message."""

_LENGTH_REASONS = {"length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"}
_FILTER_REASONS = {"content_filter", "safety", "prohibited_content", "blocklist", "recitation"}
_BROKEN_REASONS = {"abort", "aborted", "cancelled", "error", "insufficient_system_resource"}

# The words in which servers say that the prompt, alone or with the tokens asked for, does not fit: OpenAI and vLLM
# (maximum context length), SGLang (longer than the model's context length; exceeds the maximum allowed length),
# llama.cpp (exceeds the available context size), Anthropic (prompt is too long), TGI (`inputs` must have less than N
# tokens), Gemini (input token count exceeds the maximum), Bedrock, Mistral, LM Studio.
_CONTEXT = re.compile(
    r"""context_length_exceeded | exceed_context_size | context_window_exceeded | string_above_max_length
    | maximum\ (?:context|model|sequence|input)\ length | max(?:imum)?_?(?:model|seq\w*)_?len
    | exceeds?\b[^.]{0,60}\b(?:context|maximum\ allowed\ length|max_total_tokens)
    | (?:context|sequence)\s(?:length|size|window)\b[^.]{0,60}\b(?:exceed|overflow|too\ (?:small|short))
    | (?:longer|larger|greater|more)\ than\b[^.]{0,60}\bcontext
    | (?:prompt|input|request|conversation)\b[^.]{0,40}\btoo\ (?:long|large)\b
    | exceed\w*\ the\ (?:maximum|max)\ (?:number\ of\ )?(?:input\ )?tokens
    | \binput\ token\ count\b[^.]{0,60}\bexceeds
    | `inputs`\ (?:tokens|must\ have\ less\ than)
    | reduce\ the\ length\ of\ the\ (?:messages|prompt|input)
    | \bcontext\ the\ overflows\b | \bcontext\ (?:length\ )?exceeded\b""",
    re.IGNORECASE | re.VERBOSE,
)
_LIMIT_TOKENS = re.compile(r"context length (?:is|of) (?:only )?(\d{1,9})", re.IGNORECASE)
_PROMPT_TOKENS = re.compile(
    r"(\d{1,9})(?: tokens)? (?:in|from) the (?:input )?(?:messages|prompt)|(\d{1,9}) input tokens"
)
_PAGE = re.compile(r"\s*<(?:!doctype|html|head|body)", re.IGNORECASE)
_RATE = re.compile(r"rate.?limit|too many requests|throttl|overloaded", re.IGNORECASE)
_QUOTA = re.compile(r"insufficient_quota|billing_hard_limit|exceeded your current quota|credit balance", re.IGNORECASE)
_FILTER = re.compile(r"content[_ ]?filter|content[_ ](?:management )?policy|responsible_?ai", re.IGNORECASE)
_AUTH = re.compile(r"invalid_api_key|api key|authentication|permission_error|unauthori[sz]ed", re.IGNORECASE)
_MISSING = re.compile(r"model_not_found|not_found_error", re.IGNORECASE)
_CALLER = re.compile(r"invalid_request|bad ?request|invalid_argument|validation", re.IGNORECASE)
_STATUS_OF_WORDS = (
    (_QUOTA, 402),
    (_CONTEXT, 413),
    (_RATE, 429),
    (_AUTH, 401),
    (_MISSING, 404),
    (_FILTER, 400),
    (_CALLER, 400),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one answer means.

    `detail` is for a person. `sample` is what the policy wrote: always there for `continue`, for a `stop` whose sample
    was cut, and for a `retry` whose sample was empty; a `stop` without one means that the prompt does not fit. `status`
    is the HTTP status of an answer that was an error; `final` says that the server asks not to be tried again;
    `relayed` that a server of ours tells what its own policy found, so that the server itself is well.
    """

    action: Action
    reason: str = ""
    detail: str = ""
    retry_after: float | None = None
    sample: Sample | None = None
    status: int | None = None
    final: bool = False
    relayed: bool = False

    @property
    def words(self) -> str:
        """What happened, for a person."""
        return self.detail if self.relayed else f"{self.reason}, {self.detail}"

    @property
    def content(self) -> str:
        """Visible text of the sample, empty where there is none."""
        return self.sample.content if self.sample else ""

    @property
    def n_calls(self) -> int:
        """Tool calls of the sample, bad ones included."""
        return len(self.sample.calls) if self.sample else 0


def classify(
    status: int, body: Any, retry_after: float | None = None, read: Callable[[Any, float | None], Outcome] | None = None
) -> Outcome:
    """The meaning of an HTTP answer whose JSON (or, where it is none, text) is `body`.

    `read` tells the meaning of the body of a success; the default reads chat completions.

    >>> classify(429, {}, 2).action, classify(200, "<html>").reason, classify(404, None).reason
    ('retry', 'empty_response', 'not_found')
    """
    if 200 <= status < 300:
        return (read or _success)(body, retry_after)
    return replace(_failure(status, body, retry_after), status=status)


def turn_of(outcome: Outcome, body: Any, tools: Sequence[ToolSpec], position: int) -> Turn:
    """The turn, with native calls, that an answer (`continue` or `stop`) is; `context` where the prompt did not fit.

    `position` is the number of messages before it.
    """
    usage = read_usage(body, outcome.sample)
    if outcome.sample is None:
        return Turn(Message("assistant"), "context", usage)
    return native_turn(outcome.sample, tools, position, "length" if outcome.action == "stop" else "stop", usage)


def _failure(status: int, body: Any, retry_after: float | None) -> Outcome:
    words = error_words(body)
    detail = f"status {status}{': ' + _cut(words) if words else ''}"
    if status in (401, 403):
        # Azure and some gateways answer 403 for a prompt that their filter stopped.
        return Outcome("fail", "content_filter" if _FILTER.search(words) else "auth_error", detail)
    if status == 429:
        if _QUOTA.search(words):
            return Outcome("fail", "quota_exceeded", detail)
        return Outcome("retry", "rate_limited", detail, retry_after)
    if status == 413 or _CONTEXT.search(words):
        return Outcome("stop", "truncated", detail)
    if status == 408:
        return Outcome("retry", "timeout", detail, retry_after)
    if status in (409, 425) or status >= 500 or status < 200:
        return Outcome("retry", "server_error", detail, retry_after)
    if status == 402:
        return Outcome("fail", "quota_exceeded", detail)
    if status in (404, 410):
        return Outcome("fail", "not_found", detail)
    return Outcome("fail", "content_filter" if _FILTER.search(words) else "bad_request", detail)


def _success(body: Any, retry_after: float | None) -> Outcome:
    if not isinstance(body, Mapping):
        detail = f"status 200 with {shape_of(body)} in place of a completion"
        return Outcome("retry", "empty_response", detail, retry_after)
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, Sequence) and not isinstance(choices, str) and choices else None
    if not isinstance(choice, Mapping):
        if body.get("error") or body.get("object") == "error":
            return hidden_error(body, retry_after)
        return Outcome("retry", "empty_response", f"status 200 without choices: {shape_of(body)}", retry_after)
    finish = _finish_reason(choice)
    if finish in _BROKEN_REASONS or choice.get("error"):
        words = _cut(error_words(choice.get("error"))) or f"finish_reason {finish!r}"
        return Outcome("retry", "server_error", f"the server broke off the sample: {words}", retry_after)
    if finish in _FILTER_REASONS:
        return Outcome("fail", "content_filter", f"the endpoint filtered the sample (finish_reason {finish!r})")
    sample = read_sample(body, choice)
    if finish in _LENGTH_REASONS:
        return Outcome("stop", "truncated", "the sample was cut by a token limit", sample=sample)
    if not sample.is_empty:
        return Outcome("continue", sample=sample)
    detail = f"status 200 with neither text, reasoning nor tool call (finish_reason {finish or None!r})"
    return Outcome("retry", "empty_response", detail, retry_after, sample)


def hidden_error(body: Mapping[str, Any], retry_after: float | None) -> Outcome:
    """An error that a gateway sent with status 200: judged by the status that its body names, or else by its words."""
    error = body["error"] if isinstance(body.get("error"), Mapping) else body
    for key in ("status", "status_code", "code", "http_code"):
        named = error.get(key)
        if isinstance(named, str) and named.isdecimal() and len(named) == 3:
            named = int(named)
        if isinstance(named, int) and 400 <= named < 600:
            return _failure(named, body, retry_after)
    words = error_words(body)
    status = next((status for pattern, status in _STATUS_OF_WORDS if pattern.search(words)), 500)
    return replace(_failure(status, body, retry_after), detail=f"an error with status 200: {_cut(words)}")


def _finish_reason(choice: Mapping[str, Any]) -> str:
    reason = choice.get("finish_reason")
    if isinstance(reason, Mapping):  # SGLang's own form: {"type": "length", ...}
        reason = reason.get("type")
    return reason.lower() if isinstance(reason, str) else ""


def error_words(body: Any) -> str:
    """A server's own words about an error, on one line of 2,000 characters at most; a web page is named, not quoted."""
    words: list[str] = []

    def collect(value: Any, depth: int) -> None:
        if isinstance(value, str):
            words.append("an HTML page" if _PAGE.match(value) else value)
        elif isinstance(value, Mapping) and depth < 4:
            for key in ("error", "message", "msg", "detail", "code", "type"):
                collect(value.get(key), depth + 1)
        elif isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)) and depth < 4:
            for item in value[:3]:
                collect(item, depth + 1)

    collect(body.decode("utf-8", "replace") if isinstance(body, (bytes, bytearray)) else body, 0)
    return " ".join(" ".join(text[:2000] for text in dict.fromkeys(words)).split())[:2000]


def tokens_left(words: str) -> int | None:
    """How many tokens would still fit behind the prompt, where a server's words about a full context tell it.

    >>> tokens_left("maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages)")
    96
    """
    limit, prompt = _LIMIT_TOKENS.search(words), _PROMPT_TOKENS.search(words)
    if limit is None or prompt is None:
        return None
    left = int(limit[1]) - int(prompt[1] or prompt[2])
    return left if left > 0 else None


def _cut(words: str) -> str:
    return words if len(words) <= DETAIL_CHARACTERS else words[:DETAIL_CHARACTERS] + "..."


def shape_of(body: Any) -> str:
    """A body that is not what was expected, in a few words."""
    if body is None or body == "" or body == b"":
        return "an empty body"
    if isinstance(body, (str, bytes, bytearray)):
        words = error_words(body)
        return words if words == "an HTML page" else f"text that is no JSON object ({words[:60]!r})"
    if isinstance(body, Mapping):
        return f"keys {', '.join(sorted(map(str, body))[:8]) or '(none)'}"
    return f"a JSON {type(body).__name__}"
