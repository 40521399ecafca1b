"""Running rules without their trees: which rules fit a row, and what they sum to.

A column's values fall into cells between the bounds that the rules name.  For
each cell a row of bits says which rules accept it; a row of data fits the
rules that every column's bits agree on (the bit vectors of Lakshman and
Stiliadis, 1998, "High-speed policy-based packet forwarding").  Nothing here
knows that the rules came from a tree: rules that overlap, or leave a gap, are
summed as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import DataError
from treekit.rules.rulelist import RuleList

__all__ = ["refused", "sums"]

Matrix = npt.NDArray[np.float64]
Cells = Callable[[Matrix], npt.NDArray[np.int64]]
Table = npt.NDArray[np.uint64]

# Bounded so that the bits of a block fit the cache: about 1 MB for the rows,
# as much for each column.
_RULES = 4096
_ROWS = 2048


def refused(rules: RuleList, rows: Any) -> npt.NDArray[np.bool_]:
    """(rows,) bool: a missing value or an unseen category where the policy is ``error``."""
    matrix = _matrix(rules.schema, rows)
    nominal, n_levels = rules.schema.nominal, rules.schema.n_levels
    absent = np.isnan(matrix)
    # Only whole numbers below the vocabulary's size are codes of levels.
    coded = (matrix >= 0) & (matrix < n_levels) & (matrix == np.floor(matrix))
    strange = nominal & ~coded & ~absent
    result = np.zeros(len(matrix), dtype=np.bool_)
    if rules.missing == "error":
        result |= absent.any(axis=1)
        if rules.unknown == "missing":
            result |= strange.any(axis=1)
    if rules.unknown == "error":
        result |= strange.any(axis=1)
    return result


def sums(rules: RuleList, rows: Any) -> npt.NDArray[np.int64]:
    """(rows, outputs) int64: see `RuleList.sums`."""
    matrix = _matrix(rules.schema, rows)
    if (stop := refused(rules, matrix)).any():
        raise DataError(
            f"row {int(np.argmax(stop))} has a missing value or an unseen category, which this "
            f"model refuses (missing: {rules.missing}, unknown: {rules.unknown}); fill or drop it"
        )
    result = np.zeros((len(matrix), rules.schema.n_values), dtype=np.int64)
    for first in range(0, len(rules), _RULES):
        last = min(first + _RULES, len(rules))
        columns = _columns(rules, first, last)
        for at in range(0, len(matrix), _ROWS):
            part = matrix[at : at + _ROWS]
            bits = _fitting(columns, part, last - first)
            _add_units(bits, rules.units[first:last], result[at : at + _ROWS])
    return result


def _matrix(schema: Schema, rows: Any) -> Matrix:
    """Rows as float64, numbers rounded to the input type."""
    matrix = np.array(rows, dtype=np.float64, ndmin=2)
    if matrix.shape[1] != schema.n_features:
        raise DataError(f"rows have {matrix.shape[1]} columns; the rules need {schema.n_features}")
    if schema.dtype == "float32":
        numeric = ~schema.nominal
        with np.errstate(over="ignore", under="ignore"):
            matrix[:, numeric] = matrix[:, numeric].astype(np.float32)
    return matrix


def _columns(rules: RuleList, first: int, last: int) -> list[tuple[int, Cells, Table]]:
    """For each column that the rules ask: how to find a value's cell, and the cells' bits."""
    start, stop = rules.bounds(first)[0], rules.bounds(last - 1)[1]
    table = rules.conditions
    ends = rules.end[first:last]
    rule_of = np.repeat(np.arange(last - first), np.diff(ends, prepend=start))
    asked = table.column[start:stop]
    result = []
    for column in np.unique(asked).tolist():
        here = np.flatnonzero(asked == column)
        at = start + here
        if rules.schema.columns[column].kind == "nominal":
            cells, accepts = _level_cells(rules, at, len(rules.schema.columns[column].levels))
        else:
            cells, accepts = _interval_cells(rules, at)
        # The last cell is that of missing values.
        accepts = np.concatenate([accepts & table.known[at], table.missing[at][None]])
        everyone = np.ones((len(accepts), last - first), dtype=np.bool_)
        everyone[:, rule_of[here]] = accepts
        result.append((column, cells, _packed(everyone)))
    return result


def _interval_cells(
    rules: RuleList, at: npt.NDArray[np.int64]
) -> tuple[Cells, npt.NDArray[np.bool_]]:
    """Cells between the bounds of conditions `at`, and (cells, conditions) which accept them."""
    low, high = rules.conditions.low[at], rules.conditions.high[at]
    bounds = np.unique(np.concatenate([low, high]))
    bounds = bounds[np.isfinite(bounds)]
    from_cell = np.where(low == -np.inf, 0, np.searchsorted(bounds, low) + 1)
    to_cell = np.where(high == np.inf, len(bounds), np.searchsorted(bounds, high))
    cell = np.arange(len(bounds) + 1)[:, None]

    def cells(values: Matrix) -> npt.NDArray[np.int64]:
        return np.where(np.isnan(values), len(bounds) + 1, np.searchsorted(bounds, values))

    return cells, (cell >= from_cell) & (cell <= to_cell)


def _level_cells(
    rules: RuleList, at: npt.NDArray[np.int64], n_levels: int
) -> tuple[Cells, npt.NDArray[np.bool_]]:
    """One cell a level, and (levels, conditions) which conditions accept it."""
    table = rules.conditions
    stops = table.level_end[at]
    counts = stops - np.where(at > 0, table.level_end[at - 1], 0)
    owner = np.repeat(np.arange(len(at)), counts)
    offset = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    codes = table.levels[np.repeat(stops - counts, counts) + offset]
    accepts = np.zeros((n_levels, len(at)), dtype=np.bool_)
    accepts[codes, owner] = True

    def cells(values: Matrix) -> npt.NDArray[np.int64]:
        coded = (values >= 0) & (values < n_levels) & (values == np.floor(values))
        return np.where(coded, values, n_levels).astype(np.int64)

    return cells, accepts


def _packed(accepts: npt.NDArray[np.bool_]) -> Table:
    """(cells, words) uint64: bit r of a row says whether rule r accepts the cell."""
    packed = np.packbits(accepts, axis=1, bitorder="little")
    padded = np.zeros((len(packed), -(-packed.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view("<u8")


def _fitting(columns: list[tuple[int, Cells, Table]], rows: Matrix, n_rules: int) -> Table:
    """(rows, words) uint64: bit r of a row says whether it fits rule r."""
    bits = np.repeat(_packed(np.ones((1, n_rules), dtype=np.bool_)), len(rows), axis=0)
    for column, cells, table in columns:
        bits &= table[cells(rows[:, column])]
    return bits


def _add_units(bits: Table, units: npt.NDArray[np.int64], result: npt.NDArray[np.int64]) -> None:
    """Add the units of the rules that fit each row to `result`."""
    row, word = np.nonzero(bits)
    left = bits[row, word]
    while len(left):
        lowest = left & (~left + np.uint64(1))
        rule = word * 64 + np.frexp(lowest.astype(np.float64))[1] - 1
        np.add.at(result, row, units[rule])
        left = left ^ lowest
        keep = left != 0
        row, word, left = row[keep], word[keep], left[keep]
