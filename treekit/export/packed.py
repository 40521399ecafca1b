"""Trees as packed nodes, for loops that neither branch nor look anything up but nodes and cells.

The nodes of `treekit.model.packing` (see `treekit.kernels.score_batch` for their meaning),
made for source code: steps count from the node itself, so that a walk needs
nothing but its place; a leaf holds the number of what it says as its key, which
never makes a row move because its cell is always 0; and levels are looked up in a
table of bits where every split has two branches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import ExportError
from treekit.export.table import LeafTable
from treekit.model.concatenated import GROUP, asks_levels, fill_levels, groups, join, level_room
from treekit.model.derived_features import DerivedColumns
from treekit.model.model import Model
from treekit.model.packing import node_keys
from treekit.model.tree import MAX_DEPTH, Split, Tree, node_depths

__all__ = ["PackedNodes", "packed_nodes"]

_FLAG_BITS = 2
_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class PackedNodes:
    """The nodes of all trees, leaves included, tree after tree in each tree's own order.

    Attributes
    ----------
    nodes : (nodes,) or (2 * nodes,) uint64
        Packed: a key below a test, 32 bits each.  Otherwise key and test by turns.
    packed : bool
    cell_bits : int
        Width of the cell's number in a test, which stands above two flags and
        below the step.  Cells are the columns, one that is always 0, and behind
        it the derived columns.
    levels : (entries,) uint
        Branches of level splits: 8 to a byte if `binary`, the first in the
        lowest bit; else one an entry.  Empty if there are no such splits.
    binary : bool
    root : (trees,) uint32
    depth : (trees,) int64
    """

    nodes: npt.NDArray[np.uint64]
    packed: bool
    cell_bits: int
    levels: npt.NDArray[Any]
    binary: bool
    root: npt.NDArray[np.uint32]
    depth: npt.NDArray[np.int64]


def packed_nodes(model: Model, leaves: LeafTable, derived: DerivedColumns) -> PackedNodes:
    """Pack the trees of a model whose rows do not divide.

    Some trees at a time: joined, the nodes of a large forest would take as much
    memory as the model does.

    Raises
    ------
    ExportError
        If there are more nodes, or branches of levels, than 32 bits count.
    """
    sizes = np.array([tree.n_nodes for tree in model.trees])
    if sizes.sum() > _MOST:
        raise ExportError(f"the model needs more than {_MOST} table entries: train fewer trees")
    single, n_features = model.schema.dtype == "float32", model.schema.n_features
    key = np.empty(sizes.sum(), np.uint32 if single else np.uint64)
    test = np.empty(sizes.sum(), np.uint64)
    cell_bits = (n_features + derived.n_columns).bit_length()
    levels = level_room(model.trees, derived.column < 0)
    if len(levels) > _MOST:
        raise ExportError("the category splits of the model need more than 2**31 branches")
    depth: list[npt.NDArray[np.int64]] = []
    first = first_leaf = first_entry = 0
    for trees in groups(model.trees, GROUP):
        nodes, roots = join(trees)
        own = slice(first, first + nodes.n_nodes)
        part = derived._replace(column=derived.column[own])
        key[own], wrap = node_keys(nodes, part, key.dtype, np.dtype(model.schema.dtype))
        asks = asks_levels(nodes, derived.column[own] < 0)
        start = fill_levels(levels, first_entry, nodes, asks)
        key[own][asks], first_entry = start[:-1], int(start[-1])
        leaf = nodes.kind == Split.LEAF
        n_leaves = int(np.count_nonzero(leaf))
        key[own][leaf] = leaves.row[first_leaf : first_leaf + n_leaves]
        test[own] = _tests(nodes, part, wrap | asks, asks, n_features, cell_bits)
        depths = node_depths(nodes, roots[:-1], MAX_DEPTH)
        depth.append(np.maximum.reduceat(depths, roots[:-1]))
        first, first_leaf = own.stop, first_leaf + n_leaves
    packed = single and int(test.max()) < 1 << 32
    binary = not len(levels) or int(levels.max()) < 2
    return PackedNodes(
        nodes=_words(key, test, packed),
        packed=packed,
        cell_bits=cell_bits,
        levels=np.packbits(levels, bitorder="little") if binary else levels,
        binary=binary,
        root=(np.cumsum(sizes) - sizes).astype(np.uint32),
        depth=np.concatenate(depth),
    )


def _words(
    key: npt.NDArray[Any], test: npt.NDArray[np.uint64], packed: bool
) -> npt.NDArray[np.uint64]:
    """Keys and tests as `PackedNodes.nodes`; `test` is overwritten."""
    if not packed:
        return np.stack([key.astype(np.uint64), test], axis=1).ravel()
    test <<= np.uint64(32)
    test |= key
    return test


def _tests(
    nodes: Tree,
    derived: DerivedColumns,
    wrap: npt.NDArray[np.bool_],
    asks_levels: npt.NDArray[np.bool_],
    n_features: int,
    cell_bits: int,
) -> npt.NDArray[np.uint64]:
    """The test of each node."""
    leaf = nodes.kind == Split.LEAF
    own = np.arange(nodes.n_nodes)
    cell = np.where(leaf, n_features, nodes.feature)
    cell = np.where(derived.column < 0, cell, n_features + 1 + derived.column)
    step = np.where(leaf, 0, nodes.first_child - own)
    shift = np.uint64(_FLAG_BITS + cell_bits)
    test = wrap.astype(np.uint64) | asks_levels.astype(np.uint64) << np.uint64(1)
    test |= cell.astype(np.uint64) << np.uint64(_FLAG_BITS)
    test |= step.astype(np.uint64) << shift
    return test
