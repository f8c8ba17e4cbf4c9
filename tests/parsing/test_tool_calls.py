"""Tool calls in replies."""

from __future__ import annotations

import time
from typing import Any

import pytest

from case_rows import parametrize
from polygym.errors import UsageError
from polygym.messages import ToolSpec
from polygym.parsing.tool_calls import ParsedCalls, parse_tool_calls

TOOLS = ["get_weather", "add", "write_file", "now"]
PARIS = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
PARIS_CALL = ("get_weather", {"city": "Paris"})


def good(parsed: ParsedCalls) -> list[tuple[str, Any]]:
    return [(call.name, call.arguments) for call in parsed.calls if call.error is None]


@parametrize("tool_parse")
def test_tool_parse_case(case: dict[str, Any]) -> None:
    given = case["input"]
    kinds = given.get("schema", {}).items()
    schema = {
        "type": "object",
        "properties": {name: kind if isinstance(kind, dict) else {"type": kind} for name, kind in kinds},
    }
    parsed = parse_tool_calls(
        given["text"],
        [ToolSpec(name, "", schema) for name in given["tools"]],
        finish_reason=given.get("finish_reason", "stop"),
        format=given.get("format", "hermes"),
    )
    assert {
        "calls": [{"name": name, "arguments": arguments} for name, arguments in good(parsed)],
        "errors": parsed.errors,
        "content": parsed.content,
    } == case["expected"]


@pytest.mark.parametrize(
    ("text", "calls", "errors", "content"),
    [
        ("Hello.", [], [], "Hello."),
        ("", [], [], ""),
        (f"<tool_call>{PARIS}</tool_call><tool_call>{PARIS}</tool_call>", [PARIS_CALL] * 2, [], ""),
        (f"a <tool_call>{PARIS}</tool_call>\nb", [PARIS_CALL], [], "a \nb"),
        (f"<think>x</think>\n<tool_call>{PARIS}</tool_call>", [PARIS_CALL], [], ""),
        (f"x <tool_call>{PARIS}</tool_call></think>\ny", [], [], "y"),
        (PARIS, [], [], PARIS),
        (f"<tool_call>{PARIS}\n<tool_call>{PARIS}</tool_call>", [PARIS_CALL] * 2, [], ""),
        (f'<tool_call>{{"name": "get_wea<tool_call>{PARIS}</tool_call>', [PARIS_CALL], ["unterminated"], ""),
        (f"<tool_call>{{'name': <tool_call>{PARIS}</tool_call>", [PARIS_CALL], ["invalid_json"], ""),
        (f"<tool_call>[{PARIS}]</tool_call>", [], ["invalid_json"], ""),
        ("<tool_call>{}</tool_call>", [], ["missing_name"], ""),
        ('<tool_call>{"name": ""}</tool_call>', [], ["missing_name"], ""),
        ('<tool_call>{"function": "now", "arguments": {}}</tool_call>', [], ["missing_name"], ""),
        ('<tool_call>{"name": "Now"}</tool_call>', [], ["unknown_tool"], ""),
        ('<tool_call>{"name": "now", "arguments": [1]}</tool_call>', [], ["arguments_not_object"], ""),
        ('<tool_call>{"name": "now", "arguments": 5}</tool_call>', [], ["arguments_not_object"], ""),
        ('<tool_call>{"name": "now", "arguments": "[1]"}</tool_call>', [], ["arguments_not_object"], ""),
        ('<tool_call>{"name": "now", "arguments": "null"}</tool_call>', [("now", {})], [], ""),
        ('<tool_call>{"name": "now", "id": "c1", "type": "function"}</tool_call>', [("now", {})], [], ""),
        ('<tool_call>{"name": "add", "arguments": {"a": NaN}}</tool_call>', [], ["invalid_json"], ""),
        ('<tool_call>{"name": "add", "arguments": {"a": -1e999}}</tool_call>', [], ["invalid_json"], ""),
        ('<tool_call>{"name": "add", "arguments": {"a": 1,}}</tool_call>', [], ["invalid_json"], ""),
        ('<tool_call>{"name": "add", "arguments": {"a": ' + "9" * 5000 + "}}</tool_call>", [], ["invalid_json"], ""),
        (
            '<tool_call>{"name": "now", "arguments": {"a": "\\ud83c\\udf8c"}}</tool_call>',
            [("now", {"a": "🎌"})],
            [],
            "",
        ),
        ('<tool_call>{"name": "now", "arguments": {"\\udc00": 1}}</tool_call>', [], ["invalid_unicode"], ""),
        ("<tool_call>```\n" + PARIS + "```</tool_call>", [PARIS_CALL], [], ""),
        ('{"a": 1}</tool_call> and </tool_call>', [], ["orphan_close"] * 2, '{"a": 1} and'),
        (f"<tool_call>{PARIS}</tool_call></tool_call>", [PARIS_CALL], ["orphan_close"], ""),
        (f"<tool_call>{PARIS} and so on", [], ["invalid_json"], ""),
    ],
)
def test_each_block_becomes_a_call_or_a_named_error(
    text: str, calls: list[tuple[str, Any]], errors: list[str], content: str
) -> None:
    parsed = parse_tool_calls(text, TOOLS)
    assert (good(parsed), parsed.errors, parsed.content) == (calls, errors, content)


