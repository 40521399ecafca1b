"""Tables and code matrices that are too large for memory, in unnamed temporary files.

The files are in the folder for temporary files (``TMPDIR``) but are not listed there.  The
system frees them when they are closed, however the process ends.
"""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.cells import (
    Cells,
    is_text,
    make_object_array,
    parse_untyped,
    replace_marks,
)
from treekit.errors import DataError

# ---------------------------------------------------------------- temporary file


class TemporaryStore:
    """A temporary file of arrays, appended one by one and read in any order, by any thread."""

    def __init__(self) -> None:
        # Unbuffered: pieces are large.  Windows has no unnamed files, but deletes this one
        # when its last handle is closed, also when the process is killed.
        self._file = tempfile.TemporaryFile(prefix="treekit-table-", buffering=0)  # noqa: SIM115
        self._lock = threading.Lock()
        weakref.finalize(self, self._file.close)

    def write(self, cells: npt.NDArray[Any]) -> int:
        """Append the bytes of an array (n,); return their offset in the file.

        Raises
        ------
        DataError
            If the disk is full.
        """
        rest = np.ascontiguousarray(cells).view(np.uint8).data
        with self._lock:
            try:
                start = self._file.seek(0, os.SEEK_END)
                while rest:
                    rest = rest[self._file.write(rest) :]
            except OSError as error:
                raise DataError(
                    f"cannot store a table too large for memory in the folder for "
                    f"temporary files, {tempfile.gettempdir()!r}: {error.strerror or error}; "
                    "free space there, or set TMPDIR to another folder"
                ) from error
        return start

    def read(self, place: int, cells: npt.NDArray[Any]) -> None:
        """Fill an array (n,) from an offset."""
        rest = cells.view(np.uint8).data
        with self._lock:
            self._file.seek(place)
            while rest:
                n_bytes = self._file.readinto(rest)
                if not n_bytes:
                    raise DataError("the temporary file of a table has been cut off; start again")
                rest = rest[n_bytes:]


# ---------------------------------------------------------------- stored columns
# Columns of a table too large for memory, in a temporary file.
#
# Numbers are stored directly, other cells as positions in a list of distinct values.  A
# column is written in pieces and read completely or in part; its final type is the same as
# for a table in memory.


class _Piece(NamedTuple):
    """The rows `first` to `stop` of a column, and their type and offset in the file."""

    first: int
    stop: int
    dtype: np.dtype[Any]
    place: int | None  # None: all cells are missing


class StoredColumn:
    """A column stored in pieces of a file, which it may share with other columns."""

    def __init__(self, spill: TemporaryStore) -> None:
        self.n_rows = 0
        self.codes: dict[Any, int] | None = None  # of the distinct values; None: numbers
        self._pieces: list[_Piece] = []
        self._spill = spill

    def append(self, cells: Cells) -> None:
        """Append tidy cells: numbers, or text or bools and None, of the column's kind."""
        if cells.dtype.kind not in "iuf":
            values = cells.tolist()
            codes = {value: code for code, value in enumerate(dict.fromkeys(values))}
            own = np.fromiter(map(codes.__getitem__, values), np.int32, len(values))
            self.append_codes(list(codes), own)
        elif self.codes is None:
            self._append_piece(cells)
        else:  # a piece of a text column whose cells are all missing is tidied to NaN
            assert np.isnan(cells).all()  # noqa: S101 - or the source gave two types
            self.append_missing(len(cells))

    def append_codes(self, values: Sequence[Any], codes: npt.NDArray[np.int32]) -> None:
        """Append text, or bools and None: the cell ``values[code]`` for each code."""
        if self.codes is None:  # 0 is the code of missing cells before the first value
            self.codes = {None: 0} if self.n_rows else {}
        own = [self.codes.setdefault(value, len(self.codes)) for value in values]
        self._append_piece(np.array(own, np.int32)[codes])

    def append_missing(self, n: int) -> None:
        """Append `n` missing cells, of the type that the other cells have or will have."""
        if self.codes is not None:
            self.append(np.full(n, None))
        elif n:
            self._pieces.append(_Piece(self.n_rows, self.n_rows + n, np.dtype(np.float64), None))
            self.n_rows += n

    def _append_piece(self, cells: npt.NDArray[Any]) -> None:
        if len(cells):
            stop = self.n_rows + len(cells)
            self._pieces.append(_Piece(self.n_rows, stop, cells.dtype, self._spill.write(cells)))
            self.n_rows = stop

    def read(self, first: int = 0, stop: int | None = None) -> Cells:
        """Read the tidy cells of the rows `first` to `stop`, by default all."""
        stop = self.n_rows if stop is None else stop
        if self.codes is not None:
            return self.read_mapped(self.get_distinct_cells(), first, stop)
        dtypes = {piece.dtype for piece in self._pieces if piece.place is not None}
        dtype = np.result_type(*dtypes) if dtypes else np.dtype(np.float64)
        if dtype.kind != "f" and any(piece.place is None for piece in self._pieces):
            dtype = np.dtype(np.float64)
        return self._read_stored(first, stop, dtype, np.nan)

    def get_distinct_cells(self) -> Cells:
        """Return the distinct cells, tidy, in order of first occurrence."""
        distinct = list(self.codes or ())
        if all(type(value) is bool for value in distinct):
            return np.array(distinct, dtype=np.bool_)
        return make_object_array(distinct)

    def read_mapped(self, values: npt.NDArray[Any], first: int, stop: int) -> npt.NDArray[Any]:
        """Read the rows `first` to `stop`, mapping the i-th distinct value to ``values[i]``."""
        return np.asarray(values[self._read_stored(first, stop, np.dtype(np.int32), 0)])

    def _read_stored(
        self, first: int, stop: int, dtype: np.dtype[Any], missing: float
    ) -> npt.NDArray[Any]:
        cells = np.empty(stop - first, dtype)
        for piece in self._pieces[bisect_right(self._pieces, first, key=attrgetter("stop")) :]:
            if piece.first >= stop:
                break
            start, end = max(first, piece.first), min(stop, piece.stop)
            if piece.place is None:
                cells[start - first : end - first] = missing
            else:
                place = piece.place + (start - piece.first) * piece.dtype.itemsize
                own = cells[start - first : end - first]
                same = own if piece.dtype == dtype else np.empty(end - start, piece.dtype)
                self._spill.read(place, same)
                if same is not own:
                    own[:] = same
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

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return tuple(self[i] for i in range(*position.indices(len(self))))
        return self._get_original_column(range(len(self))[position]).read(self.first, self.stop)

    def _get_original_column(self, position: int) -> StoredColumn:
        column = self.columns[position]
        if column.codes is not None or self.read_texts is None:
            return column
        return self.read_texts(position)

    def read_typed(self, position: int, marks: Collection[str], *, untyped: bool) -> Cells:
        """Return the typed cells of a column; the type is inferred from all its distinct cells."""
        column = self.columns[position]
        if column.codes is None and marks != self.marks:
            column = self._get_original_column(position)
        if column.codes is None:
            return column.read(self.first, self.stop)
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

    If it is larger than `MATRIX_MEMORY_SHARE` of the free memory, it is a memory map of a
    temporary file (in ``TMPDIR``), which is deleted with the array: the operating system moves
    pages that are not in use to the file.
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
