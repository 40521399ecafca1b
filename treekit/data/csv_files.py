"""Read CSV files of any size by pyarrow, in one pass over blocks of rows.

Read the cells that Python's ``csv`` module (strict) and ``float`` return; pyarrow reads decimals
to the same bits.  If a cell has quotes that are not doubled, compare the cells of pyarrow and
``csv``, and refuse the file, by name and line, if they differ.

A column whose cells are all numbers is stored as numbers, any other as codes of its distinct
texts (`treekit.data.out_of_core.ColumnStore`).  The texts of numbers are read again from the
file when they are needed: by a column that is declared nominal, or by class labels.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data import table as tables
from treekit.data.cells import (
    Cells,
    find_merged_texts,
    make_object_array,
    parse_untyped,
)
from treekit.data.number_blocks import NumberColumn, may_differ
from treekit.data.out_of_core import ColumnStore
from treekit.data.table import FileColumns, Table, check_column_names
from treekit.data.text_format import TextFormat
from treekit.errors import DataError

BLOCK = 1 << 21
"""Number of bytes parsed at once."""

Progress = Callable[[int, int], None]


def read_csv_file(
    path: Path, separator: str, packed: bool, how: TextFormat, progress: Progress | None = None
) -> Table:
    """Read a CSV or TSV file.

    Parameters
    ----------
    packed : bool
        The file is compressed by gzip.
    how : TextFormat
        Marks of missing values and notation of numbers.
    progress : callable, optional
        ``progress(done, total)`` in bytes, for a large file.
    """
    large = path.stat().st_size > (tables.LARGE // 4 if packed else tables.LARGE)
    file = CsvFile(path, separator, packed, progress if large else None)
    columns = CsvColumns(file, how, on_disk=large)
    names = tuple(file.names)
    return Table(names, columns, untyped=frozenset(names), format=how)


# ---------------------------------------------------------------- file


class CsvFile:
    """A CSV or TSV file, which may be read several times and must not change in between.

    Attributes
    ----------
    names : list of str
        Column names, from the header line.
    has_odd_numbers, has_padding, n_point_zero
        Known after the first reading; see `_TextChecks`.
    """

    def __init__(
        self, path: Path, separator: str, packed: bool, progress: Progress | None = None
    ) -> None:
        self.path, self.separator, self._packed, self._progress = path, separator, packed, progress
        self._state: tuple[int, int] | None = None
        self._checked = False
        self.has_odd_numbers, self.has_padding, self.n_point_zero = False, False, 0
        self._check_unchanged()
        with self._name_errors():
            self.names, self._start, self._first_line = self._read_header()

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

    @contextmanager
    def _name_errors(self) -> Iterator[None]:
        """Turn errors of the file and its encoding into `DataError`."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.path.name!r} is not UTF-8 text (byte {error.object[error.start]:#04x}); "
                + _suggest_encoding(error.object)
            ) from error
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{self.path.name!r} cannot be read: {error}") from error

    def _open_bytes(self) -> Any:
        return gzip.open(self.path, "rb") if self._packed else self.path.open("rb")

    def _read_header(self) -> tuple[list[str], int, int]:
        """Return the names, the bytes before the first row, and the number of its line.

        Blank lines are skipped.  A first line ``sep=;``, by which Excel marks the separator,
        sets it.
        """
        n_bytes = n_lines = 0

        def count(lines: Iterable[str]) -> Iterator[str]:
            nonlocal n_bytes, n_lines
            for line in lines:
                n_bytes += len(line.encode())
                n_lines += 1
                yield line

        with self._open_bytes() as stream:
            mark = 3 if stream.read(3) == codecs.BOM_UTF8 else 0
        text = io.TextIOWrapper(self._open_bytes(), encoding="utf-8-sig", newline="")
        with text, _accept_long_fields():
            lines = count(text)
            first = next((line for line in lines if line.strip("\r\n")), "")
            given = first.strip('\r\n "')
            if given[:4].lower() == "sep=" and len(given) == 5:
                self.separator, first = given[4], ""
            reader = csv.reader(chain([first], lines), delimiter=self.separator, strict=True)
            try:
                header = next((row for row in reader if row), [])
            except csv.Error as error:
                raise self._make_quote_error(n_lines, error) from None
        if not header:
            raise DataError(f"{self.path.name!r} is empty; a table needs a header line and rows")
        _check_header(self.path, header, self.separator)
        return header, n_bytes + mark, n_lines + 1

    # ------------------------------------------------------------ rows

    def iterate_blocks(self) -> Iterator[bytes]:
        """Yield the bytes of the rows in blocks of complete rows, for `parse`.

        Raises
        ------
        DataError
            If the file is not a table; the message has the line number.
        """
        self._check_unchanged()
        with self._name_errors():
            checks = yield from self._iterate_blocks()
            if not self._checked:
                self._checked = True
                self.has_odd_numbers = checks.has_odd_numbers
                self.n_point_zero = checks.n_point_zero
                self.has_padding = checks.has_padding
                if checks.has_odd_quotes:
                    self._compare_with_csv_module()
        self._check_unchanged()

    def _iterate_blocks(self) -> Any:
        """Yield blocks of rows; return the `_TextChecks`, which have looked at them."""
        checks = _TextChecks(self.separator)
        with self._open_bytes() as stream:
            stream.read(self._start)
            for text in self._cut_blocks(stream, checks):
                if not self._checked:
                    checks.look_at_numbers(text)
                yield text
                self._report(stream)
        return checks

    def _cut_blocks(self, stream: Any, checks: _TextChecks) -> Iterator[bytes]:
        """Yield blocks of complete rows; after a misplaced quote, the rest as one block."""
        text, size = b"", BLOCK
        while more := stream.read(size):
            # Blocks end with a line, so that no rest is copied into the next one.
            text = b"".join((text, more, stream.readline(_PIECE)))
            end = checks.find_last_row_end(text)
            if checks.has_odd_quotes:
                text += stream.read()
                if len(text) >= _LARGEST_BLOCK:
                    raise DataError(
                        f"{self.path.name!r} has cells with quotes that are not doubled, and files "
                        "from 2 GB on may have none; put these cells in double quotes, and double "
                        "each quote in them"
                    )
                break
            size = BLOCK if end else 2 * size  # of a long row, more at a time
            if end:
                yield text[:end]
                text = text[end:]
        if not checks.has_odd_quotes and text.count(b'"') % 2:
            self._raise_open_quote()
        if text:
            yield text

    def parse(
        self,
        text: bytes,
        columns: Sequence[int] | None = None,
        types: Mapping[int, Any] | None = None,
        marks: Sequence[str] = (),
    ) -> Any:
        """Parse a block of rows of `iterate_blocks`; ``pyarrow.RecordBatch``.

        Parameters
        ----------
        text : bytes
        columns : sequence of int, optional
            Positions of the columns to read; default: all.
        types : mapping of int to pyarrow.DataType, optional
            Types of columns of numbers; others are text.
        marks : sequence of str
            Texts of missing numbers.

        Raises
        ------
        NotNumericError
            If a cell of a numeric column is not a number.
        """
        with self._name_errors():
            return self._parse(text, columns, types or {}, marks)

    def _parse(
        self,
        text: bytes,
        columns: Sequence[int] | None,
        types: Mapping[int, Any],
        marks: Sequence[str],
    ) -> Any:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        if text.startswith(codecs.BOM_UTF8):  # of a cell: pyarrow removes one from each block
            text = codecs.BOM_UTF8 + text
        keys = list(map(str, range(len(self.names))))  # names may be any text
        chosen = keys if columns is None else [keys[i] for i in columns]
        dtypes = dict.fromkeys(keys, pa.string())
        dtypes |= {keys[i]: dtype for i, dtype in types.items()}
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(text),
                arrow_csv.ReadOptions(
                    column_names=keys, block_size=len(text) + 1, use_threads=False
                ),
                arrow_csv.ParseOptions(
                    delimiter=self.separator,
                    newlines_in_values=b'"' in text,
                    ignore_empty_lines=len(keys) > 1,  # in a file of one column they are rows
                ),
                arrow_csv.ConvertOptions(
                    column_types=dtypes,
                    strings_can_be_null=False,
                    null_values=list(marks),
                    include_columns=chosen,
                ),
            )
        except pa.ArrowInvalid as error:
            found = re.match(
                r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to", str(error)
            )
            if found and int(found[1]) in types:
                raise NotNumericError(int(found[1])) from error
            if "Empty CSV" not in str(error):
                self._raise_first_error(error)
            table = pa.table({key: pa.array([], dtypes[key]) for key in chosen})  # blank lines only
        batches = table.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)

    def _report(self, stream: Any) -> None:
        """Report the number of bytes read."""
        if self._progress is not None:
            done = (stream.fileobj if self._packed else stream).tell()
            self._progress(int(done), self.path.stat().st_size)

    # ------------------------------------------------------------ errors

    @contextmanager
    def _open_rows(self) -> Iterator[Any]:
        """Open the rows, without the header, as a reader of the ``csv`` module."""
        stream = self._open_bytes()
        stream.read(self._start)
        with io.TextIOWrapper(stream, encoding="utf-8", newline="") as text, _accept_long_fields():
            yield csv.reader(text, delimiter=self.separator, strict=True)

    def _raise_first_error(self, cause: Exception) -> None:
        """Raise `DataError` for the first row with too few or many cells, or with wrong quotes."""
        width = len(self.names)
        with self._open_rows() as reader:
            try:
                row = next((row for row in reader if row and len(row) != width), None)
            except csv.Error as error:
                raise self._make_quote_error(self._count_line(reader), error) from None
        self._check_unchanged()
        if row is None:
            raise DataError(
                f"{self.path.name!r} cannot be read: {cause}; save it again as CSV"
            ) from cause
        raise DataError(
            f"{self.path.name!r}, line {self._count_line(reader)} has {len(row)} cells, but the "
            f"header has {width}; check its separators and quotes"
        )

    def _count_line(self, reader: Any) -> int:
        """Return the number in the file of the line that a reader has reached."""
        return int(reader.line_num) + self._first_line - 1

    def _make_quote_error(self, line: int, error: object) -> DataError:
        return DataError(
            f"{self.path.name!r}, line {line}: {error}; put the whole cell in double quotes, and "
            "double each quote in it"
        )

    def _raise_open_quote(self) -> None:
        """Raise `DataError` for the last quote, which opens a cell that never ends."""
        line = opened = self._first_line
        inside = False
        with self._open_bytes() as stream:
            stream.read(self._start)
            for text in stream:
                if text.count(b'"') % 2:
                    inside, opened = not inside, line
                line += 1
        raise self._make_quote_error(opened, "a quote is opened and never closed")

    def _compare_with_csv_module(self) -> None:
        """Raise `DataError` at the first row that the ``csv`` module reads differently."""
        with self._open_rows() as reader:
            try:
                rows = (row or [""] for row in reader if row or len(self.names) == 1)
                for text in self._iterate_blocks():
                    block = self.parse(text)
                    for own in zip(*(column.to_pylist() for column in block), strict=True):
                        if list(own) != next(rows, None):
                            raise self._make_quote_error(
                                self._count_line(reader),
                                "programs read these quotes differently",
                            )
                if next(rows, None) is not None:
                    raise self._make_quote_error(
                        self._count_line(reader),
                        "programs read these quotes differently",
                    )
            except csv.Error as error:
                raise self._make_quote_error(self._count_line(reader), error) from None


