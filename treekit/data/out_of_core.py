"""One temporary file without a name: what is too large for memory, piece by piece.

It lies in the folder for temporary files (``TMPDIR``) but is not listed there.  The
system frees it when nothing holds it open any more, however the process ends.
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

from treekit.data.cells import Cells, is_text, typed_text, without_marks
from treekit.errors import DataError

__all__ = [
    "Spill",
    "StoredCells",
    "StoredColumn",
    "lines_of",
    "matrix_room",
]


# ---------------------------------------------------------------- spill


class Spill:
    """A file of arrays, written one behind the other and read in any order, by any thread."""

    def __init__(self) -> None:
        # Unbuffered: pieces are large.  Windows has no file without a name, but takes this
        # one away when its last handle is closed, if need be by the system.
        self._file = tempfile.TemporaryFile(prefix="treekit-table-", buffering=0)  # noqa: SIM115
        self._lock = threading.Lock()
        self._size = 0
        weakref.finalize(self, self._file.close)

    def write(self, cells: npt.NDArray[Any], place: int | None = None) -> int:
        """Write the bytes of an array (n,) at a place, by default behind all others; the place.

        Raises
        ------
        DataError
            If there is no room for them.
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
                    f"a table that is too large for memory cannot be stored in the folder for "
                    f"temporary files, {tempfile.gettempdir()!r}: {error.strerror or error}; "
                    "make room there, or set TMPDIR to another folder"
                ) from error
            self._size = max(self._size, self._file.tell())
        return start

    def read(self, cells: npt.NDArray[Any], place: int) -> None:
        """Fill a contiguous array (n,) with the bytes from a place on."""
        rest = cells.view(np.uint8).data
        with self._lock:
            self._file.seek(place)
            while rest:
                n_bytes = self._file.readinto(rest)
                if not n_bytes:
                    raise DataError("the temporary file of a large table ends early; start again")
                rest = rest[n_bytes:]


# ---------------------------------------------------------------- stored
# Columns of a table too large for memory, in a temporary file.
#
# Numbers are stored as they are, other cells as positions in a list of the
# distinct ones.  A column is written piece by piece and read whole or in part;
# the types it ends with are those that reading it at once would give.


