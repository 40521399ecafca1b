"""Columns of a table too large for memory, each in a temporary file of its own.

Numbers are stored as they are, other cells as positions in a list of the
distinct ones.  A column is written piece by piece and read whole or in part;
the types it ends with are those that reading it at once would give.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from treekit.data.cells import Cells, is_text, typed_text, without_marks

__all__ = ["Folder", "StoredCells", "StoredColumn"]

_STRETCH = 1 << 20
"""Rows that are converted together."""


class StoredColumn:
    """One column in a file.

    Parameters
    ----------
    path : Path
        File to make, in a folder that outlives the column.
    """

    def __init__(self, path: Path) -> None:
        self.n_rows = 0
        self.distinct: list[Any] | None = None  # None: numbers
        self._path = path
        self._dtype: np.dtype[Any] | None = None  # None: all missing so far
        self._position: dict[Any, int] = {}
        path.touch()

    def append(self, cells: Cells) -> None:
        """Add tidy cells: numbers, or text or bools and None, as the column's others are."""
        if cells.dtype.kind in "iuf":
            self._append_numbers(cells)
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
        with self._path.open("ab") as file:
            file.write(np.ascontiguousarray(cells).data)
        self.n_rows += len(cells)

    def _convert(self, dtype: np.dtype[Any]) -> None:
        """Numbers of another type in the same file."""
        wider = self._path.with_suffix(".wider")
        with wider.open("wb") as file:
            for first in range(0, self.n_rows, _STRETCH):
                part = self._read(first, min(first + _STRETCH, self.n_rows))
                file.write(part.astype(dtype).data)
        wider.replace(self._path)
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
        with self._path.open("rb") as file:
            return np.fromfile(file, self._dtype, stop - first, offset=first * self._dtype.itemsize)


class Folder:
    """A new folder for columns (in ``TMPDIR``), which goes when nothing holds this any more."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="treekit-table-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class StoredCells(Sequence[Cells]):
    """The cells of a `treekit.data.table.Table` in files: read when asked for, not kept.

    Attributes
    ----------
    folder : Folder
        What the files go with.
    columns : tuple of StoredColumn
    marks : frozenset of str
        Marks of missing values by which text was read as numbers.
    texts : callable, optional
        ``texts(position)``: the column as the text it was read from; None: the
        source has types.
    first, stop : int
        The rows.
    """

    folder: Folder
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
