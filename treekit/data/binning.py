"""Encode columns as small integer codes for growth.

Each column is sorted once.  Exact coding gives every distinct value a code; histogram
coding uses at most 255 codes per numeric column, at quantiles.  All trees, threads and
folds of a training share one matrix of codes.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.cells import Columns
from treekit.data.out_of_core import allocate_code_matrix
from treekit.kernels.feature_codes import (
    DIGIT_VALUES,
    assign_bins,
    assign_ranks,
    find_bin_starts,
    rank_columns,
    sort_keys,
)
from treekit.kernels.random_splits import MISSING_KEY
from treekit.kernels.records import Table

# ---------------------------------------------------------------- codes

Coding = Literal["exact", "histogram"]
NominalSplits = Literal["subset", "multiway", "one_vs_rest"]
NOMINAL_CODES: dict[NominalSplits, int] = {"subset": 1, "multiway": 2, "one_vs_rest": 3}
"""Values of `Table.nominal` for each way to split a nominal column."""

MAX_BINS = 255
"""Maximum number of codes of a numeric column in histogram coding; one more means missing."""


def encode_columns(
    columns: Columns,
    n_levels: npt.NDArray[np.int64],
    nominal: npt.NDArray[np.bool_],
    coding: Coding | Literal["keys"],
    *,
    nominal_splits: NominalSplits = "subset",
    max_bins: int = MAX_BINS,
    weights: npt.NDArray[np.float64] | None = None,
    n_rows: int | None = None,
    n_jobs: int | None = 1,
) -> Table:
    """Encode the training columns.

    Parameters
    ----------
    columns : sequence of (rows,) arrays
        Numeric: float32 or float64, NaN = missing.  Nominal: int32 codes, -1 = missing.
        Each is accessed once and released when it is coded; a (features, rows) array of
        numbers is coded at once.
    n_levels : (features,) int64
        Numbers of categories of nominal columns.
    nominal : (features,) bool
    coding : {"exact", "histogram", "keys"}
        ``keys``: `encode_keys` of the numeric columns of a float32 model.
    nominal_splits : {"subset", "multiway", "one_vs_rest"}
        How nominal columns are split: in two sets, in one branch per category, or in
        one category against the rest.
    max_bins : int
        Histogram coding: maximum codes per numeric column, 2 to 255.
    weights : (rows,) float64, optional
        Quantiles are weighted; values of rows of weight zero have no code of their own.
    n_rows : int, optional
        Number of rows; avoids loading a column to find its length.
    n_jobs : int or None
        Number of joblib threads, each coding one column at a time.

    Returns
    -------
    Table
        Cost: one radix sort per numeric column; memory of one code per cell and of the
        keys of one column per thread.  Exact codes of more than 255 rows are created with
        four bytes, and narrowed to one byte if no column has more than 255 values.  Keys
        cost a pass over the cells; ``n_codes`` of their columns is `MISSING_KEY`, which
        means missing, and they have no `low` and `high`.
    """
    if coding == "exact" and weights is None and isinstance(columns, np.ndarray):
        return _rank_matrix(columns)
    n_rows = len(columns[0]) if n_rows is None else n_rows
    numeric_most = {"histogram": max_bins, "exact": n_rows, "keys": int(MISSING_KEY)}[coding]
    bounds = np.where(nominal, n_levels, numeric_most)
    codes = allocate_code_matrix((len(bounds), n_rows), choose_code_type(int(bounds.max())))

    def code_column(f: int) -> _ColumnCodes:
        column, row = columns[f], codes[f]
        if nominal[f]:
            np.copyto(row, column, casting="unsafe")
            row[column < 0] = n_levels[f]
            return _ColumnCodes(int(n_levels[f]), np.empty(0), np.empty(0))
        if coding == "keys":
            row[:] = encode_keys(column)
            return _ColumnCodes(int(MISSING_KEY), np.empty(0), np.empty(0))
        return _encode_numeric(column, weights, max_bins if coding == "histogram" else None, row)

    if n_jobs in (None, 1):
        coded = list(map(code_column, range(len(bounds))))
    else:
        from joblib import Parallel, delayed

        tasks = map(delayed(code_column), range(len(bounds)))
        coded = list(Parallel(n_jobs=n_jobs, require="sharedmem")(tasks))
    n_codes = np.array([each.n_codes for each in coded], dtype=np.int64)
    dtype = choose_code_type(int(n_codes.max()))
    if dtype != codes.dtype:
        wide, codes = codes, allocate_code_matrix(codes.shape, dtype)
        codes[:] = wide
    sizes = np.array([len(each.low) for each in coded], dtype=np.int64)
    low = np.concatenate([np.empty(0), *(each.low for each in coded)])
    if coding == "exact":
        high = low
    else:
        high = np.concatenate([np.empty(0), *(each.high for each in coded)])
    return Table(
        codes=codes,
        n_codes=n_codes.astype(np.uint32),
        nominal=np.where(nominal, NOMINAL_CODES[nominal_splits], 0).astype(np.uint8),
        value_start=np.cumsum(sizes) - sizes,
        low=low,
        high=high,
    )


def _rank_matrix(columns: npt.NDArray[Any]) -> Table:
    """Encode numeric columns (features, rows) with a code for every distinct value."""
    n_features, n_rows = columns.shape
    form, bits, _ = view_bits(columns, None)
    codes = np.empty((n_features, n_rows), choose_code_type(n_rows))
    sizes, values = np.empty(n_features, np.int64), np.empty(n_features * n_rows, form.unsigned)
    keys, rows = np.empty((2, n_rows), form.unsigned), np.empty((2, n_rows), np.uint32)
    counts = np.empty((form.digits, DIGIT_VALUES), np.uint32)
    n_values = rank_columns(
        bits, form.sign, form.infinity, keys, rows, counts, codes, sizes, values
    )
    low = form.decode_keys(values[:n_values])
    return Table(
        codes=codes.astype(choose_code_type(int(sizes.max())), copy=False),
        n_codes=sizes.astype(np.uint32),
        nominal=np.zeros(n_features, np.uint8),
        value_start=np.cumsum(sizes) - sizes,
        low=low,
        high=low,
    )


def choose_code_type(largest: int) -> type[np.unsignedinteger[Any]]:
    """Return the type of codes for `largest` values, not counting missing.

    There are only two types, since kernels are compiled for each; 16 bits were not faster.
    """
    return np.uint8 if largest <= 255 else np.uint32


class _ColumnCodes(NamedTuple):
    """The codes of a column: their number, and the smallest and largest value of each."""

    n_codes: int
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]


def _encode_numeric(
    column: npt.NDArray[Any],
    weights: npt.NDArray[np.float64] | None,
    max_bins: int | None,
    codes: npt.NDArray[Any],
) -> _ColumnCodes:
    """Fill the codes (rows,) of a numeric column: bins, or one per value if `max_bins` is None."""
    form, bits, own = view_bits(column, weights)
    keys, rows = _sort_known(bits, form, own, carried=max_bins is None or weights is not None)
    if len(keys) == 0:
        codes[:] = 0
        return _ColumnCodes(0, np.empty(0), np.empty(0))
    if max_bins is None:
        n_codes = assign_ranks(keys, rows, codes, keys)
        values = form.decode_keys(keys[:n_codes])
        if len(rows) < len(column):
            _encode_other_rows(column, weights, values.astype(column.dtype), codes)
        return _ColumnCodes(n_codes, values, values)
    total = float(len(keys) if weights is None else weights[rows].sum())
    room = np.empty((2, max_bins), np.int64)
    starts = find_bin_starts(keys, rows, own, total, room[0], room[1])
    ends = np.append(starts[1:], len(keys)) - 1
    high = np.full(MAX_BINS + 1, ~form.unsigned(0))
    high[: len(starts)] = keys[ends]
    assign_bins(bits, form.sign, form.infinity, high, len(starts), codes)
    return _ColumnCodes(len(starts), form.decode_keys(keys[starts]), form.decode_keys(keys[ends]))


def _encode_other_rows(
    column: npt.NDArray[Any],
    weights: npt.NDArray[np.float64] | None,
    values: npt.NDArray[Any],
    codes: npt.NDArray[Any],
) -> None:
    """Fill the codes of missing values, and of rows of weight zero."""
    if weights is not None:
        light = np.flatnonzero(~(weights > 0))
        codes[light] = np.minimum(np.searchsorted(values, column[light]), len(values) - 1)
    codes[column != column] = len(values)


def _sort_known(
    bits: npt.NDArray[Any],
    form: KeyFormat,
    weights: npt.NDArray[np.float64],
    *,
    carried: bool,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint32]]:
    """Sort the keys of known values of rows with weight, and (`carried`) their row numbers."""
    n = len(bits)
    keys = np.empty((2, n), form.unsigned)
    rows = np.empty((2, n if carried else 0), np.uint32)
    counts = np.empty((form.digits, DIGIT_VALUES), np.uint32)
    found: tuple[npt.NDArray[Any], npt.NDArray[np.uint32]] = sort_keys(
        bits, form.sign, form.infinity, weights, keys[0], rows[0], keys[1], rows[1], counts
    )
    return found


def view_bits(
    column: npt.NDArray[Any], weights: npt.NDArray[np.float64] | None
) -> tuple[KeyFormat, npt.NDArray[Any], npt.NDArray[np.float64]]:
    """Return the key format and bits (rows,) of a column, and the weights, empty if None."""
    form = KEY_FORMATS[column.dtype.str]
    bits = make_read_only(np.ascontiguousarray(column).view(form.unsigned))
    return form, bits, make_read_only(np.empty(0) if weights is None else weights.view())


def make_read_only(view: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Make a view read-only, so that kernels need not be compiled for writeable arrays also."""
    view.flags.writeable = False
    return view


