"""How pruners cut a tree."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.model.tree import Split, Tree

__all__ = ["collapse"]


def collapse(tree: Tree, cut: npt.NDArray[np.bool_]) -> Tree:
    """The tree in which every node of the mask `cut` (nodes,) is a leaf.

    Nodes below a cut go; the others keep their order.
    """
    closed = cut | (tree.kind == Split.LEAF)
    level = np.zeros(1, dtype=np.int64)
    kept = [level]
    # One level of the tree at a time, so that depth costs no recursion.
    while len(level := level[~closed[level]]):
        counts = tree.n_children[level]
        offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        level = np.repeat(tree.first_child[level].astype(np.int64), counts) + offset
        kept.append(level)
    keep = np.sort(np.concatenate(kept))
    return tree.take(keep, closed[keep])
