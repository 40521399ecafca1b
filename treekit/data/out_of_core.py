"""Tables and code matrices that are too large for memory, in unnamed temporary files.

The files are in the folder for temporary files (``TMPDIR``) but are not listed there.  The
system frees them when they are closed, however the process ends.
"""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from treekit.data.cells import Cells, is_text, parse_untyped, replace_marks
from treekit.errors import DataError

# ---------------------------------------------------------------- temporary file


class TemporaryStore:
    """A temporary file of arrays, appended one by one and read in any order, by any thread."""

    def __init__(self) -> None:
        # Unbuffered: pieces are large.  Windows has no unnamed files, but deletes this one
        # when its last handle is closed, also when the process is killed.
        self._file = tempfile.TemporaryFile(prefix="treekit-table-", buffering=0)  # noqa: SIM115
        self._lock = threading.Lock()
        self._size = 0
        weakref.finalize(self, self._file.close)

    def write(self, cells: npt.NDArray[Any], place: int | None = None) -> int:
        """Write the bytes of an array (n,) at an offset, by default the end; return the offset.

        Raises
        ------
        DataError
            If the disk is full.
        """
        rest = np.ascontiguousarray(cells).view(np.uint8).data
        with self._lock:
            start = self._size if place is None else place
            try:
                self._file.seek(start)
                while rest:
                    rest = rest[self._file.write(rest) :]
            except OSError as error:
                raise DataError(
                    f"cannot store a table too large for memory in the folder for "
                    f"temporary files, {tempfile.gettempdir()!r}: {error.strerror or error}; "
                    "free space there, or set TMPDIR to another folder"
                ) from error
            self._size = max(self._size, self._file.tell())
        return start

    def read(self, cells: npt.NDArray[Any], place: int) -> None:
        """Fill a contiguous array (n,) with the bytes at an offset."""
        rest = cells.view(np.uint8).data
        with self._lock:
            self._file.seek(place)
            while rest:
                n_bytes = self._file.readinto(rest)
                if not n_bytes:
                    raise DataError("the temporary file of a large table is truncated; start again")
                rest = rest[n_bytes:]


# ---------------------------------------------------------------- stored columns
# Columns of a table too large for memory, in a temporary file.
#
# Numbers are stored directly, other cells as positions in a list of distinct values.  A
# column is written in pieces and read completely or in part; its final type is the same as
# for a table in memory.


class StoredColumn:
    """A column stored in pieces of a file, which it may share with other columns."""

    def __init__(self, spill: TemporaryStore) -> None:
        self.n_rows = 0
        self.distinct: list[Any] | None = None  # None: numbers
        self._dtype: np.dtype[Any] | None = None  # None: all missing so far
        self._position: dict[Any, int] = {}
        self._spill = spill
        self._ends, self._places = array("q"), array("q")  # end row and file offset of each piece

    def append(self, cells: Cells) -> None:
        """Append tidy cells: numbers, or text or bools and None, of the column's kind."""
        if cells.dtype.kind in "iuf":
            if self.distinct is None:
                self._append_numbers(cells)
            else:  # a piece of a text column whose cells are all missing is tidied to NaN
                assert np.isnan(cells).all()  # noqa: S101 - or the source gave two types
                self.append_missing(len(cells))
        else:
            self._append_values(cells.tolist())

    def append_missing(self, n: int) -> None:
        """Append `n` missing cells, of the type that the other cells have or will have."""
        if n == 0:
            return
        if self.distinct is not None:
            self._append_values([None] * n)
        elif self._dtype is None:
            self.n_rows += n
        else:
            missing = self._dtype if self._dtype.kind == "f" else np.float64
            self._append_numbers(np.full(n, np.nan, missing))

    def _append_numbers(self, cells: Cells) -> None:
        dtype = cells.dtype
        if self._dtype is None:
            gaps, self._dtype = self.n_rows, dtype
            self.n_rows = 0
            self.append_missing(gaps)
        if dtype != self._dtype:
            self._convert_pieces(np.promote_types(dtype, self._dtype))
        self._write_piece(cells.astype(self._dtype, copy=False))

    def _append_values(self, values: list[Any]) -> None:
        if self.distinct is None:
            gaps, self.n_rows = self.n_rows, 0
            self.distinct, self._dtype = [], np.dtype(np.int32)
            if gaps:
                self._append_values([None] * gaps)
        position, distinct = self._position, self.distinct
        for value in dict.fromkeys(values):
            if value not in position:
                position[value] = len(distinct)
                distinct.append(value)
        self._write_piece(np.fromiter(map(position.__getitem__, values), np.int32, len(values)))

    def _write_piece(self, cells: npt.NDArray[Any]) -> None:
        self._places.append(self._spill.write(cells))
        self.n_rows += len(cells)
        self._ends.append(self.n_rows)

    def _convert_pieces(self, dtype: np.dtype[Any]) -> None:
        """Convert stored numbers to another type, in place if it has the same width."""
        assert self._dtype is not None  # noqa: S101 - for the type checker
        alike = dtype.itemsize == self._dtype.itemsize
        first = 0
        for piece, end in enumerate(self._ends):
            place = self._places[piece] if alike else None
            cells = self._read_stored(first, end).astype(dtype)
            self._places[piece] = self._spill.write(cells, place)
            first = end
        self._dtype = dtype

    def read(self, first: int = 0, stop: int | None = None) -> Cells:
        """Read the tidy cells of the rows `first` to `stop`, by default all."""
        stop = self.n_rows if stop is None else stop
        if self.distinct is None:
            return (
                np.full(stop - first, np.nan)
                if self._dtype is None
                else self._read_stored(first, stop)
            )
        return self.read_mapped(self.get_distinct_cells(), first, stop)

    def get_distinct_cells(self) -> Cells:
        """Return the distinct cells, tidy, in order of first occurrence."""
        distinct = self.distinct or []
        if all(type(value) is bool for value in distinct):
            return np.array(distinct, dtype=np.bool_)
        cells = np.empty(len(distinct), dtype=object)
        cells[:] = distinct
        return cells

    def read_mapped(self, values: npt.NDArray[Any], first: int, stop: int) -> npt.NDArray[Any]:
        """Read the rows `first` to `stop`, mapping the i-th distinct value to ``values[i]``."""
        return np.asarray(values[self._read_stored(first, stop)])

    def _read_stored(self, first: int, stop: int) -> npt.NDArray[Any]:
        assert self._dtype is not None  # noqa: S101 - for the type checker
        cells = np.empty(stop - first, self._dtype)
        piece, at = bisect_right(self._ends, first), first
        while at < stop:
            before = self._ends[piece - 1] if piece else 0
            end = min(self._ends[piece], stop)
            place = self._places[piece] + (at - before) * self._dtype.itemsize
            self._spill.read(cells[at - first : end - first], place)
            piece, at = piece + 1, end
        return cells


