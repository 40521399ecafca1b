"""Read tables as named columns: arrays, dicts, rows, dataframes and files.

>>> read_table({"age": [31, None], "city": ["Oslo", "?"]}).column("city")
array(['Oslo', None], dtype=object)
"""

from __future__ import annotations

import difflib
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.cells import (
    Cells,
    find_merged_texts,
    is_text,
    list_intervals,
    make_object_array,
    parse_untyped,
    replace_marks,
    sort_naturally,
    tidy_column,
)
from treekit.data.sparse import SparseColumns, is_sparse
from treekit.data.text_format import TextFormat
from treekit.errors import DataError, find_repeated

# ---------------------------------------------------------------- table

_MAX_COMPARED = 200
"""Maximum number of characters of an unknown name compared with known names."""


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of equal length; made by `read_table`.

    Attributes
    ----------
    names : tuple of str
    cells : sequence of (rows,) arrays
        Tidy cells as read (see `treekit.data.cells`), including marks of missing values;
        `get_typed_cells` returns typed cells.  `FileColumns` make a column on each access.
    levels : mapping of str to tuple
        Categories, in declared order, of each column whose source declares them.
    untyped : frozenset of str
        Columns of an untyped source, whose text may be numbers.
    named : bool
        False for a bare array, whose columns are identified by position.
    format : TextFormat
        Meaning of text: marks of missing values, notation of numbers.
    first_row : int
        Number of the first row if the table is a part of another, for messages.
    """

    names: tuple[str, ...]
    cells: Sequence[Cells]
    levels: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    untyped: frozenset[str] = frozenset()
    named: bool = True
    format: TextFormat = field(default_factory=TextFormat)
    first_row: int = 0
    _typed: dict[str, Cells] = field(default_factory=dict, init=False, repr=False)
    _positions: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        if isinstance(self.cells, FileColumns | SparseColumns):
            return int(self.cells.n_rows)
        return len(self.cells[0])

    @property
    def missing(self) -> frozenset[str]:
        """Texts that mean missing."""
        return self.format.marks

    def find_column(self, name: str, role: str = "column", table: str = "the table") -> int:
        """Return the position of a column; `role` and `table` appear in the error message."""
        if not self._positions:
            self._positions.update({own: at for at, own in enumerate(self.names)})
        if name not in self._positions:
            raise DataError(f"{table} has no {role} {name!r}; {suggest_names(name, self.names)}")
        return self._positions[name]

    def get_typed_cells(self, name: str) -> Cells:
        """Return the typed cells of a column.

        Returns
        -------
        (rows,) array
            Numbers (NaN = missing), bools, or an object array of ``str`` or
            ``bool`` with None for missing.
        """
        position = self.find_column(name)
        if isinstance(self.cells, FileColumns):
            return self.cells.read_typed(position, self.format)
        cells = self.cells[position]
        if not is_text(cells):
            return cells
        if name not in self._typed:
            typed = parse_untyped if name in self.untyped else replace_marks
            self._typed[name] = typed(cells, self.format)
        return self._typed[name]

    def count_texts(self, name: str) -> dict[Any, int]:
        """Count the distinct cells of a column as read: text, or a number of another source."""
        position = self.find_column(name)
        if isinstance(self.cells, FileColumns):
            return self.cells.count_texts(position)
        cells = self.cells[position]
        if cells.dtype.kind == "O":
            return dict(Counter(cells.tolist()))
        distinct, counts = np.unique(cells, return_counts=True)
        return dict(zip(distinct.tolist(), counts.tolist(), strict=True))

    def find_merged_texts(self, name: str) -> tuple[str, str] | None:
        """Return two texts of a column that are one number; None if there are none."""
        position = self.find_column(name)
        if name not in self.untyped:
            return None
        if isinstance(self.cells, FileColumns):
            return self.cells.find_merged_texts(position, self.format)
        cells = self.cells[position]
        return find_merged_texts(cells, self.format) if is_text(cells) else None

    def take(self, rows: npt.NDArray[Any]) -> Table:
        """Select rows, by number or by a bool for each row."""
        if isinstance(self.cells, SparseColumns):
            return replace(self, cells=self.cells.take(rows))
        return replace(self, cells=tuple(cells[rows] for cells in self.cells[:]))

    def iterate_blocks(self, n_rows: int) -> Iterator[Table]:
        """Yield parts of `n_rows` rows if the table is in a file, else the complete table.

        The parts of a sparse matrix have as many rows as are small when dense.
        """
        if isinstance(self.cells, SparseColumns):
            for first, cells in self.cells.iterate_blocks():
                yield replace(self, cells=cells, first_row=first)
            return
        if not isinstance(self.cells, FileColumns):
            yield self
            return
        first = 0
        for part in self.cells.iterate_blocks(n_rows):
            block = replace(self, cells=part, first_row=first)
            yield block
            first += block.n_rows


class FileColumns(Sequence[Cells], ABC):
    """The cells of a table in a file, read on each access and not kept.

    Attributes
    ----------
    n_rows : int
    """

    n_rows: int

    def __reduce__(self) -> Any:
        """Pickle the cells: another process may not have the file."""
        return tuple, (self[:],)

    @abstractmethod
    def read_typed(self, position: int, how: TextFormat) -> Cells:
        """Return the typed cells of a column; see `Table.get_typed_cells`."""

    @abstractmethod
    def count_texts(self, position: int) -> dict[Any, int]:
        """Count the distinct cells of a column."""

    @abstractmethod
    def find_merged_texts(self, position: int, how: TextFormat) -> tuple[str, str] | None:
        """Return two texts of a column that are one number; None if there are none."""

    @abstractmethod
    def iterate_blocks(self, n_rows: int) -> Iterator[Sequence[Cells]]:
        """Yield the cells of `n_rows` rows after the other."""


def list_similar_names(name: str, names: Collection[str]) -> list[str]:
    """Return up to three similar names, the most similar first."""
    # The comparison is quadratic in the length, and a name from a request may be very long.
    return difflib.get_close_matches(name[:_MAX_COMPARED], names, n=3, cutoff=0.6)


def suggest_names(name: str, names: Collection[str]) -> str:
    """Return a hint for an unknown name: similar names, else some of the known names."""
    if near := list_similar_names(name, names):
        return "did you mean " + " or ".join(map(repr, near)) + "?"
    shown = ", ".join(map(repr, list(names)[:12]))
    return f"there are: {shown}" + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def read_table(
    source: Any,
    *,
    missing: Collection[str] | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Table:
    """Read any table.

    Parameters
    ----------
    source : table
        A 2-D or structured NumPy array; a mapping of names to columns; a list
        of mappings (rows); a list of rows of cells; a pandas, polars or Arrow
        table, or any dataframe supported by narwhals; the path of a ``.csv``,
        ``.tsv`` or ``.jsonl`` (also ``.gz``), ``.parquet``, ``.feather`` or ``.arrow`` file;
        a `Table`.
    missing : collection of str, optional
        Texts that mean missing, compared without surrounding white space; default:
        `treekit.data.schema.MISSING_MARKS`, and in columns of numbers `NUMBER_MARKS`.
    decimal, thousands : str, optional
        Notation of numbers in text: the decimal mark, by default a point, and the mark
        between groups of digits, by default "" (none).
    progress : callable, optional
        ``progress(done, total)`` in bytes, for a large file.

    Returns
    -------
    Table
        A `Table` is returned as it is, but for the arguments that are given.

    Raises
    ------
    DataError
        If the source is not a usable table; the message gives the reason and a remedy.
    """
    if isinstance(missing, str):
        raise DataError(
            f"missing_marks must be a list of texts, got {missing!r}; write [{missing!r}]"
        )
    known = source.format if isinstance(source, Table) else TextFormat()
    how = TextFormat(
        known.marks if missing is None else frozenset(missing),
        known.decimal if decimal is None else decimal,
        known.thousands if thousands is None else thousands,
    )
    if isinstance(source, Table):
        return source if how == known else replace(source, format=how)
    return replace(_read_source(source, how, progress), format=how)


def is_dataframe(source: Any) -> bool:
    """Check for a dataframe of any library, which is imported only to check other objects."""
    if isinstance(source, (np.ndarray, list, tuple)):
        return False
    from narwhals.stable.v2.dependencies import is_into_dataframe

    return bool(is_into_dataframe(source))


def is_dask_collection(source: Any) -> bool:
    """Check whether a table is divided into partitions that Dask computes."""
    return hasattr(source, "__dask_graph__")


def _read_source(
    source: Any, how: TextFormat, progress: Callable[[int, int], None] | None
) -> Table:
    if is_dask_collection(source):
        raise DataError(
            "expected a table in memory, got a Dask collection; pass table.compute() (only "
            "train, predict and predict_proba accept Dask collections)"
        )
    if isinstance(source, (str, os.PathLike)):
        return read_file(source, how, progress)
    if isinstance(source, np.ndarray):
        return _read_array(source)
    if isinstance(source, Mapping):
        return _read_columns(source, (convert_to_cells(str(k), v) for k, v in source.items()))
    if isinstance(source, (list, tuple)):
        return _read_rows(source)

    table = read_frame(source)
    if table is not None:
        return table
    if is_sparse(source):
        if 0 in source.shape or len(source.shape) != 2:
            raise DataError(f"a sparse matrix of shape {source.shape} is not a table")
        names = tuple(f"x{j}" for j in range(source.shape[1]))
        return Table(names, SparseColumns(source), named=False)
    if hasattr(source, "__array__"):
        return _read_array(np.asarray(source))
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
    """Make a table: check names and lengths, and tidy the columns.

    Parameters
    ----------
    names : iterable
        Column names of any type, converted to text.
    columns : iterable of (rows,) arrays
    untyped : bool
        The source is untyped: text may be numbers.
    """
    texts = check_column_names(names)
    cells, guessed = [], set()
    for name, column in zip(texts, columns, strict=True):
        if column.ndim != 1:
            raise DataError(
                f"column {name!r} has shape {column.shape}; a column needs one cell per row"
            )
        tidied, guess = tidy_column(name, column)
        cells.append(tidied)
        if guess or (untyped and is_text(tidied)):
            guessed.add(name)
    for name, column in zip(texts, cells, strict=True):
        if len(column) != len(cells[0]):
            raise DataError(
                f"column {name!r} has {len(column)} rows but {texts[0]!r} has "
                f"{len(cells[0])}; all columns need the same length"
            )
    return Table(texts, tuple(cells), dict(levels or {}), frozenset(guessed), named)


def check_column_names(names: Iterable[Any]) -> tuple[str, ...]:
    """Convert column names to text; raise `DataError` for no names, and empty or repeated ones."""
    texts = tuple(str(name) for name in names)
    if not texts:
        raise DataError("the table has no columns; it needs at least one")
    for position, name in enumerate(texts, 1):
        if not name:
            raise DataError(
                f"the name of column {position} is empty; name it, or write the file without its "
                "row index (pandas: index=False)"
            )
        if not name.strip():
            raise DataError(
                f"the name of column {position} is {name!r}, only white space; rename it"
            )
    if (twice := find_repeated(texts)) is not None:
        raise DataError(f"column name {twice!r} appears twice; rename one of them")
    return texts


def _read_array(array: npt.NDArray[Any]) -> Table:
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
    # An array has no types of columns: text may be numbers, whatever type of array holds it.
    return make_table(names, array.T, named=False, untyped=array.dtype.kind in "OUT")


def _read_columns(names: Iterable[Any], columns: Iterable[tuple[Cells, Declared]]) -> Table:
    """Make a table of columns whose types may declare categories."""
    named = [(str(name), *column) for name, column in zip(names, columns, strict=True)]
    levels = {name: declared for name, _, declared in named if declared is not None}
    return make_table([own[0] for own in named], [own[1] for own in named], levels=levels)


def _read_rows(source: Sequence[Any]) -> Table:
    if not source:
        raise DataError("the table has no rows; it needs at least one")
    if all(isinstance(row, Mapping) for row in source):
        names = list(dict.fromkeys(name for row in source for name in row))
        return make_table(
            names, [make_object_array([row.get(name) for row in source]) for name in names]
        )
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
    columns = map(make_object_array, zip(*source, strict=True))
    return make_table(names, columns, named=False, untyped=True)


# ---------------------------------------------------------------- dataframes
# Dataframes and series of any library, through narwhals, which is imported only for sources
# that are not arrays, dicts, lists or paths.

Declared = tuple[Any, ...] | None
"""The categories that a column's type declares, in order, else None."""

