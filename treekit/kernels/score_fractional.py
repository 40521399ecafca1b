"""Scoring of fractional instances (Quinlan 1993, ch. 3): parts of integer mass.

A row starts with the mass 2**24 in every tree.  Where the value of a split is missing,
each branch gets its part of the incoming mass (see `treekit.model.fixed_point`), and a
leaf is weighted by the mass that reaches it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import kernel
from treekit.kernels.feature_codes import (
    GROUP_SIZE,
    compute_group_width,
    encode_rows,
    find_first_cell,
)
from treekit.kernels.score_batch import read_cell

__all__ = [
    "ALL_BRANCHES",
    "add_fractional_units",
    "gather_heaviest_leaf_values",
]

Array = npt.NDArray[Any]

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
    """Return the branch of a row at an inner node with this key and test, or `DIVIDES`."""
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
    n_waiting, found = np.uint64(0), np.uint64(0)
    first = find_first_cell(row, compute_group_width(len(trees.columns)))
    while part > 0:
        while True:  # down to a leaf, or to a split whose value is missing
            key, test = trees.nodes[root + at, np.uint64(0)], trees.nodes[root + at, np.uint64(1)]
            child = np.uint64(test >> trees.child_shift)
            if child == at:
                leaf[found], mass[found] = key, part
                found += np.uint64(1)
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
    return found


@kernel
def add_fractional_units(
    trees: Any,
    rows: Array,
    block: Any,
    units: Array,
    shares: Array,
    most: Any,
    sums: Array,
) -> None:
    """Add the integer leaf values of every tree, times the mass there, to each row's `sums`.

    Parameters
    ----------
    shares : (nodes, 2) int64
        From `treekit.model.fixed_point.compute_mass_bounds`, tree after tree.
    most : uint64
        Maximum number of leaves of a tree.
    trees, rows, block, units, sums
        As in `treekit.kernels.score_batch.add_leaf_units`.
    """
    n, outputs = np.uint64(len(rows)), np.uint64(units.shape[1])
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
                found = _distribute_mass(trees, shares, t, keys, part, r, waiting, leaf, mass)
                for i in range(found):
                    at = np.uint64(leaf[i])
                    for k in range(outputs):
                        sums[start + r, k] += units[at, k] * mass[i]


@kernel
def gather_heaviest_leaf_values(
    trees: Any, rows: Array, block: Any, leaf_values: Array, shares: Array, most: Any, output: Array
) -> None:
    """Write the entry of `leaf_values` (leaves,) int32 for a row's heaviest leaf of each tree.

    The first leaf of equal parts.  `output` is (rows, trees) int32; the other
    parameters are as in `add_fractional_units`.
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
                found = _distribute_mass(trees, shares, t, keys, part, r, waiting, leaf, mass)
                best = np.uint64(0)
                for i in range(np.uint64(1), found):
                    same = mass[i] == mass[best] and leaf[i] < leaf[best]
                    if mass[i] > mass[best] or same:
                        best = i
                output[start + r, t] = leaf_values[np.uint64(leaf[best])]
