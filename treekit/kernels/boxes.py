"""What reaches a node of a tree, kept up to date while a loop walks the tree.

It is a product of one set a column: an interval or some levels, and whether
missing values are in it.  So a node can be reached exactly if none of these
sets is empty, and a row that reaches it takes any member of each.

Nodes, columns and the stack are arrays of records: a kernel that is handed
twenty single arrays takes 30 s to compile, with five it takes a few (measured).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import kernel

__all__ = [
    "COLUMN",
    "FRAME",
    "NODE",
    "Walk",
    "enter",
    "has_known",
    "leave",
    "make_walk",
    "possible",
]

# Numbers of `treekit.model.tree.Split`, which compiled code cannot read.
_THRESHOLD, _MISSING = 1, 4

NODE = np.dtype(
    [
        *((name, np.int64) for name in ("kind", "feature", "first_child", "n_children")),
        *((name, np.int64) for name in ("missing", "level_start", "n_levels")),
        ("threshold", np.float64),
    ]
)
"""One node, as in `treekit.model.tree.Tree`; ``n_levels`` of its entries in `level_branch`.

A negative ``missing`` stands for every branch: missing values divide.
"""

COLUMN = np.dtype(
    [
        *((name, np.float64) for name in ("low", "high")),
        *((name, np.int64) for name in ("no_missing", "no_known", "asked", "n_open")),
        *((name, np.int64) for name in ("first_level", "n_levels")),
        ("nominal", np.bool_),
    ]
)
"""What is left of one column.

Known numbers lie in ``low < x <= high``.  ``no_missing``, ``no_known`` and
``asked`` count the splits on the way that keep missing values out, keep known
values out, and ask the column at all; ``n_open`` the levels that none keeps out.
"""

FRAME = np.dtype(
    [*((name, np.int64) for name in ("node", "first", "tried", "phase")), ("saved", np.float64)]
)
"""One split on the way: the first branch tried, how many were, and the bound it replaced."""


class Walk(NamedTuple):
    """One tree and the box of the current node.

    Attributes
    ----------
    nodes : (nodes,) NODE
    level_branch : (entries,) int32
    columns : (features,) COLUMN
    barred : (levels of all columns,) int64
        How many splits keep a level out; a column's start at ``first_level``.
    stack : (depth,) FRAME
    """

    nodes: Any
    level_branch: Any
    columns: Any
    barred: Any
    stack: Any


def make_walk(
    tree: Any, n_levels: npt.NDArray[np.int64], nominal: Any, bar: Any, room: int
) -> Walk:
    """Stand at the root of a `treekit.model.tree.Tree`, with a stack of `room` frames.

    All values reach it, missing ones only where `bar`, one for all columns or
    one for each, is 0.
    """
    nodes = np.zeros(tree.n_nodes, dtype=NODE)
    for name in ("kind", "feature", "first_child", "n_children", "missing", "threshold"):
        nodes[name] = getattr(tree, name)
    nodes["level_start"], nodes["n_levels"] = tree.level_start[:-1], np.diff(tree.level_start)
    columns = np.zeros(len(n_levels), dtype=COLUMN)
    columns["low"], columns["high"], columns["no_missing"] = -np.inf, np.inf, bar
    columns["n_levels"] = columns["n_open"] = n_levels
    columns["first_level"] = np.cumsum(n_levels) - n_levels
    columns["nominal"] = nominal
    barred = np.zeros(int(n_levels.sum()), dtype=np.int64)
    return Walk(nodes, tree.level_branch, columns, barred, np.zeros(room, dtype=FRAME))


@kernel
def enter(walk: Any, above: int, branch: int, depth: int) -> None:
    """Narrow the box to what takes `branch` at node `above`."""
    node = walk.nodes[above]
    column = walk.columns[node.feature]
    column.asked += 1
    if node.kind == _MISSING:
        if branch == 0:
            column.no_known += 1
        else:
            column.no_missing += 1
        return
    if node.missing != branch and node.missing >= 0:
        column.no_missing += 1
    if node.kind == _THRESHOLD:
        if branch == 0:
            walk.stack[depth].saved = column.high
            column.high = min(column.high, node.threshold)
        else:
            walk.stack[depth].saved = column.low
            column.low = max(column.low, node.threshold)
        return
    for level in range(node.n_levels):
        goes = walk.level_branch[node.level_start + level]
        goes = node.missing if goes < 0 else goes
        if goes != branch and goes >= 0:
            column.n_open -= walk.barred[column.first_level + level] == 0
            walk.barred[column.first_level + level] += 1


@kernel
def leave(walk: Any, above: int, branch: int, depth: int) -> None:
    """Undo `enter`."""
    node = walk.nodes[above]
    column = walk.columns[node.feature]
    column.asked -= 1
    if node.kind == _MISSING:
        if branch == 0:
            column.no_known -= 1
        else:
            column.no_missing -= 1
        return
    if node.missing != branch and node.missing >= 0:
        column.no_missing -= 1
    if node.kind == _THRESHOLD:
        if branch == 0:
            column.high = walk.stack[depth].saved
        else:
            column.low = walk.stack[depth].saved
        return
    for level in range(node.n_levels):
        goes = walk.level_branch[node.level_start + level]
        goes = node.missing if goes < 0 else goes
        if goes != branch and goes >= 0:
            walk.barred[column.first_level + level] -= 1
            column.n_open += walk.barred[column.first_level + level] == 0


@kernel
def has_known(column: Any) -> bool:
    """Whether any known value of a column is in the box."""
    some = column.n_open > 0 if column.nominal else column.low < column.high
    return column.no_known == 0 and some


@kernel
def possible(column: Any) -> bool:
    """Whether any value of a column, missing included, is in the box."""
    return column.no_missing == 0 or has_known(column)
