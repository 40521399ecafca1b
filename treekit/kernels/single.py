"""One row, for a caller in a hurry.

Plain arrays, no records: numba takes 0.1 us to receive an array and several for a
record of them, and the walk of a hundred shallow trees takes one (measured).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import kernel
from treekit.kernels.keys import encode_row, group_width
from treekit.kernels.predict import down, step

__all__ = ["REFUSE_MISSING", "REFUSE_UNKNOWN", "sum_row"]

Array = npt.NDArray[Any]

REFUSE_MISSING = 1
REFUSE_UNKNOWN = 2


@kernel
def _refused(row: Array, codes_of: Array, refuse: Any) -> Any:
    """Whether a row (features,) holds what the policies, as bits, do not allow."""
    for f in range(np.uint64(len(row))):
        cell = row[f]
        missing, unknown = cell != cell, False
        if codes_of[f] > 0 and not missing:
            n_levels = codes_of[f] - np.uint64(1)
            unknown = not (cell >= 0 and cell < n_levels and cell == np.floor(cell))
        if unknown and refuse != 0:  # an unknown code that may pass is missing
            return True
        if missing and refuse & np.uint64(REFUSE_MISSING) != 0:
            return True
    return False


@kernel
def sum_row(
    row: Array,
    nodes: Array,
    roots: Array,
    start: Array,
    depth: Array,
    below: Array,
    key: Array,
    cell: Array,
    ends: Array,
    table: Array,
    child_shift: Any,
    columns: Array,
    n_codes: Array,
    codes_of: Array,
    refuse: Any,
    units: Array,
    sums: Array,
) -> Any:
    """Write the sums of the integer leaf values of one row; return where the first largest is.

    Parameters
    ----------
    row : (features,) float32 or float64
    nodes, roots, table, child_shift, columns, n_codes
        Of `treekit.kernels.packed.PackedTrees`; a model without levels has any table.
    start, depth, below, key, cell, ends
        Of `treekit.kernels.packed.Tops`.
    codes_of : (features,) uint64
        As `n_codes`, of all columns.
    refuse : uint64
        `REFUSE_MISSING`, `REFUSE_UNKNOWN`, both, or 0.
    units : (leaves, values) int64
    sums : (values,) int64, written

    Returns
    -------
    int64
        -1 if the row is refused.
    """
    if refuse != 0 and _refused(row, codes_of, refuse):
        return np.int64(-1)
    width, mask = group_width(len(columns)), (np.uint64(1) << child_shift) - np.uint64(2)
    keys = np.empty(width, nodes.dtype)
    encode_row(row, columns, n_codes, keys)
    outputs, zero = np.uint64(len(sums)), np.uint64(0)
    for k in range(outputs):
        sums[k] = 0
    for t in range(np.uint64(len(depth))):
        h = np.uint64(1)
        for _ in range(depth[t]):
            h += h + down(key, cell, table, start[t] + h, keys, zero)
        leaf = np.uint64(ends[start[t] + h - (np.uint64(1) << depth[t])])
        if below[t]:
            own = nodes[roots[t] : roots[t + np.uint64(1)]]
            before = ~leaf
            while before != leaf:
                before = leaf
                leaf = step(own, table, None, mask, child_shift, width, leaf, keys, zero, row, zero)
            leaf = np.uint64(own[leaf, zero])
        for k in range(outputs):
            sums[k] += units[leaf, k]
    best = zero
    for k in range(np.uint64(1), outputs):
        if sums[k] > sums[best]:
            best = k
    return np.int64(best)
