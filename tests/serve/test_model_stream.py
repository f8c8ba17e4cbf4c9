"""Text that is streamed while it is written."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import openai
import pytest

from model_toys import toy_model, toy_tokenizer
from polygym.errors import PolicyError
from polygym.policies.base import Request
from polygym.policies.local import LocalPolicy
from polygym.rollout import Turn
from serve.model_servers import Scripted, called, said, served

MESSAGES: Any = [{"role": "user", "content": "Tell me."}]


class Slowly:
    """Tells each text when it is let go on, then gives the turn, or raises."""

    def __init__(self, texts: list[str], end: Turn | Exception) -> None:
        self.texts, self.end = texts, end
        self.steps = 0

    def go_on(self) -> None:
        self.steps += 1

    async def _wait(self, step: int) -> None:
        while self.steps < step:
            await asyncio.sleep(0.005)

    async def __call__(self, request: Request) -> Turn:
        for number, text in enumerate(self.texts):
            await self._wait(number)
            assert request.on_text is not None
            request.on_text(text)
        await self._wait(len(self.texts))
        if isinstance(self.end, Exception):
            raise self.end
        return self.end


def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=20)


def test_a_chat_completion_arrives_word_for_word_before_it_is_finished() -> None:
    script = Slowly(["It", "It is"], said("It is 4."))
    seen = []
    with served(Scripted(script)) as url, client(url) as asking:
        for chunk in asking.chat.completions.create(model="any", messages=MESSAGES, stream=True):
            if piece := chunk.choices[0].delta.content:
                seen.append(piece)
                script.go_on()
    assert seen == ["It", " is", " 4."]


def test_a_response_arrives_word_for_word_before_it_is_finished() -> None:
    script = Slowly(["It", "It is"], said("It is 4."))
    seen, events = [], []
    with served(Scripted(script)) as url, client(url) as asking:
        for event in asking.responses.create(model="any", input="?", stream=True):
            events.append(event)
            if event.type == "response.output_text.delta":
                seen.append(event.delta)
                script.go_on()
        script.steps = 9
        with asking.responses.stream(model="any", input="?") as stream:
            final = stream.get_final_response()
    assert seen == ["It", " is", " 4."]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    [item] = events[-1].response.output
    assert {event.item_id for event in events if hasattr(event, "item_id")} == {item.id}
    assert item.content[0].text == final.output_text == "It is 4."


def test_a_call_follows_text_that_was_told_early() -> None:
    script = Slowly(["Let me"], called(text="Let me look.", city="Oslo"))
    script.steps = 9
    with served(Scripted(script)) as url, client(url) as asking:
        with asking.responses.stream(model="any", input="?") as stream:
            final = stream.get_final_response()
        with asking.chat.completions.stream(model="any", messages=MESSAGES) as chat:
            message = chat.get_final_completion().choices[0].message
    assert [item.type for item in final.output] == ["message", "function_call"]
    assert (final.output_text, final.output[1].arguments) == ("Let me look.", '{"city": "Oslo"}')
    assert (message.content, message.tool_calls[0].function.arguments) == ("Let me look.", '{"city": "Oslo"}')


def test_text_that_was_told_and_turned_out_as_reasoning_leaves_the_finished_answer_right() -> None:
    script = Slowly(["so it"], said("It is 4.", reasoning="so it is"))
    script.steps = 9
    with served(Scripted(script)) as url, client(url) as asking:
        events = list(asking.responses.create(model="any", input="?", stream=True))
    assert [item.type for item in events[-1].response.output] == ["reasoning", "message"]
    assert events[-1].response.output_text == "It is 4."
    done = [event.item.type for event in events if event.type == "response.output_item.done"]
    assert done == ["message", "reasoning"]


def test_a_policy_that_fails_after_its_first_words_ends_the_stream_with_an_error() -> None:
    for end in (PolicyError("gone", "endpoint"), ZeroDivisionError("a bug")):
        script = Slowly(["It"], end)
        script.steps = 9
        with served(Scripted(script)) as url, client(url) as asking:
            with pytest.raises(openai.APIError, match=str(end)):
                list(asking.chat.completions.create(model="any", messages=MESSAGES, stream=True))
            with pytest.raises(openai.APIError, match=str(end)):
                list(asking.responses.create(model="any", input="?", stream=True))


def test_a_client_that_leaves_in_the_middle_cancels_the_rest() -> None:
    script = Slowly(["It"], said("It is"))
    policy = Scripted(script)
    with served(policy) as url, client(url) as asking:
        stream = asking.chat.completions.create(model="any", messages=MESSAGES, stream=True)
        assert next(iter(stream)).choices[0].delta.role == "assistant"
        stream.close()
        deadline = time.monotonic() + 5
        while not policy.cancelled:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_local_model_tells_its_text_while_it_writes() -> None:
    policy = LocalPolicy(toy_model(), toy_tokenizer(), name="toy", device="cpu")
    asked: Any = {"model": "toy", "messages": MESSAGES, "seed": 4, "max_tokens": 120, "temperature": 0.5}
    with served(policy) as url, client(url) as asking:
        whole = asking.chat.completions.create(**asked).choices[0].message.content
        chunks = list(asking.chat.completions.create(**asked, stream=True))
        texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
    assert "".join(texts) == whole
    assert len(texts[0]) >= 6  # eight tokens of a character each, or those of a marker held back
    assert len(texts) >= 8
