"""The loop that merges the conditions on the way to every leaf.

A walk in depth-first order keeps the box of the current node up to date, so
that the work is linear in the nodes and in what is written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from treekit.kernels.boxes import enter, has_known, leave
from treekit.kernels.compile import kernel

__all__ = ["CONDITION", "leaf_conditions"]

# Number of `treekit.model.tree.Split.LEAF`, which compiled code cannot read.
_LEAF = 0

CONDITION = np.dtype(
    [
        ("column", np.int32),
        ("low", np.float64),
        ("high", np.float64),
        ("known", np.bool_),
        ("missing", np.bool_),
        ("level_end", np.int64),
    ]
)
"""One condition, as in `treekit.rules.conditions.ConditionTable`."""


@kernel
def _write_leaf(
    walk: Any, bar: Any, asked: Any, conditions: Any, levels: Any, at: int, coded: int
) -> tuple[int, int]:
    """Append the conditions of one leaf; returns how many there are by then."""
    for f in asked:
        column = walk.columns[f]
        any_known = has_known(column)
        if column.nominal:
            free = column.n_open == column.n_levels
        else:
            free = column.low == -np.inf and column.high == np.inf
        if free and column.no_known == 0 and column.no_missing == bar[f]:
            continue
        n_coded = column.n_open if column.nominal and any_known else 0
        if at < len(conditions):
            condition = conditions[at]
            condition.column = f
            condition.low = column.low if any_known else -np.inf
            condition.high = column.high if any_known else np.inf
            condition.known = any_known
            condition.missing = column.no_missing == 0
            condition.level_end = coded + n_coded
            to = coded
            for level in range(column.n_levels if n_coded > 0 else 0):
                if walk.barred[column.first_level + level] == 0:
                    levels[to] = level
                    to += 1
        at += 1
        coded += n_coded
    return at, coded


@kernel
def leaf_conditions(
    walk: Any, bar: Any, leaf: Any, end: Any, conditions: Any, levels: Any
) -> tuple[int, int]:
    """The merged conditions of every leaf of one tree, leaves in depth-first order.

    Call it with empty outputs to learn their sizes, then again to fill them.

    Parameters
    ----------
    walk : treekit.kernels.boxes.Walk
        At the root, and left there; room for the depth and one more.
    bar : (columns,) int64
        1 where the model refuses missing values.
    leaf, end : (leaves,) int64
        Output: node number, and the number of conditions up to and with it.
    conditions : (conditions,) CONDITION
        Output: columns in the order the path asks them.
    levels : (codes,) int32
        Output: the levels that nominal conditions let through.

    Returns
    -------
    n_conditions, n_levels : int
    """
    asked = np.zeros(len(walk.columns), dtype=np.int64)
    # A plain 0 is a type of its own to numba: what it is passed to compiles twice (measured).
    at, coded, depth, node = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    n_asked, row = 0, 0
    while True:
        if walk.nodes[node].kind == _LEAF:
            at, coded = _write_leaf(walk, bar, asked[:n_asked], conditions, levels, at, coded)
            leaf[row] = node
            end[row] = at
            row += 1
            while depth > 0:  # up to the next branch that waits
                depth -= 1
                frame = walk.stack[depth]
                leave(walk, frame.node, frame.tried, depth)
                above = walk.nodes[frame.node]
                n_asked -= walk.columns[above.feature].asked == 0
                frame.tried += 1
                if frame.tried < above.n_children:
                    break
            else:
                return at, coded
        else:
            walk.stack[depth].node, walk.stack[depth].tried = node, 0
        frame = walk.stack[depth]
        above = walk.nodes[frame.node]
        if walk.columns[above.feature].asked == 0:
            asked[n_asked] = above.feature
            n_asked += 1
        enter(walk, frame.node, frame.tried, depth)
        node = above.first_child + frame.tried
        depth += 1
