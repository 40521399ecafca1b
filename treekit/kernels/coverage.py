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
def mark(nodes: Any, level_branch: Any, after: Any, cells: Any, marks: Any) -> None:
    """Route rows through one tree.

    Parameters
    ----------
    nodes : (nodes,) treekit.kernels.boxes.NODE
    level_branch : (entries,) int32
    after : (nodes,) float64
        The next number of the input type above each threshold.
    cells : (rows, features) float64
        Numbers of the input type, codes of levels; NaN = missing.
    marks : Marks
        Output, added to.
    """
    for r in range(len(cells)):
        at = 0
        while nodes[at].kind != _LEAF:
            node = nodes[at]
            marks.node[at] = True
            x = cells[r, node.feature]
            if np.isnan(x):
                marks.missing[at] = True
                branch = 0 if node.kind == _MISSING else node.missing
            elif node.kind == _MISSING:
                branch = 1
            elif node.kind == _THRESHOLD:
                marks.at[at] |= x == node.threshold
                marks.above[at] |= x == after[at]
                branch = 0 if x <= node.threshold else 1
            else:
                entry = node.level_start + int(x)
                marks.level[entry] = True
                branch = level_branch[entry]
                if branch < 0:
                    branch = node.missing
            at = node.first_child + branch
        marks.node[at] = True
