"""Tool calls written as text: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, or with XML parameters.

The one idea: one pass over the text, marker by marker. Each block becomes a call or a named error, so a bad block never
hides a good one, and a call inside the reasoning block was never made. Any text is parsed, in linear time.

Error codes: `invalid_json` (a block that is not one JSON object), `invalid_unicode`, `missing_name`, `unknown_tool`,
`unexpected_key`, `arguments_not_object`, `type_mismatch`, `unterminated` (cut before its end), `orphan_close`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from polygym.errors import UsageError
from polygym.messages import ToolCall, ToolSpec
from polygym.parsing.call_blocks import BlockReader, HermesReader, bad_call
from polygym.parsing.reasoning import ReasoningScanner
from polygym.parsing.xml_calls import XmlReader

MARKER = re.compile("<(/?)(tool_call|(?i:think(?:ing)?))>")


@dataclass(frozen=True, slots=True)
class ParsedCalls:
    """Calls in written order (bad ones carry `.error` and `.raw`), the visible text around them, and the reasoning."""

    calls: tuple[ToolCall, ...]
    content: str
    reasoning: str

    @property
    def errors(self) -> list[str]:
        """Codes of the bad calls, in written order."""
        return [call.error for call in self.calls if call.error is not None]


def parse_tool_calls(
    text: str,
    tools: Sequence[ToolSpec | str],
    *,
    finish_reason: str = "stop",
    format: Literal["hermes", "xml_params"] = "hermes",
) -> ParsedCalls:
    """The calls in a reply. A last block without its closing tag is a call only if the policy stopped by itself.

    Args:
        text: what the policy wrote.
        tools: the tools it knows, or their names. The schemas type the values of `xml_params`.
        finish_reason: `stop` or `tool_calls`; any other one, such as `length`, says that the reply was cut.
        format: `hermes`, or `xml_params` (`<function=name><parameter=key>value</parameter></function>`).

    >>> parse_tool_calls('Hm. <tool_call>{"name": "now"}</tool_call>', ["now"]).calls[0].name
    'now'
    >>> parse_tool_calls('<tool_call>{"name": "no', ["now"]).errors
    ['unterminated']

    Raises:
        UsageError: for an unknown format.
    """
    if format not in ("hermes", "xml_params"):
        raise UsageError(f"tool call format {format!r} is unknown; allowed: hermes, xml_params")
    schemas = dict((tool, {}) if isinstance(tool, str) else (tool.name, tool.parameters) for tool in tools)
    reader: BlockReader
    if format == "hermes":
        reader = HermesReader(text, schemas, finish_reason)
    else:
        reader = XmlReader(text, schemas, finish_reason)
    scanner = ReasoningScanner()
    calls: list[ToolCall] = []
    visible: list[str] = []
    reasoning: list[str] = []
    settled = (0, 0)  # visible pieces and calls that stand before the last reasoning block
    position = 0
    while marker := MARKER.search(text, position):
        (reasoning if scanner.inside else visible).append(text[position : marker.start()])
        position = marker.end()
        closing = marker[1]
        if marker[2] != "tool_call":
            if not closing:
                scanner.open()
            elif scanner.close():
                reasoning.extend(visible[settled[0] :])
                del visible[settled[0] :], calls[settled[1] :]
            settled = (len(visible), len(calls))
        elif scanner.inside:
            reasoning.append(marker[0])
        elif closing:
            calls.append(bad_call("orphan_close", marker[0]))
        else:
            call, position = reader.read(marker.end())
            calls.append(call)
    (reasoning if scanner.inside else visible).append(text[position:])
    return ParsedCalls(tuple(calls), "".join(visible).strip(), "".join(reasoning).strip())
