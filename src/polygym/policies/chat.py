"""ChatRenderer: conversations as token ids, exactly as they were sampled.

The one idea: what a policy sampled is never encoded again. The prompt of a later turn is the prompt and the ids of the
turn before, then the ids that the chat template puts after an assistant message, then the new messages. The text in
between is found by rendering a stand-in conversation whose last answer is a marker, and it is the same for sampling and
for supervised training (`render_training`).

Tools are shown by the chat template where it knows them, else in the Hermes form (`polygym.policies.hermes`). A
tokenizer without a chat template gets a plain transcript.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from jinja2.exceptions import TemplateError

from polygym.errors import UsageError
from polygym.messages import Message, ToolCall, ToolSpec
from polygym.policies.hermes import as_plain_messages, call_block
from polygym.rollout import Turn

REMEMBERED = 8192  # encoded prompts and additions; the prompts of a group and common feedback are encoded once
PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] }}"
    "{{ eos_token if message['role'] == 'assistant' else '' }}{{ '\n\n' }}{% endfor %}"
    "{{ 'assistant: ' if add_generation_prompt else '' }}"
)


def _marker(index: int) -> str:
    """A text that no chat template looks at, trims or changes."""
    return f"POLYGYM{index}MARKER"


class ChatRenderer:
    """Renders conversations with a tokenizer of transformers.

    `stop_ids` are the ids that end an answer; `end_ids` is what a sampled answer ends with, to the first of them.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._template = None if tokenizer.chat_template else PLAIN_TEMPLATE
        text = json.dumps(tokenizer.chat_template or PLAIN_TEMPLATE)
        self._memory: OrderedDict[Hashable, Any] = OrderedDict()
        self._tools_seen: dict[int, tuple[Sequence[ToolSpec], Hashable]] = {}
        self.system_role = self._renders([Message("system", _marker(1)), Message("user", _marker(0))])
        self.native_tools = "tools" in text
        self.native_calls = self.native_tools and "tool_calls" in text and self._renders_calls()
        after = self._encode(self._pieces_after_answer((), (), generation_prompt=False)[0])
        self.stop_ids = self._find_stop_ids(after)
        at = next((at for at, token in enumerate(after) if token in self.stop_ids), None)
        self.end_ids = after[: at + 1] if at is not None else sorted(self.stop_ids)[:1]

    # ------------------------------------------------------------------------------------------------ prompts

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), previous: Turn | None = None
    ) -> list[int]:
        """Prompt ids that ask for the next assistant message.

        With `previous`, the turn that wrote the last assistant message of `messages`, the ids begin with
        `previous.prompt_token_ids` and `previous.token_ids`.

        Raises:
            UsageError: when the chat template refuses the conversation.
        """
        if previous is None or previous.prompt_token_ids is None or previous.token_ids is None:
            key = (_key(messages), self._tools_key(tools))
            return list(self._remember(key, lambda: self._encode(self._text(messages, tools))))
        last = next(at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "assistant")
        added = self._added_ids(messages[last + 1 :], tools)
        sampled = previous.token_ids
        if sampled and sampled[-1] in self.stop_ids and sampled[-1] in added[: len(self.end_ids)]:
            added = added[added.index(sampled[-1]) + 1 :]  # the end was sampled, so it is not written again
        return [*previous.prompt_token_ids, *sampled, *added]

    def render_training(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), prompt_messages: int = 0
    ) -> tuple[list[int], list[bool]]:
        """Ids of a conversation as a rollout would have made them, and which of them the policy would have sampled.

        Assistant messages among the first `prompt_messages` are worked examples in the prompt and not marked; every
        later one is, with its end token. What follows the last of them is left out.
        """
        ids: list[int] = []
        mask: list[bool] = []
        previous: Turn | None = None
        for at, message in enumerate(messages):
            if message.role != "assistant" or at < prompt_messages:
                continue
            prompt = self.render(messages[:at], tools, previous)
            answer = [*self._encode(self.answer_text(message)), *self.end_ids]
            mask += [False] * (len(prompt) - len(ids)) + [True] * len(answer)
            ids = [*prompt, *answer]
            previous = Turn(message, prompt_token_ids=prompt, token_ids=answer)
        return ids, mask

    def answer_text(self, message: Message) -> str:
        """What a policy writes to say `message`: calls as the chat template shows them, else in the Hermes form."""
        if not message.tool_calls:
            return message.content
        if self.native_calls:
            before = self._apply([{"role": "user", "content": _marker(0)}], (), True)
            whole = self._apply([{"role": "user", "content": _marker(0)}, self._native(message)], (), False)
            end = self._pieces_after_answer((), (), generation_prompt=False)[0]
            if whole.startswith(before) and whole.endswith(end):
                return whole[len(before) : len(whole) - len(end)]
        return "\n".join(part for part in (message.content, *map(call_block, message.tool_calls)) if part)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of sampled ids, without special tokens."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is not None:
            return str(backend.decode(ids, skip_special_tokens=True))
        return str(self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    # ------------------------------------------------------------------------------------------------ additions

    def _added_ids(self, added: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """Ids from the end of an answer to the start of the next, with the added messages between."""
        key = ("added", _key(added), self._tools_key(tools))
        ids: list[int] = self._remember(key, lambda: self._encode(self._added_text(added, tools)))
        return ids

    def _added_text(self, added: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
        """The template is rendered once for each sequence of roles; trimmed contents are put between its pieces."""
        shown = added if self.native_calls else as_plain_messages(added, ())
        contents = [message.content for message in shown]
        roles = tuple((message.role, message.tool_call_id) for message in shown)
        if any(message.tool_calls for message in shown) or not all(text and text == text.strip() for text in contents):
            return self._pieces_after_answer(tuple(shown), tools, generation_prompt=True)[0]
        key = ("pieces", roles, self._tools_key(tools))
        pieces: list[str] = self._remember(
            key, lambda: self._pieces_after_answer(_marked(shown), tools, generation_prompt=True)
        )
        if len(pieces) != len(contents) + 1:
            return self._pieces_after_answer(tuple(shown), tools, generation_prompt=True)[0]
        return pieces[0] + "".join(text + piece for text, piece in zip(contents, pieces[1:], strict=True))

    def _pieces_after_answer(
        self, added: Sequence[Message], tools: Sequence[ToolSpec], *, generation_prompt: bool
    ) -> list[str]:
        """What the template writes after an answer, cut at the markers that the added messages hold."""
        stand_in = [Message("user", "hello"), Message("assistant", _marker(0)), *added]
        text = self._text(stand_in, tools, generation_prompt).partition(_marker(0))[2]
        pieces = []
        for index in range(1, len(added) + 1):
            piece, found, text = text.partition(_marker(index))
            if not found:
                return [piece + text]
            pieces.append(piece)
        return [*pieces, text]

    # ------------------------------------------------------------------------------------------------ the template

    def _text(self, messages: Sequence[Message], tools: Sequence[ToolSpec], generation_prompt: bool = True) -> str:
        """The conversation as text, by the chat template."""
        if not self.native_calls:
            messages = as_plain_messages(messages, () if self.native_tools else tools)
        if not self.system_role and messages and messages[0].role == "system":
            messages = _system_into_user(messages)
        try:
            return self._apply([self._native(message) for message in messages], tools, generation_prompt)
        except (TemplateError, TypeError, ValueError) as error:
            roles = ", ".join(message.role for message in messages)
            raise UsageError(f"the chat template refuses a conversation of {roles}: {error}") from error

    def _apply(self, rows: list[dict[str, Any]], tools: Sequence[ToolSpec], generation_prompt: bool) -> str:
        shown = [tool.to_dict() for tool in tools] if tools and self.native_tools else None
        return str(
            self.tokenizer.apply_chat_template(
                rows, tools=shown, chat_template=self._template, add_generation_prompt=generation_prompt, tokenize=False
            )
        )

    @staticmethod
    def _native(message: Message) -> dict[str, Any]:
        row: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.tool_calls:
            row["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
                for call in message.tool_calls
            ]
        if message.tool_call_id is not None:
            row["tool_call_id"] = message.tool_call_id
        return row

    def _renders(self, messages: Sequence[Message]) -> bool:
        """Whether the template takes these messages and shows the markers in them."""
        try:
            text = self._apply([self._native(message) for message in messages], (), True)
        except (TemplateError, TypeError, ValueError):
            return False
        return all(_marker(index) in text for index in range(len(messages)) if f"POLYGYM{index}" in str(messages))

    def _renders_calls(self) -> bool:
        """Whether the template shows calls and results, also a result after an answer whose calls are in its text."""
        ask = Message("user", "hello")
        call = Message("assistant", "", (ToolCall(_marker(0), {"text": _marker(1)}),))
        result = Message("tool", _marker(2))
        return self._renders([ask, call, result]) and self._renders([ask, Message("assistant", _marker(0)), result])

    # ------------------------------------------------------------------------------------------------ tokens

    def _encode(self, text: str) -> list[int]:
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is not None:
            return list(backend.encode(text, add_special_tokens=False).ids)
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def _find_stop_ids(self, after: Sequence[int]) -> frozenset[int]:
        """The end-of-text token, and the special token that the template puts right after an answer."""
        found = {self.tokenizer.eos_token_id} - {None}
        if after and after[0] in self.tokenizer.added_tokens_decoder:
            found.add(after[0])
        if not found:
            raise UsageError(
                f"tokenizer {self.tokenizer.name_or_path!r} has no token that ends an answer; give it an eos_token"
            )
        return frozenset(found)

    def _tools_key(self, tools: Sequence[ToolSpec]) -> Hashable:
        """A key that stands for the tools. The tools are held, so that no other list can get their address."""
        if not tools:
            return None
        if id(tools) not in self._tools_seen:
            key = json.dumps([tool.to_dict() for tool in tools])
            self._tools_seen[id(tools)] = (tools, key)
            if len(self._tools_seen) > REMEMBERED:
                self._tools_seen.pop(next(iter(self._tools_seen)))
            return key
        return self._tools_seen[id(tools)][1]

    def _remember(self, key: Hashable, make: Callable[[], Any]) -> Any:
        value = self._memory.get(key)
        if value is None:
            value = self._memory[key] = make()
            if len(self._memory) > REMEMBERED:
                self._memory.popitem(last=False)
        return value


def _key(messages: Sequence[Message]) -> Hashable:
    return tuple(
        (message.role, message.content, repr(message.tool_calls) if message.tool_calls else "", message.tool_call_id)
        for message in messages
    )


def _marked(messages: Sequence[Message]) -> tuple[Message, ...]:
    return tuple(
        Message(message.role, _marker(at), (), message.tool_call_id) for at, message in enumerate(messages, start=1)
    )


def _system_into_user(messages: Sequence[Message]) -> list[Message]:
    """For templates without a system role: its text opens the first user message."""
    system, *rest = messages
    for at, message in enumerate(rest):
        if message.role == "user":
            rest[at] = Message("user", f"{system.content}\n\n{message.content}")
            return rest
    return [Message("user", system.content), *rest]
