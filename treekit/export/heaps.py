"""Trees as complete ones, whose nodes need no children's numbers.

The layout of the in-process scorer's first levels (`treekit.model.packing`), down to
the leaves.  A row has a cell that is always 0, and two for each column: in the
*right* one a missing value is the largest key of all, in the *left* one it is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.export.table import LeafTable
from treekit.model.concatenated import asks_levels, fill_levels, join, level_room
from treekit.model.derived_features import DerivedColumns
from treekit.model.model import Model
from treekit.model.packing import make_tops, node_keys
from treekit.model.tree import MAX_DEPTH, Split, Tree, node_depths

__all__ = ["CELL_SHIFT", "Heaps", "heaps"]

CELL_SHIFT = 3
"""Where the number of a cell stands in a test: times 8, its place among eight rows."""
_MANY = 1 << 18  # nodes: trees that no cache holds gain nothing


@dataclass(frozen=True, slots=True)
class Heaps:
    """The nodes of all trees.

    Attributes
    ----------
    nodes : (places,) or (2 * places,) uint64
        Tree t's node h, from 1, is at ``start[t] + h``; its children are 2h and
        2h + 1.  Packed: a key below a test, 32 bits each.  Otherwise key and test
        by turns.  A test holds whether levels are asked, and from `CELL_SHIFT` on
        the number of the cell.
    packed : bool
    start : (trees,) uint32
    depth : (trees,) int64
        Levels, the same for all trees of a group.
    ends : (places,) int64
        What is said at end e of tree t, at ``start[t] + e``.
    end_nodes : (places,) int64
        The leaf there, as a node of its tree.
    sets : (bytes,) uint8
        Branches of questions to levels, as in `treekit.export.packed.PackedNodes`.
    """

    nodes: npt.NDArray[np.uint64]
    packed: bool
    start: npt.NDArray[np.uint32]
    depth: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    end_nodes: npt.NDArray[np.int64]
    sets: npt.NDArray[np.uint8]


def heaps(model: Model, leaves: LeafTable, derived: DerivedColumns, together: int) -> Heaps | None:
    """The trees of a model, of which a row walks some `together`.

    None if they would have more than twice the places of their nodes, a node has
    other than two branches, some ask derived columns, or no cache would hold them.
    """
    if derived.n_columns or model.n_nodes > _MANY:
        return None
    nodes, roots = join(model.trees)
    leaf = nodes.kind == Split.LEAF
    depth = np.maximum.reduceat(node_depths(nodes, roots[:-1], MAX_DEPTH), roots[:-1])
    levels = _alike(depth, together)
    places = np.sum(1 << np.minimum(levels, _MANY.bit_length()))
    if places > 2 * len(leaf) or np.any(~leaf & (nodes.n_children != 2)):
        return None
    single = model.schema.dtype == "float32"
    key, cell, sets = _asked(nodes, derived, single)
    if len(sets) > _MANY:
        return None
    key[leaf] = np.arange(np.count_nonzero(leaf))
    tops = make_tops(nodes, roots, depth, key, cell, levels)
    key, test = tops.key.astype(np.uint64), tops.cell.astype(np.uint64)
    own = np.arange(len(leaf)) - np.repeat(roots[:-1], np.diff(roots))
    return Heaps(
        nodes=key | test << np.uint64(32) if single else np.stack([key, test], axis=1).ravel(),
        packed=single,
        start=tops.start.astype(np.uint32),
        depth=levels,
        ends=leaves.row[tops.ends],
        end_nodes=own[leaf][tops.ends],
        sets=np.packbits(sets, bitorder="little"),
    )


def _alike(depth: npt.NDArray[np.int64], together: int) -> npt.NDArray[np.int64]:
    """Depths of which each whole group has one, its largest."""
    levels, whole = depth.copy(), len(depth) // together * together
    levels[:whole] = np.repeat(depth[:whole].reshape(-1, together).max(axis=1), together)
    return levels


def _asked(
    nodes: Tree, derived: DerivedColumns, single: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint64], npt.NDArray[Any]]:
    """Key and test of each node, and the branches of questions to levels."""
    word, real = (np.uint32, np.float32) if single else (np.uint64, np.float64)
    key, left = node_keys(nodes, derived, np.dtype(word), np.dtype(real))
    key[left & (nodes.kind == Split.THRESHOLD)] -= word(1)  # cells are not moved up
    plain = derived.column < 0
    asks, sets = asks_levels(nodes, plain), level_room([nodes], plain)
    key[asks] = fill_levels(sets, 0, nodes, asks)[:-1]
    number = 1 + 2 * nodes.feature.astype(np.int64) + (left | asks)
    number[nodes.kind == Split.LEAF] = 0
    return key, (number << CELL_SHIFT | asks).astype(np.uint64), sets