class NotNumericError(Exception):
    """A cell of a numeric column is not a number; the argument is the column's position."""


class _TextChecks:
    """What the bytes of the rows show: the ends of rows, odd quotes and odd numbers.

    Attributes
    ----------
    has_odd_quotes : bool
        Whether a quote neither opens nor closes a cell, nor is doubled within one.
    has_odd_numbers : bool
        Whether a cell may be a number that is not written as Python writes it, apart from a
        final ``.0``: ``007``, ``+1``, ``250.10``, ``1E3``.
    has_padding : bool
        Whether a cell begins or ends with white space; counted until a number is odd.
    n_point_zero : int
        Number of cells that end in ``.0``; counted until a number is odd.
    """

    def __init__(self, separator: str) -> None:
        self.has_odd_quotes = self.has_odd_numbers = self.has_padding = False
        self.n_point_zero = 0
        self._separator = ord(separator)
        self._around = np.zeros(256, np.bool_)  # what may stand beside a cell in quotes
        self._around[[ord(separator), ord("\n"), ord("\r"), ord('"')]] = True

    def find_last_row_end(self, text: bytes) -> int:
        """Return the number of bytes up to the last end of a row; 0 if there is none."""
        end = _find_line_end(text, len(text) - 1)  # whether \n follows a last \r is not known
        if b'"' not in text:
            return end
        letters = np.frombuffer(text, np.uint8)
        quotes = np.flatnonzero(letters == ord('"'))
        before = np.where(quotes > 0, letters[quotes - 1], ord("\n"))
        after = np.append(letters, ord("\n"))[quotes + 1]
        opening = np.arange(len(quotes)) % 2 == 0
        if not self._around[np.where(opening, before, after)].all():
            self.has_odd_quotes = True
        while end:
            inside = int(np.searchsorted(quotes, end))
            if inside % 2 == 0:
                break
            end = _find_line_end(text, int(quotes[inside - 1]))
        return end

    def look_at_numbers(self, text: bytes) -> None:
        """Look for cells that may be numbers and are not written as Python writes them."""
        wanted = b"+eE" if self.has_padding else b" \t+eE"
        present = bytes(letter for letter in wanted if letter in text)
        for first in range(0, len(text), _PIECE):
            if self.has_odd_numbers:
                return
            end = first + _PIECE
            piece = text[max(first - _MOST_DIGITS, 0) : end + 3]
            piece = b"\n" * (_MOST_DIGITS - first) + piece + b"\n" * (end + 3 - len(text))
            self._look_at_numbers(np.frombuffer(piece, np.uint8), present)

    def _look_at_numbers(self, text: npt.NDArray[np.uint8], present: bytes) -> None:
        """Look at a piece of the text, after the last bytes of the piece before.

        `present` are those of a few letters that are in the text.
        """
        # Few operations on all bytes: white space, quotes, commas and some others are up to ",".
        outside, signed = text <= ord(","), text <= ord("-")
        if self._separator > ord(","):
            outside |= text == self._separator
            signed |= outside
        zero = text == ord("0")
        odd = False
        leading = signed[1:-2] & zero[2:-1] & (text[3:] >= ord("0"))
        if leading.any():
            some = np.flatnonzero(leading) + 1  # before the zero: a sign, or outside the cell
            some = some[_is_digit(text[some + 2])]
            odd = bool((outside[some] | outside[some - 1]).any())
        for letter in present:
            some = np.flatnonzero(text[1:-2] == letter) + 1
            before, after = text[some - 1], text[some + 1]
            if letter in b" \t":
                self.has_padding |= bool((outside[some - 1] | outside[some + 1]).any())
            elif letter == ord("+"):
                number = _is_digit(after) | (after == ord("."))
                odd |= bool((outside[some - 1] & number).any())
            else:
                odd |= bool((_is_digit(before) & _is_digit(after)).any())
        self.has_odd_numbers = odd
        ends = np.flatnonzero(zero[_MOST_DIGITS:-3] & outside[_MOST_DIGITS + 1 : -2]) + _MOST_DIGITS
        point = ord(".")
        self.n_point_zero += int(np.count_nonzero(text[ends - 1] == point))
        for back in range(2, _MOST_DIGITS):
            ends = ends[_is_digit(text[ends - back + 1])]
            if not len(ends):
                return
            if (text[ends - back] == point).any():
                self.has_odd_numbers = True
                return


