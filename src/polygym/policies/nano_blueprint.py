"""How `nano` begins: its tokenizer, its shape and its untrained weights.

The one idea: nano reads characters, and beside them whole phrases of the recipes (a prompt, the frame of a tool call, a
guess, a letter of feedback), so that an episode is a few dozen tokens. A text without these phrases is still read,
character by character.

The vector of a guess is the sum of the vectors of its letters by place, and that of a letter of feedback the sum of
the same letter's, its place's and its colour's: words that share letters share what is learned of them, so it carries
over to words that never were a secret. How letters and colours go together is left to training.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
CHARACTERS = (*tuple(map(chr, range(32, 127))), "\n")
GUESS = re.compile(r"<guess>([a-z]{5})</guess>")
FEEDBACK = re.compile(r" ?([1-5])([a-z])([GYB])")
WORD = re.compile(r"( ?)([a-z]{2,})")
SHAPE = {
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 352,
    "max_position_embeddings": 1024,
}

# Tools are not described: nano knows those of tool_use by name.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}"
    "{% if message.tool_calls %}{% for call in message.tool_calls %}{% set call = call.function or call %}"
    "{% if message.content or not loop.first %}{{ '\\n' }}{% endif %}"
    '<tool_call>{{ \'\\n{"name": "\' }}{{ call.name }}{{ \'", "arguments": \' }}{{ call.arguments | tojson }}'
    "{{ '}\\n</tool_call>' }}{% endfor %}{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}{% if tools %}{% endif %}"
)


def build_tokenizer(phrases: Sequence[str]) -> PreTrainedTokenizerFast:
    """A tokenizer of the printable ASCII characters, the newline, and `phrases`; the longest phrase that fits is taken.

    Characters outside ASCII are dropped.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *CHARACTERS))}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(list(SPECIAL))
    backend.add_tokens([AddedToken(phrase, normalized=False) for phrase in dict.fromkeys(phrases)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<|pad|>", eos_token="<|end|>", clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int, **shape: int) -> LlamaForCausalLM:
    """An untrained model for a tokenizer; `shape` replaces entries of `SHAPE`."""
    from transformers import LlamaConfig

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        **{**SHAPE, **shape},
    )
    return untrained(config, tokenizer, seed)


def untrained(config: LlamaConfig, tokenizer: Any, seed: int) -> LlamaForCausalLM:
    """Random weights of a shape; the vectors of tokens have length 1 and are composed where `composition` says so."""
    import torch
    from transformers import LlamaForCausalLM

    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    vectors = model.get_input_embeddings().weight
    with torch.no_grad():
        vectors.normal_(0.0, config.hidden_size**-0.5)
        parts: dict[str, torch.Tensor] = {}
        for token, index in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
            names = composition(token)
            for name in names:
                if name not in parts:
                    parts[name] = torch.randn(config.hidden_size) * config.hidden_size**-0.5
            if names:
                vectors[index] = torch.stack([parts[name] for name in names]).sum(0) / len(names) ** 0.5
    return model


def composition(token: str) -> list[str]:
    """Names of the vectors that the vector of a token is the sum of; none for a token that has its own.

    >>> composition(" 2rY")
    ['2r', 'r', 'place 2', 'Y', 'rY']
    >>> composition(" bird")
    ['bird', 'after a space']
    """
    if match := GUESS.fullmatch(token):
        return [f"{place}{letter}" for place, letter in enumerate(match[1], 1)] + list(match[1])
    if match := FEEDBACK.fullmatch(token):
        place, letter, colour = match.groups()
        return [place + letter, letter, f"place {place}", colour, letter + colour]
    if match := WORD.fullmatch(token):
        return [match[2], "after a space" if match[1] else "at the start"]
    return []
