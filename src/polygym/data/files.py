"""Files of rows: JSONL, the same under gzip, and Parquet.

The one idea: between the formats a row is the bytes of its JSON line. They are read one by one, whatever the size of
the file, and copied as they are, so that no number and no key changes on the way; a file is there as a whole or not at
all. What a file is when it is read, its first bytes say; when it is written, its name (`.gz`, `.parquet`).
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, BinaryIO, Protocol, cast

from polygym.errors import PolygymError, UsageError
from polygym.rows import RowError, numbered_lines, written_aside

GZIP, PARQUET = b"\x1f\x8b", b"PAR1"
LONGEST_LINE = 2**28  # bytes; what has no newline for longer is no JSONL
Stamp = tuple[int, int, int]
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RowWriter(Protocol):
    """Takes rows, each as the bytes of its line."""

    def write(self, raw: bytes) -> None:
        """Add a row; `raw` ends without a newline."""


def read_lines(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """The rows of a file as they stand there, each with its line (of Parquet: its row, from 1); blank lines are none.

    Raises:
        UsageError: when there is no such file.
        RowError: `damaged_file` where a file is cut or broken in the middle, `line` being the last one that was read;
            `long_line`.
    """
    kind = kind_of(path)
    if kind == PARQUET:
        from polygym.data.parquet import read_parquet

        yield from read_parquet(path)
        return
    line = 0
    with open(path, "rb", buffering=2**20) as file:
        unpacked = cast("BinaryIO", gzip.GzipFile(fileobj=file)) if kind == GZIP else file
        try:
            for line, raw in numbered_lines(lines_of(unpacked, path)):
                yield line, raw
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            text = f"{path}, line {line}: behind it the compressed file is cut or damaged ({error}); make it again"
            raise RowError(text, "damaged_file", line) from error


def lines_of(file: IO[bytes], path: str | Path) -> Iterator[bytes]:
    """The physical lines of an open file, each with its newline.

    Raises:
        RowError: `long_line`.
    """
    for number, raw in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
        if len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
            text = f"{path}, line {number}: more than {LONGEST_LINE // 2**20} MiB; rows are one JSON object a line"
            raise RowError(text, "long_line", number)
        yield raw


def kind_of(path: str | Path) -> bytes:
    """`GZIP`, `PARQUET`, or nothing for plain text, as the first bytes say.

    Raises:
        UsageError: when the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            start = file.read(len(PARQUET))
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"cannot read {str(path)!r}: {reason}; give a file of rows") from error
    return PARQUET if start == PARQUET else GZIP if start.startswith(GZIP) else b""


def is_rows_file(name: str) -> bool:
    """Whether a name is that of a file of rows.

    >>> is_rows_file("rows.jsonl.gz"), is_rows_file("./my_env")
    (True, False)
    """
    return name.endswith((".jsonl", ".jsonl.gz", ".parquet"))


def refuse_own_input(output: Path, inputs: Iterable[Path]) -> None:
    """Refuse to write over a file that is read.

    Raises:
        UsageError: names it.
    """
    if output.resolve() in [path.resolve() for path in inputs]:
        raise UsageError(f"output {str(output)!r} is read too, and would be gone; give another path")


@contextmanager
def row_writer(path: str | Path) -> Iterator[RowWriter]:
    """Where to write rows to; `path` is there when the block has ended, as a whole.

    Raises:
        UsageError: when nothing can be written there.
        PolygymError: when the disk is full; `path` stays as it was.
    """
    path = Path(path)
    try:
        with ExitStack() as stack:
            try:
                file = stack.enter_context(written_aside(path))
            except OSError as error:
                raise UsageError(
                    f"cannot write {str(path)!r}: {error.strerror or error}; give a path in a folder you may write to"
                ) from error
            yield stack.enter_context(_format(path, file))
    except OSError as error:
        if error.errno in FULL:
            raise PolygymError(f"cannot write {str(path)!r}: {error.strerror}; it stays as it was") from error
        raise


@contextmanager
def _format(path: Path, file: BinaryIO) -> Iterator[RowWriter]:
    """What the name of a file asks for."""
    if path.suffix == ".parquet":
        from polygym.data.parquet import ParquetWriter

        with tempfile.TemporaryFile(dir=path.parent) as spool:
            writer = ParquetWriter(file, cast("BinaryIO", spool))
            yield writer
            writer.finish()
    elif path.suffix == ".gz":  # without a name and a time, so that equal rows make equal files
        with io.BufferedWriter(gzip.GzipFile("", "wb", fileobj=file, mtime=0), 2**20) as packed:
            yield _Lines(packed)
    else:
        yield _Lines(file)


class _Lines:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, raw: bytes) -> None:
        self._file.write(raw)
        self._file.write(b"\n")


def stamps_of(paths: Iterable[Path]) -> dict[Path, Stamp]:
    """What tells that a file was changed: its inode, size and time. For files that are read twice."""
    return {path: _stamp(path) for path in paths}


def check_unchanged(stamps: Mapping[Path, Stamp]) -> None:
    """Check that files are what they were.

    Raises:
        UsageError: names one that is not.
    """
    for path, stamp in stamps.items():
        if _stamp(path) != stamp:
            raise UsageError(f"{path} was changed while it was read; nothing was written: run it again")


def sha256_of(path: str | Path) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror or error}; give a file of rows") from error
    return found.st_ino, found.st_size, found.st_mtime_ns
