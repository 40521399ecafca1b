"""How pruners cut a tree, and put a subtree in the place of a node."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.model.tree import Split, Tree

__all__ = ["collapse", "graft", "kept_nodes"]

Nodes = npt.NDArray[np.int64]


def collapse(tree: Tree, cut: npt.NDArray[np.bool_]) -> Tree:
    """The tree in which every node of the mask `cut` (nodes,) is a leaf.

    Nodes below a cut go; the others keep their order.
    """
    source = np.where(cut, -1, np.arange(tree.n_nodes))
    kept = kept_nodes(tree, source)
    return tree.take(kept, source[kept] < 0)


def graft(tree: Tree, source: Nodes) -> Tree:
    """The tree in which node i asks what node ``source[i]`` asked, and has its children.

    Parameters
    ----------
    source : (nodes,) int64
        The node itself, one below it, or -1 for a leaf.  A node that takes
        another's place also says what that one says.

    Returns
    -------
    Tree
        Of the nodes `kept_nodes`.
    """
    kept = kept_nodes(tree, source)
    own = source[kept]
    return tree.take(kept, own < 0, np.where(own < 0, kept, own))


def kept_nodes(tree: Tree, source: Nodes) -> Nodes:
    """The nodes of `tree` that are left when ``source`` says what each asks, ascending.

    Children still come after their parents, and siblings stay side by side:
    a node takes the children of one below it.
    """
    source = np.where(tree.kind[source] == Split.LEAF, -1, source)
    level = np.zeros(1, dtype=np.int64)
    kept = [level]
    # One level of the tree at a time, so that depth costs no recursion.
    while len(level := source[level][source[level] >= 0]):
        counts = tree.n_children[level]
        offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        level = np.repeat(tree.first_child[level].astype(np.int64), counts) + offset
        kept.append(level)
    return np.sort(np.concatenate(kept))
