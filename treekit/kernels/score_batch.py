"""Scoring of batches of rows with packed nodes, with and without fractional instances.

A node is two adjacent words: its key, and from the lowest bit up
``flag | cell | child``.  The offset of its cell (see `treekit.kernels.feature_codes`) is
a multiple of 8, which leaves room for the flag below it:

- threshold: the branch is ``cell > key``; missing values go right if the node reads a
  right cell, and left if it reads a left one;
- missing-value test: the key is 0 and the cell a left one, in which only missing values
  are not larger than 0;
- categories (flag set): the branch is ``table[key + cell]`` with a left cell; entry 0 is
  for missing values, entry 1 + code for a category;
- leaf: the child is the leaf itself, and the cell is always 0, which is not larger than
  any key, so that a row stays at the leaf.  The key is the number of the leaf in the model.

A derived column (see `treekit.model.tree`) is evaluated when a row reaches
its node; it is 0, 1 or missing.

A step therefore has no conditional jump that can be mispredicted, and eight rows are
processed at a time to hide its latency.  The top levels of a tree are stored as a complete
binary tree (a leaf above the last level is repeated), without numbers of children and
without a test for leaves: the children of node h, counted from 1, are 2h and 2h + 1.
Below the top levels, rows take four steps at a time, and rows at a leaf are removed.  This
is 1.7 times as fast, at depth 8 and at depth 30, as steps from node to node until none of
eight rows moves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import kernel
from treekit.kernels.feature_codes import (
    GROUP_SIZE,
    compute_group_width,
    encode_rows,
    find_first_cell,
)
from treekit.kernels.function_pointers import borrow_arrays, prefetch_row

# ---------------------------------------------------------------- many trees

Array = npt.NDArray[Any]


@kernel
def _compare_cell(table: Any, flag: Any, key: Any, cell: Any) -> Any:
    """Return the branch of a cell; without a table this compiles to the comparison."""
    branch = np.uint64(cell > key)
    if table is not None:
        # Thresholds look up entry 0 in vain: 1.7 times faster than a
        # jump that depends on the node (measured on mixed columns).
        levels = flag & np.uint64(1)
        entry = np.uint64(table[(np.uint64(key) + np.uint64(cell)) * levels])
        branch ^= (branch ^ entry) & (np.uint64(0) - levels)
    return branch


@kernel
def read_cell(
    derived: Any, cell: Any, keys: Array, at: Any, width: Any, rows: Array, row: Any
) -> Any:
    """Return a row's key in a cell; without derived columns this compiles to the lookup.

    `at` is the row's `find_first_cell` among the `keys`, `row` its number in `rows`.
    """
    if derived is not None and cell >= width:
        column = (cell - width) // np.uint64(GROUP_SIZE)
        key = evaluate_derived_column(derived, column >> np.uint64(1), keys, at, rows, row)
        # A left cell is one more: missing becomes 0.
        return keys.dtype.type(key + (column & np.uint64(1)))
    return keys[at + cell]


@kernel
def take_top_branch(key: Array, cell: Array, table: Any, place: Any, keys: Array, at: Any) -> Any:
    """Return the branch of a row, with first cell `at`, at a place in the complete levels."""
    offset, flag = np.uint64(cell[place]), np.uint64(0)
    if table is not None:
        flag = offset & np.uint64(1)
        offset ^= flag
    return _compare_cell(table, flag, key[place], keys[at + offset])


class WalkedNodes(NamedTuple):
    """Packed nodes through which rows walk; the fields are those of `PackedTrees`.

    `width` is the distance of groups of rows among the keys.
    """

    nodes: Array
    table: Array | None
    derived: PackedDerivedColumns | None
    cell_mask: np.uint64
    child_shift: np.uint64
    width: np.uint64


@kernel
def step_to_child(walked: Any, node: Any, keys: Array, at: Any, rows: Array, row: Any) -> Any:
    """Return the node that a row visits after `node`, counted from the root of the tree."""
    key, test = walked.nodes[node, np.uint64(0)], walked.nodes[node, np.uint64(1)]
    cell = read_cell(walked.derived, test & walked.cell_mask, keys, at, walked.width, rows, row)
    child = np.uint64(test >> walked.child_shift)
    return child + _compare_cell(walked.table, np.uint64(test), key, cell)


@kernel
def _walk_top_levels(
    key: Array,
    cell: Array,
    ends: Array,
    table: Any,
    depth: Any,
    width: Any,
    keys: Array,
    n: Any,
    reached: Array,
) -> None:
    """Walk `n` rows down the complete levels of one tree; write the ends to `reached` (rows,).

    `key`, `cell` and `ends` are slices of this tree: their addresses stay in registers, and
    no step adds the offset of the tree.
    """
    one, at = np.uint64(1), np.uint64(0)
    size = one << depth
    for r in range(np.uint64(0), n, np.uint64(GROUP_SIZE)):
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = one
        for _ in range(depth):
            a0 += a0 + take_top_branch(key, cell, table, a0, keys, at)
            a1 += a1 + take_top_branch(key, cell, table, a1, keys, at + one)
            a2 += a2 + take_top_branch(key, cell, table, a2, keys, at + np.uint64(2))
            a3 += a3 + take_top_branch(key, cell, table, a3, keys, at + np.uint64(3))
            a4 += a4 + take_top_branch(key, cell, table, a4, keys, at + np.uint64(4))
            a5 += a5 + take_top_branch(key, cell, table, a5, keys, at + np.uint64(5))
            a6 += a6 + take_top_branch(key, cell, table, a6, keys, at + np.uint64(6))
            a7 += a7 + take_top_branch(key, cell, table, a7, keys, at + np.uint64(7))
        reached[r], reached[r + one] = ends[a0 - size], ends[a1 - size]
        reached[r + np.uint64(2)], reached[r + np.uint64(3)] = ends[a2 - size], ends[a3 - size]
        reached[r + np.uint64(4)], reached[r + np.uint64(5)] = ends[a4 - size], ends[a5 - size]
        reached[r + np.uint64(6)], reached[r + np.uint64(7)] = ends[a6 - size], ends[a7 - size]
        at += width


@kernel
def _walk_below_top(
    trees: Any, tree: Any, keys: Array, rows: Array, n: Any, walking: Array, reached: Array
) -> None:
    """Walk `n` rows from the nodes `reached` to leaves; write the leaf numbers to `reached`.

    `walking` (rows + 8,) uint32 is working memory for the rows that have not reached a leaf.
    """
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    five, six, seven, group = np.uint64(5), np.uint64(6), np.uint64(7), np.uint64(GROUP_SIZE)
    nodes = trees.nodes[trees.roots[tree] : trees.roots[tree + one]]
    w = compute_group_width(len(trees.columns))
    walked = borrow_arrays(
        WalkedNodes(nodes, trees.table, trees.derived, trees.cell_mask, trees.child_shift, w)
    )
    if n >= np.uint64(len(nodes)) // np.uint64(64):
        for i in range(np.uint64(0), np.uint64(len(nodes)), group):
            prefetch_row(nodes, i)
    for r in range(n):
        walking[r] = r
    left = n
    while left > 0:
        for i in range(left, (left + seven) // group * group):
            walking[i] = walking[left - one]
        kept = np.uint64(0)
        for i in range(np.uint64(0), left, group):
            r0, r1 = np.uint64(walking[i]), np.uint64(walking[i + one])
            r2, r3 = np.uint64(walking[i + two]), np.uint64(walking[i + three])
            r4, r5 = np.uint64(walking[i + four]), np.uint64(walking[i + five])
            r6, r7 = np.uint64(walking[i + six]), np.uint64(walking[i + seven])
            k0, k1, k2, k3 = (
                find_first_cell(r0, w),
                find_first_cell(r1, w),
                find_first_cell(r2, w),
                find_first_cell(r3, w),
            )
            k4, k5, k6, k7 = (
                find_first_cell(r4, w),
                find_first_cell(r5, w),
                find_first_cell(r6, w),
                find_first_cell(r7, w),
            )
            b0, b1 = np.uint64(reached[r0]), np.uint64(reached[r1])
            b2, b3 = np.uint64(reached[r2]), np.uint64(reached[r3])
            b4, b5 = np.uint64(reached[r4]), np.uint64(reached[r5])
            b6, b7 = np.uint64(reached[r6]), np.uint64(reached[r7])
            a0, a1, a2, a3, a4, a5, a6, a7 = b0, b1, b2, b3, b4, b5, b6, b7
            for _ in range(four):
                a0, a1, a2, a3, a4, a5, a6, a7 = b0, b1, b2, b3, b4, b5, b6, b7
                b0 = step_to_child(walked, a0, keys, k0, rows, r0)
                b1 = step_to_child(walked, a1, keys, k1, rows, r1)
                b2 = step_to_child(walked, a2, keys, k2, rows, r2)
                b3 = step_to_child(walked, a3, keys, k3, rows, r3)
                b4 = step_to_child(walked, a4, keys, k4, rows, r4)
                b5 = step_to_child(walked, a5, keys, k5, rows, r5)
                b6 = step_to_child(walked, a6, keys, k6, rows, r6)
                b7 = step_to_child(walked, a7, keys, k7, rows, r7)
            reached[r0], reached[r1], reached[r2], reached[r3] = b0, b1, b2, b3
            reached[r4], reached[r5], reached[r6], reached[r7] = b4, b5, b6, b7
            # A row that has reached a leaf is overwritten by the next one.
            walking[kept] = r0
            kept += np.uint64(a0 != b0)
            walking[kept] = r1
            kept += np.uint64((a1 != b1) & (i + one < left))
            walking[kept] = r2
            kept += np.uint64((a2 != b2) & (i + two < left))
            walking[kept] = r3
            kept += np.uint64((a3 != b3) & (i + three < left))
            walking[kept] = r4
            kept += np.uint64((a4 != b4) & (i + four < left))
            walking[kept] = r5
            kept += np.uint64((a5 != b5) & (i + five < left))
            walking[kept] = r6
            kept += np.uint64((a6 != b6) & (i + six < left))
            walking[kept] = r7
            kept += np.uint64((a7 != b7) & (i + seven < left))
        left = kept
    for r in range(n):
        reached[r] = nodes[np.uint64(reached[r]), np.uint64(0)]


@kernel
def add_leaf_units(trees: Any, rows: Array, block: Any, units: Array, sums: Array) -> None:
    """Add the integer leaf values of every tree to each row's `sums`.

    Parameters
    ----------
    trees : treekit.kernels.score_batch.PackedTrees
    rows : (rows, features) float32 or float64, as wide as the keys
    block : uint64
        Rows that walk through a tree before the next tree's turn; a multiple of 8.
    units : (leaves, outputs) int64
    sums : (rows, outputs) int64
        Output.
    """
    n, group, outputs = np.uint64(len(rows)), np.uint64(GROUP_SIZE), np.uint64(units.shape[1])
    n_trees = np.uint64(len(trees.tops.depth))
    width = compute_group_width(len(trees.columns))
    key, cell, ends = (
        borrow_arrays(trees.tops.key),
        borrow_arrays(trees.tops.cell),
        borrow_arrays(trees.tops.ends),
    )
    most = (min(n, block) + group - np.uint64(1)) // group * group
    keys = np.empty(most // group * width, trees.nodes.dtype)
    reached, walking = np.empty(most, np.uint32), np.empty(most, np.uint32)
    for start in range(np.uint64(0), n, block):
        count = min(block, n - start)
        part = rows[start : start + count]
        encode_rows(part, trees.columns, trees.n_codes, keys)
        for t in range(n_trees):
            first, depth = trees.tops.offsets[t], trees.tops.depth[t]
            end = first + (np.uint64(1) << depth)
            top = key[first:end], cell[first:end], ends[first:end]
            _walk_top_levels(*top, trees.table, depth, width, keys, count, reached)
            if trees.tops.below[t]:
                _walk_below_top(trees, t, keys, part, count, walking, reached)
            if outputs == 2:  # the overhead of a loop over two equals its work
                for r in range(count):
                    leaf, to = np.uint64(reached[r]), start + r
                    sums[to, np.uint64(0)] += units[leaf, np.uint64(0)]
                    sums[to, np.uint64(1)] += units[leaf, np.uint64(1)]
                continue
            for r in range(count):
                leaf = np.uint64(reached[r])
                for k in range(outputs):
                    sums[start + r, k] += units[leaf, k]


@kernel
def gather_leaf_values(
    trees: Any, rows: Array, block: Any, leaf_values: Array, output: Array
) -> None:
    """Write the entry of `leaf_values` (leaves,) int32 for each row's leaf in each tree.

    `output` is (rows, trees) int32; the other parameters are as in `add_leaf_units`.
    """
    n, group = np.uint64(len(rows)), np.uint64(GROUP_SIZE)
    width = compute_group_width(len(trees.columns))
    key, cell, ends = (
        borrow_arrays(trees.tops.key),
        borrow_arrays(trees.tops.cell),
        borrow_arrays(trees.tops.ends),
    )
    most = (min(n, block) + group - np.uint64(1)) // group * group
    keys = np.empty(most // group * width, trees.nodes.dtype)
    reached, walking = np.empty(most, np.uint32), np.empty(most, np.uint32)
    for start in range(np.uint64(0), n, block):
        count = min(block, n - start)
        part = rows[start : start + count]
        encode_rows(part, trees.columns, trees.n_codes, keys)
        for t in range(np.uint64(len(trees.tops.depth))):
            first, depth = trees.tops.offsets[t], trees.tops.depth[t]
            end = first + (np.uint64(1) << depth)
            top = key[first:end], cell[first:end], ends[first:end]
            _walk_top_levels(*top, trees.table, depth, width, keys, count, reached)
            if trees.tops.below[t]:
                _walk_below_top(trees, t, keys, part, count, walking, reached)
            for r in range(count):
                output[start + r, t] = leaf_values[np.uint64(reached[r])]


# ---------------------------------------------------------------- packed trees


class CompleteLevels(NamedTuple):
    """The complete top levels of all trees.

    Attributes
    ----------
    offsets : (trees,) uint64
        Tree t's node h, from 1, is at ``start[t] + h`` of `key` and `cell`, and
        its end e, from 0, at ``start[t] + e`` of `ends`.
    depth : (trees,) uint64
        Number of levels of each tree.
    below : (trees,) bool
        Whether the ends are nodes; otherwise they are numbers of leaves.
    key : (places,) uint32 or uint64
    cell : (places,) uint32
        With the flag of categories in the lowest bit.
    ends : (places,) uint32
        Destination of the rows: a node counted from the root, or a leaf of the model.
    """

    offsets: Array
    depth: Array
    below: Array
    key: Array
    cell: Array
    ends: Array


class PackedTrees(NamedTuple):
    """All trees of a model, packed for scoring.

    Attributes
    ----------
    nodes : (nodes, 2) uint32 or uint64
        Packed nodes, tree after tree; children count from the tree's root.
    roots : (trees + 1,) uint64
        Offset of each tree in `nodes`.
    tops : CompleteLevels
    table : (entries,) uint8 or uint32, or None
        Branches of the splits on categories (`treekit.model.tree`); None without any.
    derived : PackedDerivedColumns, or None
        Derived columns; None if there are none.
    cell_mask, child_shift : uint64
        Position of cell and child in a node's second word.
    columns, n_codes : (columns,) uint64
        Split features; see `treekit.kernels.feature_codes.encode_rows`.
    deepest : uint64
        Depth of the deepest tree.
    """

    nodes: Array
    roots: Array
    tops: CompleteLevels
    table: Array | None
    derived: PackedDerivedColumns | None
    cell_mask: np.uint64
    child_shift: np.uint64
    columns: Array
    n_codes: Array
    deepest: np.uint64


# ---------------------------------------------------------------- a single tree
# Walks over the floats of the rows instead of keys.
#
# Keys (see `treekit.kernels.feature_codes`) pay off if many trees use them.  A row of 28
# cells takes 30 ns to encode and 10 ns to walk through a tree of depth 8 (measured).


@kernel
def _step_unpacked(
    limits: Array, tests: Array, mask: Any, shift: Any, rows: Array, row: Any, at: Any
) -> Any:
    """Return the node that a row visits after node `at`."""
    test, limit = np.uint64(tests[at]), limits[at]
    cell = rows[row, (test >> np.uint64(1)) & mask]
    right = np.uint64(cell > limit) | (np.uint64(cell != cell) & test & np.uint64(1))
    return (test >> shift) + right


@kernel
def gather_unpacked_values(
    limits: Array,
    tests: Array,
    column_bits: Any,
    depth: Any,
    node_values: Array,
    rows: Array,
    output: Array,
) -> None:
    """Write the entry of `node_values` (nodes,) int32 for each row's leaf to `output`.

    Parameters
    ----------
    limits : (nodes,) as the rows
        Thresholds, rows above go right; infinite in leaves.
    tests : (nodes,) uint32 or uint64
        From the lowest bit up: whether missing goes right; the column; the left
        child, in leaves the leaf.
    column_bits, depth : uint64
    rows : (rows, features) float32 or float64
    """
    n, zero, stride = np.uint64(len(rows)), np.uint64(0), np.uint64(8)
    mask, shift = (np.uint64(1) << column_bits) - np.uint64(1), column_bits + np.uint64(1)
    last = n - np.uint64(1)
    for r in range(zero, n, stride):
        r1, r2 = min(r + np.uint64(1), last), min(r + np.uint64(2), last)
        r3, r4 = min(r + np.uint64(3), last), min(r + np.uint64(4), last)
        r5, r6 = min(r + np.uint64(5), last), min(r + np.uint64(6), last)
        r7 = min(r + np.uint64(7), last)
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = zero
        for level in range(depth):
            b0 = _step_unpacked(limits, tests, mask, shift, rows, r, a0)
            b1 = _step_unpacked(limits, tests, mask, shift, rows, r1, a1)
            b2 = _step_unpacked(limits, tests, mask, shift, rows, r2, a2)
            b3 = _step_unpacked(limits, tests, mask, shift, rows, r3, a3)
            b4 = _step_unpacked(limits, tests, mask, shift, rows, r4, a4)
            b5 = _step_unpacked(limits, tests, mask, shift, rows, r5, a5)
            b6 = _step_unpacked(limits, tests, mask, shift, rows, r6, a6)
            b7 = _step_unpacked(limits, tests, mask, shift, rows, r7, a7)
            if level & np.uint64(3) == np.uint64(3):  # in deep trees most rows end early
                moved = (a0 ^ b0) | (a1 ^ b1) | (a2 ^ b2) | (a3 ^ b3)
                if moved | (a4 ^ b4) | (a5 ^ b5) | (a6 ^ b6) | (a7 ^ b7) == zero:
                    break
            a0, a1, a2, a3, a4, a5, a6, a7 = b0, b1, b2, b3, b4, b5, b6, b7
        output[r], output[r1], output[r2], output[r3] = (
            node_values[a0],
            node_values[a1],
            node_values[a2],
            node_values[a3],
        )
        output[r4], output[r5], output[r6], output[r7] = (
            node_values[a4],
            node_values[a5],
            node_values[a6],
            node_values[a7],
        )


# ---------------------------------------------------------------- derived columns
# See `treekit.model.tree`; evaluated when a row reaches their node.

UNKNOWN = 2
"""Branch of a test whose value is unknown."""


class PackedDerivedColumns(NamedTuple):
    """The fields of `treekit.model.tree.DerivedColumns` needed for scoring.

    Subscripts are uint64.  Branches, uint8, are `UNKNOWN` where a test is unknown;
    `level_cell`, which is unused by linear tests, is the right cell of `level_feature`
    (see `treekit.kernels.feature_codes`).
    """

    test_start: Array
    threshold: Array
    below: Array
    above: Array
    lost: Array
    term_start: Array
    term_feature: Array
    term_weight: Array
    level_cell: Array
    level_start: Array
    level_branch: Array


@kernel
def evaluate_derived_column(
    columns: Any, column: Any, keys: Array, at: Any, rows: Array, row: Any
) -> Any:
    """Return branch 0 or 1 of a derived column, or the key of a missing value.

    Parameters
    ----------
    columns : PackedDerivedColumns
    column : uint64
        Number of the derived column, from 0.
    keys : (keys,) uint32 or uint64
        Groups of encoded rows; see `treekit.kernels.feature_codes`.
    at : uint64
        The row's first cell.
    rows : (rows, features) float32 or float64
        The rows themselves, numbers of the model's input type.
    row : uint64
    """
    word = keys.dtype.type
    missing = word(~word(0))
    for test in range(columns.test_start[column], columns.test_start[column + np.uint64(1)]):
        first, last = columns.term_start[test], columns.term_start[test + np.uint64(1)]
        branch = columns.lost[test]
        if first == last:  # a test on categories
            code = keys[at + columns.level_cell[test]]
            if code != missing:
                branch = columns.level_branch[columns.level_start[test] + np.uint64(code)]
        else:
            # Products of two float32 are exact in double: a fused multiply-add gives
            # the same result.
            total = 0.0
            for term in range(first, last):
                x = np.float64(rows[row, columns.term_feature[term]])
                total += columns.term_weight[term] * x
            if total <= columns.threshold[test]:
                branch = columns.below[test]
            elif total == total:
                branch = columns.above[test]
        if branch != np.uint8(UNKNOWN):
            return word(branch)
    return missing


# ---------------------------------------------------------------- fractional instances


ALL_BRANCHES = 2**32 - 1
"""Stands for a branch if the row goes down all branches.