class KeyFormat(NamedTuple):
    """The conversion of floats of one width to keys; see `treekit.kernels.feature_codes`."""

    unsigned: Any
    float: Any
    digits: int
    sign: np.uint64
    infinity: np.uint64

    def decode_keys(self, keys: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Convert keys back to values."""
        sign = self.unsigned(self.sign)
        bits = np.where(keys & sign, keys ^ sign, ~keys)
        values: npt.NDArray[np.float64] = bits.view(self.float).astype(np.float64)
        return values


KEY_FORMATS = {
    np.dtype(np.float32).str: KeyFormat(
        np.uint32, np.float32, 3, np.uint64(1 << 31), np.uint64(0x7F800000)
    ),
    np.dtype(np.float64).str: KeyFormat(
        np.uint64, np.float64, 6, np.uint64(1 << 63), np.uint64(0x7FF << 52)
    ),
}


# ---------------------------------------------------------------- keys
# Columns of float32 as order-preserving integers, for splitters that do not sort.
#
# A key encodes the value itself: it needs no sort to create, and no table of values to
# compare with an arbitrary threshold.

_SIGN_BIT = np.uint32(0x80000000)


def encode_keys(column: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """Convert float32 numbers to integers of the same order; NaN becomes `MISSING_KEY`.

    The bits of floats are ordered like integers, those of negative floats in reverse; 0.0
    and -0.0 are equal and have the same key.
    """
    bits = np.ascontiguousarray(column, dtype=np.float32).view(np.uint32)
    keys = np.where(bits > _SIGN_BIT, ~bits, bits | _SIGN_BIT)
    keys[column != column] = MISSING_KEY
    return keys
