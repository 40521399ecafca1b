"""Trees as packed nodes: the form that `treekit.kernels.predict` walks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.model.derived import DerivedColumns, derive
from treekit.model.fractional import mass_bounds
from treekit.model.joined import join
from treekit.model.tree import MAX_DEPTH, Split, Tree, node_depths, ranges

if TYPE_CHECKING:
    from treekit.kernels.derived import PackedColumns
    from treekit.kernels.predict import PackedTrees
    from treekit.model.ensemble import Model

__all__ = ["PackedModel", "level_table", "node_keys", "ordered_keys", "pack"]


class PackedModel(NamedTuple):
    """A model as the scorer wants it.

    Attributes
    ----------
    trees : PackedTrees
    leaf_row : (nodes,) int32
        Row of `Model.units` of each leaf.
    shares : (nodes, 2) int64, or None
        Bounds of `mass_bounds`, tree after tree; None if rows never divide.
    """

    trees: PackedTrees
    leaf_row: npt.NDArray[np.int32]
    shares: npt.NDArray[np.int64] | None


def pack(model: Model) -> PackedModel:
    """The trees as the kernels want them.

    Keys are 32 bits wide if the input type is float32 and a node's column and
    child fit beside them, else 64.
    """
    from treekit.kernels.predict import PackedTrees

    schema = model.schema
    nodes, roots = join(model.trees)
    divides = model.missing == "fractional"
    derived = derive(model)
    feature_bits = max(schema.n_features + derived.n_columns - 1, 1).bit_length()
    child_bits = int(np.diff(roots).max()).bit_length()
    narrow = schema.dtype == "float32" and 2 + feature_bits + child_bits <= 32
    asks_levels = (derived.column < 0) & (
        (nodes.kind == Split.SUBSET) | (nodes.kind == Split.MULTIWAY)
    )
    table, table_start = level_table(nodes, asks_levels, divides)
    narrow = narrow and len(table) < 1 << 31
    word, real = (np.uint32, np.float32) if narrow else (np.uint64, np.float64)
    key, wrap = node_keys(nodes, derived, np.dtype(word), np.dtype(real))
    key[asks_levels] = table_start
    feature = np.where(derived.column < 0, nodes.feature, schema.n_features + derived.column)
    leaf = nodes.kind == Split.LEAF
    own = np.arange(nodes.n_nodes)
    child = np.where(leaf, own, nodes.first_child) - np.repeat(roots[:-1], np.diff(roots))
    test = (
        (wrap | asks_levels).astype(np.uint64)
        | (asks_levels.astype(np.uint64) << 1)
        | (np.where(leaf, 0, feature).astype(np.uint64) << 2)
        | (child.astype(np.uint64) << (2 + feature_bits))
    )
    depths = node_depths(nodes, roots[:-1], MAX_DEPTH)
    # Each None is one more variant to compile: spared where speed matters less.
    full = divides or derived.n_columns > 0
    packed = PackedTrees(
        nodes=np.stack([key, test.astype(word)], axis=1),
        roots=roots.astype(np.uint64),
        depths=np.maximum.reduceat(depths, roots[:-1]).astype(np.uint64),
        table=table if len(table) else np.zeros(1, np.uint32) if full else None,
        derived=_packed_columns(derived) if full else None,
        feature_mask=np.uint64((1 << feature_bits) - 1),
        child_shift=np.uint64(2 + feature_bits),
        nominal=np.flatnonzero(schema.nominal).astype(np.uint64),
        n_levels=schema.n_levels[schema.nominal].astype(np.uint64),
    )
    leaf_row = (np.cumsum(leaf) - leaf).astype(np.int32)
    shares = np.concatenate([mass_bounds(tree) for tree in model.trees]) if divides else None
    return PackedModel(packed, leaf_row, shares)


def _packed_columns(derived: DerivedColumns) -> PackedColumns:
    from treekit.kernels.derived import UNKNOWN, PackedColumns

    arrays = derived._asdict()
    arrays["level_branch"] = np.where(derived.level_branch < 0, UNKNOWN, derived.level_branch)
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
    """First word and wrap bit of each node that asks no levels; see `treekit.kernels.predict`."""
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
