"""A toy tokenizer of characters and tiny random models, for tests of generation and rendering."""

from __future__ import annotations

from typing import Any

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
#: shows tools, calls and results itself
NATIVE = (
    "{% if tools %}{{ '[' }}{% for t in tools %}{{ t.function.name + ' ' }}{% endfor %}{{ ']' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] }}"
    "{% for c in m.tool_calls or [] %}{{ '#' + c.function.name + (c.function.arguments | tojson) }}{% endfor %}"
    "{{ '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
END_OF_TEXT, START, END = 0, 1, 2
VOCABULARY = 99


def toy_tokenizer(chat_template: str | None = CHATML) -> Any:
    """One token a character, and the three special tokens END_OF_TEXT, START and END."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    special = ["<|end|>", "<|im_start|>", "<|im_end|>"]
    words = [*special, *(chr(code) for code in range(32, 127)), "\n"]
    tokenizer = Tokenizer(models.BPE(vocab={word: index for index, word in enumerate(words)}, merges=[]))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(special)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", chat_template=chat_template)


def toy_model(seed: int = 0, **changes: Any) -> Any:
    """A random Llama of two layers; its wide initial weights make its next tokens depend on all that came before."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    settings = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 256,
        "tie_word_embeddings": True,
        "initializer_range": 0.3,
        "eos_token_id": END_OF_TEXT,
        "bos_token_id": None,
    }
    return LlamaForCausalLM(LlamaConfig(**{**settings, **changes})).eval()
