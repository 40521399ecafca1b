"""Tables in files: CSV with the standard library, Parquet and Feather with pyarrow."""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from treekit.data.table import Table, check_names, make_table
from treekit.errors import DataError, MissingExtraError

__all__ = ["read_file"]

_SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_ARROW = {".parquet": "parquet", ".feather": "feather", ".arrow": "feather", ".ipc": "feather"}
_CHUNK = 16_384
"""Rows read at once: their cells are turned into columns while still in the cache."""

_BROKEN = (OSError, ValueError, NotImplementedError, MemoryError, OverflowError)
"""What pyarrow was seen to raise for damaged files, beside exceptions of its own."""

_READ_REMEDY = "save it as UTF-8, or read it with a dataframe library and pass the dataframe"


def read_file(source: str | os.PathLike[str]) -> Table:
    """The table in a file, by its ending.

    ``.csv`` (commas) and ``.tsv`` or ``.tab`` (tabs), also with ``.gz``:
    UTF-8 with or without a byte order mark, a header line, quotes as in
    RFC 4180.  Blank lines are skipped (in a file of one column they are a
    missing cell).  ``.parquet``, ``.feather``, ``.arrow``, ``.ipc``: pyarrow.
    """
    path = Path(source)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    ending = (suffixes[:-1] if packed else suffixes)[-1:] or [""]
    if ending[0] not in _SEPARATORS and (packed or ending[0] not in _ARROW):
        known = ", ".join([*_SEPARATORS, ".csv.gz", *_ARROW])
        raise DataError(f"cannot tell what {path.name!r} is by its ending; known: {known}")
    if not path.is_file():
        raise DataError(f"there is no file {os.fspath(source)!r}; check the path")
    if ending[0] in _ARROW:
        return _read_arrow(path, _ARROW[ending[0]])
    return _read_csv(path, _SEPARATORS[ending[0]], packed)


def _read_arrow(path: Path, form: str) -> Table:
    from treekit.data.frames import from_arrow

    try:
        import pyarrow as pa
        import pyarrow.feather
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "arrow") from error
    try:
        read = pyarrow.parquet.read_table if form == "parquet" else pyarrow.feather.read_table
        table = read(path)
        # Offsets of texts are believed otherwise, and point anywhere in a damaged file.
        table.validate(full=True)
        return from_arrow(table)
    except DataError:
        raise
    except (pa.ArrowException, *_BROKEN) as error:
        raise DataError(f"{path.name!r} is not a readable {form} file: {error}") from error


def _read_csv(path: Path, separator: str, packed: bool) -> Table:
    try:
        with _open(path, packed) as stream:
            return _parse(path, stream, separator, packed)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path.name!r} is not UTF-8 text (byte {error.object[error.start]:#04x}); "
            + _READ_REMEDY
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path.name!r} cannot be read: {error}") from error


def _open(path: Path, packed: bool) -> IO[str]:
    if packed:
        return io.TextIOWrapper(gzip.open(path, "rb"), encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _parse(path: Path, stream: IO[str], separator: str, packed: bool) -> Table:
    reader = csv.reader(stream, delimiter=separator, strict=True)
    header: list[str] = []
    try:
        header = next((row for row in reader if row), [])  # blank lines may come first
        if not header:
            raise DataError(f"{path.name!r} is empty; a table needs a header line and rows")
        _check_header(path, header, separator)
        columns = _columns(path, reader, len(header))
    except csv.Error as error:
        raise DataError(
            f"{path.name!r}, line {reader.line_num}: {error}; check the quotes near it"
        ) from error
    except _RaggedError as error:
        line, cells = _find_ragged(path, separator, packed, len(header))
        raise DataError(
            f"{path.name!r}, line {line} has {cells} cells but the header has {len(header)}; "
            "check its separators and quotes"
        ) from error
    return make_table(header, columns, untyped=True)


class _RaggedError(Exception):
    """A row of another length than the header; located in a second reading."""


def _check_header(path: Path, header: list[str], separator: str) -> None:
    try:
        check_names(header)
    except DataError as error:
        raise DataError(f"{path.name!r}: {error}") from None
    others = [mark for mark in ";\t|," if mark != separator and mark in header[0]]
    if len(header) == 1 and others:
        raise DataError(
            f"{path.name!r} has one column {header[0]!r}: its cells seem to be separated by "
            f"{others[0]!r}; treekit reads commas in .csv and tabs in .tsv"
        )


def _columns(path: Path, reader: Iterator[list[str]], width: int) -> list[np.ndarray[Any, Any]]:
    """Each column of the file as an object array of str; a chunk of rows at a time."""
    parts: list[list[list[str]]] = [[] for _ in range(width)]
    while chunk := list(islice(reader, _CHUNK)):
        lengths = set(map(len, chunk))
        if 0 in lengths:
            chunk = [row or [""] for row in chunk] if width == 1 else [r for r in chunk if r]
            lengths = set(map(len, chunk))
        if not chunk:
            continue
        if lengths != {width}:
            raise _RaggedError
        for part, cells in zip(parts, zip(*chunk, strict=True), strict=True):
            part.append(list(cells))
    if not parts[0]:
        raise DataError(f"{path.name!r} has a header but no rows; it needs at least one")
    return [_joined(part) for part in parts]


def _joined(parts: list[list[str]]) -> np.ndarray[Any, Any]:
    column = np.empty(sum(map(len, parts)), dtype=object)
    first = 0
    for part in parts:
        column[first : first + len(part)] = part
        first += len(part)
    return column


def _find_ragged(path: Path, separator: str, packed: bool, width: int) -> tuple[int, int]:
    """Line number and length of the first row of another length."""
    with _open(path, packed) as stream:
        reader = csv.reader(stream, delimiter=separator, strict=True)
        for row in reader:
            if row and len(row) != width:
                return reader.line_num, len(row)
    return 0, 0  # the file changed meanwhile
