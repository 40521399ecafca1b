"""The paths of a tree as lists of single conditions, and the rows that meet each of these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.errors import ModelError
from treekit.model.fixed_point import MASS
from treekit.model.model import Model, least_cost
from treekit.model.tree import Split, Tree
from treekit.rules.evaluate import packed
from treekit.rules.extract import depth_first, node_paths, steps
from treekit.rules.learn.ground import Bits
from treekit.rules.rule_list import ConditionTable, coded

__all__ = ["Asked", "Paths", "merged", "paths_of", "rows_meeting"]

Index = npt.NDArray[np.int64]

_CELLS = 1 << 22
"""Answers of rows to conditions that are worked out at once, a byte each."""


class Asked(NamedTuple):
    """What a rule asks of a column; the fields are those of `ConditionTable`.

    `levels` are the codes that fit, ascending; none for columns of numbers.
    """

    column: int
    low: float
    high: float
    known: bool
    missing: bool
    levels: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Paths:
    """The paths of one tree.

    Attributes
    ----------
    asked : ConditionTable
        What the step to each node asks; of the root, nothing.
    leaf : (leaves,) int64
        From the leftmost path to the rightmost.
    node, end : (steps,) and (leaves,) int64
        The nodes from below the root to each leaf, path after path, and where each path ends.
    label : (leaves,) int64
        Class that a leaf says.
    """

    asked: ConditionTable
    leaf: Index
    node: Index
    end: Index
    label: Index


def paths_of(model: Model, number: int) -> Paths:
    """The paths of one tree of a model of one target, a class.

    Where rows with missing values divide (Quinlan 1993, section 3.2), a missing value, and a
    level that a node never saw, meets no condition but that of being missing, as in
    C4.5rules.  Where they take a branch, they meet the condition of that branch.

    Raises
    ------
    ModelError
        For splits that ask more than one column.
    """
    tree = model.trees[number]
    _refuse(tree, number)
    leaf = depth_first(tree)
    node, end = node_paths(tree, leaf)
    units = model.tree_units(number)[np.searchsorted(tree.leaves, leaf)]
    return Paths(_asked(model, tree), leaf, node, end, least_cost(units, None))


def _refuse(tree: Tree, number: int) -> None:
    if len(tree.term_feature):
        what = "oblique splits, each a sum of columns"
    elif len(tree.surrogate_feature):
        what = "surrogate splits, which ask other columns where a value is missing"
    else:
        return
    raise ModelError(
        f"tree {number} has {what}: a condition of an ordered list asks one column; train with "
        "splitter='axis' and missing='fractional' or 'direction'"
    )


def _asked(model: Model, tree: Tree) -> ConditionTable:
    """The condition of each node's step, met in whole or not at all."""
    parent = tree.parent
    up = np.maximum(parent, 0)
    branch = np.arange(tree.n_nodes) - tree.first_child[up]
    absence = (parent >= 0) & (tree.kind[up] == Split.MISSING)
    takes = np.where(absence, branch == 0, branch == tree.missing[up]) & (parent >= 0)
    if model.missing == "fractional":
        takes &= absence
    bounds = np.stack([np.zeros(tree.n_nodes, np.int64), np.where(takes, MASS, 0)], axis=1)
    table = steps(tree, bounds, model.schema.n_levels)
    if model.missing == "error":
        table = table._replace(missing=table.missing & ~table.known)
    # Levels that go the missing way are met there as others are.
    known = table.known | (table.dividing > 0)
    return table._replace(known=known, dividing=np.zeros_like(table.dividing))


def merged(asked: ConditionTable, nodes: Iterable[int]) -> tuple[Asked, ...]:
    """The conditions of some steps, at most one a column, in the order they are first asked."""
    found: dict[int, Asked] = {}
    for node in nodes:
        column = int(asked.column[node])
        own = Asked(
            column, float(asked.low[node]), float(asked.high[node]), bool(asked.known[node]),
            bool(asked.missing[node]), tuple(sorted(asked.codes(node)[0])),
        )  # fmt: skip
        found[column] = _both(found[column], own) if column in found else own
    return tuple(found.values())


def _both(one: Asked, other: Asked) -> Asked:
    """What meets two conditions on a column; a bare "is known" lists every level."""
    known = one.known and other.known
    levels = tuple(level for level in one.levels if level in set(other.levels)) if known else ()
    low, high = max(one.low, other.low), min(one.high, other.high)
    if not known:
        low, high = -np.inf, np.inf
    elif one.levels:
        known = len(levels) > 0
    return Asked(one.column, low, high, known, one.missing and other.missing, levels)


def rows_meeting(asked: ConditionTable, matrix: npt.NDArray[np.floating], n_levels: Index) -> Bits:
    """(conditions, words) uint64: which rows meet each condition.

    Parameters
    ----------
    asked : ConditionTable
        Conditions that divide no row.
    matrix : (rows, features) float32 or float64
        Encoded rows.
    n_levels : (features,) int64
        0 for columns of numbers.
    """
    n_rows = len(matrix)
    found = np.zeros((len(asked.column), -(-n_rows // 64)), dtype=np.uint64)
    block = max(_CELLS // max(n_rows, 1), 1)
    for column in np.unique(asked.column).tolist():
        at = np.flatnonzero(asked.column == column)
        values = matrix[:, column].astype(np.float64)
        for first in range(0, len(at), block):
            own = at[first : first + block]
            if n_levels[column] > 0:
                cells = coded(values, int(n_levels[column]))
                met = _accepted(asked, own, int(n_levels[column]))[:, cells]
            else:
                met = _within(asked, own, values)
            found[own] = packed(met)
    return found


def _within(
    asked: ConditionTable, at: Index, values: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    """(conditions, rows) bool, of a column of numbers."""
    met = values <= asked.high[at, None]
    bounded = np.flatnonzero(asked.low[at] > -np.inf)
    met[bounded] &= values > asked.low[at[bounded], None]
    met[~asked.known[at]] = False
    met[:, np.isnan(values)] = asked.missing[at, None]
    return met


def _accepted(asked: ConditionTable, at: Index, n_levels: int) -> npt.NDArray[np.bool_]:
    """(conditions, levels + 1) bool: which levels, and last missing values, meet a condition."""
    accepts = np.zeros((len(at), n_levels + 1), dtype=np.bool_)
    for row, condition in enumerate(at.tolist()):
        accepts[row, asked.codes(condition)[0]] = True
    accepts[:, -1] = asked.missing[at]
    return accepts
