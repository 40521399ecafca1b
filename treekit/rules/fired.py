"""Which rules answer which rows: the pairs behind every measure of a list.

`treekit.rules.cells` finds the rules whose conditions a row meets; here the order of
the list has its say, too: where the first rule of a tree answers, the others are silent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.errors import DataError
from treekit.rules.cells import (
    ROWS_A_BLOCK,
    RULES_A_BLOCK,
    Parts,
    asked_columns,
    fitting,
    pairs,
)
from treekit.rules.policies import refused, rounded_rows
from treekit.rules.rulelist import RuleList

__all__ = ["Fired", "fired", "fits", "rules_of_rows"]

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
                "`treekit.rules.overlaps` names them"
            )
        found[piece.row, tree] = piece.rule
    return found
