"""The first levels of trees as complete ones: what `treekit.kernels.predict` walks first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.model.tree import Split, Tree

if TYPE_CHECKING:
    from treekit.kernels.packed import Tops

__all__ = ["MAX_TOP", "joined_tops", "make_tops", "top_levels"]

MAX_TOP = 9
"""Levels at most: the ends of a tree stay in the first cache."""

Places = npt.NDArray[np.int64]


def top_levels(nodes: Tree, roots: Places, depth: Places, most: int) -> Places:
    """(trees,) levels to be complete: `most`, and no more places than twice the nodes.

    None are complete in a tree where a node has other than two branches.
    """
    levels = np.minimum(np.minimum(depth, most), np.frexp(np.diff(roots))[1])
    other = (nodes.kind != Split.LEAF) & (nodes.n_children != 2)
    levels[np.maximum.reduceat(other, roots[:-1])] = 0
    return levels


def make_tops(
    nodes: Tree,
    roots: Places,
    depth: Places,
    key: npt.NDArray[Any],
    cell: npt.NDArray[np.uint64],
    levels: Places,
) -> Tops:
    """The first levels of all trees, complete.

    Parameters
    ----------
    nodes, roots
        See `treekit.model.joined.join`.
    depth : (trees,) int64
        Levels of each tree.
    key, cell : (nodes,)
        What each node compares; of a leaf the key is its number.
    levels : (trees,) int64
        How many of each; where they are more than it has, its leaves are repeated.
    """
    from treekit.kernels.packed import Tops

    below = levels < depth
    start = np.cumsum(1 << levels) - (1 << levels)
    n_places = int(start[-1] + (1 << levels[-1]))
    keys = np.zeros(n_places, dtype=key.dtype)
    cells = np.zeros(n_places, dtype=np.uint32)  # the zero: a leaf's repetitions go left
    ends = np.empty(n_places, dtype=np.uint32)
    tree, at = np.arange(len(levels)), roots[:-1, None]
    for level in range(int(levels.max()) + 1):
        done = levels[tree] == level
        whole = at[done]
        said = np.where(below[tree[done], None], whole - roots[tree[done], None], key[whole])
        ends[start[tree[done], None] + np.arange(1 << level)] = said
        tree, at = tree[~done], at[~done]
        place = start[tree, None] + (1 << level) + np.arange(1 << level)
        keys[place], cells[place] = key[at], cell[at]
        leaf = nodes.kind[at] == Split.LEAF
        children = np.where(leaf, at, nodes.first_child[at])[:, :, None] + [0, 1]
        children[leaf, 1] -= 1  # whichever way, the leaf again
        at = children.reshape(len(tree), 2 << level)
    return Tops(start.astype(np.uint64), levels.astype(np.uint64), below, keys, cells, ends)


def joined_tops(parts: Sequence[Tops]) -> Tops:
    """Those of all trees, of which each part has some."""
    from treekit.kernels.packed import Tops

    sizes = [len(part.key) for part in parts]
    before = np.repeat(np.cumsum(sizes) - sizes, [len(part.start) for part in parts])
    joined = Tops(*map(np.concatenate, zip(*parts, strict=True)))
    return joined._replace(start=joined.start + before.astype(np.uint64))
