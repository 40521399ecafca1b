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

__all__ = ["add_side", "lanes_of", "pack"]

ALIKE = np.uint64(64)
"""What `pack` says of numbers whose rows all weigh 1."""


@inlined
def pack(cells, values, m, s, weight, packed):
    """Prepare the statistics of a node's rows for `add_side`, where that pays.

    Classes: see `lanes_of`.  One number of rows that weigh 1: ``packed`` are the
    bits of cell 1.

    Returns
    -------
    form : uint64
        Width of a lane; `ALIKE`; or 0 for all others.
    """
    zero, one = np.uint64(0), np.uint64(1)
    if np.uint64(len(cells)) == zero:
        if s != np.uint64(2):
            return zero
        whole, sums = True, packed.view(np.float64)
        for i in range(m):
            whole &= values[i, zero] == 1.0
            sums[i] = values[i, one]
        return ALIKE if whole else zero
    return lanes_of(cells, values, m, s, weight, packed)


@inlined
def lanes_of(cells, values, m, s, weight, packed):
    """A word a row, with its weight in the lane of its class; the first class is lowest.

    Returns
    -------
    width : uint64
        Of a lane, of which there are `s`; 0: weights are not whole, or their sum,
        `weight`, does not fit a lane, or rows have no class.
    """
    zero = np.uint64(0)
    if np.uint64(len(cells)) == zero or s < np.uint64(2) or s > np.uint64(32):
        return zero
    width = np.uint64(64) // s
    if not weight < np.float64(np.uint64(1) << width):
        return zero
    whole = True
    for i in range(m):
        value = values[i, zero]
        count = np.int64(value)
        whole &= np.float64(count) == value
        packed[i] = np.uint64(count) << (np.uint64(cells[i]) * width)
    return width if whole else zero


@inlined
def add_side(codes, least, most, cells, values, words, m, s, sums):
    """Statistics of the rows whose code is from `least` to `most`, into ``sums[:s]``.

    Parameters
    ----------
    codes : (m,) uint32
        Of the node's rows.
    words : (form, packed)
        Of `pack`.
    """
    form, packed = words
    zero, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
    span = np.uint32(most - least)  # of unsigned codes: one comparison tells both ends
    if form == ALIKE:
        count, at, three = zero, zero, np.uint64(3)
        a, b, c, d = 0.0, 0.0, 0.0, 0.0  # four chains of additions do not wait for each other
        for i in range(m):
            count += np.uint64(np.uint32(codes[i] - least) <= span)
        while at + three < m:
            a += _within(codes[at], least, span, packed[at])
            b += _within(codes[at + one], least, span, packed[at + one])
            c += _within(codes[at + two], least, span, packed[at + two])
            d += _within(codes[at + three], least, span, packed[at + three])
            at += three + one
        while at < m:
            a += _within(codes[at], least, span, packed[at])
            at += one
        sums[zero] = np.float64(np.int64(count))
        sums[one] = (a + b) + (c + d)
    elif form > zero:
        total = zero
        for i in range(m):
            total += packed[i] if np.uint32(codes[i] - least) <= span else zero
        mask = (one << form) - one
        for k in range(s):
            sums[k] = np.float64(np.int64((total >> (k * form)) & mask))
    elif len(cells) > 0:
        for k in range(s):
            sums[k] = 0.0
        for i in range(m):
            inside = np.uint32(codes[i] - least) <= span
            sums[np.uint64(cells[i])] += values[i, zero] * inside
    else:
        for k in range(s):
            total_of_cell = 0.0
            for i in range(m):
                inside = np.uint32(codes[i] - least) <= span
                total_of_cell += values[i, k] * inside
            sums[k] = total_of_cell


@inlined
def _within(code, least, span, bits):
    """The number of these bits, or 0 where the code is not within the span: no branch."""
    inside = np.uint64(np.uint32(code - least) <= span)
    return np.uint64(bits & (np.uint64(0) - inside)).view(np.float64)