class StoredColumn:
    """One column, in pieces of a file that it may share with others."""

    def __init__(self, spill: Spill) -> None:
        self.n_rows = 0
        self.distinct: list[Any] | None = None  # None: numbers
        self._dtype: np.dtype[Any] | None = None  # None: all missing so far
        self._position: dict[Any, int] = {}
        self._spill = spill
        self._ends, self._places = array("q"), array("q")  # of pieces: rows up to it, and bytes

    def append(self, cells: Cells) -> None:
        """Add tidy cells: numbers, or text or bools and None, as the column's others are."""
        if cells.dtype.kind in "iuf":
            if self.distinct is None:
                self._append_numbers(cells)
            else:  # what cells of text are of which all are missing
                assert np.isnan(cells).all()  # noqa: S101 - or the source gave two types
                self.append_missing(len(cells))
        else:
            self._append_values(cells.tolist())

    def append_missing(self, n: int) -> None:
        """Add `n` missing cells, of whatever type the others are or will be."""
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
            self._convert(np.promote_types(dtype, self._dtype))
        self._write(cells.astype(self._dtype, copy=False))

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
        self._write(np.fromiter(map(position.__getitem__, values), np.int32, len(values)))

    def _write(self, cells: npt.NDArray[Any]) -> None:
        self._places.append(self._spill.write(cells))
        self.n_rows += len(cells)
        self._ends.append(self.n_rows)

    def _convert(self, dtype: np.dtype[Any]) -> None:
        """Numbers of another type; of the same width in their old places."""
        assert self._dtype is not None  # noqa: S101 - for the type checker
        alike = dtype.itemsize == self._dtype.itemsize
        first = 0
        for piece, end in enumerate(self._ends):
            place = self._places[piece] if alike else None
            cells = self._read(first, end).astype(dtype)
            self._places[piece] = self._spill.write(cells, place)
            first = end
        self._dtype = dtype

    def read(self, first: int = 0, stop: int | None = None) -> Cells:
        """The tidy cells of the rows `first` to `stop`; all by default."""
        stop = self.n_rows if stop is None else stop
        if self.distinct is None:
            return np.full(stop - first, np.nan) if self._dtype is None else self._read(first, stop)
        return self.read_as(self.values(), first, stop)

    def values(self) -> Cells:
        """The distinct cells, tidy, in the order in which they came."""
        distinct = self.distinct or []
        if all(type(value) is bool for value in distinct):
            return np.array(distinct, dtype=np.bool_)
        cells = np.empty(len(distinct), dtype=object)
        cells[:] = distinct
        return cells

    def read_as(self, values: npt.NDArray[Any], first: int, stop: int) -> npt.NDArray[Any]:
        """Cells of the rows `first` to `stop`, with ``values[i]`` in place of distinct one i."""
        return np.asarray(values[self._read(first, stop)])

    def _read(self, first: int, stop: int) -> npt.NDArray[Any]:
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
    """The cells of a `treekit.data.table.Table` in a file: read when asked for, not kept.

    Attributes
    ----------
    columns : tuple of StoredColumn
    marks : frozenset of str
        Marks of missing values by which text was read as numbers.
    texts : callable, optional
        ``texts(position)``: the column as the text it was read from; None: the
        source has types.
    first, stop : int
        The rows.
    """

    columns: tuple[StoredColumn, ...]
    marks: frozenset[str]
    texts: Callable[[int], StoredColumn] | None
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
        return self._as_read(range(len(self))[position]).read(self.first, self.stop)

    def _as_read(self, position: int) -> StoredColumn:
        column = self.columns[position]
        parsed = column.distinct is None and self.texts is not None
        return self.texts(position) if parsed and self.texts is not None else column

    def typed(self, position: int, marks: Collection[str], *, untyped: bool) -> Cells:
        """What `treekit.data.table.Table.column` answers: found out of all rows' distinct cells."""
        column = self.columns[position]
        if column.distinct is None:
            if self.texts is None or marks == self.marks:
                return column.read(self.first, self.stop)
            column = self.texts(position)
        values = column.values()
        if is_text(values):
            values = (typed_text if untyped else without_marks)(values, marks)
        return column.read_as(values, self.first, self.stop)

    def rows(self, first: int, stop: int) -> StoredCells:
        """Those of the rows `first` to `stop` of these."""
        return replace(self, first=self.first + first, stop=min(self.first + stop, self.stop))


# ---------------------------------------------------------------- room
# Room for the matrix of codes: in memory, or in a file that the system pages.

SPARE = 0.1
"""Share of the free memory that a copy may take which saves time only."""

SHARE = 0.5
"""Share of the memory that is free above which a matrix lies in a temporary file."""


def matrix_room(shape: tuple[int, int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array to be filled.

    One that is larger than `SHARE` of the free memory is mapped from a file in
    the folder for temporary files (``TMPDIR``), which goes with the array: the
    system writes out what is not in use.
    """
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    if size <= SHARE * _free_memory():
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(prefix="treekit-codes-") as file:
        return np.memmap(file, dtype, "w+", shape=shape).view(np.ndarray)


def lines_of(codes: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """A matrix of codes (features, rows) once more, row by row: (rows * features,).

    None where that would take more than `SPARE` of the free memory: what is read
    along it may be read down the columns, only more slowly.
    """
    if codes.nbytes > SPARE * _free_memory():
        return None
    lines = np.empty(codes.shape[::-1], codes.dtype)
    for first in range(0, len(lines), _BLOCK):  # of rows that the cache holds
        lines[first : first + _BLOCK] = codes[:, first : first + _BLOCK].T
    return lines.reshape(-1)


_BLOCK = 2048


def _free_memory() -> float:
    """Bytes that the system could hand out; infinite where it does not say."""
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return 1024.0 * float(line.split()[1])
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, AttributeError):
        return float("inf")
