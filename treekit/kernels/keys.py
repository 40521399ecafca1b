"""Rows as unsigned keys in the order of the numbers: what a walk compares.

Eight rows are one group.  A group holds a cell for each of its rows side by side,
so that one address serves eight walks: first eight zeros, which are what a leaf
asks, then two cells a column, the *right* one, whose missing value is the largest
key, and the *left* one, whose missing value is 0.  A node names the cell on whose
side missing values go, and a step down needs no test for them.

The left cell of a nominal column is 1 + its code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import kernel

__all__ = ["GROUP", "encode", "encode_row", "first_cell", "group_width"]

Array = npt.NDArray[Any]

GROUP = 8
"""Rows of a group, and places between two cells of one row."""


@kernel
def group_width(n_columns: Any) -> Any:
    """Keys of a group of rows of which `n_columns` are asked."""
    return np.uint64(GROUP) * (np.uint64(2) * np.uint64(n_columns) + np.uint64(1))


@kernel
def first_cell(row: Any, width: Any) -> Any:
    """Where the first cell (the zero) of a row is, in groups of `width` keys."""
    return (row // np.uint64(GROUP)) * width + row % np.uint64(GROUP)


@kernel
def encode(rows: Array, columns: Array, n_codes: Array, keys: Array) -> None:
    """Write the keys of some rows, a group after the other.

    Parameters
    ----------
    rows : (rows, features) float32 or float64
    columns : (columns,) uint64
        Which columns are asked.
    n_codes : (columns,) uint64
        Levels of their vocabularies, and one for missing; 0 for numeric columns.
    keys : (at least groups * group_width(columns),) uint32 or uint64, written
        As wide as the cells.  Rows that a last group lacks repeat the last row.
    """
    n, group = np.uint64(len(rows)), np.uint64(GROUP)
    width = group_width(len(columns))
    whole = n - n % group
    for start in range(np.uint64(0), whole, group):
        _encode_group(rows, start, columns, n_codes, keys, (start // group) * width)
    if whole < n:
        last = np.empty((group, np.uint64(rows.shape[1])), rows.dtype)
        for lane in range(group):
            last[lane] = rows[min(whole + lane, n - np.uint64(1))]
        _encode_group(last, np.uint64(0), columns, n_codes, keys, (whole // group) * width)


@kernel
def _encode_group(
    rows: Array, start: Any, columns: Array, n_codes: Array, keys: Array, at: Any
) -> None:
    word, group = keys.dtype.type, np.uint64(GROUP)
    missing = word(~word(0))
    top = word(missing - (missing >> np.uint64(1)))
    bits = rows.view(keys.dtype)
    for lane in range(group):
        keys[at + lane] = word(0)
    for i in range(np.uint64(len(columns))):
        f, right = columns[i], at + group * (np.uint64(2) * i + np.uint64(1))
        left = right + group
        if n_codes[i] == 0:
            for lane in range(group):
                b = bits[start + lane, f]
                # Floats order as integers do, the negative ones backwards; -0.0 is 0.0.
                key = word(~b) if b > top else word(b | top)
                known = rows[start + lane, f] == rows[start + lane, f]
                keys[right + lane] = key if known else missing
                keys[left + lane] = key if known else word(0)
        else:
            n_levels = n_codes[i] - np.uint64(1)
            for lane in range(group):
                cell = rows[start + lane, f]
                # Whatever is not a code of the vocabulary is missing.
                known = cell >= 0 and cell < n_levels and cell == np.floor(cell)
                code = word(cell) if known else missing
                keys[right + lane] = code
                keys[left + lane] = word(code + word(1))


@kernel
def encode_row(row: Array, columns: Array, n_codes: Array, keys: Array) -> None:
    """Write the keys of one row (features,), the first of a group that has no other."""
    word, group = keys.dtype.type, np.uint64(GROUP)
    missing = word(~word(0))
    top = word(missing - (missing >> np.uint64(1)))
    bits = row.view(keys.dtype)
    keys[np.uint64(0)] = word(0)
    for i in range(np.uint64(len(columns))):
        b, cell = bits[columns[i]], row[columns[i]]
        right = group * (np.uint64(2) * i + np.uint64(1))
        if n_codes[i] == 0:
            key = word(~b) if b > top else word(b | top)
            keys[right] = key if cell == cell else missing
            keys[right + group] = key if cell == cell else word(0)
        else:
            known = cell >= 0 and cell < n_codes[i] - np.uint64(1) and cell == np.floor(cell)
            code = word(cell) if known else missing
            keys[right] = code
            keys[right + group] = word(code + word(1))
