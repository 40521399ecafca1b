"""Numeric columns: cells to doubles, and the choice of the input type."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from treekit.data.cells import is_text, parse_numbers
from treekit.data.schema import Dtype
from treekit.data.table import Table
from treekit.errors import DataError, SettingError, TreekitWarning

__all__ = ["choose_dtype", "numeric_cells", "round_to", "warn_if_merged"]

Floats: TypeAlias = npt.NDArray[Any]
"""float32 or float64."""


def numeric_cells(table: Table, name: str) -> Floats:
    """Column `name` as numbers, NaN = missing.

    Decimal text is read as a double, bools as 0 and 1.

    Returns
    -------
    (rows,) float32 or float64
        float32 only if the source is.

    Raises
    ------
    DataError
        For a cell that is text and no number; names the first.
    """
    cells = table.column(name)
    if cells.dtype.kind != "O":
        exact = cells.dtype in (np.float32, np.float64)
        return cells if exact else cells.astype(np.float64)
    if not is_text(cells):  # bools and None
        return np.array([np.nan if cell is None else float(cell) for cell in cells])
    numbers = parse_numbers(cells, table.missing)
    if numbers is None:
        rows = range(len(cells))
        row = next(i for i in rows if parse_numbers(cells[i : i + 1], table.missing) is None)
        raise DataError(
            f"column {name!r} is numeric but row {row} (counting from 0) holds {cells[row]!r}; "
            "correct the cell, or add its text to the marks of missing values"
        )
    return numbers.astype(np.float64, copy=False)


def warn_if_merged(table: Table, name: str) -> None:
    """Warn, naming the column, if distinct whole numbers become one double."""
    cells = table.column(name)
    if cells.dtype.kind not in "iu" or cells.dtype.itemsize < 8:
        return
    huge = np.unique(cells[(cells >= 2**53) | (cells <= -(2**53))])
    doubles = huge.astype(np.float64)
    merged = doubles[1:] == doubles[:-1]
    if merged.any():
        first = int(merged.argmax())
        warnings.warn(
            f"column {name!r} holds {huge[first]} and {huge[first + 1]}, which are one number as a "
            "double; subtract a constant from the column, or declare it nominal if it is a name",
            TreekitWarning,
            stacklevel=5,
        )


def round_to(values: npt.NDArray[Any], dtype: Dtype) -> Floats:
    """Numbers rounded to the input type; to a double first, as all artifacts do.

    A float array of that type is returned as it is, not copied.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if values.dtype.kind != "f" or values.dtype.itemsize > 8:
            values = values.astype(np.float64)
        return values.astype(dtype, copy=False)


def choose_dtype(
    names: Sequence[str], columns: Sequence[Floats], dtype: Literal["auto", "float32", "float64"]
) -> Dtype:
    """The input type for finite numeric training columns (NaN = missing).

    ``auto`` takes float32 unless `_needs_double` says that a column would lose
    by it; ``float32`` then warns and names the column.
    """
    if dtype == "float64":
        return "float64"
    if dtype not in ("auto", "float32"):
        raise SettingError(f"unknown input type {dtype!r}; known: auto, float32, float64")
    for name, column in zip(names, columns, strict=True):
        if column.dtype == np.float32 or not _needs_double(column):
            continue
        if dtype == "auto":
            return "float64"
        if np.nanmax(np.abs(column)) > np.finfo(np.float32).max:
            raise DataError(
                f"column {name!r} holds numbers beyond the largest float32; use dtype='float64'"
            )
        warnings.warn(
            f"rounding column {name!r} to float32 merges values that differ; dtype='auto' or "
            "'float64' keeps them apart, or subtract a constant from the column",
            TreekitWarning,
            stacklevel=4,
        )
    return "float32"


def _needs_double(column: Floats) -> bool:
    """Tell whether rounding to float32 would merge values that a split could need.

    True if it merges values further apart than a millionth of the column's
    range, or more than half of the distinct values, or overflows.  A few
    neighbours always merge in a long column of real numbers (84 of 100,000
    normal ones); no split misses those, and they must not force float64.
    """
    rounded = round_to(column, "float32")
    if np.array_equal(rounded.astype(np.float64), column, equal_nan=True):
        return False
    ordered = np.sort(column)
    ordered = ordered[: len(ordered) - int(np.isnan(ordered).sum())]
    low = round_to(ordered, "float32")
    if not np.isfinite(low[[0, -1]]).all():
        return True
    gaps = ordered[1:] / 2 - ordered[:-1] / 2  # halves: the range may overflow
    distinct = gaps > 0
    merged = distinct & (low[1:] == low[:-1])
    if not merged.any():
        return False
    extent = ordered[-1] / 2 - ordered[0] / 2
    far = gaps[merged].max() > extent * 1e-6
    return bool(far or 2 * np.count_nonzero(merged) > np.count_nonzero(distinct) + 1)
