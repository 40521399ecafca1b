"""Pack trees for the scoring kernels of `treekit.kernels.score_batch`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.model.fixed_point import compute_mass_bounds
from treekit.model.tree import (
    MAX_DEPTH,
    DerivedColumns,
    Split,
    Tree,
    allocate_level_table,
    batch_trees,
    compute_root_offsets,
    concatenate_trees,
    fill_level_table,
    find_level_splits,
    node_depths,
)

if TYPE_CHECKING:
    from treekit.kernels.score_batch import CompleteLevels, PackedDerivedColumns, PackedTrees
    from treekit.model.model import Model


# ---------------------------------------------------------------- packed trees

_CELL_STRIDE = 8
"""Stride of the cells of a row: `feature_codes.GROUP_SIZE`, without importing numba."""


class PackedModel(NamedTuple):
    """The arguments of the scoring kernels for a model.

    Attributes
    ----------
    trees : PackedTrees
    node_of_leaf : (leaves,) int32
        Node of each row of `Model.units`, relative to its tree's root.
    mass_bounds : (nodes, 2) int64, or None
        `compute_mass_bounds` of all trees; None without fractional instances.
    """

    trees: PackedTrees
    node_of_leaf: npt.NDArray[np.int32]
    mass_bounds: npt.NDArray[np.int64] | None


def pack_model(model: Model) -> PackedModel:
    """Pack the trees of a model, in batches to save memory.

    Keys are 32 bits wide if the input type is float32 and a node's cell and
    child fit in another 32 bits, else 64.
    """
    from treekit.kernels.score_batch import PackedTrees

    schema = model.schema
    divides = model.missing == "fractional"
    derived = model.derived
    # Each None is another kernel variant to compile; avoid it where speed matters less.
    full = divides or derived.n_columns > 0
    columns = _find_split_columns(model, derived)
    table = allocate_level_table(model.trees, derived.column < 0)
    roots = compute_root_offsets(model.trees)
    cell_bits = (2 * _CELL_STRIDE * (len(columns) + derived.n_columns + 1)).bit_length()
    child_bits = int(np.diff(roots).max()).bit_length()
    narrow = schema.dtype == "float32" and cell_bits + child_bits <= 32 and len(table) < 1 << 31
    nodes = np.empty((int(roots[-1]), 2), np.uint32 if narrow else np.uint64)
    max_top = 0 if full else MAX_TOP_LEVELS
    node_of_leaf, depth, tops = _pack_trees(
        model, derived, columns, cell_bits, max_top, nodes, table
    )
    packed = PackedTrees(
        nodes=nodes,
        roots=roots.astype(np.uint64),
        tops=concatenate_tops(tops),
        table=table if len(table) else np.zeros(1, table.dtype) if full else None,
        derived=_pack_derived_columns(derived, columns) if full else None,
        cell_mask=np.uint64((1 << cell_bits) - 2),
        child_shift=np.uint64(cell_bits),
        columns=columns.astype(np.uint64),
        n_codes=np.where(schema.nominal, schema.n_levels + 1, 0)[columns].astype(np.uint64),
        deepest=np.uint64(depth.max()),
    )
    shares = (
        np.concatenate([compute_mass_bounds(tree) for tree in model.trees]) if divides else None
    )
    return PackedModel(packed, node_of_leaf, shares)


def _pack_trees(
    model: Model,
    derived: DerivedColumns,
    columns: npt.NDArray[np.int64],
    cell_bits: int,
    max_top: int,
    packed: npt.NDArray[Any],
    table: npt.NDArray[Any],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], list[CompleteLevels]]:
    """Fill the packed nodes (nodes, 2) and the branch table.

    `columns` are those of `_find_split_columns`, and `max_top` the most top levels.

    Returns
    -------
    node_of_leaf : (leaves,) int32
    depth : (trees,) int64
    tops : list of CompleteLevels
        One for each batch of trees.
    """
    tops, depths, word = [], [], packed.dtype
    node_of_leaf = np.empty(model.n_leaves, np.int32)
    first = first_leaf = entry = 0
    for trees in batch_trees(model.trees):
        nodes, roots = concatenate_trees(trees)
        part = derived._replace(column=derived.column[first : first + nodes.n_nodes])
        plain = part.column < 0
        level_splits = find_level_splits(nodes, plain)
        key, wrap = compute_node_keys(nodes, part, word, np.dtype(f"f{word.itemsize}"))
        # Left cells of numeric columns are 0 for missing but not shifted: undo the key's shift.
        key[wrap & plain & (nodes.kind == Split.THRESHOLD)] -= word.type(1)
        start = fill_level_table(
            table, entry, nodes, level_splits, fractional=model.missing == "fractional"
        )
        key[level_splits], entry = start[:-1], int(start[-1])
        leaves = np.flatnonzero(nodes.kind == Split.LEAF)
        key[leaves] = np.arange(first_leaf, first_leaf + len(leaves))
        cell = _compute_node_cells(nodes, part, columns, wrap | level_splits) | level_splits.astype(
            np.uint64
        )
        root = np.repeat(roots[:-1], np.diff(roots))
        child = nodes.first_child - root
        child[leaves] = leaves - root[leaves]
        own = packed[first : first + nodes.n_nodes]
        own[:, 0] = key
        own[:, 1] = cell | (child.astype(np.uint64) << np.uint64(cell_bits))
        depth = np.maximum.reduceat(node_depths(nodes, roots[:-1], MAX_DEPTH), roots[:-1])
        levels = count_top_levels(nodes, roots, depth, max_top)
        tops.append(make_tops(nodes, roots, depth, key, cell, levels))
        depths.append(depth)
        node_of_leaf[first_leaf : first_leaf + len(leaves)] = leaves - root[leaves]
        first, first_leaf = first + nodes.n_nodes, first_leaf + len(leaves)
    return node_of_leaf, np.concatenate(depths), tops


def _find_split_columns(model: Model, derived: DerivedColumns) -> npt.NDArray[np.int64]:
    """Return the split features of plain nodes and of tests of categories, ascending."""
    used = np.zeros(model.schema.n_features, dtype=np.bool_)
    used[derived.level_feature[derived.level_feature >= 0]] = True
    at = 0
    for tree in model.trees:
        plain = derived.column[at : at + tree.n_nodes] < 0
        used[tree.feature[(tree.kind != Split.LEAF) & plain]] = True
        at += tree.n_nodes
    return np.flatnonzero(used)


def _compute_node_cells(
    nodes: Tree,
    derived: DerivedColumns,
    columns: npt.NDArray[np.int64],
    left: npt.NDArray[np.bool_],
) -> npt.NDArray[np.uint64]:
    """Return the cell that each node reads: of a column, of a derived column, or 0 in leaves."""
    place = np.searchsorted(columns, nodes.feature)
    place = np.where(derived.column < 0, place, len(columns) + derived.column)
    cell = _CELL_STRIDE * (2 * place + 1 + left)
    return np.where(nodes.kind == Split.LEAF, 0, cell).astype(np.uint64)


def _pack_derived_columns(
    derived: DerivedColumns, columns: npt.NDArray[np.int64]
) -> PackedDerivedColumns:
    from treekit.kernels.score_batch import UNKNOWN, PackedDerivedColumns

    arrays = derived._asdict()
    for name in ("below", "above", "lost", "level_branch"):
        branch = arrays[name]
        arrays[name] = np.where(branch < 0, UNKNOWN, branch).astype(np.uint8)
    arrays["level_cell"] = _CELL_STRIDE * (2 * np.searchsorted(columns, derived.level_feature) + 1)
    kept_types = np.float64, np.uint8
    return PackedDerivedColumns(
        **{
            name: array if array.dtype in kept_types else array.astype(np.uint64)
            for name, array in arrays.items()
            if name in PackedDerivedColumns._fields
        }
    )


def to_ordered_keys(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Map floats, except -0.0 and NaN, to unsigned integers of equal width in the same order."""
    word = np.dtype(f"u{numbers.dtype.itemsize}")
    bits, largest = numbers.view(word), np.iinfo(word).max
    return np.where(numbers < 0, ~bits, bits | word.type(largest - largest // 2))


def compute_node_keys(
    nodes: Tree, derived: DerivedColumns, word: np.dtype[Any], real: np.dtype[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return the first word and the wrap bit of each node that is no split on categories.

    A wrapped node compares cells shifted up by one, so that a missing value, otherwise
    the largest key, wraps to 0; the key of the node is shifted as well.
    """
    largest = np.iinfo(word).max
    key = np.full(nodes.n_nodes, largest, dtype=word)
    at = (nodes.kind == Split.THRESHOLD) & (derived.column < 0)
    left = nodes.missing[at] == 0
    thresholds = (nodes.threshold[at] + 0.0).astype(real)
    key[at] = to_ordered_keys(thresholds) + left.astype(word)
    key[nodes.kind == Split.MISSING] = 0
    wrap = nodes.kind == Split.MISSING
    wrap[at] = left
    derived_nodes = derived.column >= 0  # the cell of a derived column is 0, 1 or missing
    wrap[derived_nodes] = key[derived_nodes] = nodes.missing[derived_nodes] == 0
    return key, wrap


# ---------------------------------------------------------------- tops
# The top levels of each tree as a complete binary tree, traversed first.

MAX_TOP_LEVELS = 9
"""Most levels of a top: larger tops do not fit in the L1 cache."""

Places = npt.NDArray[np.int64]


def count_top_levels(nodes: Tree, roots: Places, depth: Places, most: int) -> Places:
    """Return the top levels (trees,): up to `most`, with at most twice as many places as nodes.

    A tree with a node that does not have two branches has no top levels.
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
) -> CompleteLevels:
    """Build the complete top levels of all trees.

    Parameters
    ----------
    nodes, roots
        See `treekit.model.tree.concatenate_trees`.
    depth : (trees,) int64
        Depth of each tree.
    key, cell : (nodes,)
        Key of each node, and the cell compared with it; the key of a leaf is its number.
    levels : (trees,) int64
        Top levels of each tree; leaves above the last level are repeated.
    """
    from treekit.kernels.score_batch import CompleteLevels

    below = levels < depth
    start = np.cumsum(1 << levels) - (1 << levels)
    n_places = int(start[-1] + (1 << levels[-1]))
    keys = np.zeros(n_places, dtype=key.dtype)
    cells = np.zeros(n_places, dtype=np.uint32)  # cell 0: repeated leaves go left
    ends = np.empty(n_places, dtype=np.uint32)
    tree, at = np.arange(len(levels)), roots[:-1, None]
    for level in range(int(levels.max()) + 1):
        done = levels[tree] == level
        end_nodes = at[done]
        end_values = np.where(
            below[tree[done], None], end_nodes - roots[tree[done], None], key[end_nodes]
        )
        ends[start[tree[done], None] + np.arange(1 << level)] = end_values
        tree, at = tree[~done], at[~done]
        place = start[tree, None] + (1 << level) + np.arange(1 << level)
        keys[place], cells[place] = key[at], cell[at]
        leaf = nodes.kind[at] == Split.LEAF
        children = np.where(leaf, at, nodes.first_child[at])[:, :, None] + [0, 1]
        children[leaf, 1] -= 1  # both children of a leaf are the leaf itself
        at = children.reshape(len(tree), 2 << level)
    return CompleteLevels(
        start.astype(np.uint64), levels.astype(np.uint64), below, keys, cells, ends
    )


def concatenate_tops(parts: Sequence[CompleteLevels]) -> CompleteLevels:
    """Concatenate the tops of batches of trees."""
    from treekit.kernels.score_batch import CompleteLevels

    sizes = [len(part.key) for part in parts]
    before = np.repeat(np.cumsum(sizes) - sizes, [len(part.offsets) for part in parts])
    joined = CompleteLevels(*map(np.concatenate, zip(*parts, strict=True)))
    return joined._replace(offsets=joined.offsets + before.astype(np.uint64))


# ---------------------------------------------------------------- single threshold trees


class StraightTree(NamedTuple):
    """Arguments of `score_batch.gather_unpacked_values` for a single threshold tree.

    Attributes
    ----------
    kernel_arguments : tuple
        The first four arguments.
    leaf_ids : (nodes,) int32
        Leaf number of each node; undefined for inner nodes.
    node_ids : (nodes,) int32
        The node numbers.
    """

    kernel_arguments: tuple[npt.NDArray[Any], npt.NDArray[Any], np.uint64, np.uint64]
    leaf_ids: npt.NDArray[np.int32]
    node_ids: npt.NDArray[np.int32]


def make_straight_tree(model: Model) -> StraightTree | None:
    """Return the layout of a model's tree; None for several trees or other kinds of split."""
    tree = model.trees[0]
    inner = tree.kind != Split.LEAF
    plain = model.n_trees == 1 and model.missing in ("direction", "error")
    if not plain or bool(np.any(tree.kind[inner] != Split.THRESHOLD)):
        return None
    column_bits = max(model.schema.n_features - 1, 1).bit_length()
    wide = tree.n_nodes.bit_length() + column_bits + 1 > 32
    child = np.where(inner, tree.first_child, np.arange(tree.n_nodes)).astype(np.uint64)
    column = np.where(inner, tree.feature, 0).astype(np.uint64)
    right = (inner & (tree.missing == 1)).astype(np.uint64)
    tests = right | column << np.uint64(1) | child << np.uint64(column_bits + 1)
    limits = np.where(inner, tree.threshold, np.inf).astype(model.schema.dtype)
    walk = (
        limits,
        tests if wide else tests.astype(np.uint32),
        np.uint64(column_bits),
        np.uint64(tree.depth),
    )
    number = np.cumsum(~inner) - 1
    return StraightTree(walk, number.astype(np.int32), np.arange(tree.n_nodes, dtype=np.int32))