_SMALL_FRAME = 1 << 18
"""Number of cells up to which a copy of a frame is cheaper than access by columns."""


def read_frame(source: Any) -> Table | None:
    """Convert a dataframe to a table; return None if `source` is not a dataframe.

    A lazy frame is collected.  Objects that only support the Arrow PyCapsule interface are
    read through pyarrow.
    """
    import narwhals.stable.v2 as nw
    from narwhals.exceptions import DuplicateError

    try:
        frame = nw.from_native(source, pass_through=True, allow_series=True)
        if isinstance(frame, nw.LazyFrame):
            frame = frame.collect()
        if isinstance(frame, nw.DataFrame):
            return _read_columns(frame.columns, _convert_frame(frame))
    except DuplicateError as error:
        names = [str(name) for name in getattr(source, "column_names", source.columns)]
        twice = find_repeated(names) or "?"
        raise DataError(f"column name {twice!r} appears twice; rename one of them") from error
    if isinstance(frame, nw.Series):
        raise DataError(
            f"a single column ({type(source).__name__}) is not a table; "
            "pass a table with named columns, such as {'name': column}"
        )
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        return read_arrow_table(source)
    return None


def _convert_frame(frame: Any) -> list[tuple[npt.NDArray[Any], Declared]]:
    """Convert each column; in a small frame, all numbers of one type together."""
    found: dict[str, tuple[npt.NDArray[Any], Declared]] = {}
    names = frame.columns
    if len(frame) * len(names) <= _SMALL_FRAME:
        alike: dict[Any, list[str]] = {}
        for name, dtype in frame.schema.items():
            if dtype.is_numeric() and not dtype.is_decimal():
                alike.setdefault(dtype, []).append(name)
        for dtype, own in alike.items():
            block = (frame if len(own) == len(names) else frame.select(own)).to_numpy()
            # Integers beside missing cells would be rounded to floats.
            if block.dtype.kind == "f" if dtype.is_float() else block.dtype.kind in "iu":
                cells = ((column, None) for column in block.T)
                found.update(zip(own, cells, strict=True))
    return [found[name] if name in found else _convert_series(frame[name]) for name in names]


