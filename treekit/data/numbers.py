"""Numeric columns: cells to doubles, and the choice of the input type."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from treekit.data.cells import is_text, parse_numbers
from treekit.data.schema import Dtype
from treekit.data.table import Table
from treekit.errors import DataError, SettingError, TreekitWarning

__all__ = [
    "InputType",
    "Loss",
    "check_input_type",
    "choose_dtype",
    "loss_of",
    "numeric_cells",
    "round_to",
    "warn_if_merged",
]

Floats: TypeAlias = npt.NDArray[Any]
"""float32 or float64."""

InputType: TypeAlias = Literal["auto", "float32", "float64"]
Loss: TypeAlias = Literal["values", "range"] | None
"""What a column would lose as float32: nothing, values apart, or its range."""

_PART = 1 << 18
"""Rows that are looked at together."""

_SAMPLE = 1 << 11
"""Rows that tell whether a column seems to hold few different numbers."""


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
            f"column {name!r} is numeric but row {table.first_row + row} (counting from 0) holds "
            f"{cells[row]!r}; correct the cell, or add its text to the marks of missing values"
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
            stacklevel=6,
        )


def round_to(values: npt.NDArray[Any], dtype: Dtype) -> Floats:
    """Numbers rounded to the input type; to a double first, as all artifacts do.

    A float array of that type is returned as it is, not copied.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if values.dtype.kind != "f" or values.dtype.itemsize > 8:
            values = values.astype(np.float64)
        return values.astype(dtype, copy=False)


def loss_of(column: Floats) -> Loss:
    """What rounding a finite numeric column (NaN = missing) to float32 would lose.

    ``"range"`` if a number is beyond float32.  ``"values"`` if values that a
    split could need become one: further apart than a millionth of the column's
    range, or more than half of the distinct values.  A few neighbours always
    merge in a long column of real numbers (84 of 100,000 normal ones); no
    split misses those, and they must not force float64.
    """
    if column.dtype == np.float32 or _is_float32(column):
        return None
    least, most = float(np.fmin.reduce(column)), float(np.fmax.reduce(column))
    if not np.isfinite(round_to(np.array([least, most]), "float32")).all():
        return "range"
    # Two numbers of one float32 are no further apart than floats are at the largest.
    apart = max(max(-least, most) * 2.0**-23, 2.0**-149)
    if apart < 0.99e-6 * (most - least) and _has_many_floats(column):
        return None
    return "values" if _merges(_distinct(column)) else None


def _is_float32(column: Floats) -> bool:
    rounded = round_to(column, "float32")
    return bool(((rounded == column) | (column != column)).all())


def _has_many_floats(column: Floats) -> bool:
    """Tell, surely, that the column holds half as many different float32 as known numbers.

    The slots of a hash table that are taken are never more than the different
    numbers; slots are multiples of an odd constant (Knuth 1973, section 6.4).
    """
    if len(column) > 2 * _SAMPLE and not _has_many_floats(column[:_SAMPLE]):
        return False  # most likely no: the other way of telling is quick then
    shift = 32 - min(max(2 * len(column), 16).bit_length(), 28)
    taken = np.zeros(1 << (32 - shift), dtype=np.bool_)
    for part in _parts(column):
        bits = round_to(part, "float32").view(np.uint32)
        taken[(bits * np.uint32(2654435769)) >> np.uint32(shift)] = True
    return bool(2 * (np.count_nonzero(taken) - 1) >= len(column))


def _distinct(column: Floats) -> npt.NDArray[np.float64]:
    """The column's different known numbers, some of them more than once; ascending."""
    owner = np.full(1 << 14, np.nan)
    shift = np.uint64(64 - 14)
    found = [owner]
    for part in _parts(column):
        slots = ((part + 0.0).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> shift
        free = np.isnan(owner[slots])
        owner[slots[free]] = part[free]
        found.append(part[owner[slots] != part])
    numbers = np.concatenate(found)
    numbers.sort()
    return numbers[: len(numbers) - int(np.isnan(numbers).sum())]


def _merges(ordered: npt.NDArray[np.float64]) -> bool:
    """Tell whether ascending numbers need float64; see `loss_of`."""
    extent = ordered[-1] / 2 - ordered[0] / 2
    widest, n_merged, n_distinct = 0.0, 0, 0
    for first in range(0, len(ordered) - 1, _PART):
        part = ordered[first : first + _PART + 1]
        low = round_to(part, "float32")
        gaps = part[1:] / 2 - part[:-1] / 2  # halves: the range may overflow
        merged = (gaps > 0) & (low[1:] == low[:-1])
        widest = max(widest, float(gaps[merged].max(initial=0.0)))
        n_merged += int(np.count_nonzero(merged))
        n_distinct += int(np.count_nonzero(gaps))
    return n_merged > 0 and bool(widest > extent * 1e-6 or 2 * n_merged > n_distinct + 1)


def _parts(column: Floats) -> Iterator[npt.NDArray[np.float64]]:
    """The column in stretches whose copies stay small."""
    for first in range(0, len(column), _PART):
        yield np.ascontiguousarray(column[first : first + _PART])


def choose_dtype(losses: Mapping[str, Loss], dtype: InputType) -> Dtype:
    """The input type for numeric columns that would lose so much by float32.

    ``auto`` takes float32 unless a column would lose by it; ``float32`` then
    warns and names the column.
    """
    check_input_type(dtype)
    if dtype == "float64":
        return "float64"
    for name, loss in losses.items():
        if loss is None:
            continue
        if dtype == "auto":
            return "float64"
        if loss == "range":
            raise DataError(
                f"column {name!r} holds numbers beyond the largest float32; use dtype='float64'"
            )
        warnings.warn(
            f"rounding column {name!r} to float32 merges values that differ; dtype='auto' or "
            "'float64' keeps them apart, or subtract a constant from the column",
            TreekitWarning,
            stacklevel=5,
        )
    return "float32"


def check_input_type(dtype: InputType) -> None:
    """Refuse what is no input type; a `SettingError` for it."""
    if dtype not in ("auto", "float32", "float64"):
        raise SettingError(f"unknown input type {dtype!r}; known: auto, float32, float64")
