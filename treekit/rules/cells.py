"""Which rules a row's values meet, all rules at once.

A column's values fall into cells between the bounds that the rules name.  For
each cell a row of bits says which rules accept it; a row of data fits the
rules that every column's bits agree on (the bit vectors of Lakshman and
Stiliadis, 1998, "High-speed policy-based packet forwarding").  Nothing here
knows that the rules came from a tree, or in what order they stand.  What a
divided row leaves in a rule is counted condition by condition, for the pairs
of row and rule that fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.model.fixed_point import MASS
from treekit.rules.bits import packed
from treekit.rules.clauses import coded, evaluate_test
from treekit.rules.rulelist import RuleList

__all__ = ["ROWS_A_BLOCK", "RULES_A_BLOCK", "Column", "Parts", "asked_columns", "fitting", "pairs"]

Matrix = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
Cells = Callable[[Matrix], Index]
Table = npt.NDArray[np.uint64]

RULES_A_BLOCK = 4096
"""Rules taken at once, so that the bits of a block fit the cache: about 1 MB for the rows, as
much for each column."""

ROWS_A_BLOCK = 2048
"""Rows taken at once."""


class Column(NamedTuple):
    """A column or a test, as some rules ask it.

    Attributes
    ----------
    number : int
        A column of the schema, or behind them a test.
    cells : callable
        From values, (rows,) float64, to their cells, (rows,) int64.
    table : (cells, words) uint64
        Bit r of a cell says whether rule r accepts it.
    missing : int
        The cell of missing values, the last one.
    """

    number: int
    cells: Cells
    table: Table
    missing: int


def asked_columns(rules: RuleList, first: int, last: int) -> list[Column]:
    """The columns and tests that the rules from `first` to `last` ask, ascending."""
    start, stop = rules.bounds(first)[0], rules.bounds(last - 1)[1]
    table, n_features = rules.conditions, rules.schema.n_features
    ends = rules.end[first:last]
    rule_of = np.repeat(np.arange(last - first), np.diff(ends, prepend=start))
    asked = table.column[start:stop]
    result = []
    for column in np.unique(asked).tolist():
        here = np.flatnonzero(asked == column)
        at = start + here
        if column < n_features and rules.schema.columns[column].kind == "nominal":
            cells, accepts = _level_cells(rules, at, len(rules.schema.columns[column].levels))
        else:
            cells, accepts = _interval_cells(rules, at)
        # The last cell is that of missing values.
        accepts = np.concatenate([accepts, table.missing[at][None]])
        everyone = np.ones((len(accepts), last - first), dtype=np.bool_)
        owner = rule_of[here]  # ascending; a rule may ask a column several times
        begins = np.flatnonzero(np.diff(owner, prepend=-1))
        everyone[:, owner[begins]] = np.logical_and.reduceat(accepts, begins, axis=1)
        result.append(Column(column, cells, packed(everyone), len(accepts) - 1))
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

    known = rules.conditions.known[at]
    return cells, (cell >= from_cell) & (cell <= to_cell) & known


def _level_cells(rules: RuleList, at: Index, n_levels: int) -> tuple[Cells, npt.NDArray[np.bool_]]:
    """One cell a level, and (levels, conditions) which conditions accept it, whole or not."""
    owner, codes, _ = _levels_of(rules, at)
    accepts = np.zeros((n_levels, len(at)), dtype=np.bool_)
    accepts[codes, owner] = True
    return lambda values: coded(values, n_levels), accepts


def _levels_of(rules: RuleList, at: Index) -> tuple[Index, Index, npt.NDArray[np.bool_]]:
    """The level entries of conditions `at`: whose, which level, whether it divides a row."""
    table = rules.conditions
    stops = table.level_end[at]
    counts = stops - np.where(at > 0, table.level_end[at - 1], 0)
    owner = np.repeat(np.arange(len(at)), counts)
    ends = np.cumsum(counts)
    offset = np.arange(len(owner)) - np.repeat(ends - counts, counts)
    codes = table.levels[np.repeat(stops - counts, counts) + offset].astype(np.int64)
    return owner, codes, np.repeat(counts - table.dividing[at], counts) <= offset


def fitting(
    rules: RuleList, columns: list[Column], rows: Matrix, n_rules: int
) -> tuple[Table, list[Index]]:
    """The rules that each row fits, of those that `columns` were made of.

    Parameters
    ----------
    rules : RuleList
    columns : list of Column
        Of `asked_columns`.
    rows : (rows, features) float64
        Of `treekit.rules.policies.rounded_rows`; what is refused is not looked at.
    n_rules : int
        From the first to the last of `asked_columns`.

    Returns
    -------
    bits : (rows, words) uint64
        Bit r of a row says whether it fits rule r, counted from the first.
    cells : list of (rows,) int64
        Of each column, if the list divides rows: for `Parts.left`.
    """
    bits = np.repeat(packed(np.ones((1, n_rules), dtype=np.bool_)), len(rows), axis=0)
    found = []
    for column in columns:
        test = column.number - rules.schema.n_features
        values = rows[:, column.number] if test < 0 else evaluate_test(rules.tests[test], rows)
        cells = column.cells(values)
        bits &= column.table[cells]
        if rules.mass > 1:
            found.append(cells)
    return bits, found


def pairs(bits: Table) -> Iterator[tuple[Index, Index]]:
    """The bits that are set, as arrays of rows and of rules; a row at most once at a time."""
    row, word = np.nonzero(bits)
    left = bits[row, word]
    while len(left):
        lowest = left & (~left + np.uint64(1))
        yield row, word * 64 + np.frexp(lowest.astype(np.float64))[1] - 1
        left = left ^ lowest
        keep = left != 0
        row, word, left = row[keep], word[keep], left[keep]


class Parts:
    """What the conditions of some rules leave of a row's mass, in lists that divide rows."""

    def __init__(self, rules: RuleList, first: int, last: int, columns: list[Column]) -> None:
        table = rules.conditions
        self.begin = rules.bounds(first)[0]
        stop = rules.bounds(last - 1)[1]
        self.end = rules.end[first:last] - self.begin
        self.start = np.append(0, self.end[:-1])
        slots = np.full(rules.schema.n_features + len(rules.tests), -1)
        slots[[column.number for column in columns]] = np.arange(len(columns))
        self.slot = slots[table.column[self.begin : stop]]
        self.missing = np.array([column.missing for column in columns], dtype=np.int64)
        self.low = table.part_low[self.begin : stop].astype(np.int64)
        self.high = table.part_high[self.begin : stop].astype(np.int64)
        # Conditions with levels that divide have a row of flags, one a cell.
        at = np.flatnonzero(table.dividing[self.begin : stop] > 0)
        self.row = np.full(stop - self.begin, -1)
        self.row[at] = np.arange(len(at))
        owner, codes, divides = _levels_of(rules, self.begin + at)
        self.divides = np.zeros((len(at) + 1, int(self.missing.max(initial=0)) + 1), np.bool_)
        self.divides[owner[divides], codes[divides]] = True

    def left(self, cells: list[Index], row: Index, rule: Index) -> Index:
        """(pairs,) int64: the mass of each row in a rule that it fits."""
        mass = np.full(len(row), MASS)
        pair, at = np.arange(len(row)), self.start[rule]
        table = np.array(cells, dtype=np.int64)
        while len(inside := np.flatnonzero(at < self.end[rule[pair]])):
            pair, at = pair[inside], at[inside]
            slot = self.slot[at]
            cell = table[slot, row[pair]]
            divided = (cell == self.missing[slot]) | self.divides[self.row[at], cell]
            cut, here = pair[divided], at[divided]
            mass[cut] = (mass[cut] * self.high[here] >> 24) - (mass[cut] * self.low[here] >> 24)
            at = at + 1
        return mass