def read_arrow_table(source: Any) -> Table:
    """Convert anything supported by ``pyarrow.table`` to a table."""
    import narwhals.stable.v2 as nw
    import pyarrow as pa

    frame = nw.from_native(pa.table(source), eager_only=True)
    return _read_columns(frame.columns, _convert_frame(frame))


def convert_to_cells(name: str, values: Any) -> tuple[npt.NDArray[Any], Declared]:
    """Convert an array, a list, or a series of any library to cells and declared categories."""
    if isinstance(values, np.ndarray):
        return values, list_intervals(values.ravel()) if values.dtype.kind == "O" else None
    if isinstance(values, (list, tuple, range)):
        return make_object_array(values), list_intervals(values)
    import narwhals.stable.v2 as nw

    series = nw.from_native(values, pass_through=True, allow_series=True)
    if isinstance(series, nw.Series):
        return _convert_series(series)
    if type(values).__module__.startswith("pyarrow"):  # narwhals supports ChunkedArray only
        import pyarrow as pa

        return _convert_series(nw.from_native(pa.chunked_array([values]), series_only=True))
    if hasattr(values, "codes") and hasattr(values, "categories"):  # pandas, without its Series
        return _decode_categories(values.codes, values.categories), tuple(values.categories)
    if hasattr(values, "__array__"):
        return convert_to_cells(name, np.asarray(values))
    if isinstance(values, Sequence) and not isinstance(values, (str, bytes)):
        return make_object_array(values), None
    raise DataError(
        f"column {name!r} is a {type(values).__name__}; a column must be an array or a list "
        "of cells (for one row, pass a list with one dict)"
    )