def _is_digit(letters: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    digits: npt.NDArray[np.bool_] = letters - np.uint8(ord("0")) <= 9
    return digits


def _find_line_end(text: bytes, stop: int) -> int:
    """Return the number of bytes of the complete lines before `stop`."""
    end = text.rfind(b"\n", 0, stop + 1)
    return max(end, text.rfind(b"\r", max(end, 0), stop)) + 1


_LARGEST_BLOCK = 2**31 - 1
"""Number of bytes that pyarrow cannot parse at once."""

_PIECE = 1 << 16
"""Number of bytes looked at together: arrays that stay in the cache, and are not mapped anew."""

_MOST_DIGITS = 12
"""Digits after the point up to which a zero at the end is looked for: codes are short."""

_FIELD_LIMIT = threading.Lock()


@contextmanager
def _accept_long_fields() -> Iterator[None]:
    """Lift the limit of the ``csv`` module, which counts for the whole process."""
    with _FIELD_LIMIT:
        limit = csv.field_size_limit(sys.maxsize)
        try:
            yield
        finally:
            csv.field_size_limit(limit)


def _suggest_encoding(text: bytes) -> str:
    if text[:2] in (b"\xff\xfe", b"\xfe\xff"):
        kind = "it begins as UTF-16 does, which Excel calls 'Unicode text'; "
    else:
        kind = "Latin-1 and Windows-1252 are usual for such bytes; "
    return kind + "save it as UTF-8, or read it with a dataframe library and pass the dataframe"


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


# ---------------------------------------------------------------- columns

_CELLS_AHEAD = 1 << 23
"""Cells of columns of numbers that are read as texts before their texts are asked for."""

Coded = tuple[npt.NDArray[np.int32], list[str]]
"""A column as codes (rows,) and the distinct texts that they number."""


class CsvColumns(FileColumns):
    """The cells of a CSV file, of which each access makes a column again."""

    def __init__(self, file: CsvFile, how: TextFormat, *, on_disk: bool) -> None:
        width = range(len(file.names))
        self._file, self._how, self._store = file, how, ColumnStore(on_disk=on_disk)
        self._numbers = [NumberColumn(how) for _ in width]
        self._texts: dict[int, dict[str, int]] = {}  # columns of text from the first rows on
        self._coded: dict[int, Coded] = {}  # other columns whose texts were read
        self._n_ahead = 0
        self._first = self.n_rows = 0
        late: list[int] = []  # columns found to be text after some cells were stored as numbers
        types: dict[int, Any] = {}
        # pyarrow compares each cell with each mark: only with blanks until there are others.
        self._marks = sorted(how.number_marks & {""})
        for text in file.iterate_blocks():
            block = self._parse(text, types)
            if block.num_rows:
                self._store.append([self._convert(i, block.column(i), late) for i in width])
                types = {
                    i: column.arrow_type
                    for i, column in enumerate(self._numbers)
                    if column.may_be_typed and self._has_numbers(i, how)
                }
        if self._store.n_rows == 0:
            raise DataError(f"{file.path.name!r} has a header but no rows; it needs at least one")
        self.n_rows = self._store.n_rows
        if late:
            self._read_texts(late)

    def _parse(self, text: bytes, types: dict[int, Any]) -> Any:
        """Parse a block of rows, by pyarrow also the numbers of columns with these types."""
        if may_differ(text):
            return self._file.parse(text)
        while True:
            try:
                return self._file.parse(text, types=types, marks=self._marks)
            except NotNumericError as error:
                (position,) = error.args
                if len(self._marks) < len(self._how.number_marks):
                    self._marks = sorted(self._how.number_marks)
                    continue
                if not self._numbers[position].has_integers_only or types[position] == "double":
                    self._numbers[position].may_be_typed = False
                del types[position]

    def _convert(self, position: int, texts: Any, late: list[int]) -> npt.NDArray[Any]:
        """Return the cells of a block as numbers, or as codes of texts (int32)."""
        known = self._texts.get(position)
        if known is None and position not in late:
            column = self._numbers[position]
            numbers = column.parse(texts) if texts.type == "string" else column.add(texts)
            if numbers is not None:
                return numbers
            if column.n_rows:
                late.append(position)
            else:
                known = self._texts[position] = {}
        return np.zeros(len(texts)) if known is None else _code(texts, known)

    def _read_texts(self, positions: Sequence[int]) -> None:
        """Read columns of the file as texts."""
        known: list[dict[str, int]] = [{} for _ in positions]
        codes: list[list[npt.NDArray[np.int32]]] = [[] for _ in positions]
        for text in self._file.iterate_blocks():
            block = self._file.parse(text, positions)
            for at, texts in enumerate(known):
                codes[at].append(_code(block.column(at), texts))
        for position, own, texts in zip(positions, codes, known, strict=True):
            self._coded[position] = np.concatenate(own), list(texts)

    def iterate_blocks(self, n_rows: int) -> Iterator[CsvColumns]:
        """Yield the cells of up to `n_rows` rows after the other."""
        for first in range(0, self.n_rows, n_rows):
            part = CsvColumns.__new__(CsvColumns)  # ``copy`` would pickle it
            vars(part).update(vars(self))
            part._first = self._first + first
            part.n_rows = min(n_rows, self.n_rows - first)
            yield part

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, position: Any) -> Any:
        """Return the texts of a column: (rows,) object."""
        if isinstance(position, slice):
            positions = range(*position.indices(len(self)))
            if unread := [i for i in positions if self._is_numeric(i)]:
                self._read_texts(unread)  # all in one pass
            return tuple(self[i] for i in positions)
        codes, texts = self.read_coded(range(len(self))[position])
        return make_object_array(texts)[codes]

    def read_coded(self, position: int) -> Coded:
        """Return the texts of a column as codes and distinct texts."""
        if position in self._texts:
            codes = self._read_stored(position, np.int32)
            return codes, list(self._texts[position])
        if position not in self._coded:
            if self._is_plain(position):  # texts of integers follow from the numbers
                numbers = self._read_numbers(position)
                distinct, codes = np.unique(numbers, return_inverse=True)
                return codes.astype(np.int32), list(map(str, distinct.tolist()))
            self._read_texts(self._list_next_texts(position))
        codes, texts = self._coded[position]
        return codes[self._first : self._first + self.n_rows], texts

    def _list_next_texts(self, position: int) -> list[int]:
        """Return a column and the next ones, whose texts are likely to be needed as well.

        Their number doubles with each call, so that many columns take few passes over the file.
        """
        self._n_ahead = max(1, min(2 * self._n_ahead, _CELLS_AHEAD // max(self._store.n_rows, 1)))
        later = range(position, len(self))
        unread = (i for i in later if self._is_numeric(i) and not self._is_plain(i))
        return list(islice(unread, self._n_ahead))

    def _read_stored(self, position: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return self._store.read(position, self._first, self._first + self.n_rows, dtype)

    def _is_plain(self, position: int) -> bool:
        """Check whether the text of each cell is the shortest of an integer."""
        odd = self._file.has_odd_numbers or self._file.has_padding
        column = self._numbers[position]
        return column.has_integers_only and not odd

    def _is_numeric(self, position: int) -> bool:
        return position not in self._texts and position not in self._coded

    def _has_numbers(self, position: int, how: TextFormat) -> bool:
        """Check whether a column is stored as numbers, read in this format."""
        return how == self._how and self._numbers[position].n_rows == self._store.n_rows

    def _read_numbers(self, position: int) -> npt.NDArray[Any]:
        integers = self._numbers[position].has_integers_only
        return self._read_stored(position, np.int64 if integers else np.float64)

    def read_typed(self, position: int, how: TextFormat) -> Cells:
        """Return the typed cells of a column; the type is inferred from all its distinct cells."""
        if self._has_numbers(position, how):
            return self._read_numbers(position)
        codes, texts = self.read_coded(position)
        cells: Cells = parse_untyped(make_object_array(texts), how)[codes]
        return cells

    def count_texts(self, position: int) -> dict[Any, int]:
        """Count the distinct texts of a column."""
        codes, texts = self.read_coded(position)
        counts = np.bincount(codes, minlength=len(texts)).tolist()
        return {text: count for text, count in zip(texts, counts, strict=True) if count}

    @cached_property
    def _n_whole(self) -> int:
        """Number of cells that are whole numbers, in columns with other numbers."""
        counted = 0
        for position, column in enumerate(self._numbers):
            if self._has_numbers(position, self._how) and not column.has_integers_only:
                numbers = self._store.read(position, 0, self._store.n_rows, np.float64)
                counted += int(np.count_nonzero(numbers == np.floor(numbers)))
        return counted

    def find_merged_texts(self, position: int, how: TextFormat) -> tuple[str, str] | None:
        """Return two texts of a column that are one number; None if there are none."""
        if not self._may_merge(position, how):
            return None
        if self._is_numeric(position):  # all such columns in one pass
            self._read_texts([i for i in range(len(self)) if self._may_merge(i, how)])
        _, texts = self.read_coded(position)
        return find_merged_texts(make_object_array(texts), how)

    def _may_merge(self, position: int, how: TextFormat) -> bool:
        """Check whether two texts of a column may be one number."""
        if how != self._how:
            return True
        column = self._numbers[position]
        if not self._has_numbers(position, how) or self._is_plain(position):
            return False
        if self._file.has_odd_numbers or column.has_long_integers:
            return True
        # Whole numbers with and without ".0": not if all of the file have it.
        return self._file.n_point_zero > 0 and self._file.n_point_zero != self._n_whole


def _code(texts: Any, known: dict[str, int]) -> npt.NDArray[np.int32]:
    """Return the codes of texts (``pyarrow.StringArray``), and add new ones to `known`."""
    coded = texts.dictionary_encode()
    own = [known.setdefault(text, len(known)) for text in coded.dictionary.to_pylist()]
    codes: npt.NDArray[np.int32] = np.array(own, np.int32)[coded.indices.to_numpy()]
    return codes
