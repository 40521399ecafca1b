"""Trees as packed nodes: the form that `treekit.kernels.predict` walks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.model.derived import DerivedColumns, derive
from treekit.model.fractional import mass_bounds
from treekit.model.joined import join
from treekit.model.levels import node_depths
from treekit.model.tops import MAX_TOP, make_tops, top_levels
from treekit.model.tree import MAX_DEPTH, Split, Tree, ranges

if TYPE_CHECKING:
    from treekit.kernels.derived import PackedColumns
    from treekit.kernels.packed import PackedTrees
    from treekit.model.ensemble import Model

__all__ = ["PackedModel", "level_table", "node_keys", "ordered_keys", "pack"]

_CELL = 8
"""Places between two cells of a row; `treekit.kernels.keys.GROUP`, which imports numba."""


class PackedModel(NamedTuple):
    """A model as the scorer wants it.

    Attributes
    ----------
    trees : PackedTrees
    node_of_leaf : (leaves,) int32
        Node of each row of `Model.units`, counted from its tree's root.
    shares : (nodes, 2) int64, or None
        Bounds of `mass_bounds`, tree after tree; None if rows never divide.
    """

    trees: PackedTrees
    node_of_leaf: npt.NDArray[np.int32]
    shares: npt.NDArray[np.int64] | None


def pack(model: Model) -> PackedModel:
    """The trees as the kernels want them.

    Keys are 32 bits wide if the input type is float32 and a node's cell and
    child fit beside them, else 64.
    """
    from treekit.kernels.packed import PackedTrees

    schema = model.schema
    nodes, roots = join(model.trees)
    divides = model.missing == "fractional"
    derived = derive(model)
    columns = _asked_columns(nodes, derived)
    plain = derived.column < 0
    asks_levels = plain & ((nodes.kind == Split.SUBSET) | (nodes.kind == Split.MULTIWAY))
    table, table_start = level_table(nodes, asks_levels, divides)
    leaf = nodes.kind == Split.LEAF
    cell_bits = (2 * _CELL * (len(columns) + derived.n_columns + 1)).bit_length()
    child_bits = int(np.diff(roots).max()).bit_length()
    narrow = schema.dtype == "float32" and cell_bits + child_bits <= 32 and len(table) < 1 << 31
    word, real = (np.uint32, np.float32) if narrow else (np.uint64, np.float64)
    key, wrap = node_keys(nodes, derived, np.dtype(word), np.dtype(real))
    key[wrap & plain & (nodes.kind == Split.THRESHOLD)] -= word(1)  # cells are not moved up
    key[asks_levels] = table_start
    key[leaf] = np.arange(np.count_nonzero(leaf))
    cell = _cells(nodes, derived, columns, wrap | asks_levels) | asks_levels.astype(np.uint64)
    own = np.arange(nodes.n_nodes)
    child = np.where(leaf, own, nodes.first_child) - np.repeat(roots[:-1], np.diff(roots))
    test = cell | (child.astype(np.uint64) << np.uint64(cell_bits))
    depth = np.maximum.reduceat(node_depths(nodes, roots[:-1], MAX_DEPTH), roots[:-1])
    # Each None is one more variant to compile: spared where speed matters less.
    full = divides or derived.n_columns > 0
    levels = top_levels(nodes, roots, depth, 0 if full else MAX_TOP)
    packed = PackedTrees(
        nodes=np.stack([key, test.astype(word)], axis=1),
        roots=roots.astype(np.uint64),
        tops=make_tops(nodes, roots, depth, key, cell, levels),
        table=table if len(table) else np.zeros(1, np.uint32) if full else None,
        derived=_packed_columns(derived, columns) if full else None,
        cell_mask=np.uint64((1 << cell_bits) - 2),
        child_shift=np.uint64(cell_bits),
        columns=columns.astype(np.uint64),
        n_codes=np.where(schema.nominal, schema.n_levels + 1, 0)[columns].astype(np.uint64),
        deepest=np.uint64(depth.max()),
    )
    node_of_leaf = (own - np.repeat(roots[:-1], np.diff(roots)))[leaf].astype(np.int32)
    shares = np.concatenate([mass_bounds(tree) for tree in model.trees]) if divides else None
    return PackedModel(packed, node_of_leaf, shares)


def _asked_columns(nodes: Tree, derived: DerivedColumns) -> npt.NDArray[np.int64]:
    """The columns that plain nodes and tests by levels ask, ascending."""
    plain = nodes.feature[(nodes.kind != Split.LEAF) & (derived.column < 0)]
    by_levels = derived.level_feature[derived.level_feature >= 0]
    return np.unique(np.concatenate([plain.astype(np.int64), by_levels]))


def _cells(
    nodes: Tree,
    derived: DerivedColumns,
    columns: npt.NDArray[np.int64],
    left: npt.NDArray[np.bool_],
) -> npt.NDArray[np.uint64]:
    """What each node asks: a cell of a column, of a derived column, or, in leaves, the zero."""
    place = np.searchsorted(columns, nodes.feature)
    place = np.where(derived.column < 0, place, len(columns) + derived.column)
    cell = _CELL * (2 * place + 1 + left)
    return np.where(nodes.kind == Split.LEAF, 0, cell).astype(np.uint64)


def _packed_columns(derived: DerivedColumns, columns: npt.NDArray[np.int64]) -> PackedColumns:
    from treekit.kernels.derived import UNKNOWN, PackedColumns

    arrays = derived._asdict()
    arrays["level_branch"] = np.where(derived.level_branch < 0, UNKNOWN, derived.level_branch)
    arrays["level_cell"] = _CELL * (2 * np.searchsorted(columns, derived.level_feature) + 1)
    return PackedColumns(
        **{
            name: array if array.dtype == np.float64 else array.astype(np.uint64)
            for name, array in arrays.items()
            if name in PackedColumns._fields
        }
    )


def level_table(
    nodes: Tree, asks_levels: npt.NDArray[np.bool_], divides: bool
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Branches of all level splits, missing first, and where each such split's start."""
    from treekit.kernels.divided import DIVIDES

    asks = np.flatnonzero(asks_levels)
    sizes = np.diff(nodes.level_start)[asks]
    start = np.cumsum(sizes + 1) - (sizes + 1)
    missing = np.full(len(asks), DIVIDES) if divides else nodes.missing[asks]
    levels, _ = ranges(nodes.level_start, asks)
    branch = nodes.level_branch[levels]
    branch = np.where(branch < 0, np.repeat(missing, sizes), branch)
    table = np.empty(len(branch) + len(asks), dtype=np.uint32)
    is_missing = np.zeros(len(table), dtype=np.bool_)
    is_missing[start] = True
    table[is_missing], table[~is_missing] = missing, branch
    return table, start


