"""One `<tool_call>` block with XML parameters: `<function=name><parameter=key>value</parameter></function>`.

The one idea: a value is raw text, so the schema decides what it is. One newline on each side belongs to the markup;
closing tags that a policy forgets are supplied where the next tag leaves no doubt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from polygym.messages import ToolCall
from polygym.parsing.arguments import MismatchError, allows_null, fit
from polygym.parsing.call_blocks import CLOSE, STOPPED, HermesReader, bad_call, make_call
from polygym.parsing.strict_json import JsonError, decode_all

FUNCTION = re.compile(r"\s*<function=([^>\n]*)>")
PARAMETER = re.compile(r"<parameter=([^>\n]*)>")
FUNCTION_END = "</function>"


class _Next:
    """The next match of a pattern from a position that only grows; each part of the text is searched once."""

    def __init__(self, pattern: str, text: str) -> None:
        self._pattern = re.compile(pattern)
        self._text = text
        self._found: tuple[int, int] = (-1, -1)

    def at(self, start: int) -> tuple[int, int]:
        """Start and end of the next match, or (length, length) when there is none."""
        if self._found[0] < start:
            match = self._pattern.search(self._text, start)
            self._found = match.span() if match else (len(self._text), len(self._text))
        return self._found


class XmlReader:
    """Reads blocks with XML parameters. A block that holds JSON instead is read as that."""

    def __init__(self, text: str, schemas: Mapping[str, Mapping[str, Any]], finish_reason: str) -> None:
        self._text = text
        self._schemas = schemas
        self._cut = finish_reason not in STOPPED
        self._hermes = HermesReader(text, schemas, finish_reason)
        self._whole_end = _Next(r"</function>\s*</tool_call>", text)
        self._open = _Next(r"<tool_call>", text)
        self._function = _Next(r"<tool_call>\s*<function=", text)
        self._close = _Next(CLOSE, text)

    def read(self, start: int) -> tuple[ToolCall, int]:
        """See `polygym.parsing.call_blocks.BlockReader`."""
        text = self._text
        head = FUNCTION.match(text, start)
        if head is None:
            if text[start : start + 64].lstrip().startswith(("{", "```")):
                return self._hermes.read(start)
            opening, closing = self._open.at(start), self._close.at(start)
            if closing[0] < opening[0]:
                return bad_call("missing_name", text[start : closing[0]]), closing[1]
            return bad_call("unterminated", text[start : opening[0]]), opening[0]
        body_end, end, closed = self._extent(head.end())
        raw = text[start:end]
        body = text[head.end() : body_end]
        if not closed and (FUNCTION_END not in body or (end == len(text) and self._cut)):
            return bad_call("unterminated", raw), end
        return self._call(head[1], body, raw), end

    def _extent(self, start: int) -> tuple[int, int, bool]:
        """End of the parameters, end of the block, and whether its closing tag is there. Values may hold tags too."""
        whole, function = self._whole_end.at(start), self._function.at(start)
        if whole[0] < function[0]:
            return whole[0], whole[1], True
        closing = self._close.at(start)
        if closing[0] < function[0]:
            return closing[0], closing[1], True
        return function[0], function[0], False

    def _call(self, name: str, body: str, raw: str) -> ToolCall:
        schema = self._schemas.get(name.strip(), {})
        properties = schema.get("properties") or {}
        arguments: dict[str, Any] = {}
        try:
            body.encode("utf-8")
            parameters, between = _parameters(body)
            for key, value in parameters:
                arguments[key] = read_value(value, properties.get(key) or {"type": "string"}, key)
        except UnicodeEncodeError:
            return bad_call("invalid_unicode", raw, name.strip())
        except MismatchError as error:
            return bad_call(error.code if name.strip() in self._schemas else "unknown_tool", raw, name.strip())
        call = make_call({"name": name, "arguments": arguments}, self._schemas, raw)
        if between and call.error is None:  # a parameter in another form: without it this would be another call
            return bad_call("unexpected_key", raw, call.name)
        return call


def read_value(raw: str, schema: Mapping[str, Any], name: str) -> Any:
    """The value that raw text is under a schema: itself where text is allowed, else what it says as JSON.

    Raises:
        MismatchError: when the schema does not allow it.
    """
    if raw.strip() == "null" and allows_null(schema):
        return None
    try:
        decoded = decode_all(raw)
    except JsonError:
        decoded = raw
    try:
        return fit(raw, schema, name)
    except MismatchError:
        return fit(decoded, schema, name)


def _parameters(body: str) -> tuple[list[tuple[str, str]], bool]:
    """The parameters, and whether anything but white space stands between them."""
    found = []
    between: list[str] = []
    position = 0
    closing = _Next("</parameter>", body)
    head = PARAMETER.search(body)
    while head:
        following = PARAMETER.search(body, head.end())
        bound = following.start() if following else len(body)
        between.append(body[position : head.start()])
        end, position = closing.at(head.end())
        if end > bound or end == len(body):  # the closing tag was forgotten
            function_end = body.find(FUNCTION_END, head.end(), bound)
            end = position = function_end if function_end >= 0 else bound
        found.append((head[1].strip(), re.sub(r"\A\r?\n|\r?\n\Z", "", body[head.end() : end])))
        head = following
    between.append(body[position:].strip().removesuffix(FUNCTION_END))
    return found, any(text.strip() for text in between)
