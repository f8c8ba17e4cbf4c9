"""JSONL rows: reading datasets, numbering tasks, routing rows, and files that survive being killed.

The one idea: there are two kinds of file. A dataset that a person gives is read strictly: the first thing wrong with it
is an error that names the physical line. A file that we append to may end in a torn line: the tail is cut, what stands
before it counts, and only damage in the middle is an error. Lines end at `\\n` and nowhere else.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import orjson

from polygym.errors import UsageError, nearest

Row = dict[str, Any]
Key = tuple[Any, ...]

_WIRE_PREFIX = "_ng_"
_LONE_SURROGATE_HINTS = ("\\ud", "\\uD")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SHOWN_ROWS = 10

MAX_DEPTH = 200
"""Levels of a row that every reader and writer of rows bears, wherever in the program it runs."""
_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep; make it flatter"


class RowError(UsageError):
    """A row that cannot be used: `code` names the kind of fault, `line` the physical line (0: the whole file)."""

    def __init__(self, message: str, code: str, line: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.line = line


# ---------------------------------------------------------------------------------------------------- datasets, strict


def read_rows(source: str | Path | bytes, *, limit: int | None = None) -> list[Row]:
    """The rows of a JSONL dataset, each with an `id` (its own, or its index).

    Args:
        source: a path, or the content of a file as bytes.
        limit: read at most so many rows. A limit above the number of rows is no error; 0 leaves an empty dataset.

    Raises:
        RowError: `invalid_utf8`, `invalid_json`, `not_object`, `duplicate_key`, `non_finite`, `invalid_unicode`,
            `bad_id`, `duplicate_id` with the line; `empty_dataset` and `bad_limit` with line 0.

    >>> read_rows(b'{"question": "1 + 1"}\\n')
    [{'id': 0, 'question': '1 + 1'}]
    """
    rows, lines = _strict_rows(source, limit)
    return assign_ids(rows, name=_name(source), lines=lines)


def read_wire_rows(source: str | Path | bytes, *, limit: int | None = None) -> tuple[list[Row], list[int]]:
    """The rows of a JSONL file for servers as they are, and the physical line of each.

    Equal rows are rollouts of one task, and rows of several agents may share an id, so ids are not looked at here.

    Raises:
        RowError: as `read_rows`, but for ids.
    """
    rows, lines = _strict_rows(source, limit)
    if not rows:
        raise RowError(f"{_name(source)} has no rows", "empty_dataset")
    return rows, lines


def _strict_rows(source: str | Path | bytes, limit: int | None) -> tuple[list[Row], list[int]]:
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise RowError(f"limit={limit!r} must be an integer of at least 1, or None to read every row", "bad_limit")
    name = _name(source)
    rows: list[Row] = []
    lines: list[int] = []
    for line, raw in numbered_lines(_content(source).split(b"\n")):
        if limit is not None and len(rows) >= limit:
            break
        rows.append(parse_row(raw, line, name))
        lines.append(line)
    return rows, lines


def numbered_lines(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """The number of each line that is not blank, and what stands in it, without the byte order mark of the first.

    >>> list(numbered_lines([b"\\xef\\xbb\\xbf{}\\r\\n", b"\\n", b" {}"]))
    [(1, b'{}'), (3, b'{}')]
    """
    for line, raw in enumerate(lines, start=1):
        content = (raw.removeprefix(_BYTE_ORDER_MARK) if line == 1 else raw).strip()
        if content:
            yield line, content


def assign_ids(
    rows: Iterable[Mapping[str, Any]], *, name: str = "dataset", lines: Sequence[int] | None = None
) -> list[Row]:
    """Copies of `rows`, each with an `id`: its own, or its index where it has none. `lines` numbers them in messages.

    `1` and `"1"` are different ids; True and 1.0 are none, because Python would take them for 1.

    Raises:
        RowError: `bad_id`, `duplicate_id` (rows of one id would be merged into one group) or `empty_dataset`.
    """
    numbered: list[Row] = []
    line_of_id: dict[int | str, int] = {}
    for index, row in enumerate(rows):
        line = lines[index] if lines is not None else index + 1
        row_id = row.get("id", index)
        if isinstance(row_id, bool) or not isinstance(row_id, (int, str)):
            raise RowError(f"{name}, line {line}: id {row_id!r} must be an integer or a text", "bad_id", line)
        if row_id in line_of_id:
            raise RowError(
                f"{name}, line {line}: id {row_id!r} is already used in line {line_of_id[row_id]}; ids must be unique: "
                "rename one, or leave out every id to number the rows",
                "duplicate_id",
                line,
            )
        line_of_id[row_id] = line
        numbered.append({"id": row_id, **row})
    if not numbered:
        raise RowError(f"{name} has no rows; an environment needs at least one task", "empty_dataset")
    return numbered


def _name(source: str | Path | bytes) -> str:
    return "dataset" if isinstance(source, bytes) else str(source)


def _content(source: str | Path | bytes) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        return Path(source).read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"cannot read {str(source)!r}: {reason}; give the path of a JSONL file") from error


def parse_row(raw: bytes, line: int, name: str) -> Row:
    """The row in one line of a dataset. The standard library's parser, because orjson rounds large integers.

    Raises:
        RowError: as `read_rows`, but for ids; `name` and `line` say where.
    """

    def fault(code: str, text: str) -> RowError:
        return RowError(f"{name}, line {line}: {text}", code, line)

    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise fault("invalid_utf8", f"not UTF-8 ({error.reason}); save the file as UTF-8") from error
    try:
        row = _DECODER.decode(text)
    except _Refused as refused:
        raise fault(refused.code, str(refused)) from refused
    except RecursionError as error:
        raise fault("invalid_json", _TOO_DEEP) from error
    except ValueError as error:
        raise fault("invalid_json", f"not JSON ({error}); each line holds one whole object") from error
    if not isinstance(row, dict):
        raise fault("not_object", f"a row must be an object {{...}}, got {type(row).__name__}; write one object a line")
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deeper(row, MAX_DEPTH):
        raise fault("invalid_json", _TOO_DEEP)
    if any(hint in text for hint in _LONE_SURROGATE_HINTS):
        try:
            json.dumps(row, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise fault("invalid_unicode", "half of a surrogate pair, which no file can hold; remove it") from error
    return row


def _is_deeper(value: Any, depth: int) -> bool:
    """Whether objects and lists stand in each other more than `depth` levels deep."""
    level = [value]
    for _ in range(depth + 1):
        level = [
            item
            for holder in level
            if isinstance(holder, (dict, list))
            for item in (holder.values() if isinstance(holder, dict) else holder)
        ]
        if not level:
            return False
    return True


class _Refused(ValueError):
    """What the standard library's parser would accept and a row may not hold."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def _constant(literal: str) -> NoReturn:
    raise _Refused("non_finite", f"{literal} is no JSON number; write null or a finite one")


