"""Columns as small integer codes: what growing works on.

Each column is sorted once.  The exact coding gives every distinct value a
code; the histogram coding at most 255 codes a numeric column, at quantiles.
All trees, threads and folds of a training share the one matrix of codes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.out_of_core import matrix_room
from treekit.kernels.feature_codes import DIGITS, assign_bins, assign_ranks, bin_starts, sort_keys
from treekit.kernels.random_splits import KEYS
from treekit.kernels.records import Table

__all__ = [
    "MAX_BINS",
    "Coding",
    "NominalSplits",
    "keys_of",
    "make_key_table",
    "make_table",
]


# ---------------------------------------------------------------- matrix

Coding = Literal["exact", "histogram"]
NominalSplits = Literal["subset", "multiway", "one_vs_rest"]
WAYS: dict[NominalSplits, int] = {"subset": 1, "multiway": 2, "one_vs_rest": 3}
"""How `Table.nominal` names the ways to split a nominal column."""

MAX_BINS = 255
"""Codes of a numeric column in the histogram coding; one more means missing."""


def make_table(
    columns: Sequence[npt.NDArray[Any]],
    n_levels: npt.NDArray[np.int64],
    nominal: npt.NDArray[np.bool_],
    coding: Coding,
    *,
    nominal_splits: NominalSplits = "subset",
    max_bins: int = MAX_BINS,
    weights: npt.NDArray[np.float64] | None = None,
    n_rows: int | None = None,
    n_jobs: int | None = 1,
) -> Table:
    """Code the training columns.

    Parameters
    ----------
    columns : sequence of (rows,) arrays
        Numeric: float32 or float64, NaN = missing.  Nominal: int32 codes, -1 = missing.
        Each is asked for once, and let go when it is coded.
    n_levels : (features,) int64
        Vocabulary sizes of nominal columns.
    nominal : (features,) bool
    coding : {"exact", "histogram"}
    nominal_splits : {"subset", "multiway", "one_vs_rest"}
        How nominal columns split: in two sets, in one branch a level, or in
        one level against the rest.
    max_bins : int
        Histogram coding: codes a numeric column, 2 to 255.
    weights : (rows,) float64, optional
        Quantiles count weight; values of rows without weight shape no code.
    n_rows : int, optional
        Saves asking for a column to see its length.
    n_jobs : int or None
        joblib's threads; one column each at a time.

    Returns
    -------
    Table
        Cost: one radix sort a numeric column; memory one code a cell, and the
        keys of one column a thread.  Exact codes of more than 65,535 rows are
        made in four bytes and then, if a column has not so many values, narrowed.
    """
    n_rows = len(columns[0]) if n_rows is None else n_rows
    numeric_most = max_bins if coding == "histogram" else n_rows
    bounds = np.where(nominal, n_levels, numeric_most)
    codes = matrix_room((len(bounds), n_rows), _code_type(int(bounds.max())))

    def code(f: int) -> _Coded:
        column, row = columns[f], codes[f]
        if nominal[f]:
            np.copyto(row, column, casting="unsafe")
            row[column < 0] = n_levels[f]
            return _Coded(int(n_levels[f]), np.empty(0), np.empty(0))
        return _code_numbers(column, weights, max_bins if coding == "histogram" else None, row)

    coded = _each(code, len(bounds), n_jobs)
    n_codes = np.array([each.n_codes for each in coded], dtype=np.int64)
    dtype = _code_type(int(n_codes.max()))
    if dtype != codes.dtype:
        wide, codes = codes, matrix_room(codes.shape, dtype)
        codes[:] = wide
    numeric_sizes = np.where(nominal, 0, n_codes)
    return Table(
        codes=codes,
        n_codes=n_codes.astype(np.uint32),
        nominal=np.where(nominal, WAYS[nominal_splits], 0).astype(np.uint8),
        value_start=(np.cumsum(numeric_sizes) - numeric_sizes).astype(np.int64),
        low=np.concatenate([np.empty(0), *(each.low for each in coded)]),
        high=np.concatenate([np.empty(0), *(each.high for each in coded)]),
    )


def _each(code: Callable[[int], _Coded], n_columns: int, n_jobs: int | None) -> list[_Coded]:
    """``code(f)`` of each column, by threads."""
    if n_jobs in (None, 1):
        return list(map(code, range(n_columns)))
    from joblib import Parallel, delayed

    return list(Parallel(n_jobs=n_jobs, prefer="threads")(map(delayed(code), range(n_columns))))


def _code_type(largest: int) -> type[np.unsignedinteger[Any]]:
    """Type of codes of so many values, missing not counted.

    Two types, since each is a compilation of its own; 16 bits trained no faster.
    """
    return np.uint8 if largest <= 255 else np.uint32


class _Coded(NamedTuple):
    """What codes of a column mean: how many there are, their smallest and largest values."""

    n_codes: int
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]


def _code_numbers(
    column: npt.NDArray[Any],
    weights: npt.NDArray[np.float64] | None,
    max_bins: int | None,
    codes: npt.NDArray[Any],
) -> _Coded:
    """Fill the codes (rows,) of a numeric column: in bins, or one for each value (None)."""
    form = _FORMS[column.dtype.str]
    bits = _read_only(np.ascontiguousarray(column).view(form.unsigned))
    own = _read_only(np.empty(0) if weights is None else weights.view())
    keys, rows = _sorted(bits, form, own, carried=max_bins is None or weights is not None)
    if len(keys) == 0:
        codes[:] = 0
        return _Coded(0, np.empty(0), np.empty(0))
    if max_bins is None:
        n_codes = assign_ranks(keys, rows, codes, keys)
        values = form.floats(keys[:n_codes])
        if len(rows) < len(column):
            _code_the_rest(column, weights, values.astype(column.dtype), codes)
        return _Coded(n_codes, values, values)
    total = float(len(keys) if weights is None else weights[rows].sum())
    room = np.empty((2, max_bins), np.int64)
    starts = bin_starts(keys, rows, own, total, room[0], room[1])
    ends = np.append(starts[1:], len(keys)) - 1
    high = np.full(MAX_BINS + 1, ~form.unsigned(0))
    high[: len(starts)] = keys[ends]
    assign_bins(bits, form.sign, form.infinity, high, len(starts), codes)
    return _Coded(len(starts), form.floats(keys[starts]), form.floats(keys[ends]))


def _code_the_rest(
    column: npt.NDArray[Any],
    weights: npt.NDArray[np.float64] | None,
    values: npt.NDArray[Any],
    codes: npt.NDArray[Any],
) -> None:
    """Codes of missing rows, and of rows without weight, which shaped no code."""
    if weights is not None:
        light = np.flatnonzero(~(weights > 0))
        codes[light] = np.minimum(np.searchsorted(values, column[light]), len(values) - 1)
    codes[column != column] = len(values)


def _sorted(
    bits: npt.NDArray[Any],
    form: _Form,
    weights: npt.NDArray[np.float64],
    *,
    carried: bool,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint32]]:
    """Keys of known values of rows with weight, ascending, and (`carried`) their rows."""
    n = len(bits)
    keys = np.empty((2, n), form.unsigned)
    rows = np.empty((2, n if carried else 0), np.uint32)
    counts = np.empty((form.digits, DIGITS), np.uint32)
    found: tuple[npt.NDArray[Any], npt.NDArray[np.uint32]] = sort_keys(
        bits, form.sign, form.infinity, weights, keys[0], rows[0], keys[1], rows[1], counts
    )
    return found


def _read_only(view: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The view, read only as a caller's array may be: kernels are compiled for one kind."""
    view.flags.writeable = False
    return view


