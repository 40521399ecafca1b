"""Statistics of the rows on one side of a test, in one pass without branches.

Sums of statistics are exact in any order (`treekit.grow.target`), so that how
they are taken is free.  Classes of whole weights, the common case, are counted
in integers: all classes of a row in one word, which adds to the sum as it is
or masked.  Cells of float64 instead, one of which each row adds to, wait for
each other: a store, a load and an addition a row.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import inlined

__all__ = ["add_side", "pack"]


@inlined
def pack(cells, values, m, s, weight, packed):
    """One word a row with its weight in the field of its class, where that can be.

    Returns
    -------
    bits : uint64
        Width of a field; `s` fields lie in a word, the first class lowest.
        0: statistics are dense, weights not whole, or the sum of all weights,
        `weight`, does not fit a field.
    """
    zero = np.uint64(0)
    if np.uint64(len(cells)) == zero or s < np.uint64(2) or s > np.uint64(32):
        return zero
    bits = np.uint64(64) // s
    if not weight < np.float64(np.uint64(1) << bits):
        return zero
    whole = True
    for i in range(m):
        value = values[i, zero]
        count = np.int64(value)
        whole &= np.float64(count) == value
        packed[i] = np.uint64(count) << (np.uint64(cells[i]) * bits)
    return bits if whole else zero


@inlined
def add_side(codes, least, most, cells, values, words, m, s, sums):
    """Statistics of the rows whose code is from `least` to `most`, into ``sums[:s]``.

    Parameters
    ----------
    codes : (m,) uint32
        Of the node's rows.
    words : (bits, packed)
        Of `pack`.
    """
    bits, packed = words
    zero, one = np.uint64(0), np.uint64(1)
    span = most - least  # of unsigned codes: one comparison tells both ends
    if bits > zero:
        total = zero
        for i in range(m):
            total += packed[i] if np.uint32(codes[i] - least) <= span else zero
        mask = (one << bits) - one
        for k in range(s):
            sums[k] = np.float64(np.int64((total >> (k * bits)) & mask))
    elif len(cells) > 0:
        for k in range(s):
            sums[k] = 0.0
        for i in range(m):
            inside = np.uint32(codes[i] - least) <= span
            sums[np.uint64(cells[i])] += values[i, zero] * inside
    else:
        for k in range(s):
            sums[k] = 0.0
        for i in range(m):
            inside = np.float64(np.uint32(codes[i] - least) <= span)
            for k in range(s):
                sums[k] += values[i, k] * inside