def _convert_series(series: Any) -> tuple[npt.NDArray[Any], Declared]:
    import narwhals.stable.v2 as nw

    dtype = series.dtype
    if isinstance(dtype, (nw.Categorical, nw.Enum)):
        native = series.to_native()
        if series.implementation.is_pandas_like():
            if not hasattr(native.dtype, "categories"):  # a dictionary of Arrow
                return convert_to_cells(series.name, native.array.__arrow_array__())
            # As a list, bools and integers would be floats beside a missing cell.
            categories = native.cat.categories
            return _decode_categories(native.cat.codes, categories), tuple(categories.tolist())
        values = series.to_list()
        return make_object_array(values), _get_declared_levels(series, values)
    if dtype.is_decimal():
        series = series.cast(nw.Float64)
        dtype = series.dtype
    if dtype.is_float():
        return np.asarray(series.to_numpy()), None
    if len(series) and series.null_count() == len(series):
        return np.full(len(series), np.nan), None
    if dtype.is_numeric():
        numbers = np.asarray(series.to_numpy())
        if numbers.dtype.kind == "f" and (np.abs(numbers) >= 2.0**53).any():
            return make_object_array(series.to_list()), None  # beside missing cells: rounded
        return numbers, None
    if isinstance(dtype, (nw.Datetime, nw.Date, nw.Time)):
        return np.empty(0, dtype="datetime64[s]"), None  # rejected later, naming the column
    if isinstance(dtype, nw.Duration):
        return np.empty(0, dtype="timedelta64[s]"), None
    return convert_to_cells(series.name, series.to_list())


