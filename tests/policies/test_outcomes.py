"""What one answer of an endpoint means."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from case_rows import parametrize
from polygym.policies.outcomes import Outcome, classify, tokens_left


def choice(message: Any = None, finish_reason: Any = "stop", **extra: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish_reason, **extra}]}


def error(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


@parametrize("model_response")
def test_case_of_a_model_response(case: dict[str, Any]) -> None:
    given, expected = case["input"], case["expected"]
    outcome = classify(given["status"], given.get("body"), given.get("retry_after"))
    assert {key: getattr(outcome, key) for key in expected} == expected
    if "retry_after" in given:
        assert outcome.retry_after == given["retry_after"]


@pytest.mark.parametrize(
    ("status", "action", "reason"),
    [
        (301, "fail", "bad_request"),
        (400, "fail", "bad_request"),
        (401, "fail", "auth_error"),
        (402, "fail", "quota_exceeded"),
        (403, "fail", "auth_error"),
        (404, "fail", "not_found"),
        (405, "fail", "bad_request"),
        (408, "retry", "timeout"),
        (409, "retry", "server_error"),
        (413, "stop", "truncated"),
        (422, "fail", "bad_request"),
        (425, "retry", "server_error"),
        (429, "retry", "rate_limited"),
        (500, "retry", "server_error"),
        (502, "retry", "server_error"),
        (503, "retry", "server_error"),
        (504, "retry", "server_error"),
        (529, "retry", "server_error"),
        (599, "retry", "server_error"),
    ],
)
@pytest.mark.parametrize("body", [{}, None, "", "<html><body>no</body></html>", [], {"detail": "no"}])
def test_a_status_means_the_same_whatever_the_body(status: int, action: str, reason: str, body: object) -> None:
    outcome = classify(status, body)
    assert (outcome.action, outcome.reason) == (action, reason)
    assert outcome.detail.startswith(f"status {status}")


@pytest.mark.parametrize(
    "body",
    [
        error("This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens."),
        error("anything", code="context_length_exceeded"),
        {
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens. However, you requested 5000",
        },
        {"object": "error", "message": "The prompt (total length 5000) is too long to fit into the model"},
        {
            "object": "error",
            "message": "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        },
        {"message": "Input length (5000 tokens) exceeds the maximum allowed length (4090 tokens)."},
        {"message": "Requested token count exceeds the model's maximum context length of 4096 tokens."},
        error("the request exceeds the available context size. try increasing it", type="exceed_context_size_error"),
        error("request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it", code=400),
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "prompt is too long: 201 tokens > 200"},
        },
        {"type": "error", "error": {"message": "input length and `max_tokens` exceed context limit: 190 + 20 > 200"}},
        {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000", "x": 1},
        {"error": "`inputs` must have less than 1024 tokens. Given: 2000"},
        [error("The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).")],
        {"message": "Input is too long for requested model."},
        error("Please reduce the length of the messages or completion."),
        {"detail": [{"msg": "prompt too long"}]},
    ],
)
@pytest.mark.parametrize("status", [400, 422, 500, 200])
def test_a_prompt_that_does_not_fit_stops_the_episode_in_every_servers_words(status: int, body: object) -> None:
    outcome = classify(status, {"error": body} if status == 200 else body)
    assert (outcome.action, outcome.reason, outcome.sample) == ("stop", "truncated", None)


@pytest.mark.parametrize(
    "message",
    [
        "Invalid value for temperature",
        "Unsupported parameter: 'max_tokens' is not supported with this model",
        "model field is required",
        "missing context in the request",
        "seed must be less than 4294967295",
        "The request body is not valid JSON",
    ],
)
def test_other_complaints_are_not_taken_for_a_full_context(message: str) -> None:
    assert classify(400, error(message)).reason == "bad_request"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (error("Rate limit reached"), ("retry", "rate_limited")),
        (error("Overloaded", code=529), ("retry", "server_error")),
        (error("no", code="429"), ("retry", "rate_limited")),
        (error("no", status=503), ("retry", "server_error")),
        (error("Incorrect API key provided"), ("fail", "auth_error")),
        (error("who knows"), ("retry", "server_error")),
        (error("bad value", type="invalid_request_error"), ("fail", "bad_request")),
        ({"object": "error", "message": "no such thing", "code": 404}, ("fail", "not_found")),
        ({"error": "insufficient_quota"}, ("fail", "quota_exceeded")),
    ],
)
def test_an_error_with_status_200_is_judged_by_what_it_says(body: object, expected: tuple[str, str]) -> None:
    outcome = classify(200, body)
    assert (outcome.action, outcome.reason) == expected


@pytest.mark.parametrize(
    "body",
    [
        None,
        "",
        "   ",
        b"",
        "<html></html>",
        "OK",
        '{"choices": [{"mess',
        [],
        3,
        {},
        {"choices": None},
        {"choices": []},
        {"choices": "x"},
        {"choices": [None]},
        {"choices": [{}]},
        {"id": "x", "usage": {"completion_tokens": 0}},
        choice(None),
        choice({}),
        choice({"content": ""}),
        choice({"content": None, "tool_calls": []}),
        choice({"content": None, "tool_calls": None}, "tool_calls"),
        choice({"content": []}),
        choice({"content": [{"type": "text", "text": ""}]}),
        choice({"content": None, "reasoning_content": ""}),
        choice({"content": None}, None),
        choice({"content": None}, token_ids=[]),
    ],
)
def test_an_answer_without_a_sample_is_tried_again(body: object) -> None:
    outcome = classify(200, body)
    assert (outcome.action, outcome.reason) == ("retry", "empty_response")
    assert "status 200" in outcome.detail


@pytest.mark.parametrize(
    "body",
    [
        choice({"content": None}, token_ids=[2]),
        choice({"content": "", "generation_token_ids": [2], "generation_log_probs": [-0.5]}),
        choice({"content": "", "generation_token_ids": ["2"]}),
        choice({"content": ""}, logprobs={"content": [{"token": "token_id:2", "logprob": -0.5}]}),
    ],
)
def test_an_empty_sample_with_token_ids_is_what_the_policy_sampled(body: object) -> None:
    outcome = classify(200, body)
    assert (outcome.action, outcome.content) == ("continue", "")
    assert outcome.sample is not None
    assert outcome.sample.token_ids == (2,)


@pytest.mark.parametrize(
    ("message", "content", "reasoning", "n_calls"),
    [
        ({"content": "4"}, "4", "", 0),
        ({"content": " "}, " ", "", 0),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab", "", 0),
        ({"content": [{"type": "output_text", "text": "a"}, "b"]}, "ab", "", 0),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}, {"text": "a"}]}, "a", "t", 0),
        ({"content": [{"type": "image_url"}, {"type": "text", "text": None}, 7, {"text": "a"}]}, "a", "", 0),
        ({"content": None, "reasoning_content": "t"}, "", "t", 0),
        ({"content": "a", "reasoning": "t"}, "a", "t", 0),
        ({"content": None, "refusal": "No."}, "No.", "", 0),
        ({"content": None, "function_call": {"name": "now", "arguments": "{}"}}, "", "", 1),
        ({"tool_calls": [{"function": {"name": "now", "arguments": "{}"}}]}, "", "", 1),
        ({"content": "a", "tool_calls": [None, {}, {"function": None}, {"function": {"name": 3}}]}, "a", "", 4),
        ({"content": "a", "tool_calls": "now"}, "a", "", 0),
    ],
)
@pytest.mark.parametrize("finish_reason", ["stop", "tool_calls", "function_call", "eos", "end_turn", None, 3, {}])
def test_a_sample_goes_on_whatever_its_form(
    message: object, content: str, reasoning: str, n_calls: int, finish_reason: object
) -> None:
    outcome = classify(200, choice(message, finish_reason))
    assert outcome.sample is not None
    assert (outcome.action, outcome.reason) == ("continue", "")
    assert (outcome.content, outcome.sample.reasoning, outcome.n_calls) == (content, reasoning, n_calls)


def test_a_plain_completion_is_a_sample_too() -> None:
    assert classify(200, {"choices": [{"text": "4", "finish_reason": "stop"}]}).content == "4"
    assert classify(201, choice({"content": "4"})).content == "4"


@pytest.mark.parametrize("finish_reason", ["length", "max_tokens", "MAX_TOKENS", "model_length", {"type": "length"}])
@pytest.mark.parametrize("content", ["half an ans", None])
def test_a_sample_that_was_cut_is_kept_and_stops_the_episode(finish_reason: object, content: str | None) -> None:
    outcome = classify(200, choice({"content": content}, finish_reason))
    assert (outcome.action, outcome.reason, outcome.content) == ("stop", "truncated", content or "")
    assert outcome.sample is not None


@pytest.mark.parametrize("finish_reason", ["abort", "error", "insufficient_system_resource", {"type": "abort"}])
def test_a_sample_that_the_server_broke_off_is_tried_again(finish_reason: object) -> None:
    outcome = classify(200, choice({"content": "half"}, finish_reason))
    assert (outcome.action, outcome.reason) == ("retry", "server_error")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, choice({"content": ""}, "content_filter")),
        (200, choice({"content": "half"}, "SAFETY")),
        (400, error("The response was filtered", code="content_filter")),
        (403, error("blocked by the content filter")),
    ],
)
def test_what_a_filter_stopped_is_not_the_policys_answer(status: int, body: object) -> None:
    outcome = classify(status, body)
    assert (outcome.action, outcome.reason) == ("fail", "content_filter")


def test_a_quota_that_is_used_up_will_not_pass_by_itself() -> None:
    outcome = classify(429, error("You exceeded your current quota", code="insufficient_quota"))
    assert (outcome.action, outcome.reason) == ("fail", "quota_exceeded")


def test_the_detail_quotes_the_server_on_one_short_line() -> None:
    assert classify(500, error("out of\n  memory", type="cuda")).detail == "status 500: out of memory cuda"
    assert classify(502, "<!DOCTYPE html><html>...").detail == "status 502: an HTML page"
    assert classify(502, b"upstream died").detail == "status 502: upstream died"
    assert len(classify(400, error("x" * 100_000)).detail) < 350
    assert classify(200, '{"choices": [').detail == (
        "status 200 with text that is no JSON object ('{\"choices\": [') in place of a completion"
    )


def test_token_fields_of_nemo_gym_and_of_vllm_are_read() -> None:
    gym = {
        "content": "a",
        "prompt_token_ids": [1, 2],
        "generation_token_ids": ["3", "4"],
        "generation_log_probs": [-0.1, -0.2],
    }
    vllm = choice(
        {"content": "a"},
        token_ids=[3, 4],
        logprobs={"content": [{"token": "x", "logprob": -0.1}, {"token": "y", "logprob": -0.2}]},
    )
    for outcome in (classify(200, choice(gym)), classify(200, {**vllm, "prompt_token_ids": [1, 2]})):
        sample = outcome.sample
        assert sample is not None
        assert (sample.prompt_token_ids, sample.token_ids, sample.logprobs) == ((1, 2), (3, 4), (-0.1, -0.2))


@pytest.mark.parametrize("logprobs", [[-0.1], [-0.1, None], None, "no", [True, -0.2]])
def test_logprobs_that_do_not_fit_the_ids_are_left_out(logprobs: object) -> None:
    message = {"content": "a", "generation_token_ids": [3, 4], "generation_log_probs": logprobs}
    sample = classify(200, choice(message)).sample
    assert sample is not None
    assert (sample.token_ids, sample.logprobs) == ((3, 4), None)


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (
            "maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in",
            96,
        ),
        ("maximum context length is 4096 tokens and your request has 100 input tokens (5000 > 4096 - 100)", 3996),
        ("context length of 4096 tokens. You requested a total of 5000: 4000 tokens from the input messages", 96),
        ("You passed 4000 input tokens and requested 200. However, the model's context length is only 4096 tokens", 96),
        ("maximum context length is 4096 tokens, your prompt contains 5000 input tokens", None),
        ("prompt is too long: 201 tokens > 200", None),
        ("", None),
    ],
)
def test_the_room_behind_a_prompt_is_read_from_the_servers_words(words: str, left: int | None) -> None:
    assert tokens_left(words) == left


def test_any_body_has_an_outcome_soon() -> None:
    deep: Any = "x"
    for _ in range(500):
        deep = {"error": [deep]}
    hostile = [
        deep,
        choice(deep),
        choice({"content": deep}),
        choice({"content": [[[[]]]]}),
        error("prompt " * 200_000),
        error("exceeds " * 200_000),
        error("1" * 1_000_000),
        {"error": {"message": {"message": 3}}, "choices": 7},
        choice({"content": 7, "tool_calls": {"a": 1}, "prompt_token_ids": "12"}, logprobs=[1]),
        choice({"content": "a"}, logprobs={"content": [None, {"token": None}]}),
        choice({"content": "a"}, token_ids=[1, True, -1, 1.5, None]),
    ]
    started = time.process_time()
    for status in (200, 204, 400, 429, 500):
        for body in hostile:
            assert isinstance(classify(status, body), Outcome)
    assert time.process_time() - started < 2
    assert json.dumps(classify(400, deep).detail)
