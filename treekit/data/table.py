"""Any table as named columns: arrays, dicts, rows, dataframes, files.

>>> read_table({"age": [31, None], "city": ["Oslo", "?"]}).column("city")
array(['Oslo', None], dtype=object)
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.cells import MISSING_MARKS, Cells, is_text, tidy, typed_text, without_marks
from treekit.data.stored import StoredCells
from treekit.errors import DataError

__all__ = ["Table", "make_table", "near_names", "read_table"]

_COMPARED = 200
"""Characters of an unknown name that are compared with known ones."""


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of equal length; made by `read_table`.

    Attributes
    ----------
    names : tuple of str
    cells : sequence of (rows,) arrays
        As read, tidy (see `treekit.data.cells`), marks of missing values
        still in place.  `column` gives them typed.  Those of a large file lie
        in files (`treekit.data.stored`): ask for one at a time.
    levels : mapping of str to tuple
        Vocabulary of each column whose source declares one, in its order.
    untyped : frozenset of str
        Columns whose source has no types, so that text may mean a number.
    named : bool
        False for a bare array, whose columns are known by position.
    missing : frozenset of str
        Texts that mean missing.
    first_row : int
        Number of its first row where it is a part of another, for messages.
    """

    names: tuple[str, ...]
    cells: Sequence[Cells]
    levels: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: MappingProxyType({}))
    untyped: frozenset[str] = frozenset()
    named: bool = True
    missing: frozenset[str] = frozenset(MISSING_MARKS)
    first_row: int = 0
    _typed: dict[str, Cells] = field(default_factory=dict, init=False, repr=False)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.cells.n_rows if isinstance(self.cells, StoredCells) else len(self.cells[0])

    def index(self, name: str, role: str = "column", table: str = "the table") -> int:
        """Position of a column; an error says what `role` it was wanted for, in which table."""
        if name not in self.names:
            raise DataError(f"{table} has no {role} {name!r}; {near_names(name, self.names)}")
        return self.names.index(name)

    def column(self, name: str) -> Cells:
        """The typed cells of a column.

        Returns
        -------
        (rows,) array
            Numbers (NaN = missing), bools, or an object array of ``str`` or
            ``bool`` with None for missing.
        """
        if isinstance(self.cells, StoredCells):
            untyped = name in self.untyped
            return self.cells.typed(self.index(name), self.missing, untyped=untyped)
        cells = self.cells[self.index(name)]
        if not is_text(cells):
            return cells
        if name not in self._typed:
            typed = typed_text if name in self.untyped else without_marks
            self._typed[name] = typed(cells, self.missing)
        return self._typed[name]

    def take(self, rows: npt.NDArray[Any]) -> Table:
        """The table of the given rows (numbers, or a bool for each row)."""
        return replace(self, cells=tuple(cells[rows] for cells in self.cells))

    def blocks(self, n_rows: int) -> Iterator[Table]:
        """The table in parts of `n_rows` rows if it lies in files; else as it is, at once."""
        if not isinstance(self.cells, StoredCells):
            yield self
            return
        for first in range(0, self.n_rows, n_rows):
            yield replace(self, cells=self.cells.rows(first, first + n_rows), first_row=first)


def near_names(name: str, names: Collection[str]) -> str:
    """A hint for an unknown name: what is near it, else some of what there is."""
    # A name from the network may be of any length, and the comparison is quadratic in it.
    near = difflib.get_close_matches(name[:_COMPARED], names, n=3, cutoff=0.6)
    if near:
        return "did you mean " + " or ".join(map(repr, near)) + "?"
    shown = ", ".join(map(repr, list(names)[:12]))
    return f"there are: {shown}" + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def read_table(
    source: Any,
    *,
    missing: Collection[str] = MISSING_MARKS,
    progress: Callable[[int, int], None] | None = None,
) -> Table:
    """Read any table.

    Parameters
    ----------
    source : table
        A 2-D or structured NumPy array; a mapping of names to columns; a list
        of mappings (rows); a list of rows of cells; a pandas, polars or Arrow
        table, or any dataframe that narwhals knows; the path of a ``.csv``,
        ``.tsv`` (also ``.gz``), ``.parquet``, ``.feather`` or ``.arrow`` file;
        a `Table`.
    missing : collection of str
        Texts that mean missing, compared without the blanks around a cell.
    progress : callable, optional
        ``progress(done, total)``, of the bytes or rows of a file that is read in parts.

    Returns
    -------
    Table

    Raises
    ------
    DataError
        For what is not a table; the message says why and what to do.
    MissingExtraError
        For a Parquet or Feather file if pyarrow is not installed.
    """
    for mark in [missing] if isinstance(missing, str) else missing:
        if isinstance(missing, str) or not isinstance(mark, str):
            raise DataError(
                f"marks of missing values are a list of texts, but got {mark!r}; "
                f"write [{str(mark)!r}]"
            )
    marks = frozenset(missing)
    if isinstance(source, Table):
        return source if source.missing == marks else replace(source, missing=marks)
    return replace(_read(source, marks, progress), missing=marks)


