"""The records that `treekit.kernels.predict` walks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.derived import PackedColumns

__all__ = ["PackedTrees", "Tops"]

Array = npt.NDArray[Any]


class Tops(NamedTuple):
    """The complete first levels of all trees.

    Attributes
    ----------
    start : (trees,) uint64
        Tree t's node h, from 1, is at ``start[t] + h`` of `key` and `cell`, and
        its end e, from 0, at ``start[t] + e`` of `ends`.
    depth : (trees,) uint64
        Levels of each.
    below : (trees,) bool
        Whether the ends are nodes, else they are numbers of leaves.
    key : (places,) uint32 or uint64
    cell : (places,) uint32
        With the flag of levels in the lowest bit.
    ends : (places,) uint32
        Where the rows go: a node counted from the root, or a leaf of the model.
    """

    start: Array
    depth: Array
    below: Array
    key: Array
    cell: Array
    ends: Array


class PackedTrees(NamedTuple):
    """All trees of a model, as the loops want them.

    Attributes
    ----------
    nodes : (nodes, 2) uint32 or uint64
        Packed nodes, tree after tree; children count from the tree's root.
    roots : (trees + 1,) uint64
        Where each tree starts in `nodes`.
    tops : Tops
    table : (entries,) uint8 or uint32, or None
        Branches of the level splits (`treekit.model.concatenated`); None if the model has none.
    derived : PackedColumns, or None
        What columns beyond those of the rows ask; None if there are none.
    cell_mask, child_shift : uint64
        Where a node's second word holds cell and child.
    columns, n_codes : (columns,) uint64
        Which columns the nodes ask; see `treekit.kernels.keys.encode`.
    deepest : uint64
        Levels of the deepest tree.
    """

    nodes: Array
    roots: Array
    tops: Tops
    table: Array | None
    derived: PackedColumns | None
    cell_mask: np.uint64
    child_shift: np.uint64
    columns: Array
    n_codes: Array
    deepest: np.uint64
