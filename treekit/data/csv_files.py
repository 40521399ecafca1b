"""CSV files with the standard library: small ones as lists of text, large ones by chunks."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Collection, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from treekit.data.cells import parse_numbers
from treekit.data.spill import Spill
from treekit.data.stored import StoredCells, StoredColumn
from treekit.data.table import Table, check_names, make_table
from treekit.errors import DataError

__all__ = ["read_csv"]

LARGE = 1 << 25
"""Bytes above which columns go to a file: as lists of text they would take twenty times that."""

_CHUNK = 16_384
"""Rows read at once: their cells are turned into columns while still in the cache."""

_READ_REMEDY = "save it as UTF-8, or read it with a dataframe library and pass the dataframe"

Progress = Callable[[int, int], None]
Chunk = list[tuple[str, ...]]
"""Some rows, column by column."""


def read_csv(
    path: Path,
    separator: str,
    packed: bool,
    marks: frozenset[str],
    progress: Progress | None = None,
) -> Table:
    """The table in a file of separated cells.

    Parameters
    ----------
    packed : bool
        The file is one of gzip.
    marks : frozenset of str
        Texts that mean missing.
    progress : callable, optional
        ``progress(done, total)`` of the bytes of a file that is read by chunks.
    """
    source = _Source(path, separator, packed)
    large = path.stat().st_size > (LARGE // 4 if packed else LARGE)
    return _stored(source, marks, progress) if large else _parsed(source)


class _RaggedError(Exception):
    """A row of another length than the header; located in a second reading."""


class _Source:
    """A file of separated cells, which may be read more than once, but is to stay the same."""

    def __init__(self, path: Path, separator: str, packed: bool) -> None:
        self.path, self.separator, self.packed = path, separator, packed
        self._state = self._state_now()

    def _state_now(self) -> tuple[int, int]:
        """Size of the file, and when it was written."""
        state = self.path.stat()
        return state.st_size, state.st_mtime_ns

    def _check_state(self) -> None:
        """Raise `DataError` if the file is not what it was: rows of two files would be mixed."""
        if self._state_now() != self._state:
            raise DataError(
                f"{self.path.name!r} has changed since treekit began to read it; start again, "
                "once nothing writes to it any more"
            )

    def open(self) -> IO[str]:
        """The file's text."""
        if self.packed:
            return io.TextIOWrapper(gzip.open(self.path, "rb"), encoding="utf-8-sig", newline="")
        return self.path.open(encoding="utf-8-sig", newline="")

    def chunks(
        self, columns: Callable[[list[str]], None], progress: Progress | None = None
    ) -> Iterator[Chunk]:
        """The rows by chunks, after ``columns(header)`` has been called.

        Raises
        ------
        DataError
            For a file that is no table; names the line.
        """
        try:
            self._check_state()
            with self.open() as stream:
                yield from self._chunks(stream, columns, progress)
            self._check_state()
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.path.name!r} is not UTF-8 text (byte {error.object[error.start]:#04x}); "
                + _READ_REMEDY
            ) from error
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{self.path.name!r} cannot be read: {error}") from error

    def _chunks(
        self, stream: IO[str], columns: Callable[[list[str]], None], progress: Progress | None
    ) -> Iterator[Chunk]:
        reader = csv.reader(stream, delimiter=self.separator, strict=True)
        header: list[str] = []
        try:
            header = next((row for row in reader if row), [])  # blank lines may come first
            if not header:
                raise DataError(
                    f"{self.path.name!r} is empty; a table needs a header line and rows"
                )
            _check_header(self.path, header, self.separator)
            columns(header)
            for chunk in _columns(reader, len(header)):
                yield chunk
                if progress is not None:
                    progress(self._position(stream), self.path.stat().st_size)
        except csv.Error as error:
            raise DataError(
                f"{self.path.name!r}, line {reader.line_num}: {error}; check the quotes near it"
            ) from error
        except _RaggedError as error:
            line, cells = self._find_ragged(len(header))
            raise DataError(
                f"{self.path.name!r}, line {line} has {cells} cells but the header has "
                f"{len(header)}; check its separators and quotes"
            ) from error

    def _position(self, stream: Any) -> int:
        """Bytes of the file that have been read; a stream of text in use does not tell."""
        return int((stream.buffer.fileobj if self.packed else stream.buffer).tell())

    def _find_ragged(self, width: int) -> tuple[int, int]:
        """Line number and length of the first row of another length."""
        with self.open() as stream:
            reader = csv.reader(stream, delimiter=self.separator, strict=True)
            for row in reader:
                if row and len(row) != width:
                    return reader.line_num, len(row)
        self._check_state()
        return 0, 0

    def refuse_no_rows(self) -> None:
        """Raise the `DataError` of a file without rows."""
        raise DataError(f"{self.path.name!r} has a header but no rows; it needs at least one")


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


def _columns(reader: Iterator[list[str]], width: int) -> Iterator[Chunk]:
    """The rows of the file column by column, a chunk of rows at a time."""
    while chunk := list(islice(reader, _CHUNK)):
        lengths = set(map(len, chunk))
        if 0 in lengths:
            chunk = [row or [""] for row in chunk] if width == 1 else [r for r in chunk if r]
            lengths = set(map(len, chunk))
        if not chunk:
            continue
        if lengths != {width}:
            raise _RaggedError
        yield list(zip(*chunk, strict=True))


def _parsed(source: _Source) -> Table:
    """The table with all its text in memory."""
    names: list[str] = []
    parts: list[Chunk] = list(source.chunks(names.extend))
    if not parts:
        source.refuse_no_rows()
    columns = [_joined(column) for column in zip(*parts, strict=True)]
    return make_table(names, columns, untyped=True)


def _joined(parts: tuple[tuple[str, ...], ...]) -> np.ndarray[Any, Any]:
    column = np.empty(sum(map(len, parts)), dtype=object)
    first = 0
    for part in parts:
        column[first : first + len(part)] = part
        first += len(part)
    return column


def _stored(source: _Source, marks: frozenset[str], progress: Progress | None) -> Table:
    """The table with its columns in a file: numbers where all cells are, else texts."""
    spill = Spill()
    names: list[str] = []
    columns: list[StoredColumn] = []
    texts: set[int] = set()
    late: set[int] = set()  # found to be text after numbers had been stored
    for chunk in source.chunks(names.extend, progress):
        columns = columns or [StoredColumn(spill) for _ in names]
        for i, cells in enumerate(chunk):
            numbers = None if i in texts or i in late else parse_numbers(_objects(cells), marks)
            if numbers is not None:
                columns[i].append(numbers)
            elif columns[i].n_rows == 0 or i in texts:
                texts.add(i)
                columns[i].append(_objects(cells))
            else:
                late.add(i)
    if not columns:
        source.refuse_no_rows()
    # Only another reading knows the text of numbers: of all late columns at once, and of one
    # that is declared nominal when it is asked for.
    as_text = dict(zip(late, _texts(source, spill, late, progress), strict=True))

    @cache
    def text_of(position: int) -> StoredColumn:
        return _texts(source, spill, [position], progress)[0]

    stored = tuple(as_text.get(i, column) for i, column in enumerate(columns))
    lazy = StoredCells(stored, marks, text_of, 0, stored[0].n_rows)
    return Table(tuple(names), lazy, untyped=frozenset(names))


def _texts(
    source: _Source, spill: Spill, positions: Collection[int], progress: Progress | None
) -> list[StoredColumn]:
    """Columns as the texts that they are written as."""
    columns = [StoredColumn(spill) for _ in positions]
    header: list[str] = []
    for chunk in source.chunks(header.extend, progress) if columns else ():
        for i, column in zip(positions, columns, strict=True):
            column.append(_objects(chunk[i]))
    return columns


def _objects(cells: tuple[str, ...]) -> np.ndarray[Any, Any]:
    column = np.empty(len(cells), dtype=object)
    column[:] = cells
    return column