def _read(source: Any, marks: frozenset[str], progress: Callable[[int, int], None] | None) -> Table:
    if isinstance(source, (str, os.PathLike)):
        from treekit.data.files import read_file

        return read_file(source, marks, progress)
    if isinstance(source, np.ndarray):
        return _from_array(source)
    if isinstance(source, Mapping):
        return _from_columns(source)
    if isinstance(source, (list, tuple)):
        return _from_rows(source)
    from treekit.data.frames import from_frame

    table = from_frame(source)
    if table is not None:
        return table
    if hasattr(source, "tocsr"):
        raise DataError("sparse matrices are not supported; pass source.toarray()")
    if hasattr(source, "__array__"):
        return _from_array(np.asarray(source))
    raise DataError(
        f"a {type(source).__name__} is not a table; pass a 2-D array, a dict of columns, a "
        "list of rows, a dataframe or the path of a CSV file"
    )


def make_table(
    names: Iterable[Any],
    columns: Iterable[npt.NDArray[Any]],
    *,
    levels: Mapping[str, tuple[Any, ...]] | None = None,
    untyped: bool = False,
    named: bool = True,
) -> Table:
    """Check names and lengths, and tidy the columns.

    Parameters
    ----------
    names : iterable
        Anything; turned into text.
    columns : iterable of (rows,) arrays
    untyped : bool
        The source has no types: text may mean a number.
    """
    texts = check_names(names)
    cells, guessed = [], set()
    for name, column in zip(texts, columns, strict=True):
        if column.ndim != 1:
            raise DataError(
                f"column {name!r} has shape {column.shape}; a column needs one cell a row"
            )
        tidied, guess = tidy(name, column)
        cells.append(tidied)
        if guess or untyped:
            guessed.add(name)
    for name, column in zip(texts, cells, strict=True):
        if len(column) != len(cells[0]):
            raise DataError(
                f"column {name!r} has {len(column)} rows but {texts[0]!r} has "
                f"{len(cells[0])}; all columns need the same length"
            )
    return Table(
        texts, tuple(cells), MappingProxyType(dict(levels or {})), frozenset(guessed), named
    )


def check_names(names: Iterable[Any]) -> tuple[str, ...]:
    """Column names as text; an error for none at all, empty, blank and repeated ones."""
    texts = tuple(str(name) for name in names)
    if not texts:
        raise DataError("the table has no columns; it needs at least one")
    for position, name in enumerate(texts):
        if name and not name.strip():
            raise DataError(
                f"the name of column {position + 1} is {name!r}, only white space; rename it"
            )
        if not name:
            raise DataError(
                f"the name of column {position + 1} is empty; name it, or write the file "
                "without its row index (pandas: index=False)"
            )
    if len(set(texts)) != len(texts):
        seen: set[str] = set()
        twice = next(name for name in texts if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise DataError(f"column name {twice!r} appears twice; rename one of them")
    return texts


def _from_array(array: npt.NDArray[Any]) -> Table:
    if array.dtype.names:
        flat = np.ravel(array)
        return make_table(array.dtype.names, [flat[name] for name in array.dtype.names])
    if array.ndim != 2:
        remedy = ""
        if array.ndim == 1:
            remedy = (
                "; reshape it: array.reshape(1, -1) is one row, array.reshape(-1, 1) one column"
            )
        raise DataError(
            f"an array of shape {array.shape} is not a table of shape (rows, columns){remedy}"
        )
    names = [f"x{j}" for j in range(array.shape[1])]
    return make_table(names, array.T, named=False, untyped=array.dtype.kind in "UT")


def _from_columns(source: Mapping[Any, Any]) -> Table:
    from treekit.data.frames import as_cells

    columns, levels = [], {}
    for name, values in source.items():
        cells, declared = as_cells(str(name), values)
        columns.append(cells)
        if declared is not None:
            levels[str(name)] = declared
    return make_table(source.keys(), columns, levels=levels)


def _from_rows(source: Sequence[Any]) -> Table:
    if not source:
        raise DataError("the table has no rows; it needs at least one")
    if all(isinstance(row, Mapping) for row in source):
        names = list(dict.fromkeys(name for row in source for name in row))
        return make_table(names, [objects([row.get(name) for row in source]) for name in names])
    for position, row in enumerate(source):
        if not isinstance(row, (list, tuple, np.ndarray)):
            raise DataError(
                f"row {position} is a {type(row).__name__}; every row must be a list of cells, "
                "or every row a dict of named cells"
            )
        if len(row) != len(source[0]):
            raise DataError(
                f"row {position} has {len(row)} cells but row 0 has {len(source[0])}; "
                "give every row the same columns"
            )
    names = [f"x{j}" for j in range(len(source[0]))]
    return make_table(names, map(objects, zip(*source, strict=True)), named=False)


def objects(values: Sequence[Any]) -> npt.NDArray[Any]:
    """(rows,) object array of the values, whatever they are."""
    cells = np.empty(len(values), dtype=object)
    for position, value in enumerate(values):
        cells[position] = value
    return cells
