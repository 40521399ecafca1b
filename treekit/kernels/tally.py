"""Statistics of a node's rows, grouped by the codes of one column.

All three ways give the same compact table, ascending by code: one row of
statistics for each code present, and the code itself.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import kernel
from treekit.kernels.pointers import lowest_bit

__all__ = ["tally"]

SMALL = 512
"""Up to so many rows a bitmap of occupied codes beats a full histogram."""

INSERTION = 48
"""Up to so many rows insertion beats a radix sort."""


@kernel
def tally(codes, n_codes, ids, cells, values, scratch):
    """Group a node's rows by the codes of one column.

    Parameters
    ----------
    codes : (all rows,) unsigned
    n_codes : int
        Codes of the column, missing not counted.
    ids, cells, values : arrays
        The node's `Rows`.

    Fills ``scratch.compact[:k]`` and ``scratch.code_of[:k]`` and returns k, the number of distinct codes present
    (missing, which sorts last, included).  A single code is not tallied: the
    caller needs no statistics of a constant column.
    """
    m = np.uint64(len(ids))
    buffer = scratch.codes
    if m <= np.uint64(SMALL) and n_codes < np.uint32(256):
        return _tally_bitmap(
            codes, ids, cells, values, buffer, scratch.words, scratch.order, scratch.compact,
            scratch.flat, scratch.code_of,
        )
    lowest, highest = np.uint32(0xFFFFFFFF), np.uint32(0)
    for i in range(m):
        code = np.uint32(codes[ids[i]])
        buffer[i] = code
        lowest = min(lowest, code)
        highest = max(highest, code)
    if lowest == highest:
        scratch.code_of[np.uint64(0)] = lowest
        return 1
    if np.uint64(highest - lowest) < max(m, np.uint64(256)):
        return _tally_histogram(
            cells, values, buffer, scratch.order, scratch.compact, scratch.flat,
            scratch.code_of, m, lowest, highest,
        )
    order = _sort(scratch.codes, scratch.order, scratch.order2, scratch.counts, m, lowest, highest)
    return _tally_sorted(
        cells, values, buffer, order, scratch.compact, scratch.code_of, m
    )


@kernel
def _tally_bitmap(codes, ids, cells, values, buffer, words, slot, compact, flat, code_of):
    """Small nodes: mark the codes present, rank them, then add up."""
    one, low6 = np.uint64(1), np.uint64(63)
    m = np.uint64(len(ids))
    s = np.uint64(compact.shape[1])
    for w in range(np.uint64(4)):
        words[w] = np.uint64(0)
    for i in range(m):
        code = np.uint64(codes[ids[i]])
        buffer[i] = np.uint32(code)
        words[code >> np.uint64(6)] |= one << (code & low6)
    count = np.uint64(0)
    for w in range(np.uint64(4)):
        first = w << np.uint64(6)
        word = words[w]
        while word:
            code = first + lowest_bit(word)
            word &= word - one
            slot[code] = np.uint32(count)
            code_of[count] = np.uint32(code)
            count += one
    if count == one:
        return np.int64(1)
    for k in range(count * s):
        flat[k] = 0.0
    if len(cells) > 0:
        for i in range(m):
            at = np.uint64(slot[np.uint64(buffer[i])])
            compact[at, np.uint64(cells[i])] += values[i, np.uint64(0)]
    else:
        for i in range(m):
            at = np.uint64(slot[np.uint64(buffer[i])])
            for k in range(s):
                compact[at, k] += values[i, k]
    return np.int64(count)


@kernel
def _tally_histogram(
    cells, values, buffer, present, compact, flat, code_of, m, lowest, highest
):
    span = np.uint64(highest - lowest) + np.uint64(1)
    s = np.uint64(compact.shape[1])
    for j in range(span):
        present[j] = np.uint32(0)
    for k in range(span * s):
        flat[k] = 0.0
    if len(cells) > 0:
        for i in range(m):
            at = np.uint64(buffer[i] - lowest)
            present[at] = np.uint32(1)
            compact[at, np.uint64(cells[i])] += values[i, np.uint64(0)]
    else:
        for i in range(m):
            at = np.uint64(buffer[i] - lowest)
            present[at] = np.uint32(1)
            for k in range(s):
                compact[at, k] += values[i, k]
    count = np.uint64(0)
    for j in range(span):
        if present[j]:
            if count != j:
                for k in range(s):
                    compact[count, k] = compact[j, k]
            code_of[count] = lowest + np.uint32(j)
            count += np.uint64(1)
    return np.int64(count)


@kernel
def _tally_sorted(cells, values, buffer, order, compact, code_of, m):
    s = np.uint64(compact.shape[1])
    is_cell = len(cells) > 0
    count = np.uint64(0)
    at = np.uint64(0)
    last = np.uint32(0)
    for j in range(m):
        i = np.uint64(order[j])
        code = buffer[i]
        if j == np.uint64(0) or code != last:
            last = code
            at = count
            code_of[at] = code
            for k in range(s):
                compact[at, k] = 0.0
            count += np.uint64(1)
        if is_cell:
            compact[at, np.uint64(cells[i])] += values[i, np.uint64(0)]
        else:
            for k in range(s):
                compact[at, k] += values[i, k]
    return np.int64(count)


@kernel
def _sort(codes, order, other, counts, m, lowest, highest):
    """Positions of the node's rows, ascending by code (stable)."""
    if m <= np.uint64(INSERTION):
        for j in range(m):
            code = codes[j]
            at = j
            while at > np.uint64(0) and codes[order[at - np.uint64(1)]] > code:
                order[at] = order[at - np.uint64(1)]
                at -= np.uint64(1)
            order[at] = np.uint32(j)
        return order
    for j in range(m):
        order[j] = np.uint32(j)
    bits = 8 if m < np.uint64(2048) else 11  # a wide digit must earn its clearing
    buckets = np.uint64(1 << bits)
    mask = np.uint32(buckets) - np.uint32(1)
    shift = np.uint32(0)
    span = highest - lowest
    while shift < np.uint32(32) and (span >> shift) > np.uint32(0):
        for d in range(buckets + np.uint64(1)):
            counts[d] = np.uint32(0)
        for j in range(m):
            digit = ((codes[j] - lowest) >> shift) & mask
            counts[np.uint64(digit) + np.uint64(1)] += np.uint32(1)
        for d in range(buckets):
            counts[d + np.uint64(1)] += counts[d]
        for j in range(m):
            row = order[j]
            digit = np.uint64(((codes[row] - lowest) >> shift) & mask)
            other[counts[digit]] = row
            counts[digit] += np.uint32(1)
        order, other = other, order
        shift += np.uint32(bits)
    return order