class _Form(NamedTuple):
    """How floats of a width are keys; see `treekit.kernels.feature_codes`."""

    unsigned: Any
    float: Any
    digits: int
    sign: np.uint64
    infinity: np.uint64

    def floats(self, keys: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """What keys are keys of."""
        sign = self.unsigned(self.sign)
        bits = np.where(keys & sign, keys ^ sign, ~keys)
        values: npt.NDArray[np.float64] = bits.view(self.float).astype(np.float64)
        return values


_FORMS = {
    np.dtype(np.float32).str: _Form(
        np.uint32, np.float32, 3, np.uint64(1 << 31), np.uint64(0x7F800000)
    ),
    np.dtype(np.float64).str: _Form(
        np.uint64, np.float64, 6, np.uint64(1 << 63), np.uint64(0x7FF << 52)
    ),
}


# ---------------------------------------------------------------- keys
# Columns of float32 as order-preserving integers, for splitters that sort nothing.
#
# A key is a code that says its value itself: it costs no sort to make, and no
# look-up of the value to compare with a threshold that lies anywhere.

_TOP = np.uint32(0x80000000)


def make_key_table(
    columns: Sequence[npt.NDArray[Any]],
    n_levels: npt.NDArray[np.int64],
    nominal: npt.NDArray[np.bool_],
    *,
    nominal_splits: NominalSplits = "subset",
    n_rows: int | None = None,
) -> Table:
    """Code the training columns of a float32 model by `keys_of`, the nominal ones as ever.

    Parameters are those of `treekit.data.binning.make_table`.

    Returns
    -------
    Table
        uint32 codes; ``n_codes`` of a numeric column is `KEYS`, which means
        missing, and `low` and `high` are empty.  Cost: a pass over the cells.
    """
    n_rows = len(columns[0]) if n_rows is None else n_rows
    codes = matrix_room((len(columns), n_rows), np.uint32)
    for f in range(len(columns)):
        column = columns[f]
        if nominal[f]:
            codes[f] = np.where(column < 0, n_levels[f], column)
        else:
            codes[f] = keys_of(column)
    return Table(
        codes=codes,
        n_codes=np.where(nominal, n_levels, int(KEYS)).astype(np.uint32),
        nominal=np.where(nominal, WAYS[nominal_splits], 0).astype(np.uint8),
        value_start=np.zeros(len(columns), dtype=np.int64),
        low=np.empty(0),
        high=np.empty(0),
    )


def keys_of(column: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """Integers that order as the float32 numbers of a column do; NaN is `KEYS`.

    The bits of a float order as integers do, those of the negative ones
    backwards; 0.0 and -0.0 are one number and have one key.
    """
    bits = np.ascontiguousarray(column, dtype=np.float32).view(np.uint32)
    keys = np.where(bits > _TOP, ~bits, bits | _TOP)
    keys[column != column] = KEYS
    return keys