In the table of branches it is the largest number of the table's type.
"""

_MASS_BITS = 24
_FULL_MASS = 1 << _MASS_BITS


@kernel
def _find_branch(
    trees: Any, key: Any, test: Any, keys: Array, at: Any, rows: Array, row: Any
) -> Any:
    """Return the branch of a row at an inner node with this key and test, or `ALL_BRANCHES`."""
    offset, group = np.uint64(test & trees.cell_mask), np.uint64(GROUP_SIZE)
    width = compute_group_width(len(trees.columns))
    cell = read_cell(trees.derived, offset, keys, at, width, rows, row)
    if test & np.uint64(1):
        branch = trees.table[np.uint64(key) + np.uint64(cell)]
        all_branches = trees.table.dtype.type(~trees.table.dtype.type(0))
        return np.uint64(ALL_BRANCHES) if branch == all_branches else np.uint64(branch)
    # Cells of numbers: cell 0 is the zero, then right and left cells alternate.
    in_left = (offset // group) & np.uint64(1) == 0
    missing = keys.dtype.type(0) if in_left else keys.dtype.type(~keys.dtype.type(0))
    asks_missing = in_left and key == 0
    if cell == missing and not asks_missing:
        return np.uint64(ALL_BRANCHES)
    return np.uint64(cell > key)


@kernel
def _distribute_mass(
    trees: Any,
    shares: Array,
    tree: Any,
    keys: Array,
    rows: Array,
    row: Any,
    waiting: Array,
    leaf: Array,
    mass: Array,
) -> Any:
    """Write the leaves of one tree that a row reaches, and the mass in each; return their number.

    `waiting` (depth + 1, 2) int64 is a stack of the fractional splits above the current
    node: the next branch, and the mass to distribute.
    """
    root, at, part = trees.roots[tree], np.uint64(0), np.int64(_FULL_MASS)
    n_waiting, n_leaves = np.uint64(0), np.uint64(0)
    first = find_first_cell(row, compute_group_width(len(trees.columns)))
    while part > 0:
        while True:  # down to a leaf, or to a split whose value is missing
            key, test = trees.nodes[root + at, np.uint64(0)], trees.nodes[root + at, np.uint64(1)]
            child = np.uint64(test >> trees.child_shift)
            if child == at:
                leaf[n_leaves], mass[n_leaves] = key, part
                n_leaves += np.uint64(1)
                break
            branch = _find_branch(trees, key, test, keys, first, rows, row)
            if branch == np.uint64(ALL_BRANCHES):
                waiting[n_waiting, np.uint64(0)] = child
                waiting[n_waiting, np.uint64(1)] = part
                n_waiting += np.uint64(1)
                break
            at = child + branch
        part = np.int64(0)
        while n_waiting > 0 and part == 0:
            last = n_waiting - np.uint64(1)
            at, incoming = np.uint64(waiting[last, np.uint64(0)]), waiting[last, np.uint64(1)]
            low = shares[root + at, np.uint64(0)]
            high = shares[root + at, np.uint64(1)]
            part = ((incoming * high) >> _MASS_BITS) - ((incoming * low) >> _MASS_BITS)
            if high == _FULL_MASS:  # any further branches get no mass
                n_waiting = last
            else:
                waiting[last, np.uint64(0)] = at + np.uint64(1)
    return n_leaves


@kernel
def add_fractional_units(
    trees: Any,
    rows: Array,
    block: Any,
    units: Array,
    shares: Array,
    most: Any,
    bits: Any,
    sums: Array,
) -> None:
    """Add the integer leaf values of every tree, times the mass there, to each row's `sums`.

    Products are ``floor(value * mass / 2**bits)``, see
    `treekit.model.fixed_point.multiply_by_mass`.

    Parameters
    ----------
    shares : (nodes, 2) int64
        From `treekit.model.fixed_point.compute_mass_bounds`, tree after tree.
    most : uint64
        Maximum number of leaves of a tree.
    bits : uint64
    trees, rows, block, units, sums
        As in `treekit.kernels.score_batch.add_leaf_units`.
    """
    n, outputs = np.uint64(len(rows)), np.uint64(units.shape[1])
    shift = np.int64(bits)
    lower = (np.int64(1) << shift) - np.int64(1)
    keys = np.empty(
        (min(n, block) // np.uint64(GROUP_SIZE) + np.uint64(1))
        * compute_group_width(len(trees.columns)),
        trees.nodes.dtype,
    )
    leaf, mass = np.empty(most, np.int64), np.empty(most, np.int64)
    waiting = np.empty((trees.deepest + np.uint64(1), 2), np.int64)
    for start in range(np.uint64(0), n, block):
        count = min(block, n - start)
        part = rows[start : start + count]
        encode_rows(part, trees.columns, trees.n_codes, keys)
        for t in range(np.uint64(len(trees.tops.depth))):
            for r in range(count):
                n_leaves = _distribute_mass(trees, shares, t, keys, part, r, waiting, leaf, mass)
                for i in range(n_leaves):
                    at = np.uint64(leaf[i])
                    for k in range(outputs):
                        value = units[at, k]
                        sums[start + r, k] += (value >> shift) * mass[i] + (
                            ((value & lower) * mass[i]) >> shift
                        )


@kernel
def gather_heaviest_leaf_values(
    trees: Any, rows: Array, block: Any, leaf_values: Array, shares: Array, most: Any, output: Array
) -> None:
    """Write the entry of `leaf_values` for the leaf of each tree with most of a row's mass.

    Of several leaves with equal mass it is the first.  `leaf_values` is (leaves,) int32 and
    `output` (rows, trees) int32; the other parameters are as in `add_fractional_units`.
    """
    n = np.uint64(len(rows))
    keys = np.empty(
        (min(n, block) // np.uint64(GROUP_SIZE) + np.uint64(1))
        * compute_group_width(len(trees.columns)),
        trees.nodes.dtype,
    )
    leaf, mass = np.empty(most, np.int64), np.empty(most, np.int64)
    waiting = np.empty((trees.deepest + np.uint64(1), 2), np.int64)
    for start in range(np.uint64(0), n, block):
        count = min(block, n - start)
        part = rows[start : start + count]
        encode_rows(part, trees.columns, trees.n_codes, keys)
        for t in range(np.uint64(len(trees.tops.depth))):
            for r in range(count):
                n_leaves = _distribute_mass(trees, shares, t, keys, part, r, waiting, leaf, mass)
                best = np.uint64(0)
                for i in range(np.uint64(1), n_leaves):
                    same = mass[i] == mass[best] and leaf[i] < leaf[best]
                    if mass[i] > mass[best] or same:
                        best = i
                output[start + r, t] = leaf_values[np.uint64(leaf[best])]
