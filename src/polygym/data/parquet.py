"""Rows in Parquet files.

The one idea: a key of a row is a column. Texts, numbers and truth values are columns of their type; all else (objects,
lists, keys whose type changes from row to row) is a column of JSON text that says so in its metadata, so that rows come
back as they were, with every number and with keys that only some rows have. Of a foreign file, structs and lists are
read as objects and lists, and nulls as keys that are not there.

Limit: memory goes with the row groups of a foreign file; those written here hold about 16 MB.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from polygym.errors import UsageError
from polygym.rows import Row, RowError, parse_row

JSON = {b"polygym": b"json"}
ALWAYS_OBJECTS = ("agent_ref", "responses_create_params")  # a text there is JSON whose metadata another tool has lost
BATCH_ROWS = 256
GROUP_BYTES = 2**24
KINDS: dict[type, pa.DataType] = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def read_parquet(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """The rows of a Parquet file as JSON lines, numbered from 1.

    Raises:
        UsageError: when it has a column of bytes, which no JSON can hold.
        RowError: `damaged_file`.
    """
    number = 0
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            as_json = {field.name for field in file.schema_arrow if _is_json(field, path)}
            for batch in file.iter_batches(BATCH_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield number, _line(row, as_json)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise RowError(
            f"{path}, line {number}: behind it the Parquet file is damaged ({reason})", "damaged_file", number
        ) from error


def _is_json(field: pa.Field, path: str | Path) -> bool:
    if bytes_in := _bytes_in(field):
        raise UsageError(f"{path}: column {bytes_in!r} holds bytes, which no row can; leave it out or write it as text")
    text = pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
    return text and ((field.metadata or {}).get(b"polygym") == b"json" or field.name in ALWAYS_OBJECTS)


def _bytes_in(field: pa.Field) -> str | None:
    """The name of the first part of a column that holds bytes."""
    kind = field.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return str(field.name)
    return next(filter(None, (_bytes_in(kind.field(at)) for at in range(kind.num_fields))), None)


def _line(row: Row, as_json: set[str]) -> bytes:
    items = (
        f"{json.dumps(key, ensure_ascii=False)}: {value if key in as_json else _json(_without_nulls(value))}"
        for key, value in row.items()
        if value is not None
    )
    return ("{" + ", ".join(items) + "}").encode("utf-8", "surrogatepass")


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)  # dates and decimals become text


class ParquetWriter:
    """Writes rows to `file`. Which types a key has is known at the end only: rows lie in `spool` until `finish`."""

    def __init__(self, file: BinaryIO, spool: BinaryIO) -> None:
        self._file = file
        self._spool = spool
        self._kinds: dict[str, set[type]] = {}

    def write(self, raw: bytes) -> None:
        """Add a row."""
        for key, value in parse_row(raw, 0, "row").items():
            fits = not isinstance(value, int) or -(2**63) <= value < 2**63
            self._kinds.setdefault(key, set()).add(type(value) if fits else object)
        self._spool.write(raw + b"\n")

    def finish(self) -> None:
        """Write all of them."""
        types = {key: KINDS.get(next(iter(kinds))) if len(kinds) == 1 else None for key, kinds in self._kinds.items()}
        schema = pa.schema(
            [pa.field(key, kind or pa.string(), metadata=None if kind else JSON) for key, kind in types.items()]
        )
        self._spool.seek(0)
        with pq.ParquetWriter(self._file, schema, compression="zstd") as writer:
            rows: list[Row] = []
            size = 0
            for raw in self._spool:
                row = parse_row(raw, 0, "row")
                rows.append({key: value if types[key] else _json(value) for key, value in row.items()})
                size += len(raw)
                if size > GROUP_BYTES:
                    writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                    rows, size = [], 0
            if rows:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
