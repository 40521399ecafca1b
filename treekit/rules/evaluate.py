"""Evaluate rules on rows without their trees: matching rules, and the sums of their units."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import DataError
from treekit.model.fixed_point import MASS
from treekit.rules.rule_list import RuleList, coded, evaluate_test

__all__ = [
    "ROWS_A_BLOCK",
    "RULES_A_BLOCK",
    "Column",
    "Fired",
    "Parts",
    "asked_columns",
    "fired",
    "fits",
    "fitting",
    "packed",
    "pairs",
    "refused",
    "rounded_rows",
    "rules_of_rows",
    "sums",
]


# ---------------------------------------------------------------- evaluate


def sums(rules: RuleList, rows: Any) -> npt.NDArray[np.int64]:
    """Return (rows, outputs) int64; see `RuleList.sums`.

    Overlapping rules are all added and gaps add 0; in an ordered list the first matching rule
    of each tree counts.
    """
    matrix = rounded_rows(rules.schema, rows)
    if (stop := refused(rules, matrix)).any():
        raise DataError(
            f"row {int(np.argmax(stop))} has a missing value or an unseen category, which this "
            f"model refuses (missing: {rules.missing}, unknown: {rules.unknown}); fill or drop it"
        )
    result = np.zeros((len(matrix), rules.schema.n_values), dtype=np.int64)
    for piece in fired(rules, matrix):
        units = rules.units[piece.rule]
        np.add.at(result, piece.row, units * piece.mass[:, None] if rules.mass > 1 else units)
    return result


# ---------------------------------------------------------------- rounding and refused rows


def rounded_rows(schema: Schema, rows: Any) -> npt.NDArray[np.float64]:
    """Return a float64 copy of `rows`, (rows, features), with numbers rounded to the input type.

    Raises
    ------
    DataError
        If the number of columns is wrong.
    """
    matrix = np.array(rows, dtype=np.float64, ndmin=2)
    if matrix.shape[1] != schema.n_features:
        raise DataError(f"rows have {matrix.shape[1]} columns; the rules need {schema.n_features}")
    if schema.dtype == "float32":
        numeric = ~schema.nominal
        with np.errstate(over="ignore", under="ignore"):
            matrix[:, numeric] = matrix[:, numeric].astype(np.float32)
    return matrix


def refused(rules: RuleList, rows: Any) -> npt.NDArray[np.bool_]:
    """Return (rows,) bool: missing value or unknown category where the policy is ``error``."""
    matrix = rounded_rows(rules.schema, rows)
    nominal, n_levels = rules.schema.nominal, rules.schema.n_levels
    absent = np.isnan(matrix)
    # Codes of categories are integers below the size of the vocabulary.
    codes = (matrix >= 0) & (matrix < n_levels) & (matrix == np.floor(matrix))
    unknown = nominal & ~codes & ~absent
    result = np.zeros(len(matrix), dtype=np.bool_)
    if rules.missing == "error":
        result |= absent.any(axis=1)
        if rules.unknown == "missing":
            result |= unknown.any(axis=1)
    if rules.unknown == "error":
        result |= unknown.any(axis=1)
    return result


# ---------------------------------------------------------------- matching rules
# Pairs of rows and rules, from which every measure of a list is computed.
#
# In an ordered list only the first matching rule of each tree counts.

Index = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.float64]

_CELLS = 1 << 25
"""Maximum number of rows times trees in one block, a byte each."""


class Fired(NamedTuple):
    """Pairs of rows and rules, in no particular order.

    Attributes
    ----------
    row, rule : (pairs,) int64
    mass : (pairs,) int64
        The rule's share of the row: `RuleList.mass`, or less for fractional instances.
    """

    row: Index
    rule: Index
    mass: Index


def fired(rules: RuleList, rows: Any) -> Iterator[Fired]:
    """Generate the rules that predict each row, in blocks of rows and rules.

    Each pair occurs once; rows that a policy refuses do not occur.  In a list of order
    ``first`` a row has at most one rule per tree: the first that matches.

    Parameters
    ----------
    rules : RuleList
    rows : (rows, features) float64
        Numbers, codes of categories, NaN for missing values.
    """
    matrix = rounded_rows(rules.schema, rows)
    usable = np.flatnonzero(~refused(rules, matrix))
    if rules.order != "first":
        yield from _all_that_fit(rules, matrix, usable)
        return
    step = max(_CELLS // rules.n_trees, ROWS_A_BLOCK)
    for at in range(0, len(usable), step):
        mine = usable[at : at + step]
        answered = np.zeros((len(mine), rules.n_trees), dtype=np.bool_)
        for piece in _all_that_fit(rules, matrix[mine], np.arange(len(mine))):
            tree = rules.tree[piece.rule]
            open_yet = np.flatnonzero(~answered[piece.row, tree])
            order = open_yet[
                np.lexsort((piece.rule[open_yet], tree[open_yet], piece.row[open_yet]))
            ]
            place = piece.row[order] * rules.n_trees + tree[order]
            first = order[np.diff(place, prepend=-1) > 0]
            answered[piece.row[first], tree[first]] = True
            yield Fired(mine[piece.row[first]], piece.rule[first], piece.mass[first])


def fits(rules: RuleList, rows: Any) -> Iterator[Fired]:
    """Generate all rules whose conditions each row meets, regardless of the order; see `fired`."""
    matrix = rounded_rows(rules.schema, rows)
    yield from _all_that_fit(rules, matrix, np.flatnonzero(~refused(rules, matrix)))


def _all_that_fit(rules: RuleList, matrix: Matrix, usable: Index) -> Iterator[Fired]:
    """Generate the pairs of `usable` rows: per block of rows, ascending blocks of rules."""
    for first in range(0, len(rules), RULES_A_BLOCK):
        last = min(first + RULES_A_BLOCK, len(rules))
        columns = asked_columns(rules, first, last)
        parts = Parts(rules, first, last, columns) if rules.mass > 1 else None
        for at in range(0, len(usable), ROWS_A_BLOCK):
            mine = usable[at : at + ROWS_A_BLOCK]
            bits, cells = fitting(rules, columns, matrix[mine], last - first)
            found = [*pairs(bits)] or [(np.empty(0, np.int64), np.empty(0, np.int64))]
            row, rule = (np.concatenate(own) for own in zip(*found, strict=True))
            mass = np.ones(len(row), np.int64) if parts is None else parts.left(cells, row, rule)
            if parts is not None:
                some = mass > 0
                row, rule, mass = row[some], rule[some], mass[some]
            yield Fired(mine[row], first + rule.astype(np.int64), mass)


def rules_of_rows(rules: RuleList, rows: Any) -> Index:
    """Return (rows, trees) int64: the rule that predicts each row in each tree, or -1.

    Raises
    ------
    DataError
        If the model has fractional instances, or two rules of a tree match one row.
    """
    if rules.mass > 1:
        raise DataError(
            "with missing='fractional' a row may match several rules of a tree; use `fired` to "
            "get all of them"
        )
    found = np.full((len(np.atleast_2d(rows)), rules.n_trees), -1, dtype=np.int64)
    for piece in fired(rules, rows):
        tree = rules.tree[piece.rule]
        place = piece.row * rules.n_trees + tree
        matched = found[piece.row, tree] >= 0
        if matched.any() or len(np.unique(place)) < len(place):
            raise DataError(
                "two rules of a tree match one row of a disjoint list; find them with "
                "`treekit.rules.analysis`"
            )
        found[piece.row, tree] = piece.rule
    return found


# ---------------------------------------------------------------- cells
# Match rows against all rules at once.
#
# The bounds in the conditions cut a column into cells.  Each cell has a bit for
# every rule that accepts it; a row matches the rules whose bits are set in every
# column (the bit vectors of Lakshman and Stiliadis, 1998, "High-speed
# policy-based packet forwarding").  The trees and the order of the rules are not
# used.  The mass of a fractional instance in a rule is computed condition by
# condition, for the matching pairs of row and rule.

Cells = Callable[[Matrix], Index]
Table = npt.NDArray[np.uint64]

RULES_A_BLOCK = 4096
"""Rules in one block, whose bits fit the cache: about 1 MB for the rows, and as much for each
column."""

ROWS_A_BLOCK = 2048
"""Rows in one block."""


class Column(NamedTuple):
    """A column or test with the conditions of some rules.

    Attributes
    ----------
    number : int
        A column of the schema, or behind them a test.
    cells : callable
        Maps values, (rows,) float64, to cells, (rows,) int64.
    table : (cells, words) uint64
        Bit r of a cell is set if rule r accepts it.
    missing : int
        The cell of missing values, the last one.
    """

    number: int
    cells: Cells
    table: Table
    missing: int


def asked_columns(rules: RuleList, first: int, last: int) -> list[Column]:
    """Return the columns and tests in the conditions of rules `first` to `last`, ascending."""
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
        accepted = np.ones((len(accepts), last - first), dtype=np.bool_)
        owner = rule_of[here]  # ascending; a rule may have several conditions
        begins = np.flatnonzero(np.diff(owner, prepend=-1))
        accepted[:, owner[begins]] = np.logical_and.reduceat(accepts, begins, axis=1)
        result.append(Column(column, cells, packed(accepted), len(accepts) - 1))
    return result


def _interval_cells(
    rules: RuleList, at: npt.NDArray[np.int64]
) -> tuple[Cells, npt.NDArray[np.bool_]]:
    """Return cells between the bounds of conditions `at`, and (cells, conditions) acceptance."""
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
    """Return one cell per category, and (categories, conditions) acceptance, in full or in part."""
    owner, codes, _ = _levels_of(rules, at)
    accepts = np.zeros((n_levels, len(at)), dtype=np.bool_)
    accepts[codes, owner] = True
    return lambda values: coded(values, n_levels), accepts


def _levels_of(rules: RuleList, at: Index) -> tuple[Index, Index, npt.NDArray[np.bool_]]:
    """Return the category entries of conditions `at`: owner, code, whether it splits a row."""
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
    """Return the rules that match each row, among those that `columns` were built from.

    Parameters
    ----------
    rules : RuleList
    columns : list of Column
        From `asked_columns`.
    rows : (rows, features) float64
        From `treekit.rules.evaluate.rounded_rows`; refused rows are not checked.
    n_rules : int
        Number of rules given to `asked_columns`.

    Returns
    -------
    bits : (rows, words) uint64
        Bit r of a row is set if it matches rule r, counted from the first.
    cells : list of (rows,) int64
        Cells of each column, for `Parts.left`; empty without fractional instances.
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
    """Generate the set bits as arrays of rows and rules; each row at most once per array."""
    row, word = np.nonzero(bits)
    left = bits[row, word]
    while len(left):
        lowest = left & (~left + np.uint64(1))
        yield row, word * 64 + np.frexp(lowest.astype(np.float64))[1] - 1
        left = left ^ lowest
        keep = left != 0
        row, word, left = row[keep], word[keep], left[keep]


class Parts:
    """Mass that the conditions of some rules leave to a fractional instance."""

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
        # Conditions with categories that split rows have a row of flags, one per cell.
        at = np.flatnonzero(table.dividing[self.begin : stop] > 0)
        self.row = np.full(stop - self.begin, -1)
        self.row[at] = np.arange(len(at))
        owner, codes, divides = _levels_of(rules, self.begin + at)
        self.divides = np.zeros((len(at) + 1, int(self.missing.max(initial=0)) + 1), np.bool_)
        self.divides[owner[divides], codes[divides]] = True

    def left(self, cells: list[Index], row: Index, rule: Index) -> Index:
        """Return (pairs,) int64: the mass of each row in a rule that it matches."""
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


# ---------------------------------------------------------------- bits


def packed(members: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """Return (sets, words) uint64 from (sets, items) bool: item k is bit k % 64 of word k // 64."""
    some = np.packbits(members, axis=1, bitorder="little")
    padded = np.zeros((len(some), -(-some.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : some.shape[1]] = some
    return padded.view("<u8").astype(np.uint64, copy=False)
