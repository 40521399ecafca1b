"""The loop that merges the conditions on the way to every leaf.

A walk in depth-first order keeps the `Box` of the current node up to date, so
that the work is linear in the nodes and in what is written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from treekit.kernels.boxes import enter, leave
from treekit.kernels.compile import kernel

__all__ = ["leaf_conditions"]

# Number of `treekit.model.tree.Split.LEAF`, which compiled code cannot read.
_LEAF = 0


@kernel
def _write_leaf(
    box: Any,
    nominal: Any,
    bar: int,
    columns: Any,
    conditions: Any,
    levels: Any,
    at: int,
    coded: int,
) -> tuple[int, int]:
    """Append the conditions of one leaf; returns how many there are by then."""
    column, low, high, known, missing, level_end = conditions
    for f in columns:
        n_levels = box.first_level[f + 1] - box.first_level[f]
        any_known = box.no_known[f] == 0
        if nominal[f]:
            free = any_known and box.n_open[f] == n_levels
            any_known = any_known and box.n_open[f] > 0
        else:
            free = any_known and box.low[f] == -np.inf and box.high[f] == np.inf
            any_known = any_known and box.low[f] < box.high[f]
        if free and box.no_missing[f] == bar:
            continue
        n_coded = box.n_open[f] if nominal[f] and any_known else 0
        if at < len(column):
            column[at] = f
            low[at] = box.low[f] if any_known else -np.inf
            high[at] = box.high[f] if any_known else np.inf
            known[at] = any_known
            missing[at] = box.no_missing[f] == 0
            level_end[at] = coded + n_coded
            if n_coded > 0:
                to = coded
                for level in range(n_levels):
                    if box.barred[box.first_level[f] + level] == 0:
                        levels[to] = level
                        to += 1
        at += 1
        coded += n_coded
    return at, coded


@kernel
def leaf_conditions(
    nodes: Any, box: Any, nominal: Any, bar: int, leaf: Any, end: Any, conditions: Any, levels: Any
) -> tuple[int, int]:
    """The merged conditions of every leaf of one tree, leaves in depth-first order.

    Call it with empty outputs to learn their sizes, then again to fill them.

    Parameters
    ----------
    nodes : Nodes
    box : Box
        Of the root; left as it was.
    nominal : (features,) bool
    bar : int
        ``no_missing`` of the root: 1 if the model refuses missing values.
    leaf, end : (leaves,) int64
        Output: node number, and the number of conditions up to and with it.
    conditions : tuple of (conditions,) arrays
        Output: column int32, low and high float64, known and missing bool,
        end of its levels int64.  Columns in the order the path asks them.
    levels : (codes,) int32
        Output: the levels that nominal conditions let through.

    Returns
    -------
    n_conditions, n_levels : int
    """
    depth_bound = len(box.saved) + 1
    path = np.zeros(depth_bound, dtype=np.int64)
    taken = np.zeros(depth_bound, dtype=np.int64)
    columns = np.zeros(len(nominal), dtype=np.int64)
    n_columns, at, coded, row, depth, node = 0, 0, 0, 0, 0, 0
    while True:
        if nodes.kind[node] == _LEAF:
            at, coded = _write_leaf(
                box, nominal, bar, columns[:n_columns], conditions, levels, at, coded
            )
            leaf[row] = node
            end[row] = at
            row += 1
            while depth > 0:  # up to the next branch that waits
                depth -= 1
                above = path[depth]
                leave(nodes, box, above, taken[depth], depth)
                n_columns -= box.asked[nodes.feature[above]] == 0
                taken[depth] += 1
                if taken[depth] < nodes.n_children[above]:
                    break
            else:
                return at, coded
        else:
            path[depth], taken[depth] = node, 0
        above = path[depth]
        f = nodes.feature[above]
        if box.asked[f] == 0:
            columns[n_columns] = f
            n_columns += 1
        enter(nodes, box, above, taken[depth], depth)
        node = nodes.first_child[above] + taken[depth]
        depth += 1
