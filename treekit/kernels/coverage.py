"""The loop that routes rows through a tree and marks what they touch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treekit.kernels.compile import kernel

__all__ = ["Marks", "mark"]

# Numbers of `treekit.model.tree.Split`, which compiled code cannot read.
_LEAF, _THRESHOLD, _MISSING = 0, 1, 4


class Marks(NamedTuple):
    """What rows touched in one tree.

    Attributes
    ----------
    node : (nodes,) bool
        Reached at all: for a split's child, that side of the split was taken.
    at, above : (nodes,) bool
        THRESHOLD: reached with exactly the threshold, with the next number above it.
    missing : (nodes,) bool
        A split reached with a missing value.
    level : (level entries of the tree,) bool
        A level split reached with that level.
    """

    node: Any
    at: Any
    above: Any
    missing: Any
    level: Any


@kernel
def mark(nodes: Any, after: Any, cells: Any, marks: Any) -> None:
    """Route rows through one tree.

    Parameters
    ----------
    nodes : treekit.kernels.boxes.Nodes
    after : (nodes,) float64
        The next number of the input type above each threshold.
    cells : (rows, features) float64
        Numbers of the input type, codes of levels; NaN = missing.
    marks : Marks
        Output, added to.
    """
    for r in range(len(cells)):
        node = 0
        while nodes.kind[node] != _LEAF:
            marks.node[node] = True
            x = cells[r, nodes.feature[node]]
            if np.isnan(x):
                marks.missing[node] = True
                branch = 0 if nodes.kind[node] == _MISSING else nodes.missing[node]
            elif nodes.kind[node] == _MISSING:
                branch = 1
            elif nodes.kind[node] == _THRESHOLD:
                marks.at[node] |= x == nodes.threshold[node]
                marks.above[node] |= x == after[node]
                branch = 0 if x <= nodes.threshold[node] else 1
            else:
                entry = nodes.level_start[node] + int(x)
                marks.level[entry] = True
                branch = nodes.level_branch[entry]
                if branch < 0:
                    branch = nodes.missing[node]
            node = nodes.first_child[node] + branch
        marks.node[node] = True
