"""Branches of level splits as one table: what walks look up.

A split's entries are the branch of a missing value, then that of each level, as narrow
as the branches of all splits allow: categories may be many, and nodes, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.model.owned import gathered, stretches
from treekit.model.tree import Split, Tree

__all__ = ["asks_levels", "fill_levels", "level_room"]

_NARROW = np.iinfo(np.uint8).max
"""Branches at most of a split whose entries take a byte: the last number means none."""


def asks_levels(nodes: Tree, plain: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """(n,) bool: the level splits among the nodes of the mask `plain`."""
    asks: npt.NDArray[np.bool_] = (nodes.kind == Split.SUBSET) | (nodes.kind == Split.MULTIWAY)
    return asks & plain


def level_room(trees: Sequence[Tree], plain: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """The table of the `plain` nodes (nodes,) of all trees, to be filled.

    Returns
    -------
    (entries,) uint8 or uint32
        The largest number of its type is no branch of any node.
    """
    entries = most = at = 0
    for tree in trees:
        asks = asks_levels(tree, plain[at : at + tree.n_nodes])
        at += tree.n_nodes
        if asks.any():
            entries += int(np.diff(tree.level_start)[asks].sum() + np.count_nonzero(asks))
            most = max(most, int(tree.n_children[asks].max()))
    return np.empty(entries, np.uint8 if most <= _NARROW else np.uint32)


def fill_levels(
    table: npt.NDArray[Any],
    at: int,
    nodes: Tree,
    asks: npt.NDArray[np.bool_],
    *,
    divides: bool = False,
) -> npt.NDArray[np.int64]:
    """Write the entries of the nodes of a mask from place `at` of a table on.

    A level that was absent at a node takes the branch of missing values; if rows divide,
    both have the largest number of the table's type.

    Returns
    -------
    (asking nodes + 1,) int64
        Where the entries of each start in `table`, and where the last one's end.
    """
    own = np.flatnonzero(asks)
    first = nodes.level_start[own]
    sizes = nodes.level_start[own + 1] - first
    start = at + np.cumsum(np.append(0, sizes + 1))
    missing = nodes.missing[own].astype(table.dtype)
    if divides:
        missing[:] = np.iinfo(table.dtype).max
    for part in stretches(sizes):
        entries = table[start[part.start] : start[part.stop]]
        is_missing = np.zeros(len(entries), dtype=np.bool_)
        is_missing[start[part] - start[part.start]] = True
        branch = gathered(nodes.level_branch, first[part], sizes[part])
        instead = np.repeat(missing[part], sizes[part])
        entries[is_missing] = missing[part]
        entries[~is_missing] = np.where(branch < 0, instead, branch)
    return start