def ordered_keys(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Unsigned integers as wide as `numbers`, floats but -0.0 and NaN, and in their order."""
    word = np.dtype(f"u{numbers.dtype.itemsize}")
    bits, largest = numbers.view(word), np.iinfo(word).max
    return np.where(numbers < 0, ~bits, bits | word.type(largest - largest // 2))


def node_keys(
    nodes: Tree, derived: DerivedColumns, word: np.dtype[Any], real: np.dtype[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """First word and wrap bit of each node that asks no levels.

    A wrapped node is for cells that have moved up by one, so that missing, else the
    largest key, is 0: its own key has moved up, too.
    """
    largest = np.iinfo(word).max
    key = np.full(nodes.n_nodes, largest, dtype=word)
    at = (nodes.kind == Split.THRESHOLD) & (derived.column < 0)
    left = nodes.missing[at] == 0
    thresholds = (nodes.threshold[at] + 0.0).astype(real)
    key[at] = ordered_keys(thresholds) + left.astype(word)
    key[nodes.kind == Split.MISSING] = 0
    wrap = nodes.kind == Split.MISSING
    wrap[at] = left
    instead = derived.column >= 0  # the key of a derived column is 0, 1 or missing
    wrap[instead] = key[instead] = nodes.missing[instead] == 0
    return key, wrap
