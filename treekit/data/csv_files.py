"""Read CSV files: small ones in memory, large ones in chunks into a temporary file.

Cells are those that Python's ``csv`` module and ``float`` return.  The kernels of
`treekit.kernels.csv_cells` read large files in a tenth of the time; the ``csv`` module reads
the rows that they could read differently, and reports errors.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from treekit.data import table as tables
from treekit.data.cells import is_number, make_object_array, parse_numbers
from treekit.data.out_of_core import StoredCells, StoredColumn, TemporaryStore
from treekit.data.table import Table, check_column_names, make_table
from treekit.errors import DataError

_CHUNK = 16_384
"""Number of rows read at once, few enough to become columns while still in the cache."""

_BLOCK = 1 << 23
"""Number of bytes read at once."""

_READ_REMEDY = "save it as UTF-8, or read it with a dataframe library and pass the dataframe"

Progress = Callable[[int, int], None]


def read_csv_file(
    path: Path,
    separator: str,
    packed: bool,
    marks: frozenset[str],
    progress: Progress | None = None,
) -> Table:
    """Read a CSV or TSV file.

    Parameters
    ----------
    packed : bool
        The file is compressed by gzip.
    marks : frozenset of str
        Texts of missing cells, such as ``?``.
    progress : callable, optional
        ``progress(done, total)`` in bytes, for a large file.
    """
    large = path.stat().st_size > (tables.LARGE // 4 if packed else tables.LARGE)
    source = _CsvSource(path, separator, packed, compiled=large)
    return _read_to_disk(source, marks, progress) if large else _read_in_memory(source)


def _read_in_memory(source: _CsvSource) -> Table:
    """Read the table with all its text in memory."""
    parts = [chunk.columns for chunk in source.iterate_chunks() if isinstance(chunk, _TextChunk)]
    columns = [
        make_object_array(list(chain.from_iterable(column))) for column in zip(*parts, strict=True)
    ]
    return make_table(source.names, columns, untyped=True)


def _read_to_disk(source: _CsvSource, marks: frozenset[str], progress: Progress | None) -> Table:
    """Read the table with its columns on disk: as numbers if all cells are, else as text."""
    spill = TemporaryStore()
    columns: list[StoredColumn] = []
    texts: set[int] = set()
    late: set[int] = set()  # columns found to be text after some cells were stored as numbers
    for chunk in source.iterate_chunks(progress):
        columns = columns or [StoredColumn(spill) for _ in source.names]
        numeric = [i for i in range(len(columns)) if i not in texts and i not in late]
        parsed = dict(zip(numeric, chunk.parse_numbers(numeric, marks), strict=True))
        for i, column in enumerate(columns):
            numbers = parsed.get(i)
            if numbers is not None:
                column.append(numbers)
            elif column.n_rows == 0 or i in texts:
                texts.add(i)
                chunk.append_texts(i, column)
            else:
                late.add(i)
    # The text of cells stored as numbers must be read again: at once for all late columns,
    # and on access for a column that is declared nominal.
    as_text = dict(zip(late, _read_texts(source, spill, late, progress), strict=True))

    @cache
    def read_text(position: int) -> StoredColumn:
        return _read_texts(source, spill, [position], progress)[0]

    stored = tuple(as_text.get(i, column) for i, column in enumerate(columns))
    lazy = StoredCells(stored, marks, read_text, 0, stored[0].n_rows)
    return Table(tuple(source.names), lazy, untyped=frozenset(source.names))


def _read_texts(
    source: _CsvSource, spill: TemporaryStore, positions: Collection[int], progress: Progress | None
) -> list[StoredColumn]:
    """Read columns as text."""
    columns = [StoredColumn(spill) for _ in positions]
    for chunk in source.iterate_chunks(progress) if columns else ():
        for i, column in zip(positions, columns, strict=True):
            chunk.append_texts(i, column)
    return columns


# ---------------------------------------------------------------- source


class _CsvSource:
    """A CSV or TSV file, which may be read several times and must not change in between."""

    def __init__(self, path: Path, separator: str, packed: bool, *, compiled: bool) -> None:
        self.path, self.separator, self.packed = path, separator, packed
        self.names: list[str] = []  # known when the first chunk is read
        self._compiled = compiled
        self._state: tuple[int, int] | None = None

    def _check_unchanged(self) -> None:
        """Raise `DataError` if the file has changed: rows of two versions would be mixed."""
        stat = self.path.stat()
        state = stat.st_size, stat.st_mtime_ns
        if state != (self._state or state):
            raise DataError(
                f"{self.path.name!r} has changed while treekit was reading it; start again when "
                "no program writes to it"
            )
        self._state = state

    def _open_bytes(self) -> Any:
        return gzip.open(self.path, "rb") if self.packed else self.path.open("rb")

    def _open_text(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(self._open_bytes(), encoding="utf-8-sig", newline="")

    def iterate_chunks(self, progress: Progress | None = None) -> Iterator[_Chunk]:
        """Read the names, then yield the rows in chunks, at least one.

        Raises
        ------
        DataError
            If the file is not a table; the message has the line number.
        """
        try:
            self._check_unchanged()
            with self._open_text() as stream:
                yield from self._iterate_chunks(stream, progress)
            self._check_unchanged()
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.path.name!r} is not UTF-8 text (byte {error.object[error.start]:#04x}); "
                + _READ_REMEDY
            ) from error
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{self.path.name!r} cannot be read: {error}") from error

    def _iterate_chunks(
        self, stream: io.TextIOWrapper, progress: Progress | None
    ) -> Iterator[_Chunk]:
        reader = csv.reader(stream, delimiter=self.separator, strict=True)
        try:
            header = next((row for row in reader if row), [])  # skip blank lines
            if not header:
                raise DataError(
                    f"{self.path.name!r} is empty; a table needs a header line and rows"
                )
            _check_header(self.path, header, self.separator)
            self.names, n_rows, complete = header, 0, False
            if self._compiled:
                n_rows, complete = yield from self._iterate_byte_chunks(progress)
            # In a file of one column, blank lines are rows.
            filled = filter(None, reader) if len(header) > 1 else (row or [""] for row in reader)
            rows = islice(filled, n_rows, None)
            while not complete and (chunk := list(islice(rows, _CHUNK))):
                if set(map(len, chunk)) != {len(header)}:
                    self._raise_first_error()
                yield _TextChunk(chunk)
                n_rows += len(chunk)
                self._report(progress, stream.buffer)
            if n_rows == 0:
                raise DataError(
                    f"{self.path.name!r} has a header but no rows; it needs at least one"
                )
        except csv.Error:
            self._raise_first_error()

    def _iterate_byte_chunks(
        self, progress: Progress | None
    ) -> Generator[_Chunk, None, tuple[int, bool]]:
        """Yield rows read by kernels; return their number, and whether the file has no others."""
        from treekit.kernels.csv_cells import MORE_TEXT_NEEDED, NOT_CERTAIN, find_cells

        separator, limit = np.uint8(ord(self.separator)), np.uint64(csv.field_size_limit())
        n_rows, at, is_header, last, result = 0, 0, True, False, MORE_TEXT_NEEDED
        with self._open_bytes() as stream:
            text = stream.read(_BLOCK).removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
            plain = text.isascii()
            while text:
                starts = np.empty(_CHUNK, np.uint32)
                ends = np.empty((_CHUNK, len(self.names)), np.uint32)
                own = np.frombuffer(text, np.uint8)
                n, stop, result = find_cells(
                    own, np.uint64(at), last, separator, limit, starts, ends
                )
                if not plain and not _is_utf8(text[at:stop]):
                    break
                chunk = _ByteChunk(text, starts[:n], ends[:n])
                if is_header and n:
                    if chunk.read_row(0) != self.names:
                        break
                    is_header, chunk = False, _ByteChunk(text, starts[1:n], ends[1:n])
                at = stop
                if chunk.n_rows:
                    yield chunk
                    n_rows += chunk.n_rows
                    self._report(progress, stream)
                if result == NOT_CERTAIN:
                    break
                if result == MORE_TEXT_NEEDED:
                    more = stream.read(_BLOCK)
                    text, at, last = text[at:] + more, 0, not more
                    plain = text.isascii()
            else:
                return n_rows, not is_header
        return n_rows, False

    def _report(self, progress: Progress | None, stream: Any) -> None:
        """Report the number of bytes read."""
        if progress is not None:
            done = (stream.fileobj if self.packed else stream).tell()
            progress(int(done), self.path.stat().st_size)

    def _raise_first_error(self) -> None:
        """Raise `DataError` for the first row with too few or many cells, or with wrong quotes."""
        width = len(self.names)
        with self._open_text() as stream:
            reader = csv.reader(stream, delimiter=self.separator, strict=True)
            try:
                row = next((row for row in reader if row and len(row) != width), [])
                problem = (
                    f" has {len(row)} cells, but the header has {width}; check its separators "
                    "and quotes"
                )
            except csv.Error as error:
                problem = f": {error}; check the quotes near it"
        self._check_unchanged()
        raise DataError(f"{self.path.name!r}, line {reader.line_num}{problem}")


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check_header(path: Path, header: list[str], separator: str) -> None:
    try:
        check_column_names(header)
    except DataError as error:
        raise DataError(f"{path.name!r}: {error}") from None
    others = [mark for mark in ";\t|," if mark != separator and mark in header[0]]
    if len(header) == 1 and others:
        raise DataError(
            f"{path.name!r} has the header {header[0]!r}, which seems to be separated by "
            f"{others[0]!r}; separate cells by commas in .csv files, and by tabs in .tsv files"
        )


# ---------------------------------------------------------------- chunks


class _TextChunk:
    """Rows read by the ``csv`` module."""

    def __init__(self, rows: list[list[str]]) -> None:
        self.columns = list(zip(*rows, strict=True))

    def parse_numbers(
        self, positions: Sequence[int], marks: frozenset[str]
    ) -> list[npt.NDArray[Any] | None]:
        """Parse columns as numbers, as `treekit.data.cells.parse_numbers` does."""
        return [parse_numbers(make_object_array(self.columns[i]), marks) for i in positions]

    def append_texts(self, position: int, column: StoredColumn) -> None:
        """Append the text of a column to a stored column."""
        column.append(make_object_array(self.columns[position]))


class _ByteChunk:
    """Rows located by `treekit.kernels.csv_cells.find_cells`; see there for the arguments."""

    def __init__(
        self, text: bytes, starts: npt.NDArray[np.uint32], ends: npt.NDArray[np.uint32]
    ) -> None:
        self.n_rows = len(starts)
        self._text, self._starts, self._ends = text, starts, ends
        self._bytes = np.frombuffer(text, np.uint8)

    def read_row(self, row: int) -> list[str]:
        """Return the text of the cells of a row."""
        stops = self._ends[row].tolist()
        starts = [int(self._starts[row]), *(stop + 1 for stop in stops[:-1])]
        return list(map(self._decode_cell, starts, stops))

    def parse_numbers(
        self, positions: Sequence[int], marks: frozenset[str]
    ) -> list[npt.NDArray[Any] | None]:
        """Parse columns as numbers, as `treekit.data.cells.parse_numbers` does."""
        from treekit.kernels.csv_cells import INTEGERS, parse_cells

        ints = np.empty((len(positions), self.n_rows), np.int64)
        floats, odd = ints.view(np.float64), np.empty(ints.shape, np.bool_)
        types = np.empty(len(positions), np.uint8)
        parse_cells(
            self._bytes,
            self._starts,
            self._ends,
            np.array(positions, np.int64),
            np.array([float(mark) for mark in marks if is_number(mark)]),
            "" in marks,
            ints,
            floats,
            types,
            odd,
        )
        numbers = (ints if kind == INTEGERS else floats for kind in types.tolist())
        return [
            self._parse_odd_cells(position, own[i], odd[i].nonzero()[0], marks)
            for i, (position, own) in enumerate(zip(positions, numbers, strict=True))
        ]

    def _parse_odd_cells(
        self,
        position: int,
        numbers: npt.NDArray[Any],
        rows: npt.NDArray[np.int64],
        marks: frozenset[str],
    ) -> npt.NDArray[Any] | None:
        """Parse the cells in `rows`, which the kernel could not; return the column, or None."""
        if not len(rows):
            return numbers
        if all(text.strip() in marks for text in self._code_texts(position, rows)[0]):
            return numbers
        texts, codes = self._code_texts(position)
        return parse_numbers(make_object_array(texts)[codes], marks)

    def append_texts(self, position: int, column: StoredColumn) -> None:
        """Append the text of a column to a stored column."""
        column.append_codes(*self._code_texts(position))

    def _code_texts(
        self, position: int, rows: npt.NDArray[np.int64] | slice = slice(None)
    ) -> tuple[list[str], npt.NDArray[np.int32]]:
        """Return the distinct texts of a column, and the code of each row."""
        from treekit.kernels.csv_cells import code_cells

        starts, ends = self._starts[rows], self._ends[rows]
        codes = np.empty(len(starts), np.int32)
        firsts = np.empty(len(starts), np.int64)
        table = np.full(2 << len(starts).bit_length(), -1, np.int32)
        n = code_cells(self._bytes, starts, ends, np.uint64(position), table, codes, firsts)
        firsts = firsts[:n]
        begins = ends[firsts, position - 1] + 1 if position else starts[firsts]
        stops = ends[firsts, position]
        return list(map(self._decode_cell, begins.tolist(), stops.tolist())), codes

    def _decode_cell(self, start: int, stop: int) -> str:
        cell = self._text[start:stop]
        if cell.startswith(b'"'):
            cell = cell[1:-1].replace(b'""', b'"')
        return cell.decode()


_Chunk: TypeAlias = _TextChunk | _ByteChunk
