"""A model whose subtrees that say one thing are leaves.

Where all leaves below a node have the same units, the node answers for them: whatever the
splits below ask, the sum is the same.  That holds where rows divide, too: the parts that
the branches get of a row's mass are ranges side by side, so that their sum is the mass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.model.model import Model
from treekit.model.tree import Split, Tree, node_levels

__all__ = ["Collapsed", "collapse"]

Index = npt.NDArray[np.int64]


class Collapsed(NamedTuple):
    """The smaller model, and where the nodes of the given one are.

    Attributes
    ----------
    model : Model
        Equal to the given one, row by row.
    nodes : tuple of (nodes,) int64
        For each tree, the given tree's numbers of the nodes that are left.
    homes : tuple of (leaves,) int64
        For each tree, for each leaf of the given one, ascending, the number in the given
        tree of the leaf that answers for it now.
    """

    model: Model
    nodes: tuple[Index, ...]
    homes: tuple[Index, ...]


def collapse(model: Model) -> Collapsed:
    """Each subtree whose leaves say the same becomes a leaf; linear in the nodes."""
    trees, units, nodes, homes = [], [], [], []
    for number, tree in enumerate(model.trees):
        said, which = np.unique(model.tree_units(number), axis=0, return_inverse=True)
        small, kept, home, says = _collapse_tree(tree, which.reshape(-1))
        trees.append(small)
        nodes.append(kept)
        homes.append(home)
        units.append(said[says])
    smaller = replace(model, trees=tuple(trees), units=np.concatenate(units))
    return Collapsed(smaller, tuple(nodes), tuple(homes))


def _collapse_tree(tree: Tree, which: Index) -> tuple[Tree, Index, Index, Index]:
    """The smaller tree, its nodes' old numbers, each old leaf's new home, what leaves say."""
    leaves = tree.leaves
    lowest = np.full(tree.n_nodes, -1, dtype=np.int64)
    lowest[leaves] = which
    highest = lowest.copy()
    levels = [*node_levels(tree, np.zeros(1, dtype=np.int64))]
    for inner, children in reversed(levels):
        counts = tree.n_children[inner]
        start = np.cumsum(counts) - counts
        lowest[inner] = np.minimum.reduceat(lowest[children], start)
        highest[inner] = np.maximum.reduceat(highest[children], start)
    closed = lowest == highest
    home = np.zeros(tree.n_nodes, dtype=np.int64)
    kept = np.zeros(tree.n_nodes, dtype=np.bool_)
    kept[0] = True
    for inner, children in levels:
        counts = tree.n_children[inner]
        opened = np.repeat(kept[inner] & ~closed[inner], counts)
        kept[children] = opened
        home[children] = np.where(opened, children, np.repeat(home[inner], counts))
    nodes = np.flatnonzero(kept)
    if len(nodes) == tree.n_nodes:
        return tree, nodes, leaves, which
    small = tree.take(nodes, closed[nodes])
    ends = nodes[small.kind == Split.LEAF]
    return small, nodes, home[leaves], lowest[ends]
