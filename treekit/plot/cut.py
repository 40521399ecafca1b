"""How much of a tree is drawn."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.errors import SettingError
from treekit.model.tree import Tree

__all__ = ["MOST_ENDS", "Cut", "MaxDepth", "cut"]

MOST_ENDS = 40
"""``max_depth="auto"`` ends at the deepest level with no more ends (leaves and cuts) than these."""

MaxDepth = int | Literal["auto"] | None


class Cut(NamedTuple):
    """The part of a tree that is drawn.

    Attributes
    ----------
    nodes : (drawn,) int64
        Ascending: a parent before its children, siblings side by side.
    first_child, n_children : (drawn,) int64
        Among the nodes drawn; -1 and 0 at the ends.
    hidden : (drawn,) int64
        Leaves below a node at which the tree is cut; 0 elsewhere.
    depth : (drawn,) int64
    """

    nodes: npt.NDArray[np.int64]
    first_child: npt.NDArray[np.int64]
    n_children: npt.NDArray[np.int64]
    hidden: npt.NDArray[np.int64]
    depth: npt.NDArray[np.int64]


def cut(tree: Tree, max_depth: MaxDepth) -> Cut:
    """The nodes down to a depth: a number, "auto" (see `MOST_ENDS`), or None for all.

    Raises
    ------
    SettingError
        If `max_depth` is none of these.
    """
    depths = tree.depths
    limit = _limit(tree, depths, max_depth)
    nodes = np.flatnonzero(depths <= limit)
    depth = depths[nodes]
    inner = (tree.n_children[nodes] > 0) & (depth < limit)
    # Siblings are of one depth, so they stay side by side and in order.
    place = np.cumsum(depths <= limit) - 1
    return Cut(
        nodes=nodes,
        first_child=np.where(inner, place[tree.first_child[nodes]], -1),
        n_children=np.where(inner, tree.n_children[nodes], 0).astype(np.int64),
        hidden=np.where(
            (tree.n_children[nodes] > 0) & ~inner, _leaves_below(tree, depths)[nodes], 0
        ),
        depth=depth,
    )


def _limit(tree: Tree, depths: npt.NDArray[np.int64], max_depth: MaxDepth) -> int:
    if max_depth is None:
        return int(depths.max())
    if isinstance(max_depth, int) and not isinstance(max_depth, bool) and max_depth >= 0:
        return max_depth
    if max_depth != "auto":
        raise SettingError(
            f"max_depth of a picture is {max_depth!r}; give a depth from 0, 'auto', or None for all"
        )
    leaf = tree.n_children == 0
    of_depth = np.bincount(depths)
    leaves_above = np.cumsum(np.bincount(depths[leaf], minlength=len(of_depth)))
    inner_here = np.bincount(depths[~leaf], minlength=len(of_depth))
    return max(int(np.flatnonzero(leaves_above + inner_here <= MOST_ENDS).max(initial=0)), 1)


def _leaves_below(tree: Tree, depths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """(n,) int64: leaves of the subtree of each node, from the deepest level up."""
    count: npt.NDArray[np.int64] = (tree.n_children == 0).astype(np.int64)
    parent = tree.parent
    order = np.argsort(depths, kind="stable")
    edges = np.searchsorted(depths[order], np.arange(1, int(depths.max()) + 2))
    for level in range(len(edges) - 2, -1, -1):
        here = order[edges[level] : edges[level + 1]]
        np.add.at(count, parent[here], count[here])
    return count
