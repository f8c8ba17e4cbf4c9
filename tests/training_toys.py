"""A toy policy and a toy environment that it can learn within a few steps, for whole runs in a test."""

from __future__ import annotations

import math
import string
from pathlib import Path
from typing import Any

from polygym import Rubric, SingleTurnEnv

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def save_model(folder: Path) -> Path:
    """A random Llama of characters, a few kilobytes, in `folder`."""
    import torch
    from tokenizers import Tokenizer, decoders, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    vocabulary = {character: number for number, character in enumerate(string.ascii_lowercase + " ?<unk>"[:3])}
    vocabulary["<unk>"] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|end|>",
        pad_token="<|end|>",
        additional_special_tokens=["<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"],
    )
    fast.chat_template = TEMPLATE
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=len(fast), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True,
        eos_token_id=fast.eos_token_id, pad_token_id=fast.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(shape).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def letters(letter: str = "a", seconds: float = 0.0, held_out: float = 0.2) -> SingleTurnEnv:
    """Pays the fraction of characters of the answer that are `letter`."""
    import time

    def of_letter(completion: str) -> float:
        time.sleep(seconds)
        return completion.count(letter) / max(1, len(completion))

    rows = [{"id": place, "question": f"{word} {letter}?"} for place, word in enumerate(string.ascii_lowercase[:20])]
    return SingleTurnEnv(rows, rubric=Rubric([of_letter]), held_out=held_out)


def later_first() -> SingleTurnEnv:
    """The rollout that is judged first ends last."""
    import asyncio

    judged = []

    async def slow(completion: str) -> float:
        judged.append(completion)
        await asyncio.sleep(0.2 / len(judged))
        return len(set(completion)) / 6

    return SingleTurnEnv([{"question": f"{word}?"} for word in "abcdefgh"], rubric=Rubric([slow]))


def load_environment(**arguments: Any) -> SingleTurnEnv:
    """`letters`, as the registry finds it."""
    return letters(**arguments)


def demonstrated(letter: str = "a", held_out: float = 0.2) -> SingleTurnEnv:
    """`letters`, with demonstrations: four of them."""
    environment = letters(letter, held_out=held_out)
    environment.demonstrate = lambda task: letter * 4  # type: ignore[method-assign]
    return environment


CONFIG = """
model = "{model}"
output = "{output}"
max_steps = {steps}
batch_size = 16
rollouts_per_example = 4
learning_rate = 3e-2
checkpoint_interval = 2
threads = 1
[sampling]
max_tokens = 6
[eval]
num_examples = 4
[[env]]
id = "training_toys:load_environment"
name = "a"
[[env]]
id = "training_toys:load_environment"
name = "e"
args = {{ letter = "e", seconds = {seconds} }}
"""


def write_config(path: Path, model: Path, output: Path, steps: int = 4, seconds: float = 0.0) -> Path:
    """A run on two toy environments."""
    path.write_text(CONFIG.format(model=model, output=output, steps=steps, seconds=seconds), encoding="utf-8")
    return path


def bad_reward() -> SingleTurnEnv:
    """Its reward function returns text."""

    def graded(completion: str) -> Any:
        return "good"

    return SingleTurnEnv([{"question": word} for word in "abcdefgh"], rubric=Rubric([graded]))


def broken(kind: str) -> SingleTurnEnv:
    """An environment none of whose rollouts can be scored."""

    def graded(completion: str) -> Any:
        if kind == "raises":
            raise RuntimeError("no judge")
        return {"none": None, "nan": math.nan}.get(kind, 1.0)

    class Broken(SingleTurnEnv):
        def setup_state(self, state: Any) -> None:
            if kind == "setup":
                raise ValueError("no database")

    words = [f"{word} {'b ' * 100 if kind == 'context' else ''}?" for word in "abcdefgh"]
    return Broken([{"question": word} for word in words], rubric=Rubric([graded]))


def unsteady() -> SingleTurnEnv:
    """Its reward function fails the first time."""
    calls = []

    def graded(completion: str) -> float:
        calls.append(completion)
        if len(calls) == 1:
            raise RuntimeError("not yet")
        return 1.0

    return SingleTurnEnv([{"question": word} for word in "abcdefgh"], rubric=Rubric([graded]))
