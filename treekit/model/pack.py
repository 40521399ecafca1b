"""Trees as packed nodes: the form that `treekit.kernels.predict` walks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.model.derived import DerivedColumns, derive
from treekit.model.fractional import mass_bounds
from treekit.model.joined import GROUP, groups, join, roots_of
from treekit.model.level_tables import asks_levels, fill_levels, level_room
from treekit.model.levels import node_depths
from treekit.model.tops import MAX_TOP, joined_tops, make_tops, top_levels
from treekit.model.tree import MAX_DEPTH, Split, Tree

if TYPE_CHECKING:
    from treekit.kernels.derived import PackedColumns
    from treekit.kernels.packed import PackedTrees, Tops
    from treekit.model.ensemble import Model

__all__ = ["PackedModel", "node_keys", "ordered_keys", "pack"]

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


class _Form(NamedTuple):
    """How nodes are packed: what all trees share.

    `columns` are those that plain nodes and tests by levels ask, ascending.
    """

    columns: npt.NDArray[np.int64]
    cell_bits: int
    word: np.dtype[Any]
    real: np.dtype[Any]
    divides: bool
    most_top: int


def pack(model: Model) -> PackedModel:
    """The trees as the kernels want them, some trees at a time: no more memory than they take.

    Keys are 32 bits wide if the input type is float32 and a node's cell and
    child fit beside them, else 64.
    """
    from treekit.kernels.packed import PackedTrees

    schema = model.schema
    divides = model.missing == "fractional"
    derived = derive(model)
    # Each None is one more variant to compile: spared where speed matters less.
    full = divides or derived.n_columns > 0
    columns = _asked_columns(model, derived)
    table = level_room(model.trees, derived.column < 0)
    roots = roots_of(model.trees)
    cell_bits = (2 * _CELL * (len(columns) + derived.n_columns + 1)).bit_length()
    child_bits = int(np.diff(roots).max()).bit_length()
    narrow = schema.dtype == "float32" and cell_bits + child_bits <= 32 and len(table) < 1 << 31
    word, real = (np.uint32, np.float32) if narrow else (np.uint64, np.float64)
    form = _Form(
        *(columns, cell_bits, np.dtype(word), np.dtype(real), divides, 0 if full else MAX_TOP)
    )
    nodes = np.empty((int(roots[-1]), 2), word)
    node_of_leaf, depth, tops = _pack_trees(model, derived, form, nodes, table)
    packed = PackedTrees(
        nodes=nodes,
        roots=roots.astype(np.uint64),
        tops=joined_tops(tops),
        table=table if len(table) else np.zeros(1, table.dtype) if full else None,
        derived=_packed_columns(derived, columns) if full else None,
        cell_mask=np.uint64((1 << cell_bits) - 2),
        child_shift=np.uint64(cell_bits),
        columns=columns.astype(np.uint64),
        n_codes=np.where(schema.nominal, schema.n_levels + 1, 0)[columns].astype(np.uint64),
        deepest=np.uint64(depth.max()),
    )
    shares = np.concatenate([mass_bounds(tree) for tree in model.trees]) if divides else None
    return PackedModel(packed, node_of_leaf, shares)


def _pack_trees(
    model: Model,
    derived: DerivedColumns,
    form: _Form,
    packed: npt.NDArray[Any],
    table: npt.NDArray[Any],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], list[Tops]]:
    """Write the nodes (nodes, 2) and the table of levels.

    Returns
    -------
    node_of_leaf : (leaves,) int32
    depth : (trees,) int64
    tops : list of Tops
        Of some trees each, one after the other.
    """
    tops, depths = [], []
    node_of_leaf = np.empty(model.n_leaves, np.int32)
    first = first_leaf = entry = 0
    for trees in groups(model.trees, GROUP):
        nodes, roots = join(trees)
        part = derived._replace(column=derived.column[first : first + nodes.n_nodes])
        plain = part.column < 0
        asks = asks_levels(nodes, plain)
        key, wrap = node_keys(nodes, part, form.word, form.real)
        key[wrap & plain & (nodes.kind == Split.THRESHOLD)] -= form.word.type(1)  # not moved up
        start = fill_levels(table, entry, nodes, asks, divides=form.divides)
        key[asks], entry = start[:-1], int(start[-1])
        leaves = np.flatnonzero(nodes.kind == Split.LEAF)
        key[leaves] = np.arange(first_leaf, first_leaf + len(leaves))
        cell = _cells(nodes, part, form.columns, wrap | asks) | asks.astype(np.uint64)
        root = np.repeat(roots[:-1], np.diff(roots))
        child = nodes.first_child - root
        child[leaves] = leaves - root[leaves]
        own = packed[first : first + nodes.n_nodes]
        own[:, 0] = key
        own[:, 1] = cell | (child.astype(np.uint64) << np.uint64(form.cell_bits))
        depth = np.maximum.reduceat(node_depths(nodes, roots[:-1], MAX_DEPTH), roots[:-1])
        levels = top_levels(nodes, roots, depth, form.most_top)
        tops.append(make_tops(nodes, roots, depth, key, cell, levels))
        depths.append(depth)
        node_of_leaf[first_leaf : first_leaf + len(leaves)] = leaves - root[leaves]
        first, first_leaf = first + nodes.n_nodes, first_leaf + len(leaves)
    return node_of_leaf, np.concatenate(depths), tops


def _asked_columns(model: Model, derived: DerivedColumns) -> npt.NDArray[np.int64]:
    """The columns that plain nodes and tests by levels ask, ascending."""
    asked = np.zeros(model.schema.n_features, dtype=np.bool_)
    asked[derived.level_feature[derived.level_feature >= 0]] = True
    at = 0
    for tree in model.trees:
        plain = derived.column[at : at + tree.n_nodes] < 0
        asked[tree.feature[(tree.kind != Split.LEAF) & plain]] = True
        at += tree.n_nodes
    return np.flatnonzero(asked)


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
    for name in ("below", "above", "lost", "level_branch"):
        said = arrays[name]
        arrays[name] = np.where(said < 0, UNKNOWN, said).astype(np.uint8)
    arrays["level_cell"] = _CELL * (2 * np.searchsorted(columns, derived.level_feature) + 1)
    kept = np.float64, np.uint8
    return PackedColumns(
        **{
            name: array if array.dtype in kept else array.astype(np.uint64)
            for name, array in arrays.items()
            if name in PackedColumns._fields
        }
    )


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
