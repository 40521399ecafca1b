"""Scoring loops over packed nodes.

A cell becomes an unsigned key in the order of the numbers, missing the largest
of all.  A packed node is two words of the key's type, side by side: its own
key and, from the lowest bit up, ``wrap | table | feature | child``.  A node
adds its wrap bit to the cell's key, which turns missing from the largest key
into 0 (and moves all others up by one, as the packer did with the node's key):

- threshold: ``cell + wrap > key`` is the branch: missing goes right, or left
  if wrapped;
- missing or not: key 0, wrapped: only missing is not larger;
- levels (table bit, wrapped): ``table[key + cell + wrap]`` is the branch:
  entry 0 for missing, entry 1 + code for a level;
- leaf: the largest key, not wrapped, and its own number as child: it stays.

A derived column (see `treekit.kernels.derived`) is evaluated when a row comes to
its node; its key is 0, 1 or missing.

So a step has no branch to mispredict, and eight rows (for single rows: four
trees) at a time hide its latency.  Blocks of rows keep their keys and one tree
in the cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import kernel
from treekit.kernels.derived import PackedColumns, derived_key

__all__ = ["PackedTrees", "add_units", "encode", "key_of", "leaf_nodes"]

Array = npt.NDArray[Any]

FEW_ROWS = 8
"""Fewer rows are walked one at a time through four trees at a time."""


class PackedTrees(NamedTuple):
    """All trees of a model, as the loops want them.

    Attributes
    ----------
    nodes : (nodes, 2) uint32 or uint64
        Packed nodes, tree after tree; children count from the tree's root.
    roots : (trees + 1,) uint64
        Where each tree starts in `nodes`.
    depths : (trees,) uint64
    table : (entries,) uint32, or None
        Branches of the level splits; None if the model has none.
    derived : PackedColumns, or None
        What columns beyond those of the rows ask; None if there are none.
    feature_mask, child_shift : uint64
        Where a node's second word holds feature (above two bits) and child.
    nominal, n_levels : (nominal columns,) uint64
        Which columns hold codes, and the sizes of their vocabularies.
    """

    nodes: Array
    roots: Array
    depths: Array
    table: Array | None
    derived: PackedColumns | None
    feature_mask: np.uint64
    child_shift: np.uint64
    nominal: Array
    n_levels: Array


@kernel
def encode(rows: Array, nominal: Array, n_levels: Array, keys: Array) -> None:
    """Write the ordered keys of `rows` (rows, features) float into `keys`."""
    word = keys.dtype.type
    missing = word(~word(0))
    top = word(missing - (missing >> np.uint64(1)))
    bits = rows.view(keys.dtype)
    for r in range(np.uint64(len(rows))):
        for f in range(np.uint64(rows.shape[1])):
            b = bits[r, f]
            # Floats order as integers do, the negative ones backwards; -0.0 is 0.0.
            key = word(~b) if b > top else word(b | top)
            keys[r, f] = key if rows[r, f] == rows[r, f] else missing
        for i in range(np.uint64(len(nominal))):
            cell = rows[r, nominal[i]]
            # Whatever is not a code of the vocabulary is missing.
            known = cell >= 0 and cell < n_levels[i] and cell == np.floor(cell)
            keys[r, nominal[i]] = word(cell) if known else missing


@kernel
def _branch(table: Any, test: Any, key: Any, cell: Any) -> Any:
    """Branch that a (wrapped) cell takes; without a table this compiles to the comparison."""
    branch = np.uint64(cell > key)
    if table is not None:
        # A threshold looks up entry 0 for nothing: 1.7 times faster than a
        # jump that depends on the node (measured on mixed columns).
        levels = np.uint64((test >> np.uint64(1)) & np.uint64(1))
        branch ^= (branch ^ np.uint64(table[(key + cell) * levels])) & (np.uint64(0) - levels)
    return branch


@kernel
def key_of(derived: Any, feature: Any, keys: Array, rows: Array, row: Any) -> Any:
    """Key of a row's column; without derived columns this compiles to the look-up."""
    if derived is not None:
        width = np.uint64(keys.shape[1])
        if feature >= width:
            return derived_key(derived, feature - width, keys, rows, row)
    return keys[row, feature]


@kernel
def _step(trees: Any, root: Any, at: Any, keys: Array, rows: Array, row: Any) -> Any:
    """The node that a row visits after node `at` of the tree at `root`."""
    key, test = trees.nodes[root + at, np.uint64(0)], trees.nodes[root + at, np.uint64(1)]
    feature = (test >> np.uint64(2)) & trees.feature_mask
    own = key_of(trees.derived, feature, keys, rows, row)
    cell = keys.dtype.type(own + (test & np.uint64(1)))
    branch = _branch(trees.table, test, np.uint64(key), np.uint64(cell))
    return np.uint64(test >> trees.child_shift) + branch


