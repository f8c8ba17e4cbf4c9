"""Rendering: sampled ids stay as they are, and supervised ids are those of a rollout."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

pytest.importorskip("transformers")

from model_toys import CHATML, END, END_OF_TEXT, NATIVE, toy_tokenizer
from polygym.errors import UsageError
from polygym.messages import Message, ToolCall, ToolSpec
from polygym.policies.chat import ChatRenderer
from polygym.rollout import Turn

ASK = [Message("system", "short"), Message("user", "2+2?")]
ADD = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})


def text(renderer: ChatRenderer, ids: Sequence[int]) -> str:
    return str(renderer.tokenizer.decode(ids))


def turn(renderer: ChatRenderer, prompt: list[int], said: str, end: list[int]) -> Turn:
    ids = renderer.tokenizer.encode(said, add_special_tokens=False)
    return Turn(Message("assistant", said), prompt_token_ids=prompt, token_ids=[*ids, *end])


def test_a_first_prompt_is_the_templates_text() -> None:
    renderer = ChatRenderer(toy_tokenizer())
    prompt = "<|im_start|>system\nshort<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
    assert text(renderer, renderer.render(ASK)) == prompt
    assert renderer.stop_ids == {END, END_OF_TEXT}
    assert renderer.end_ids == [END]


@pytest.mark.parametrize("end", [[END], [], [END_OF_TEXT]])
def test_a_later_prompt_keeps_the_sampled_ids_and_ends_the_answer_once(end: list[int]) -> None:
    renderer = ChatRenderer(toy_tokenizer())
    first = renderer.render(ASK)
    said = turn(renderer, first, "4, I say", end)
    ids = renderer.render([*ASK, said.message, Message("user", "sure?")], (), said)
    before = [*first, *(said.token_ids or [])]
    assert ids[: len(before)] == before
    close = "" if end == [END] else "<|im_end|>"
    assert text(renderer, ids[len(before) :]) == f"{close}\n<|im_start|>user\nsure?<|im_end|>\n<|im_start|>assistant\n"


def test_the_sampled_ids_are_used_even_where_the_text_would_be_encoded_in_another_way() -> None:
    renderer = ChatRenderer(toy_tokenizer())
    first = renderer.render(ASK)
    said = Turn(Message("assistant", "trimmed"), prompt_token_ids=first, token_ids=[50, 51, 52, END])
    ids = renderer.render([*ASK, said.message, Message("user", "sure?")], (), said)
    assert ids[len(first) : len(first) + 4] == [50, 51, 52, END]


@pytest.mark.parametrize("content", ["plain", " spaces ", "", "POLYGYM1MARKER", "<|im_end|>"])
def test_added_messages_are_rendered_alike_by_pieces_and_as_a_whole(content: str) -> None:
    renderer = ChatRenderer(toy_tokenizer())
    first = renderer.render(ASK)
    said = turn(renderer, first, "4", [END])
    ids = renderer.render([*ASK, said.message, Message("user", content), Message("user", "b")], (), said)
    whole = renderer.render([*ASK, said.message, Message("user", content), Message("user", "b")])
    assert ids == whole


def test_tools_are_shown_in_the_hermes_form_where_the_template_has_no_place_for_them() -> None:
    renderer = ChatRenderer(toy_tokenizer())
    shown = text(renderer, renderer.render(ASK, [ADD]))
    assert "short\n\n# Tools" in shown
    assert '<tools>\n{"type": "function", "function": {"name": "add"' in shown
    call = Message("assistant", "let me see", (ToolCall("add", {"a": 1}),))
    results = [Message("tool", "1"), Message("tool", "2")]
    told = text(renderer, renderer.render([*ASK, call, *results], [ADD]))
    assert 'let me see\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call><|im_end|>' in told
    assert "user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>" in told


def test_tools_are_left_to_a_template_that_shows_them() -> None:
    renderer = ChatRenderer(toy_tokenizer(NATIVE))
    assert renderer.native_tools and renderer.native_calls
    call = Message("assistant", "", (ToolCall("add", {"a": 1}),))
    shown = text(renderer, renderer.render([*ASK, call, Message("tool", "1")], [ADD]))
    assert shown.startswith("[add ]<|im_start|>system\nshort<|im_end|>")
    assert 'assistant\n#add{"a": 1}<|im_end|>\n<|im_start|>tool\n1<|im_end|>' in shown


@pytest.mark.parametrize("template", [CHATML, NATIVE, None])
def test_supervised_ids_are_those_of_a_rollout_turn_by_turn(template: str | None) -> None:
    renderer = ChatRenderer(toy_tokenizer(template))
    call = Message("assistant", "", (ToolCall("add", {"a": 1}),))
    messages = [*ASK, call, Message("tool", "1"), Message("assistant", "1 it is")]
    ids, mask = renderer.render_training(messages, [ADD])

    prompt = renderer.render(messages[:2], [ADD])
    said = turn(renderer, prompt, renderer.answer_text(call), renderer.end_ids)
    second = renderer.render(messages[:4], [ADD], said)
    answer = turn(renderer, second, "1 it is", renderer.end_ids)
    assert ids == [*second, *(answer.token_ids or [])]
    marked = [token for token, flag in zip(ids, mask, strict=True) if flag]
    assert marked == [*(said.token_ids or []), *(answer.token_ids or [])]


def test_worked_examples_in_the_prompt_are_not_marked() -> None:
    renderer = ChatRenderer(toy_tokenizer())
    messages = [Message("user", "1+1"), Message("assistant", "2"), *ASK[1:], Message("assistant", "4")]
    ids, mask = renderer.render_training(messages, prompt_messages=3)
    assert text(renderer, [token for token, flag in zip(ids, mask, strict=True) if flag]) == "4<|im_end|>"
    assert ids[: -sum(mask)] == renderer.render(messages[:3])


def test_a_template_without_a_system_role_gets_the_text_in_the_first_user_message() -> None:
    strict = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHATML
    renderer = ChatRenderer(toy_tokenizer(strict))
    assert text(renderer, renderer.render(ASK)).startswith("<|im_start|>user\nshort\n\n2+2?<|im_end|>")


def test_a_conversation_that_the_template_refuses_is_a_usage_error() -> None:
    strict = "{% if messages[-1]['content'] == 'bad' %}{{ raise_exception('not this') }}{% endif %}" + CHATML
    renderer = ChatRenderer(toy_tokenizer(strict))
    with pytest.raises(UsageError, match=r"refuses a conversation of user: not this"):
        renderer.render([Message("user", "bad")])


def test_a_tokenizer_without_a_template_gets_a_transcript() -> None:
    renderer = ChatRenderer(toy_tokenizer(None))
    assert text(renderer, renderer.render(ASK)) == "system: short\n\nuser: 2+2?\n\nassistant: "
    assert renderer.end_ids == [END_OF_TEXT]


def test_the_same_prompt_is_encoded_once_and_never_shared_as_a_list() -> None:
    renderer = ChatRenderer(toy_tokenizer())
    first = renderer.render(ASK)
    first.append(99)
    assert renderer.render(ASK) == first[:-1]
