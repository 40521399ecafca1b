"""Derived columns (see `treekit.model.derived_features`), evaluated when a row comes to their
node.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import kernel

__all__ = ["UNKNOWN", "PackedColumns", "derived_key"]

Array = npt.NDArray[Any]

UNKNOWN = 2
"""Branch where a test says nothing."""


class PackedColumns(NamedTuple):
    """The fields of `treekit.model.derived_features.DerivedColumns` that the loops read.

    Subscripts are uint64.  Branches, uint8, are `UNKNOWN` where a test says
    nothing; `level_cell`, which means nothing for linear tests, is
    the right cell of `level_feature` (see `treekit.kernels.keys`).
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
def derived_key(columns: Any, column: Any, keys: Array, at: Any, rows: Array, row: Any) -> Any:
    """Branch 0 or 1 that a derived column says, or the key of a missing value.

    Parameters
    ----------
    columns : PackedColumns
    column : uint64
        Number of the derived column, from 0.
    keys : (keys,) uint32 or uint64
        Groups of encoded rows; see `treekit.kernels.keys`.
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
        if first == last:  # a test by levels
            code = keys[at + columns.level_cell[test]]
            if code != missing:
                branch = columns.level_branch[columns.level_start[test] + np.uint64(code)]
        else:
            # Products of two floats are exact in double, so that a fused
            # multiply-add could not differ either.
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