def _number(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        raise _Refused("non_finite", f"{literal:.40} is too large for a number")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _Refused("duplicate_key", f"key {twice!r} stands twice in one object; keep one")
    return row


_DECODER = json.JSONDecoder(parse_constant=_constant, parse_float=_number, object_pairs_hook=_unique)


# ------------------------------------------------------------------------------------------------------------ wire rows


def task_index(rows: Iterable[Mapping[str, Any]]) -> list[int]:
    """The task number of each row: equal rows of one agent share a number and become more rollouts of that task.

    Equality is that of canonical JSON without `_ng_` keys, so 1, 1.0 and true differ and the order of keys does not.

    >>> task_index([{"q": "a"}, {"q": "b"}, {"q": "a", "_ng_task_index": 7}])
    [0, 1, 0]
    """
    index = TaskIndex()
    return [index.number(row) for row in rows]


class TaskIndex:
    """Numbers tasks in the order in which they are first seen; it keeps a digest of each, not the row."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def number(self, row: Mapping[str, Any]) -> int:
        """The task number of `row`."""
        return self._numbers.setdefault(task_digest(row), len(self._numbers))


def task_digest(row: Mapping[str, Any]) -> bytes:
    """16 bytes that equal rows of one agent share, and no others."""
    kept = {key: value for key, value in row.items() if not key.startswith(_WIRE_PREFIX)}
    reference = kept.get("agent_ref") or {}
    if isinstance(reference, Mapping):  # an agent is its name: what else stands there makes no other task
        kept["agent_ref"] = reference.get("name")
    try:
        text = orjson.dumps(kept, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # integers of more than 64 bits, deep nesting
        text = json.dumps(kept, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=16).digest()


def agent_of(row: Mapping[str, Any], default: str | None, known: Iterable[str]) -> str:
    """The agent that plays `row`: its own `agent_ref.name`, else `default`. There is no falling back to another one.

    Raises:
        RowError: `missing_agent_ref`, `bad_agent_ref` or `unknown_agent`.
    """
    return agents_of([row], default, known)[0]


def agents_of(
    rows: Iterable[Mapping[str, Any]],
    default: str | None,
    known: Iterable[str],
    *,
    lines: Sequence[int] | None = None,
) -> list[str]:
    """The agent of each row (see `agent_of`). Rows that name none are reported together, in one error.

    `lines` numbers the rows in messages; default their position, from 1.
    """
    names = list(known)
    agents: list[str] = []
    missing: list[int] = []
    for position, row in enumerate(rows):
        line = lines[position] if lines is not None else position + 1
        reference = row.get("agent_ref")
        if reference is None:
            reference = {}
        if not isinstance(reference, Mapping):
            raise RowError(
                f'row {line}: agent_ref must be an object like {{"name": "math"}}, got {reference!r:.80}',
                "bad_agent_ref",
                line,
            )
        name = reference.get("name")
        if name is None or name == "":
            name = default
        if name is None or name == "":
            missing.append(line)
            continue
        if not isinstance(name, str):
            raise RowError(f"row {line}: agent_ref.name must be a text, got {name!r:.80}", "bad_agent_ref", line)
        if name not in names:
            raise RowError(f"row {line}: agent {name!r} is unknown; {nearest(name, names)}", "unknown_agent", line)
        agents.append(name)
    if missing:
        shown = ", ".join(map(str, missing[:_SHOWN_ROWS])) + (", ..." if len(missing) > _SHOWN_ROWS else "")
        raise RowError(
            f"{len(missing)} row(s) name no agent and there is no default (rows {shown}); "
            'add "agent_ref": {"name": ...} or give a default agent',
            "missing_agent_ref",
            missing[0],
        )
    return agents


# ------------------------------------------------------------------------------------------- files that are appended to


@dataclass(frozen=True)
class ResumeScan:
    """What an output file already holds. `keep_bytes` is where to cut it before anything is appended."""

    done: list[Key]
    todo: list[Key]
    keep_bytes: int


def scan_output(data: bytes, planned: Iterable[Sequence[Any]], key: Callable[[Row], Sequence[Any]]) -> ResumeScan:
    """Which of the `planned` rollouts the output `data` of an interrupted collection already holds.

    The last row of a key counts. A row whose reward is null is not finished, and one that was not planned is ignored.
    Both lists are in planned order, each key once.

    Args:
        key: takes a row to its key, made like those of `planned`.

    Raises:
        RowError: `corrupt_line` when good lines follow a bad one.
    """
    rows, keep_bytes = _whole_rows(data)
    finished: dict[str, bool] = {}
    for line, row in rows:
        try:
            name = _key_text(key(row))
        except (KeyError, TypeError) as error:
            text = f"line {line} is no rollout ({error!r}); repair or remove it"
            raise RowError(text, "corrupt_line", line) from error
        reward = row.get("reward")
        finished[name] = isinstance(reward, (int, float)) and math.isfinite(reward)
    plan = {_key_text(item): tuple(item) for item in planned}
    done = [item for name, item in plan.items() if finished.get(name)]
    todo = [item for name, item in plan.items() if not finished.get(name)]
    return ResumeScan(done, todo, keep_bytes)


def _key_text(key: Sequence[Any]) -> str:
    """A key as JSON text, so that the ids 1, "1" and true stay apart."""
    return json.dumps(list(key))


def _whole_rows(data: bytes) -> tuple[list[tuple[int, Row]], int]:
    """The (line, row) pairs before the torn tail, and the number of bytes they take."""
    rows: list[tuple[int, Row]] = []
    keep_bytes = end = torn_line = 0
    for line, raw in enumerate(data.split(b"\n"), start=1):
        end += len(raw) + 1
        if not raw.strip():
            continue
        try:
            row = json.loads(raw)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            torn_line = torn_line or line
            continue
        if torn_line:
            raise RowError(
                f"line {torn_line} is damaged but good lines follow it; remove it, and its rollout is replayed",
                "corrupt_line",
                torn_line,
            )
        rows.append((line, row))
        keep_bytes = min(end, len(data))
    return rows, keep_bytes


def scan_lines(path: str | Path) -> list[Row]:
    """The rows of a file that we append to, without a torn tail; none if there is no such file."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return []
    return [row for _, row in _whole_rows(data)[0]]


def cut_torn_tail(path: str | Path) -> int:
    """Cuts `path` back to its last whole line and ends that with a newline; returns the number of bytes cut."""
    path = Path(path)
    if not path.exists():
        return 0
    data = path.read_bytes()
    _, keep_bytes = _whole_rows(data)
    unended = keep_bytes > 0 and data[keep_bytes - 1 : keep_bytes] != b"\n"
    if keep_bytes < len(data) or unended:
        write_aside(path, data[:keep_bytes] + (b"\n" if unended else b""))
    return len(data) - keep_bytes


def append(path: str | Path, *rows: Mapping[str, Any]) -> None:
    """Adds `rows` to the end of `path` in one write. Readers skip a line that a kill has torn (`scan_lines`)."""
    with open(path, "ab") as file:
        file.write(b"".join(map(dump_row, rows)))


def write_aside(path: str | Path, data: bytes) -> None:
    """Writes `path` as a whole; see `written_aside`."""
    with written_aside(path) as file:
        file.write(data)


@contextmanager
def written_aside(path: str | Path) -> Iterator[BinaryIO]:
    """A file that becomes `path` at the end: aside, to the disk, then renamed; a reader sees the old one or the new.

    Where the block raises, `path` stays as it was. A link stays one: the file that it leads to is replaced.

    Raises:
        UsageError: where something stands that is no file, such as a device, a pipe or a folder.
    """
    given, path = path, Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise UsageError(f"cannot write {str(given)!r}: it is there and is no file; give the path of one")
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, 0o644)  # mkstemp makes files that only their owner may read
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def dump_row(row: Mapping[str, Any]) -> bytes:
    """`row` as a JSON line with its newline. NaN and infinities become null, foreign objects their text.

    >>> dump_row({"reward": float("nan")})
    b'{"reward":null}\\n'
    """
    try:
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)  # writes NaN and infinities as null
    except TypeError:  # foreign objects, keys that are no text, huge integers, half surrogate pairs
        return json.dumps(_plain(row), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def dump_document(document: Mapping[str, Any]) -> bytes:
    """`document` as JSON for people to read, by the same rules as `dump_row`: a key a line, lists on one line.

    >>> print(dump_document({"a": {"b": [1, 2]}}).decode(), end="")
    {
      "a": {
        "b": [1, 2]
      }
    }
    """
    return _indented(_plain(document), "\n").encode() + b"\n"


def _indented(value: Any, newline: str) -> str:
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    inner = newline + "  "
    items = (f"{json.dumps(key, ensure_ascii=False)}: {_indented(item, inner)}" for key, item in value.items())
    return "{" + inner + f",{inner}".join(items) + newline + "}"


def _plain(value: Any) -> Any:
    """`value` made of JSON types only."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_plain_text(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy and torch numbers and arrays
        return _plain(value.tolist())
    return _plain_text(str(value))


def _plain_text(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
