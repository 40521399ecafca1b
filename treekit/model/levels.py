"""Nodes of trees by their depth, a level at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from treekit.model.tree import Tree

__all__ = ["node_depths", "node_levels"]


def node_depths(nodes: Tree, roots: npt.NDArray[np.int64], bound: int) -> npt.NDArray[np.int64]:
    """(n,) int64: edges from the own root of each joined node, a level at a time to `bound`."""
    depth = np.zeros(nodes.n_nodes, dtype=np.int64)
    for at, (_, children) in enumerate(node_levels(nodes, roots), 1):
        if at > bound:
            break
        depth[children] = at
    return depth


def node_levels(
    nodes: Tree, roots: npt.NDArray[np.int64]
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Inner nodes of each level of joined trees, the roots' first, and all of their children."""
    counts = nodes.n_children
    two = bool(np.all((counts == 2) | (counts == 0)))
    level = roots
    while True:
        level = level[counts[level] > 0]
        if not len(level):
            return
        first = nodes.first_child[level].astype(np.int64)
        if two:
            children = np.empty(2 * len(first), np.int64)
            children[::2] = first
            np.add(first, 1, out=children[1::2])
        else:
            own = counts[level]
            offset = np.arange(own.sum()) - np.repeat(np.cumsum(own) - own, own)
            children = np.repeat(first, own) + offset
        yield level, children
        level = children