@kernel
def _leaves_of_rows(trees: Any, tree: Any, keys: Array, rows: Array, n: Any, leaf: Array) -> None:
    """Walk one tree, eight rows at a time; `leaf` (rows,) int64 gets nodes of `trees`."""
    root, depth, zero, stride = trees.roots[tree], trees.depths[tree], np.uint64(0), np.uint64(8)
    for r in range(zero, n - n % stride, stride):
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = zero
        for level in range(depth):
            b0 = _step(trees, root, a0, keys, rows, r)
            b1 = _step(trees, root, a1, keys, rows, r + np.uint64(1))
            b2 = _step(trees, root, a2, keys, rows, r + np.uint64(2))
            b3 = _step(trees, root, a3, keys, rows, r + np.uint64(3))
            b4 = _step(trees, root, a4, keys, rows, r + np.uint64(4))
            b5 = _step(trees, root, a5, keys, rows, r + np.uint64(5))
            b6 = _step(trees, root, a6, keys, rows, r + np.uint64(6))
            b7 = _step(trees, root, a7, keys, rows, r + np.uint64(7))
            if level & np.uint64(3) == np.uint64(3):  # in deep trees most rows end early
                moved = (a0 ^ b0) | (a1 ^ b1) | (a2 ^ b2) | (a3 ^ b3)
                if moved | (a4 ^ b4) | (a5 ^ b5) | (a6 ^ b6) | (a7 ^ b7) == zero:
                    break
            a0, a1, a2, a3, a4, a5, a6, a7 = b0, b1, b2, b3, b4, b5, b6, b7
        leaf[r], leaf[r + np.uint64(1)] = root + a0, root + a1
        leaf[r + np.uint64(2)], leaf[r + np.uint64(3)] = root + a2, root + a3
        leaf[r + np.uint64(4)], leaf[r + np.uint64(5)] = root + a4, root + a5
        leaf[r + np.uint64(6)], leaf[r + np.uint64(7)] = root + a6, root + a7
    for r in range(n - n % stride, n):
        leaf[r] = root + _leaf_of_row(trees, root, depth, keys, rows, r)


@kernel
def _leaf_of_row(trees: Any, root: Any, depth: Any, keys: Array, rows: Array, row: Any) -> Any:
    """The leaf of one row in one tree, counted from the root."""
    at = np.uint64(0)
    for _ in range(depth):
        after = _step(trees, root, at, keys, rows, row)
        if after == at:
            break
        at = after
    return at


@kernel
def _leaves_of_trees(trees: Any, keys: Array, rows: Array, row: Any, leaf: Array) -> None:
    """Walk one row, four trees at a time; `leaf` (trees,) int64 gets nodes of `trees`."""
    n, zero, stride = np.uint64(len(trees.depths)), np.uint64(0), np.uint64(4)
    roots = trees.roots
    for t in range(zero, n - n % stride, stride):
        r0, r1 = roots[t], roots[t + np.uint64(1)]
        r2, r3 = roots[t + np.uint64(2)], roots[t + np.uint64(3)]
        a0 = a1 = a2 = a3 = zero
        moved = True
        while moved:  # a leaf stays where it is
            b0 = _step(trees, r0, a0, keys, rows, row)
            b1 = _step(trees, r1, a1, keys, rows, row)
            b2 = _step(trees, r2, a2, keys, rows, row)
            b3 = _step(trees, r3, a3, keys, rows, row)
            moved = (a0 ^ b0) | (a1 ^ b1) | (a2 ^ b2) | (a3 ^ b3) != zero
            a0, a1, a2, a3 = b0, b1, b2, b3
        leaf[t], leaf[t + np.uint64(1)] = r0 + a0, r1 + a1
        leaf[t + np.uint64(2)], leaf[t + np.uint64(3)] = r2 + a2, r3 + a3
    for t in range(n - n % stride, n):
        leaf[t] = roots[t] + _leaf_of_row(trees, roots[t], trees.depths[t], keys, rows, row)


@kernel
def add_units(
    trees: Any, rows: Array, block: Any, leaf_row: Array, units: Array, sums: Array
) -> None:
    """Add the integer leaf values of every tree to each row's `sums`.

    Parameters
    ----------
    trees : PackedTrees
    rows : (rows, features) float32 or float64, as wide as the keys
    block : uint64
        Rows that are walked through a tree before the next tree's turn.
    leaf_row : (nodes,) int32
        Row of `units` of each node that is a leaf.
    units : (leaves, outputs) int64
    sums : (rows, outputs) int64, written
    """
    n, outputs = np.uint64(len(rows)), np.uint64(units.shape[1])
    n_trees = np.uint64(len(trees.depths))
    keys = np.empty((min(n, block), rows.shape[1]), trees.nodes.dtype)
    leaf = np.empty(max(min(n, block), n_trees), np.int64)
    for start in range(np.uint64(0), n, block):
        count = min(block, n - start)
        part = rows[start : start + count]
        encode(part, trees.nominal, trees.n_levels, keys)
        if count < np.uint64(FEW_ROWS):
            for r in range(count):
                _leaves_of_trees(trees, keys, part, r, leaf)
                for t in range(n_trees):
                    at = np.uint64(leaf_row[np.uint64(leaf[t])])
                    for k in range(outputs):
                        sums[start + r, k] += units[at, k]
            continue
        for t in range(n_trees):
            _leaves_of_rows(trees, t, keys, part, count, leaf)
            for r in range(count):
                at = np.uint64(leaf_row[np.uint64(leaf[r])])
                for k in range(outputs):
                    sums[start + r, k] += units[at, k]


@kernel
def leaf_nodes(trees: Any, rows: Array, block: Any, nodes: Array) -> None:
    """Write the leaf of each row in each tree into `nodes` (rows, trees) int32.

    Numbers count from the tree's root; the other parameters are as in `add_units`.
    """
    n, n_trees = np.uint64(len(rows)), np.uint64(len(trees.depths))
    keys = np.empty((min(n, block), rows.shape[1]), trees.nodes.dtype)
    leaf = np.empty(max(min(n, block), n_trees), np.int64)
    for start in range(np.uint64(0), n, block):
        count = min(block, n - start)
        part = rows[start : start + count]
        encode(part, trees.nominal, trees.n_levels, keys)
        for t in range(n_trees):
            _leaves_of_rows(trees, t, keys, part, count, leaf)
            for r in range(count):
                nodes[start + r, t] = np.int32(leaf[r] - np.int64(trees.roots[t]))