def _decode_categories(codes: Any, categories: Any) -> npt.NDArray[Any]:
    """Return the category of each code, None for -1."""
    cells: npt.NDArray[Any] = make_object_array([*categories.tolist(), None])[np.asarray(codes)]
    return cells


def _get_declared_levels(series: Any, values: list[Any]) -> tuple[Any, ...]:
    """Return the categories in declared order, or in `sort_naturally` if the type declares none.

    Polars enums and ordered Arrow dictionaries declare an order.
    """
    import narwhals.stable.v2 as nw

    if isinstance(series.dtype, nw.Enum) or nw.is_ordered_categorical(series):
        return tuple(series.cat.get_categories().to_list())
    found = {value for value in values if value is not None}
    return tuple(
        sort_naturally(found) if is_text(make_object_array(list(found))) else sorted(found)
    )


# ---------------------------------------------------------------- files

LARGE = 1 << 25
"""Size (bytes of CSV, cells of Arrow files) above which columns are not kept in memory."""

_SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_JSON_LINES = (".jsonl", ".ndjson")
_ARROW_FORMATS = {
    ".parquet": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
    ".ipc": "feather",
}


def names_many_files(source: str | os.PathLike[str]) -> bool:
    """Check for a folder, a URL, or a pattern such as ``rows/*.parquet``."""
    text = os.fspath(source)
    if not text or Path(text).is_file():
        return False
    return "://" in text or Path(text).is_dir() or any(mark in text for mark in "*?[")


def read_file(
    source: str | os.PathLike[str],
    how: TextFormat,
    progress: Callable[[int, int], None] | None = None,
) -> Table:
    """Read a file by its suffix, with pyarrow.

    ``.csv`` (commas) and ``.tsv`` or ``.tab`` (tabs), also with ``.gz``: UTF-8 with or
    without a byte order mark, a header line, quotes as in RFC 4180.  Blank lines are
    skipped (in a file of one column they are missing cells); a first line such as ``sep=;``
    sets the separator.  ``.jsonl`` and ``.ndjson``, also with ``.gz``: a JSON object per row,
    where an absent key is a missing cell.  The columns of a large CSV file are stored in an
    unnamed temporary file (in ``TMPDIR``, for the life of the table) and read from it one at a
    time, those of a large ``.parquet``, ``.feather``, ``.arrow`` or ``.ipc`` file from the file
    itself.

    Parameters
    ----------
    how : TextFormat
        Marks of missing values and notation of numbers.
    progress : callable, optional
        ``progress(done, total)`` while a large CSV file is read.
    """
    if names_many_files(source):
        raise DataError(
            f"{os.fspath(source)!r} names several files or a URL, which are read only by train, "
            "predict, evaluate and verify with a cluster (--cluster local:2 for this machine; in "
            "Python, train(..., cluster='local:2')); add it, or give one file"
        )
    path = Path(source)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    ending = (suffixes[:-1] if packed else suffixes)[-1:] or [""]
    as_text = ending[0] in (*_SEPARATORS, *_JSON_LINES)
    if not as_text and (packed or ending[0] not in _ARROW_FORMATS):
        known = ", ".join([*_SEPARATORS, ".csv.gz", *_JSON_LINES, *_ARROW_FORMATS])
        raise DataError(f"unknown file suffix of {path.name!r}; known: {known}")
    if not path.is_file():
        raise DataError(f"there is no file {os.fspath(source)!r}; check the path")
    if ending[0] in _ARROW_FORMATS:
        from treekit.data.arrow_files import read_arrow_file

        return read_arrow_file(path, _ARROW_FORMATS[ending[0]])
    if ending[0] in _JSON_LINES:
        from treekit.data.json_lines import read_json_rows

        return _read_rows(read_json_rows(path, packed=packed))
    from treekit.data.csv_files import read_csv_file  # makes a `Table`

    return read_csv_file(path, _SEPARATORS[ending[0]], packed, how, progress)
