"""The weight of sets of rows, a bit a row."""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import kernel
from treekit.kernels.pointers import lowest_bit

__all__ = ["weigh"]


@kernel
def weigh(sets, weights, sums):
    """Weight of each set.

    Parameters
    ----------
    sets : (sets, words) uint64
        Bit ``r & 63`` of word ``r >> 6`` stands for row r.
    weights : (rows,) float64
    sums : (sets,) float64
        Output; rows are added in their order.
    """
    one, six = np.uint64(1), np.uint64(6)
    for s in range(np.uint64(sets.shape[0])):
        total = 0.0
        for w in range(np.uint64(sets.shape[1])):
            word = sets[s, w]
            while word:
                total += weights[(w << six) + lowest_bit(word)]
                word &= word - one
        sums[s] = total
