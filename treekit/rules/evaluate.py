"""Running rules without their trees: what the rules that answer a row sum to."""

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
    """(rows, outputs) int64: see `RuleList.sums`.

    Rules that overlap, or leave a gap, are summed as they are; of an ordered list the first
    of each tree that fits is taken.
    """
    matrix = rounded_rows(rules.schema, rows)
    if (stop := refused(rules, matrix)).any():
        raise DataError(
            f"row {int(np.argmax(stop))} has a missing value or an unseen category, which this "
            f"model refuses (missing: {rules.missing}, unknown: {rules.unknown}); fill or drop it"
        )
    result = np.zeros((len(matrix), rules.schema.n_values), dtype=np.int64)
    for piece in fired(rules, matrix):
        said = rules.units[piece.rule]
        np.add.at(result, piece.row, said * piece.mass[:, None] if rules.mass > 1 else said)
    return result


# ---------------------------------------------------------------- policies
# Rows as rules see them: numbers of the input type; and the rows that policies refuse.


def rounded_rows(schema: Schema, rows: Any) -> npt.NDArray[np.float64]:
    """(rows, features) float64: a copy of `rows`, numbers rounded to the input type.

    Raises
    ------
    DataError
        If they are of another width.
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
    """(rows,) bool: a missing value or an unseen category where the policy is ``error``."""
    matrix = rounded_rows(rules.schema, rows)
    nominal, n_levels = rules.schema.nominal, rules.schema.n_levels
    absent = np.isnan(matrix)
    # Only whole numbers below the vocabulary's size are codes of levels.
    codes = (matrix >= 0) & (matrix < n_levels) & (matrix == np.floor(matrix))
    strange = nominal & ~codes & ~absent
    result = np.zeros(len(matrix), dtype=np.bool_)
    if rules.missing == "error":
        result |= absent.any(axis=1)
        if rules.unknown == "missing":
            result |= strange.any(axis=1)
    if rules.unknown == "error":
        result |= strange.any(axis=1)
    return result


# ---------------------------------------------------------------- fired
# Which rules answer which rows: the pairs behind every measure of a list.
#
# `treekit.rules.evaluate` finds the rules whose conditions a row meets; here the order of
# the list has its say, too: where the first rule of a tree answers, the others are silent.

Index = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.float64]

_CELLS = 1 << 25
"""Rows times trees whose answers are remembered at once, a byte each."""


class Fired(NamedTuple):
    """Pairs of rows and rules, in no particular order.

    Attributes
    ----------
    row, rule : (pairs,) int64
    mass : (pairs,) int64
        What the rule has of the row: all of it, `RuleList.mass`, unless rows divide.
    """

    row: Index
    rule: Index
    mass: Index


def fired(rules: RuleList, rows: Any) -> Iterator[Fired]:
    """The rules that answer each row, some rows and some rules at a time.

    Each pair comes once; a row that a policy refuses is in none.  Of a list of
    order ``first`` a row has at most one rule a tree: the first that it fits.

    Parameters
    ----------
    rules : RuleList
    rows : (rows, features) float64
        Numbers as they are, codes of levels, NaN for missing values.
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
    """As `fired`, with all rules whose conditions a row meets, in whatever order they stand."""
    matrix = rounded_rows(rules.schema, rows)
    yield from _all_that_fit(rules, matrix, np.flatnonzero(~refused(rules, matrix)))


def _all_that_fit(rules: RuleList, matrix: Matrix, usable: Index) -> Iterator[Fired]:
    """The pairs of `usable` rows: for a block of rows, blocks of rules in ascending order."""
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
    """(rows, trees) int64: the rule that answers each row in each tree; -1 where none does.

    Raises
    ------
    DataError
        If the list divides rows, or two rules of a tree answer one row.
    """
    if rules.mass > 1:
        raise DataError(
            "the model divides rows with missing values among its rules, so that a row has not "
            "one rule; ask `fired` for all of them"
        )
    found = np.full((len(np.atleast_2d(rows)), rules.n_trees), -1, dtype=np.int64)
    for piece in fired(rules, rows):
        tree = rules.tree[piece.rule]
        place = piece.row * rules.n_trees + tree
        taken = found[piece.row, tree] >= 0
        if taken.any() or len(np.unique(place)) < len(place):
            raise DataError(
                "two rules of a tree fit one row, though the list says that exactly one does; "
                "`treekit.rules.analysis` names them"
            )
        found[piece.row, tree] = piece.rule
    return found


# ---------------------------------------------------------------- cells
# Which rules a row's values meet, all rules at once.
#
# A column's values fall into cells between the bounds that the rules name.  For
# each cell a row of bits says which rules accept it; a row of data fits the
# rules that every column's bits agree on (the bit vectors of Lakshman and
# Stiliadis, 1998, "High-speed policy-based packet forwarding").  Nothing here
# knows that the rules came from a tree, or in what order they stand.  What a
# divided row leaves in a rule is counted condition by condition, for the pairs
# of row and rule that fit.

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
        Of `treekit.rules.evaluate.rounded_rows`; what is refused is not looked at.
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


# ---------------------------------------------------------------- bits
# Sets as bits: the members of many sets in 64-bit words.


def packed(members: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """(sets, words) uint64, from (sets, things) bool: bit ``k & 63`` of word ``k >> 6`` is k's."""
    some = np.packbits(members, axis=1, bitorder="little")
    padded = np.zeros((len(some), -(-some.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : some.shape[1]] = some
    return padded.view("<u8").astype(np.uint64, copy=False)
