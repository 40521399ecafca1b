"""Trees as packed nodes: the form that `treekit.kernels.predict` walks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.model.joined import join
from treekit.model.tree import MAX_DEPTH, Split, Tree, node_depths

if TYPE_CHECKING:
    from treekit.kernels.predict import PackedTrees
    from treekit.model.ensemble import Model

__all__ = ["pack"]


def pack(model: Model) -> tuple[PackedTrees, npt.NDArray[np.int32]]:
    """The trees as the kernels want them, and the row of `Model.units` of each leaf.

    Keys are 32 bits wide if the input type is float32 and a node's column and
    child fit beside them, else 64.
    """
    from treekit.kernels.predict import PackedTrees

    schema = model.schema
    nodes, roots = join(model.trees)
    feature_bits = max(schema.n_features - 1, 1).bit_length()
    child_bits = int(np.diff(roots).max()).bit_length()
    narrow = schema.dtype == "float32" and 2 + feature_bits + child_bits <= 32
    table, table_start = _level_table(nodes)
    narrow = narrow and len(table) < 1 << 31
    word, real = (np.uint32, np.float32) if narrow else (np.uint64, np.float64)
    key, wrap = _node_keys(nodes, table_start, np.dtype(word), np.dtype(real))
    leaf = nodes.kind == Split.LEAF
    own = np.arange(nodes.n_nodes)
    child = np.where(leaf, own, nodes.first_child) - np.repeat(roots[:-1], np.diff(roots))
    test = (
        wrap.astype(np.uint64)
        | (_asks_levels(nodes).astype(np.uint64) << 1)
        | (np.where(leaf, 0, nodes.feature).astype(np.uint64) << 2)
        | (child.astype(np.uint64) << (2 + feature_bits))
    )
    depths = node_depths(nodes, roots[:-1], MAX_DEPTH)
    packed = PackedTrees(
        nodes=np.stack([key, test.astype(word)], axis=1),
        roots=roots.astype(np.uint64),
        depths=np.maximum.reduceat(depths, roots[:-1]).astype(np.uint64),
        table=table if len(table) else None,
        feature_mask=np.uint64((1 << feature_bits) - 1),
        child_shift=np.uint64(2 + feature_bits),
        nominal=np.flatnonzero(schema.nominal).astype(np.uint64),
        n_levels=schema.n_levels[schema.nominal].astype(np.uint64),
    )
    return packed, (np.cumsum(leaf) - leaf).astype(np.int32)


def _asks_levels(nodes: Tree) -> npt.NDArray[np.bool_]:
    asks: npt.NDArray[np.bool_] = (nodes.kind == Split.SUBSET) | (nodes.kind == Split.MULTIWAY)
    return asks


def _level_table(
    nodes: Tree,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Branches of all level splits, missing first, and where each such split's start."""
    asks = np.flatnonzero(_asks_levels(nodes))
    sizes = np.diff(nodes.level_start)[asks]
    start = np.cumsum(sizes + 1) - (sizes + 1)
    missing = nodes.missing[asks]
    branch = np.where(nodes.level_branch < 0, np.repeat(missing, sizes), nodes.level_branch)
    table = np.empty(len(branch) + len(asks), dtype=np.uint32)
    is_missing = np.zeros(len(table), dtype=np.bool_)
    is_missing[start] = True
    table[is_missing], table[~is_missing] = missing, branch
    return table, start


def _node_keys(
    nodes: Tree,
    table_start: npt.NDArray[np.int64],
    word: np.dtype[Any],
    real: np.dtype[Any],
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """First word and wrap bit of each packed node; see `treekit.kernels.predict`."""
    largest = np.iinfo(word).max
    key = np.full(nodes.n_nodes, largest, dtype=word)
    at = nodes.kind == Split.THRESHOLD
    left = nodes.missing[at] == 0
    thresholds = (nodes.threshold[at] + 0.0).astype(real)
    bits, top = thresholds.view(word), word.type(largest - largest // 2)
    key[at] = np.where(thresholds < 0, ~bits, bits | top) + left.astype(word)
    key[nodes.kind == Split.MISSING] = 0
    levels = _asks_levels(nodes)
    key[levels] = table_start
    wrap = levels | (nodes.kind == Split.MISSING)
    wrap[at] = left
    return key, wrap