@dataclass(frozen=True, eq=False)
class StoredCells(Sequence[Cells]):
    """The cells of a `treekit.data.table.Table` in a file, read on each access and not cached.

    Attributes
    ----------
    columns : tuple of StoredColumn
    marks : frozenset of str
        Marks of missing values with which text was parsed as numbers.
    read_texts : callable, optional
        ``texts(position)`` returns a column as the original text; None for a typed source.
    first, stop : int
        Range of rows.
    """

    columns: tuple[StoredColumn, ...]
    marks: frozenset[str]
    read_texts: Callable[[int], StoredColumn] | None
    first: int
    stop: int

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.stop - self.first

    def __len__(self) -> int:
        return len(self.columns)

    @overload
    def __getitem__(self, position: int) -> Cells: ...

    @overload
    def __getitem__(self, position: slice) -> tuple[Cells, ...]: ...

    def __getitem__(self, position: int | slice) -> Cells | tuple[Cells, ...]:
        if isinstance(position, slice):
            return tuple(self[i] for i in range(*position.indices(len(self))))
        return self._get_original_column(range(len(self))[position]).read(self.first, self.stop)

    def _get_original_column(self, position: int) -> StoredColumn:
        column = self.columns[position]
        parsed = column.distinct is None and self.read_texts is not None
        return self.read_texts(position) if parsed and self.read_texts is not None else column

    def read_typed(self, position: int, marks: Collection[str], *, untyped: bool) -> Cells:
        """Return the typed cells of a column; the type is inferred from all its distinct cells."""
        column = self.columns[position]
        if column.distinct is None:
            if self.read_texts is None or marks == self.marks:
                return column.read(self.first, self.stop)
            column = self.read_texts(position)
        values = column.get_distinct_cells()
        if is_text(values):
            values = (parse_untyped if untyped else replace_marks)(values, marks)
        return column.read_mapped(values, self.first, self.stop)

    def select_rows(self, first: int, stop: int) -> StoredCells:
        """Select the rows `first` to `stop`, counted from the first row of these cells."""
        return replace(self, first=self.first + first, stop=min(self.first + stop, self.stop))


# ---------------------------------------------------------------- code matrix

SPARE_MEMORY_SHARE = 0.1
"""Share of the free memory that may be used by a copy that only saves time."""

MATRIX_MEMORY_SHARE = 0.5
"""Share of the free memory above which a matrix is mapped from a temporary file."""


def allocate_code_matrix(shape: tuple[int, int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Allocate an uninitialised matrix of codes.

    If it is larger than `MATRIX_MEMORY_SHARE` of the free memory, it is mapped from a temporary
    file (in ``TMPDIR``), deleted with the array, to which the system writes unused pages.
    """
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    if size <= MATRIX_MEMORY_SHARE * _get_free_memory():
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(prefix="treekit-codes-") as file:
        return np.memmap(file, dtype, "w+", shape=shape).view(np.ndarray)


def copy_row_major(codes: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """Copy a code matrix (features, rows) to row-major order: (rows * features,).

    Return None if that would use more than `SPARE_MEMORY_SHARE` of the free memory: kernels
    can use the columns instead, only more slowly.
    """
    if codes.nbytes > SPARE_MEMORY_SHARE * _get_free_memory():
        return None
    lines = np.empty(codes.shape[::-1], codes.dtype)
    for first in range(0, len(lines), _BLOCK_ROWS):  # blocks of rows that fit into the cache
        lines[first : first + _BLOCK_ROWS] = codes[:, first : first + _BLOCK_ROWS].T
    return lines.reshape(-1)


_BLOCK_ROWS = 2048


def _get_free_memory() -> float:
    """Return the free memory in bytes, infinite if unknown."""
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return 1024.0 * float(line.split()[1])
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, AttributeError):
        return float("inf")
