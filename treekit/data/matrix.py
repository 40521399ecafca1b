"""Columns as small integer codes: what growing works on.

Each column is sorted once.  The exact coding gives every distinct value a
code; the histogram coding at most 255 codes a numeric column, at quantiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treekit.kernels.node import Table

__all__ = ["MAX_BINS", "Coding", "NominalSplits", "make_table"]

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
) -> Table:
    """Code the training columns.

    Parameters
    ----------
    columns : sequence of (rows,) arrays
        Numeric: float32 or float64, NaN = missing.  Nominal: int32 codes, -1 = missing.
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

    Returns
    -------
    Table
        Cost: one sort a numeric column; memory one code a cell.
    """
    n_rows = len(columns[0])
    coded: list[npt.NDArray[Any]] = []
    lows: list[npt.NDArray[np.float64]] = []
    highs: list[npt.NDArray[np.float64]] = []
    n_codes = np.array(n_levels, dtype=np.int64)
    for f, column in enumerate(columns):
        if nominal[f]:
            coded.append(np.where(column < 0, n_levels[f], column))
            continue
        low, high = _bins(column, max_bins if coding == "histogram" else n_rows + 1, weights)
        n_codes[f] = len(low)
        coded.append(_codes(column, high))
        lows.append(low)
        highs.append(high)
    largest = int(n_codes.max())
    dtype = np.uint8 if largest <= 255 else np.uint16 if largest <= 65535 else np.uint32
    codes = np.empty((len(columns), n_rows), dtype=dtype)
    for f, column in enumerate(coded):
        codes[f] = column
        coded[f] = codes[f]
    numeric_sizes = np.where(nominal, 0, n_codes)
    return Table(
        codes=codes,
        n_codes=n_codes.astype(np.uint32),
        nominal=np.where(nominal, WAYS[nominal_splits], 0).astype(np.uint8),
        value_start=(np.cumsum(numeric_sizes) - numeric_sizes).astype(np.int64),
        low=np.concatenate([*lows, np.empty(0)]),
        high=np.concatenate([*highs, np.empty(0)]),
    )


def _bins(
    column: npt.NDArray[Any], max_bins: int, weights: npt.NDArray[np.float64] | None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Smallest and largest training value of each code, ascending."""
    if weights is None:
        known = np.sort(column[column == column])
    else:
        counted = (column == column) & (weights > 0)
        order = np.argsort(column[counted])
        known, weights = column[counted][order], weights[counted][order]
    if len(known) == 0:
        return np.empty(0), np.empty(0)
    starts = np.flatnonzero(np.concatenate([[True], known[1:] != known[:-1]]))
    if len(starts) > max_bins:
        below = starts if weights is None else np.cumsum(weights)[starts] - weights[starts]
        total = float(len(known) if weights is None else weights.sum())
        starts = _quantile_starts(starts, below, total, max_bins)
    ends = np.concatenate([starts[1:], [len(known)]]) - 1
    return known[starts].astype(np.float64), known[ends].astype(np.float64)


def _quantile_starts(
    starts: npt.NDArray[np.int64], below: npt.NDArray[Any], total: float, max_bins: int
) -> npt.NDArray[np.int64]:
    """Where bins of about equal weight begin; equal values stay together.

    `below` is the weight of all rows before each of `starts`.
    """
    wanted = np.arange(1, max_bins) * (total / max_bins)
    at = np.searchsorted(below, wanted, side="left")
    chosen = starts[np.minimum(at, len(starts) - 1)]
    return np.unique(np.concatenate([[0], chosen]))


def _codes(column: npt.NDArray[Any], high: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Code of each value: the first code whose largest value is not below it; NaN last."""
    if len(high) == 0:
        return np.zeros(len(column), dtype=np.int64)
    codes = np.searchsorted(high.astype(column.dtype), column)
    # Rows without weight may lie above all that shaped the codes.
    return np.where(column != column, len(high), np.minimum(codes, len(high) - 1))
