"""One `<tool_call>` block: from the text after its opening tag to a call and the position after the block.

The one idea: JSON decides where a good block ends (its strings may hold tags), tags decide where a bad one does.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Any, Protocol

from polygym.messages import ToolCall
from polygym.parsing.arguments import MismatchError, as_object
from polygym.parsing.strict_json import JsonError, decode

OPEN = "<tool_call>"
CLOSE = "</tool_call>"
TOOL_MARKER = re.compile("</?tool_call>")
FENCE_START = re.compile(r"\s*```[A-Za-z]*\s*")
FENCE_END = re.compile(r"\s*```\s*")
SPACE = re.compile(r"\s*")
# Keys that may stand beside name and arguments: they carry nothing that the tool would miss.
KEYS = frozenset({"name", "arguments", "id", "type"})
# Finish reasons of a policy that stopped by itself; after any other one the reply may lack its end.
STOPPED = frozenset({"stop", "tool_calls", "function_call"})


class BlockReader(Protocol):
    """Reads one block of a text; `start` is the position after its opening tag and only grows from call to call."""

    def read(self, start: int) -> tuple[ToolCall, int]:
        """The call, good or bad, and the position where reading goes on."""
        ...


class HermesReader:
    """Reads `{"name": ..., "arguments": {...}}`, also inside a code fence."""

    def __init__(self, text: str, known: Container[str], finish_reason: str) -> None:
        self._text = text
        self._known = known
        self._cut = finish_reason not in STOPPED

    def read(self, start: int) -> tuple[ToolCall, int]:
        """See `BlockReader`."""
        text = self._text
        fence = FENCE_START.match(text, start)
        begin = fence.end() if fence else start
        marker = TOOL_MARKER.search(text, start)
        problem: JsonError | None = None
        bound = marker.start() if marker else len(text)
        while True:
            try:
                value, length = decode(text[begin:bound])
                break
            except JsonError as error:
                problem = problem or error
                if not error.in_string or bound == len(text):
                    return self._bad(start, marker, problem)
                # The tag stands inside a string: look further, twice as far each time so that the sum stays linear.
                further = TOOL_MARKER.search(text, 2 * bound - begin + 1)
                bound = further.start() if further else len(text)
        end = begin + length
        end = ((fence and FENCE_END.match(text, end)) or SPACE.match(text, end)).end()  # type: ignore[union-attr]
        body = text[start:end]
        if text.startswith(CLOSE, end):
            return make_call(value, self._known, body), end + len(CLOSE)
        if text.startswith(OPEN, end) or (end == len(text) and not self._cut):  # the closing tag was forgotten
            return make_call(value, self._known, body), end
        if end == len(text):
            return bad_call("unterminated", body), end
        return self._bad(start, TOOL_MARKER.search(text, end), JsonError("text follows the object"))

    def _bad(self, start: int, marker: re.Match[str] | None, problem: JsonError) -> tuple[ToolCall, int]:
        """A bad block ends at its closing tag, or where another opens."""
        if marker and marker[0] == CLOSE:
            return bad_call(problem.code, self._text[start : marker.start()]), marker.end()
        end = marker.start() if marker else len(self._text)
        cut = problem.cut or (marker is None and self._cut)
        return bad_call("unterminated" if cut else problem.code, self._text[start:end]), end


def make_call(value: object, known: Container[str], raw: str) -> ToolCall:
    """The call that a decoded block describes, or what is wrong with it."""
    if not isinstance(value, Mapping):
        return bad_call("invalid_json", raw)
    name = value.get("name")
    if not isinstance(name, str) or not name.strip():
        return bad_call("missing_name", raw)
    name = name.strip()
    if name not in known:
        return bad_call("unknown_tool", raw, name)
    if not KEYS.issuperset(value):
        return bad_call("unexpected_key", raw, name)
    try:
        arguments: dict[str, Any] = as_object(value.get("arguments"))
    except (JsonError, MismatchError) as error:
        unicode = error.code == "invalid_unicode"
        return bad_call("invalid_unicode" if unicode else "arguments_not_object", raw, name)
    call_id = value.get("id")
    return ToolCall(name, arguments, call_id if isinstance(call_id, str) else "")


def bad_call(code: str, raw: str, name: str = "") -> ToolCall:
    """A call that is never run."""
    return ToolCall(name, error=code, raw=raw.strip())
