"""Evaluate rules on rows without their trees: matching rules, and the sums of their units."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import DataError
from treekit.model.fixed_point import MASS, multiply_by_mass
from treekit.rules.rule_list import ConditionTable, RuleList, evaluate_test, sanitize_codes

# ---------------------------------------------------------------- evaluate


def sum_units(rules: RuleList, rows: Any) -> npt.NDArray[np.int64]:
    """Return (rows, outputs) int64; see `RuleList.sums`.

    Overlapping rules are all added and gaps add 0; in an ordered list the first matching rule
    of each tree counts.
    """
    matrix = round_rows(rules.schema, rows)
    if (stop := find_refused_rows(rules, matrix)).any():
        raise DataError(
            f"row {int(np.argmax(stop))} has a missing value or an unseen category, which this "
            f"model refuses (missing: {rules.missing}, unknown: {rules.unknown}); fill or drop it"
        )
    result = np.zeros((len(matrix), rules.schema.n_values), dtype=np.int64)
    for piece in matching_rules(rules, matrix):
        np.add.at(result, piece.row, multiply_units(rules, piece))
    return result


# ---------------------------------------------------------------- rounding and refused rows


def round_rows(schema: Schema, rows: Any) -> npt.NDArray[np.float64]:
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


def find_refused_rows(rules: RuleList, rows: Any) -> npt.NDArray[np.bool_]:
    """Return (rows,) bool: missing value or unknown category where the policy is ``error``."""
    matrix = round_rows(rules.schema, rows)
    nominal, n_levels = rules.schema.nominal, rules.schema.n_levels
    absent = np.isnan(matrix)
    unknown = nominal & ~absent & (sanitize_codes(matrix, n_levels) == n_levels)
    result = np.zeros(len(matrix), dtype=np.bool_)
    if rules.missing == "error":
        result |= absent.any(axis=1)
    if "error" in (rules.missing, rules.unknown):
        result |= unknown.any(axis=1)
    return result


# ---------------------------------------------------------------- matching rules
# Pairs of rows and rules, from which every measure of a list is computed.
#
# In an ordered list only the first matching rule of each tree counts.

Index = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.float64]

_CELLS_PER_BLOCK = 1 << 25
"""Maximum number of rows times trees in one block, a byte each."""


class RuleMatches(NamedTuple):
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


def matching_rules(rules: RuleList, rows: Any) -> Iterator[RuleMatches]:
    """Yield blocks of pairs of a row and a rule that contributes to its prediction.

    Each pair occurs once; rows for which the model raises an error do not occur.  In a list of
    order ``first`` a row has at most one rule per tree: the first that matches.

    Parameters
    ----------
    rules : RuleList
    rows : (rows, features) float64
        Numbers, codes of categories, NaN for missing values.
    """
    matrix = round_rows(rules.schema, rows)
    usable = np.flatnonzero(~find_refused_rows(rules, matrix))
    if rules.order != "first":
        yield from _match_blocks(rules, matrix, usable)
        return
    step = max(_CELLS_PER_BLOCK // rules.n_trees, ROWS_PER_BLOCK)
    for at in range(0, len(usable), step):
        mine = usable[at : at + step]
        answered = np.zeros(len(mine) * rules.n_trees, dtype=np.bool_)
        for piece in _match_blocks(rules, matrix[mine], np.arange(len(mine))):
            place = piece.row * rules.n_trees + rules.tree[piece.rule]
            order = np.lexsort((piece.rule, place))
            first = order[np.diff(place[order], prepend=-1) > 0]
            first = first[~answered[place[first]]]
            answered[place[first]] = True
            yield RuleMatches(mine[piece.row[first]], piece.rule[first], piece.mass[first])


def fitting_rules(rules: RuleList, rows: Any) -> Iterator[RuleMatches]:
    """Yield blocks of pairs of a row and any rule that it matches; see `matching_rules`."""
    matrix = round_rows(rules.schema, rows)
    yield from _match_blocks(rules, matrix, np.flatnonzero(~find_refused_rows(rules, matrix)))


def multiply_units(rules: RuleList, piece: RuleMatches) -> npt.NDArray[np.int64]:
    """Return (pairs, values) int64: what each rule adds to the sums of its row."""
    units = rules.units[piece.rule]
    if rules.mass == 1:
        return units
    found: npt.NDArray[np.int64] = multiply_by_mass(units, piece.mass[:, None], rules.part_bits)
    return found


def _match_blocks(rules: RuleList, matrix: Matrix, usable: Index) -> Iterator[RuleMatches]:
    """Yield the pairs of the rows `usable`, one block of rules at a time."""
    for first in range(0, len(rules), RULES_PER_BLOCK):
        last = min(first + RULES_PER_BLOCK, len(rules))
        columns = collect_columns(rules, first, last)
        dividing = list_dividing_codes(rules, first, last) if rules.mass > 1 else None
        for at in range(0, len(usable), ROWS_PER_BLOCK):
            mine = usable[at : at + ROWS_PER_BLOCK]
            bits = compute_match_bits(rules, columns, matrix[mine], last - first)
            # Most words are empty; ``nonzero`` of two dimensions takes three times as long.
            row, word = np.divmod(np.flatnonzero(bits), bits.shape[1])
            at_word, bit = np.divmod(np.flatnonzero(unpack_bits(bits[row, word][:, None], 64)), 64)
            row, rule = row[at_word], first + word[at_word] * 64 + bit
            mass = np.ones(len(row), np.int64)
            if dividing is not None:
                mass = compute_mass(rules, matrix[mine], dividing, row, rule)
                some = mass > 0
                row, rule, mass = row[some], rule[some], mass[some]
            yield RuleMatches(mine[row], rule, mass)


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

RULES_PER_BLOCK = 4096
"""Rules in one block, whose bits fit the cache: about 1 MB for the rows, and as much for each
column."""

ROWS_PER_BLOCK = 2048
"""Rows in one block."""


class ConditionColumn(NamedTuple):
    """A column or test with the conditions of some rules.

    Attributes
    ----------
    number : int
        A column of the schema, or behind them a test.
    to_cells : callable
        Maps values, (rows,) float64, to cells, (rows,) int64.
    accepted : (cells, words) uint64
        Bit r of a cell is set if rule r accepts it.
    """

    number: int
    to_cells: Cells
    accepted: Table


def collect_columns(rules: RuleList, first: int, last: int) -> list[ConditionColumn]:
    """Return the columns and tests in the conditions of rules `first` to `last`, ascending."""
    start, stop = rules.bounds(first)[0], rules.bounds(last - 1)[1]
    table, n_features = rules.conditions, rules.schema.n_features
    ends = rules.end[first:last]
    rule_of = np.repeat(np.arange(last - first), np.diff(ends, prepend=start))
    asked = table.column[start:stop]
    result = []
    for column in np.unique(asked).tolist():
        here = np.flatnonzero(asked == column)
        nominal = column < n_features and rules.schema.columns[column].kind == "nominal"
        n_levels = len(rules.schema.columns[column].levels) if nominal else None
        cells, accepts = make_cells(table, start + here, n_levels)
        accepted = np.ones((len(accepts), last - first), dtype=np.bool_)
        owner = rule_of[here]  # ascending; a rule may have several conditions
        begins = np.flatnonzero(np.diff(owner, prepend=-1))
        accepted[:, owner[begins]] = np.logical_and.reduceat(accepts, begins, axis=1)
        result.append(ConditionColumn(column, cells, pack_bits(accepted)))
    return result


def make_cells(
    table: ConditionTable, at: Index, n_levels: int | None
) -> tuple[Cells, npt.NDArray[np.bool_]]:
    """Return the cells of a column for some conditions on it.

    Parameters
    ----------
    table : ConditionTable
    at : (conditions,) int64
    n_levels : int, optional
        Number of categories, each a cell; None for a numeric column or a test.

    Returns
    -------
    find_cells : callable
        Maps values, (rows,) float64, to cells, (rows,) int64.
    accepts : (cells, conditions) bool
        The last cell is that of missing values.  A condition that accepts a fraction of a row
        (fractional instances) counts as accepting.
    """
    if n_levels is not None:
        some = table.take(at)
        owner = np.repeat(np.arange(len(at)), np.diff(some.level_end, prepend=0))
        accepts = np.zeros((n_levels + 1, len(at)), dtype=np.bool_)
        accepts[some.levels, owner] = True
        accepts[-1] = some.missing
        return partial(sanitize_codes, n_levels=n_levels), accepts
    low, high = table.low[at], table.high[at]
    bounds = np.unique(np.concatenate([low, high]))
    bounds = bounds[np.isfinite(bounds)]
    from_cell = np.where(low == -np.inf, 0, np.searchsorted(bounds, low) + 1)
    to_cell = np.where(high == np.inf, len(bounds), np.searchsorted(bounds, high))
    cell = np.arange(len(bounds) + 2)[:, None]
    accepts = (cell >= from_cell) & (cell <= to_cell) & table.known[at]
    accepts[-1] = table.missing[at]

    def find_cells(values: Matrix) -> Index:
        return np.where(np.isnan(values), len(bounds) + 1, np.searchsorted(bounds, values))

    return find_cells, accepts


def compute_match_bits(
    rules: RuleList, columns: list[ConditionColumn], rows: Matrix, n_rules: int
) -> Table:
    """Return the rules that match each row, among those that `columns` were built from.

    Parameters
    ----------
    rules : RuleList
    columns : list of Column
        From `collect_columns`.
    rows : (rows, features) float64
        From `treekit.rules.evaluate.round_rows`; refused rows are not checked.
    n_rules : int
        Number of rules given to `collect_columns`.

    Returns
    -------
    bits : (rows, words) uint64
        Bit r of a row is set if it matches rule r, counted from the first.
    """
    bits = np.repeat(pack_bits(np.ones((1, n_rules), dtype=np.bool_)), len(rows), axis=0)
    for column in columns:
        test = column.number - rules.schema.n_features
        values = rows[:, column.number] if test < 0 else evaluate_test(rules.tests[test], rows)
        bits &= column.accepted[column.to_cells(values)]
    return bits


def list_dividing_codes(rules: RuleList, first: int, last: int) -> Index:
    """Return the categories in some rules' conditions that split a row into fractional instances.

    The rules are `first` to `last` - 1.  A category is ``condition * n + code``, where n is
    `_count_codes`.  The result is sorted and ends with the largest int64, which is no category.
    """
    begin, stop = rules.bounds(first)[0], rules.bounds(last - 1)[1]
    at = begin + np.flatnonzero(rules.conditions.dividing[begin:stop])
    some = rules.conditions.take(at)
    sizes = np.diff(some.level_end, prepend=0)
    # The dividing categories are the last ones of a condition.
    behind = np.repeat(some.level_end, sizes) - np.arange(len(some.levels))
    divides = behind <= np.repeat(some.dividing, sizes)
    found = (np.repeat(at, sizes) * _count_codes(rules) + some.levels)[divides]
    return np.append(found, np.iinfo(np.int64).max)


def _count_codes(rules: RuleList) -> int:
    return int(rules.schema.n_levels.max()) + 1


def compute_mass(rules: RuleList, rows: Matrix, dividing: Index, row: Index, rule: Index) -> Index:
    """Return (pairs,) int64: how much of a row's mass reaches a rule; `MASS` is the whole row.

    Parameters
    ----------
    rows : (rows, features) float64
    dividing : (codes,) int64
        From `list_dividing_codes`.
    row, rule : (pairs,) int64
        Matching pairs.
    """
    table, schema, n_tests = rules.conditions, rules.schema, len(rules.tests)
    values = np.column_stack([rows, *(evaluate_test(test, rows) for test in rules.tests)])
    n_levels = np.append(schema.n_levels, np.zeros(n_tests, dtype=np.int64))
    nominal = np.append(schema.nominal, np.zeros(n_tests, dtype=np.bool_))
    codes = sanitize_codes(values, n_levels)
    missing = np.where(nominal, codes == n_levels, np.isnan(values))
    mass, pair, n_codes = np.full(len(row), MASS), np.arange(len(row)), _count_codes(rules)
    at, end = np.append(0, rules.end)[rule], rules.end[rule]
    while len(inside := np.flatnonzero(at < end[pair])):
        pair, at = pair[inside], at[inside]
        place = row[pair], table.column[at]
        key = at * n_codes + codes[place]
        divided = missing[place] | (dividing[np.searchsorted(dividing, key)] == key)
        cut, here = pair[divided], at[divided]
        mass[cut] = (mass[cut] * table.part_high[here] >> 24) - (
            mass[cut] * table.part_low[here] >> 24
        )
        at = at + 1
    return mass


# ---------------------------------------------------------------- bits


def pack_bits(members: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """Return (sets, words) uint64 from (sets, items) bool: item k is bit k % 64 of word k // 64."""
    some = np.packbits(members, axis=1, bitorder="little")
    padded = np.zeros((len(some), -(-some.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : some.shape[1]] = some
    return padded.view("<u8").astype(np.uint64, copy=False)


def unpack_bits(sets: npt.NDArray[np.uint64], n_items: int | None = None) -> npt.NDArray[np.bool_]:
    """Return (sets, items) bool from (sets, words) uint64; the inverse of `pack_bits`."""
    octets = np.ascontiguousarray(sets.astype("<u8", copy=False)).view(np.uint8)
    return np.unpackbits(octets, axis=1, count=n_items, bitorder="little").view(np.bool_)