def test_tags_inside_a_json_string_belong_to_the_string() -> None:
    text = "</tool_call> <tool_call>{} <think> </think>"
    parsed = parse_tool_calls(
        '<tool_call>{"name": "write_file", "arguments": {"text": "' + text + '"}}</tool_call> done', TOOLS
    )
    assert good(parsed) == [("write_file", {"text": text})]
    assert (parsed.errors, parsed.content, parsed.reasoning) == ([], "done", "")


def test_bad_calls_keep_their_place_and_what_was_written() -> None:
    parsed = parse_tool_calls(
        f"<tool_call>no</tool_call><tool_call>{PARIS}</tool_call><tool_call>{{</tool_call>", TOOLS
    )
    assert [(call.error, call.raw) for call in parsed.calls] == [
        ("invalid_json", "no"),
        (None, ""),
        ("invalid_json", "{"),
    ]


@pytest.mark.parametrize("text", ['<tool_call>{"name": "now"', "<tool_call>{'name': 1", "<tool_call>"])
def test_a_reply_that_was_cut_inside_a_call_is_unterminated(text: str) -> None:
    assert parse_tool_calls(text, TOOLS, finish_reason="length").errors == ["unterminated"]


@pytest.mark.parametrize(
    ("finish_reason", "calls"),
    [("stop", [PARIS_CALL]), ("tool_calls", [PARIS_CALL]), ("length", []), ("content_filter", []), ("abort", [])],
)
def test_a_forgotten_closing_tag_is_supplied_only_if_the_policy_stopped_by_itself(
    finish_reason: str, calls: list[tuple[str, Any]]
) -> None:
    parsed = parse_tool_calls(f"<tool_call>{PARIS}", TOOLS, finish_reason=finish_reason)
    assert (good(parsed), parsed.errors) == (calls, [] if calls else ["unterminated"])


def test_reasoning_is_returned_apart_from_the_content() -> None:
    parsed = parse_tool_calls(f"<think>so <tool_call>{PARIS}</tool_call></think> Yes.", TOOLS)
    assert (parsed.content, parsed.reasoning, parsed.calls) == ("Yes.", f"so <tool_call>{PARIS}</tool_call>", ())


XML_SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "flag": {"type": "boolean"},
        "items": {"type": "array", "items": {"type": "integer"}},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
}


