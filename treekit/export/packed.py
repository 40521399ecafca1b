"""Trees as packed nodes, for loops that neither branch nor look anything up but nodes and cells.

The nodes of `treekit.model.pack` (see `treekit.kernels.predict` for their meaning),
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
from treekit.model.derived import DerivedColumns
from treekit.model.ensemble import Model
from treekit.model.joined import join
from treekit.model.pack import level_table, node_keys
from treekit.model.tree import MAX_DEPTH, Split, Tree, node_depths

__all__ = ["PackedNodes", "packed_nodes"]

_FLAG_BITS = 2


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

    Raises
    ------
    ExportError
        If there are more branches of levels than 32 bits count.
    """
    schema = model.schema
    single = schema.dtype == "float32"
    nodes, roots = join(model.trees)
    word, real = (np.uint32, np.float32) if single else (np.uint64, np.float64)
    key, wrap = node_keys(nodes, derived, np.dtype(word), np.dtype(real))
    asks_levels = (derived.column < 0) & (
        (nodes.kind == Split.SUBSET) | (nodes.kind == Split.MULTIWAY)
    )
    entries, start = level_table(nodes, asks_levels, False)
    if len(entries) > np.iinfo(np.int32).max:
        raise ExportError("the category splits of the model need more than 2**31 branches")
    leaf = nodes.kind == Split.LEAF
    key[asks_levels] = start
    key[leaf] = leaves.row
    test, cell_bits = _tests(nodes, derived, wrap | asks_levels, asks_levels, schema.n_features)
    packed = single and int(test.max()) < 1 << 32
    wide = key.astype(np.uint64)
    binary = not len(entries) or int(entries.max()) < 2
    depth = node_depths(nodes, roots[:-1], MAX_DEPTH)
    return PackedNodes(
        nodes=wide | test << np.uint64(32) if packed else np.stack([wide, test], axis=1).ravel(),
        packed=packed,
        cell_bits=cell_bits,
        levels=np.packbits(entries.astype(np.bool_), bitorder="little") if binary else entries,
        binary=binary,
        root=roots[:-1].astype(np.uint32),
        depth=np.maximum.reduceat(depth, roots[:-1]),
    )


def _tests(
    nodes: Tree,
    derived: DerivedColumns,
    wrap: npt.NDArray[np.bool_],
    asks_levels: npt.NDArray[np.bool_],
    n_features: int,
) -> tuple[npt.NDArray[np.uint64], int]:
    """The test of each node, and how many bits hold its cell."""
    leaf = nodes.kind == Split.LEAF
    own = np.arange(nodes.n_nodes)
    cell = np.where(leaf, n_features, nodes.feature)
    cell = np.where(derived.column < 0, cell, n_features + 1 + derived.column)
    step = np.where(leaf, 0, nodes.first_child - own)
    cell_bits = (n_features + derived.n_columns).bit_length()
    shift = np.uint64(_FLAG_BITS + cell_bits)
    test = wrap.astype(np.uint64) | asks_levels.astype(np.uint64) << np.uint64(1)
    test |= cell.astype(np.uint64) << np.uint64(_FLAG_BITS)
    return test | step.astype(np.uint64) << shift, cell_bits
