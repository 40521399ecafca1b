"""The loop that merges the conditions on the way to every leaf.

What reaches a node is a product of one set a column: an interval or some
levels, and whether missing values are in it.  A walk in depth-first order
keeps that product up to date (`_enter`, `_leave`), so that the work is linear
in the nodes and in what is written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import kernel

__all__ = ["Box", "Nodes", "leaf_conditions", "nodes_of", "root_box"]

# Numbers of `treekit.model.tree.Split`, which compiled code cannot read.
_LEAF, _THRESHOLD, _MISSING = 0, 1, 4


class Nodes(NamedTuple):
    """The arrays of one `treekit.model.tree.Tree` that say where a row goes."""

    kind: Any
    feature: Any
    threshold: Any
    first_child: Any
    n_children: Any
    missing: Any
    level_start: Any
    level_branch: Any


class Box(NamedTuple):
    """What reaches a node: the product of one set a column.

    Attributes
    ----------
    low, high : (features,) float64
        Known numbers lie in ``low < x <= high``; infinite where unbounded.
    no_missing, no_known, asked : (features,) int64
        How many splits on the way keep missing values out, keep known values
        out, and ask the column at all.
    barred : (levels of all columns,) int64
        How many splits keep a level out.
    n_open : (features,) int64
        Levels that no split keeps out.
    first_level : (features + 1,) int64
        Column f owns ``barred[first_level[f]:first_level[f + 1]]``.
    saved : (depth,) float64
        The bound that each split on the way replaced.
    """

    low: Any
    high: Any
    no_missing: Any
    no_known: Any
    asked: Any
    barred: Any
    n_open: Any
    first_level: Any
    saved: Any


def nodes_of(tree: Any) -> Nodes:
    """The arrays of a `treekit.model.tree.Tree` that kernels walk."""
    return Nodes(*(getattr(tree, name) for name in Nodes._fields))


def root_box(n_levels: npt.NDArray[np.int64], bar: int, depth: int) -> Box:
    """What reaches a root: everything, missing values only if `bar` is 0."""
    features = len(n_levels)
    first_level = np.concatenate([[0], np.cumsum(n_levels)]).astype(np.int64)
    return Box(
        low=np.full(features, -np.inf),
        high=np.full(features, np.inf),
        no_missing=np.full(features, bar, dtype=np.int64),
        no_known=np.zeros(features, dtype=np.int64),
        asked=np.zeros(features, dtype=np.int64),
        barred=np.zeros(first_level[-1], dtype=np.int64),
        n_open=n_levels.astype(np.int64),
        first_level=first_level,
        saved=np.zeros(depth),
    )


@kernel
def _enter(nodes: Any, box: Any, node: int, branch: int, depth: int) -> None:
    """Narrow `box` to what takes `branch` at `node`."""
    f = nodes.feature[node]
    box.asked[f] += 1
    if nodes.kind[node] == _MISSING:
        if branch == 0:
            box.no_known[f] += 1
        else:
            box.no_missing[f] += 1
        return
    if nodes.missing[node] != branch:
        box.no_missing[f] += 1
    if nodes.kind[node] == _THRESHOLD:
        at = nodes.threshold[node]
        if branch == 0:
            box.saved[depth] = box.high[f]
            box.high[f] = min(box.high[f], at)
        else:
            box.saved[depth] = box.low[f]
            box.low[f] = max(box.low[f], at)
        return
    start, first = nodes.level_start[node], box.first_level[f]
    for level in range(nodes.level_start[node + 1] - start):
        goes = nodes.level_branch[start + level]
        if (nodes.missing[node] if goes < 0 else goes) != branch:
            box.n_open[f] -= box.barred[first + level] == 0
            box.barred[first + level] += 1


@kernel
def _leave(nodes: Any, box: Any, node: int, branch: int, depth: int) -> None:
    """Undo `_enter`."""
    f = nodes.feature[node]
    box.asked[f] -= 1
    if nodes.kind[node] == _MISSING:
        if branch == 0:
            box.no_known[f] -= 1
        else:
            box.no_missing[f] -= 1
        return
    if nodes.missing[node] != branch:
        box.no_missing[f] -= 1
    if nodes.kind[node] == _THRESHOLD:
        if branch == 0:
            box.high[f] = box.saved[depth]
        else:
            box.low[f] = box.saved[depth]
        return
    start, first = nodes.level_start[node], box.first_level[f]
    for level in range(nodes.level_start[node + 1] - start):
        goes = nodes.level_branch[start + level]
        if (nodes.missing[node] if goes < 0 else goes) != branch:
            box.barred[first + level] -= 1
            box.n_open[f] += box.barred[first + level] == 0


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
                _leave(nodes, box, above, taken[depth], depth)
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
        _enter(nodes, box, above, taken[depth], depth)
        node = nodes.first_child[above] + taken[depth]
        depth += 1
