"""How much of a tree is drawn."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.errors import SettingError
from treekit.model.tree import Tree

__all__ = ["MOST_ENDS", "MOST_LEVELS", "Cut", "MaxDepth", "cut", "way_to"]

MOST_ENDS = 40
"""``max_depth="auto"`` ends at the deepest level with no more ends (leaves and cuts) than these."""

MOST_LEVELS = 30
"""So deep a marked way is followed where ``auto`` does not draw the whole tree."""

MaxDepth = int | Literal["auto", "way"] | None


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
    along : bool
        Whether nothing but a marked way, and what lies beside it, is drawn.
    """

    nodes: npt.NDArray[np.int64]
    first_child: npt.NDArray[np.int64]
    n_children: npt.NDArray[np.int64]
    hidden: npt.NDArray[np.int64]
    depth: npt.NDArray[np.int64]
    along: bool


def cut(tree: Tree, max_depth: MaxDepth, way: npt.NDArray[np.bool_] | None = None) -> Cut:
    """The nodes down to a depth: a number, "auto" (see `MOST_ENDS`), "way", or None for all.

    Parameters
    ----------
    tree : Tree
    max_depth : int, "auto", "way" or None
    way : (nodes,) bool, optional
        A part of the tree that begins at its root (see `way_to`).  ``way`` draws this part
        and its nodes' other branches, as far as `MOST_LEVELS`; so does ``auto`` where it
        would cut the tree.

    Raises
    ------
    SettingError
        If `max_depth` is none of these.
    """
    depths = tree.depths
    limit = _limit(tree, depths, "auto" if max_depth == "way" and way is not None else max_depth)
    opened = (tree.n_children > 0) & (depths < limit)
    too_large = max_depth == "auto" and limit < int(depths.max())
    along = False
    if way is not None and (max_depth == "way" or too_large):
        along, opened = True, (tree.n_children > 0) & (depths < MOST_LEVELS) & way
    # Siblings have one parent, so they stay side by side and in order.
    drawn = opened[tree.parent]
    drawn[0] = True
    nodes, inner = np.flatnonzero(drawn), opened[drawn]
    place = np.cumsum(drawn) - 1
    return Cut(
        nodes=nodes,
        first_child=np.where(inner, place[tree.first_child[nodes]], -1),
        n_children=np.where(inner, tree.n_children[nodes], 0).astype(np.int64),
        hidden=np.where(
            (tree.n_children[nodes] > 0) & ~inner, _leaves_below(tree, depths)[nodes], 0
        ),
        depth=depths[nodes],
        along=along,
    )


def way_to(tree: Tree, marked: Collection[int]) -> npt.NDArray[np.bool_]:
    """(nodes,) bool: the marked nodes, and those on the ways from the root to them.

    Raises
    ------
    SettingError
        For a node that the tree does not have.
    """
    way = np.zeros(tree.n_nodes, dtype=np.bool_)
    parent = tree.parent
    for node in marked:
        if not 0 <= node < tree.n_nodes:
            raise SettingError(f"there is no node {node}; the tree has {tree.n_nodes}, from 0")
        at = node
        while not way[at]:
            way[at] = True
            at = int(parent[at]) if at else 0
    return way


def _limit(tree: Tree, depths: npt.NDArray[np.int64], max_depth: MaxDepth) -> int:
    if max_depth is None:
        return int(depths.max())
    if isinstance(max_depth, int) and not isinstance(max_depth, bool) and max_depth >= 0:
        return max_depth
    if max_depth != "auto":
        raise SettingError(
            f"max_depth of a picture is {max_depth!r}; give a depth from 0, 'auto', 'way' with "
            "marked nodes, or None for all"
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
