"""LocalPolicy answers episodes in waves, turn by turn, and repeats itself to the last digit."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from model_toys import END, START, toy_model, toy_tokenizer  # noqa: E402
from polygym.errors import PolicyError, UsageError  # noqa: E402
from polygym.messages import Message, ToolSpec  # noqa: E402
from polygym.policies.base import Request, Sampling  # noqa: E402
from polygym.policies.local import LocalPolicy  # noqa: E402
from polygym.rollout import Turn  # noqa: E402


def policy(**settings: Any) -> LocalPolicy:
    return LocalPolicy(toy_model(), toy_tokenizer(), name="toy", **settings)


def ask(
    policy: LocalPolicy, text: str = "hi", seed: int = 0, tools: tuple[ToolSpec, ...] = (), **sampling: Any
) -> Turn:
    return asyncio.run(policy.complete(Request([Message("user", text)], tools, Sampling(**sampling), seed)))


async def play(policy: LocalPolicy, number: int, turns: int = 3) -> list[Turn]:
    with policy.episode():
        messages = [Message("system", "be brief"), Message("user", f"question {number // 4}")]
        said: list[Turn] = []
        for turn in range(turns):
            sampling = Sampling(max_tokens=8 + number, temperature=1.0 if number % 2 else 0.8)
            request = Request(messages, (), sampling, 100 * number + turn, said[-1] if said else None)
            said.append(await policy.complete(request))
            messages = [*messages, said[-1].message, Message("user", f"more {turn}")]
    return said


async def play_all(policy: LocalPolicy, episodes: int = 12) -> list[list[Turn]]:
    return await asyncio.gather(*(play(policy, number) for number in range(episodes)))


def test_every_turn_extends_the_ids_of_the_turn_before() -> None:
    for turns in asyncio.run(play_all(policy())):
        for before, after in pairwise(turns):
            known = [*(before.prompt_token_ids or []), *(before.token_ids or [])]
            assert list(after.prompt_token_ids or [])[: len(known)] == known
        for turn in turns:
            assert len(turn.token_ids or []) == len(turn.logprobs or []) == turn.usage.completion_tokens > 0


def test_a_run_of_many_episodes_repeats_to_the_last_digit() -> None:
    one = policy()
    first, second, other = (asyncio.run(play_all(p)) for p in (one, one, policy()))
    facts = [[[(t.token_ids, t.logprobs) for t in turns] for turns in run] for run in (first, second, other)]
    assert facts[0] == facts[1] == facts[2]


def test_log_probabilities_of_later_turns_are_the_models_own() -> None:
    one = policy()
    for turns in asyncio.run(play_all(one)):
        for turn in turns[1:]:
            prompt, ids = list(turn.prompt_token_ids or []), list(turn.token_ids or [])
            with torch.no_grad():
                logits = one.model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
            temperatures = [0.8, 1.0]
            errors = []
            for temperature in temperatures:
                expected = torch.log_softmax(logits / temperature, -1).gather(1, torch.tensor(ids)[:, None])[:, 0]
                errors.append((expected - torch.tensor(turn.logprobs)).abs().max().item())
            assert min(errors) < 1e-4


def test_waves_hold_all_episodes_that_wait() -> None:
    one = policy()
    sizes: list[int] = []
    generate = one.engine.generate
    one.engine.generate = lambda rows, done: (sizes.append(len(rows)), generate(rows, done))[1]  # type: ignore[method-assign]
    asyncio.run(play_all(one))
    assert sizes == [12, 12, 12]


def test_a_prompt_that_does_not_fit_is_a_turn_with_nothing_sampled() -> None:
    turn = ask(policy(), "x" * 300)
    assert (turn.finish_reason, turn.token_ids, turn.logprobs, turn.message.content) == ("context", [], [], "")
    assert turn.usage.prompt_tokens == len(turn.prompt_token_ids or []) > 256


def test_the_context_cuts_what_may_be_sampled() -> None:
    one = policy(max_context=60)
    turns = [ask(one, seed=seed, max_tokens=500) for seed in range(20)]
    assert max(turn.usage.prompt_tokens + turn.usage.completion_tokens for turn in turns) == 60
    assert {turn.finish_reason for turn in turns} <= {"length", "stop"}


def test_the_end_token_is_among_the_ids_and_not_in_the_text() -> None:
    one = policy()
    turn = next(
        t for t in (ask(one, seed=seed, max_tokens=200) for seed in range(50)) if (t.token_ids or [0])[-1] == END
    )
    assert turn.finish_reason == "stop"
    assert len(turn.message.content) == sum(token not in (START, END) for token in turn.token_ids or [])


def test_text_is_cut_before_a_stop_string_and_the_ids_are_kept() -> None:
    one = policy()
    free = ask(one, seed=3, max_tokens=40)
    stop = free.message.content[4:6]
    cut = ask(one, seed=3, max_tokens=40, stop=(stop,))
    place = free.message.content.index(stop)
    assert cut.message.content == free.message.content[:place]
    assert cut.token_ids == list(free.token_ids or [])[: place + 2]
    assert cut.finish_reason == "stop"


def test_tool_calls_and_reasoning_are_read_from_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    one = policy(max_context=2000)
    tools = (ToolSpec("add", "", {"type": "object", "properties": {}}),)
    said = '<think>hm</think>so:\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    monkeypatch.setattr(one.renderer, "decode", lambda ids: said)
    message = ask(one, tools=tools).message
    assert [(call.name, dict(call.arguments), call.error) for call in message.tool_calls] == [("add", {"a": 1}, None)]
    assert message.reasoning == "hm" and "tool_call" not in message.content
    assert ask(one).message.reasoning == "hm"


def test_the_texts_of_its_tokens_are_the_answer_with_what_ends_it() -> None:
    local = policy()
    turn = ask(local)
    assert turn.token_ids
    texts = local.token_texts(turn.token_ids)
    assert len(texts) == len(turn.token_ids)
    assert local.token_texts([END, 36]) == ["<|im_end|>", "A"]


def test_a_turn_tells_the_version_of_the_weights() -> None:
    one = policy()
    one.version = 7
    assert ask(one).policy_version == 7


def test_a_failure_of_the_model_is_a_policy_error(monkeypatch: pytest.MonkeyPatch) -> None:
    one = policy()

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(one.model, "forward", fail)
    with pytest.raises(PolicyError, match="toy could not generate: out of memory"):
        ask(one)


def test_cancelling_ends_the_computation_soon() -> None:
    one = policy(max_context=100_000)
    one.engine.stop_ids = frozenset({-1})

    async def run() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(play(one, 90_000, turns=1), 0.3)

    asyncio.run(run())
    start = time.perf_counter()
    assert ask(one, max_tokens=1).usage.completion_tokens == 1
    assert time.perf_counter() - start < 20


def test_a_closed_policy_can_be_closed_again() -> None:
    one = policy()
    ask(one)
    asyncio.run(one.close())
    asyncio.run(one.close())


@pytest.mark.parametrize(
    "settings,message",
    [
        ({"device": "tpu9"}, "device='tpu9' cannot be used here; available: cpu"),
        ({"dtype": "int8"}, "dtype='int8' is unknown; allowed: float32, bfloat16, float16"),
        ({"max_context": 1}, "max_context=1 leaves no room"),
    ],
)
def test_bad_settings_are_usage_errors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        policy(**settings)