@pytest.mark.parametrize(
    ("body", "arguments", "errors"),
    [
        ("<parameter=text>\n\n a \n\n</parameter>", {"text": "\n a \n"}, []),
        ("<parameter=text>12</parameter>", {"text": "12"}, []),
        ("<parameter=count>12</parameter><parameter=flag>True</parameter>", {"count": 12, "flag": True}, []),
        ("<parameter=items>[1, 2]</parameter>", {"items": [1, 2]}, []),
        ("<parameter=items>1, 2</parameter>", None, ["type_mismatch"]),
        ("<parameter=note>null</parameter>", {"note": None}, []),
        ("<parameter=count>2.5</parameter>", None, ["type_mismatch"]),
        ("<parameter=text>\na\n<parameter=count>\n3\n</parameter>", {"text": "a", "count": 3}, []),
        ("<parameter=text>a </tool_call> b </function> c</parameter>", {"text": "a </tool_call> b </function> c"}, []),
        ("<parameter=other>\nx\n</parameter>", {"other": "x"}, []),
        ("", {}, []),
        ('{"text": "a"}', None, ["unexpected_key"]),
        ("<param=text>a</param>", None, ["unexpected_key"]),
        ('<parameter name="text">a</parameter>', None, ["unexpected_key"]),
        ("<parameter=text a\n</parameter>", None, ["unexpected_key"]),
        ("Now:\n<parameter=text>a</parameter>", None, ["unexpected_key"]),
        ("<parameter=text>a</parameter></function><function=now>", None, ["unexpected_key"]),
        ("<parameter=text>a<parameter=count>1</parameter></parameter>", None, ["unexpected_key"]),
        ("<parameter=text>a</parameter>\n<parameter=text>b</parameter>", {"text": "b"}, []),
    ],
)
def test_xml_parameters_are_typed_by_the_schema(body: str, arguments: dict[str, Any] | None, errors: list[str]) -> None:
    text = f"<tool_call>\n<function=write_file>\n{body}\n</function>\n</tool_call>\nok"
    parsed = parse_tool_calls(text, [ToolSpec("write_file", "", XML_SCHEMA)], format="xml_params")
    assert good(parsed) == ([] if arguments is None else [("write_file", arguments)])
    assert (parsed.errors, parsed.content) == (errors, "ok")


@pytest.mark.parametrize(
    ("text", "finish_reason", "calls", "errors"),
    [
        ("<tool_call><function=now></function>", "stop", [("now", {})], []),
        ("<tool_call><function=now></function>", "tool_calls", [("now", {})], []),
        ("<tool_call><function=now></function>", "length", [], ["unterminated"]),
        ("<tool_call><function=now><parameter=a>1", "stop", [], ["unterminated"]),
        ("<tool_call><function=launch><parameter=a>1</parameter></function></tool_call>", "stop", [], ["unknown_tool"]),
        ("<tool_call><function=></function></tool_call>", "stop", [], ["missing_name"]),
        ("<tool_call>now</tool_call>", "stop", [], ["missing_name"]),
        ('<tool_call>{"name": "now"}</tool_call>', "stop", [("now", {})], []),
        (
            "<tool_call><function=now>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
            "stop",
            [("now", {})],
            ["unterminated"],
        ),
        ("<tool_call><function=now><parameter=a>\ud800</parameter></function>", "stop", [], ["invalid_unicode"]),
    ],
)  # fmt: skip
def test_xml_blocks_end_where_no_doubt_is_left(
    text: str, finish_reason: str, calls: list[tuple[str, Any]], errors: list[str]
) -> None:
    parsed = parse_tool_calls(text, TOOLS, finish_reason=finish_reason, format="xml_params")
    assert (good(parsed), parsed.errors) == (calls, errors)


@pytest.mark.parametrize("format", ["hermes", "xml_params"])
@pytest.mark.parametrize(
    "unit",
    ["<tool_call>", "</tool_call>", "{", "<tool_call>{", "<tool_call>[", "<think>", "</think>", '<tool_call>{"a":"',
     '<tool_call>"', "<tool_call>```", "<tool_call></tool_call>", "<tool_call><function=f>", "<parameter=p>", " ",
     "<tool_call><function=f><parameter=p>", '<tool_call>["\\"', "</function> "],
)  # fmt: skip
def test_hostile_text_takes_linear_time(unit: str, format: Any) -> None:
    def seconds(size: int) -> float:
        begin = time.process_time()
        parse_tool_calls(unit * (size // len(unit)), TOOLS, format=format)
        return time.process_time() - begin

    assert seconds(600_000) < 2.0  # quadratic work takes longer by far


def test_deep_nesting_is_invalid_json() -> None:
    assert parse_tool_calls("<tool_call>" + "[" * 100_000 + "</tool_call>", TOOLS).errors == ["invalid_json"]


def test_an_unknown_tool_call_format_is_refused() -> None:
    with pytest.raises(UsageError, match="'xml' is unknown; allowed: hermes, xml_params"):
        parse_tool_calls("", TOOLS, format="xml")  # type: ignore[arg-type]
