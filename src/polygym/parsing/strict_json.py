"""JSON as a policy has to write it.

The one idea: what the standard library's json accepts beyond JSON (NaN, numbers that overflow to infinity, lone
surrogates that can never be written as UTF-8) is refused here, so that whatever comes out can be stored. The last of
equal keys wins; integers stay exact.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

MAX_INTEGER_BITS = 14_000  # Python reads integers of up to 4,300 digits
SPACE = re.compile(r"[ \t\n\r]*")


class JsonError(ValueError):
    """Text is no acceptable JSON.

    `code` is `invalid_json` or `invalid_unicode`; `cut` tells that the text only stops too early, `in_string` where.
    """

    def __init__(self, message: str, code: str = "invalid_json", *, cut: bool = False, in_string: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.cut = cut
        self.in_string = in_string


def _refuse(constant: str) -> NoReturn:
    raise JsonError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise JsonError(f"{digits:.40} is too large")
    return value


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


def decode(text: str, start: int = 0) -> tuple[Any, int]:
    """The JSON value that begins at `start` (white space skipped) and the position after it.

    Raises:
        JsonError: when there is none.
    """
    begin = SPACE.match(text, start).end()  # type: ignore[union-attr]
    try:
        value, end = _DECODER.raw_decode(text, begin)
    except json.JSONDecodeError as error:
        in_string = error.msg.startswith("Unterminated string")
        cut = in_string or not text[error.pos :].strip()
        raise JsonError(str(error), cut=cut, in_string=in_string) from error
    except RecursionError as error:
        raise JsonError("nested too deeply") from error
    except JsonError:
        raise
    except ValueError as error:  # an integer of more digits than Python converts
        raise JsonError(str(error)) from error
    check_unicode(text[begin:end], value)
    return value, end


def decode_all(text: str) -> Any:
    """The one JSON value that fills `text`.

    Raises:
        JsonError: when there is none, or more than that.
    """
    value, end = decode(text)
    if text[end:].strip():
        raise JsonError(f"text follows the value: {text[end : end + 40]!r}")
    return value


def check_unicode(source: str, value: Any) -> None:
    """Refuse a lone surrogate in a value that was read from `source`.

    Raises:
        JsonError: with code `invalid_unicode`.
    """
    if source.isascii() and "\\ud" not in source and "\\uD" not in source:
        return
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise JsonError("a lone surrogate cannot be written as UTF-8", "invalid_unicode") from error
    except RecursionError as error:
        raise JsonError("nested too deeply") from error


def check_value(value: object) -> None:
    """Refuse what no JSON text holds: keys that are no text, numbers without an end, lone surrogates, other types.

    Raises:
        JsonError: with the code that the text would have.
        RecursionError: when it is nested too deeply.
    """
    match value:
        case str():
            check_unicode(value, value)
        case float() if not math.isfinite(value):
            raise JsonError(f"{value} is not JSON")
        case int() if value.bit_length() > MAX_INTEGER_BITS:
            raise JsonError("an integer of so many digits cannot be read")
        case None | int() | float():
            pass
        case Mapping():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise JsonError(f"a key must be text, got {key!r:.40}")
                check_unicode(key, key)
                check_value(item)
        case list() | tuple():
            for item in value:
                check_value(item)
        case _:
            raise JsonError(f"a {type(value).__name__} is not JSON")
