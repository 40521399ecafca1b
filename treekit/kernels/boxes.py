"""What reaches a node of a tree, kept up to date while a loop walks the tree.

It is a product of one set a column: an interval or some levels, and whether
missing values are in it.  So a node can be reached exactly if none of these
sets is empty, and a row that reaches it takes any member of each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import kernel

__all__ = ["Box", "Nodes", "enter", "leave", "nodes_of", "possible", "root_box"]

# Numbers of `treekit.model.tree.Split`, which compiled code cannot read.
_THRESHOLD, _MISSING = 1, 4


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
def enter(nodes: Any, box: Any, node: int, branch: int, depth: int) -> None:
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
def leave(nodes: Any, box: Any, node: int, branch: int, depth: int) -> None:
    """Undo `enter`."""
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
def possible(box: Any, nominal: Any, f: int) -> bool:
    """Whether any value of column `f`, missing included, is in the box."""
    some = box.n_open[f] > 0 if nominal[f] else box.low[f] < box.high[f]
    return box.no_missing[f] == 0 or (box.no_known[f] == 0 and some)
