"""A node's rows in groups of one code of a column, for rank targets."""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import inlined, kernel
from treekit.kernels.pointers import lowest_bit
from treekit.kernels.tally import CODE_OF, CODES, ORDER, OTHER, sorted_positions

__all__ = ["ENDS", "PLACES", "STOPS", "group_rows"]

ENDS, STOPS, PLACES = 4, 5, 6
"""Rows of ``Scratch.work`` of a rank target: where groups end, where they end in another
order, and that order."""

FEW = 64
"""Up to so many rows each one's place is the number of smaller keys: no branches, m * m / 16."""

SPREAD = 64
"""Up to so many codes a row of the node, counting beats a radix sort."""


@inlined
def group_rows(codes, start, step, ids, n_codes, work, counts, words):
    """Sort a node's rows by code.

    Parameters
    ----------
    codes, start, step : array of unsigned, uint64, uint64
        Row i has the code ``codes[start + i * step]``; see `treekit.kernels.lines`.
    ids : (rows,) uint32
        The node's rows.
    n_codes : uint32
        Codes of the column, missing not counted.
    work, counts, words : arrays
        Of the `Scratch`, borrowed.  Positions go to ``work[ORDER]``, those of a
        group ascending; the end of each group to ``work[ENDS]``, its code to
        ``work[CODE_OF]``.

    Returns
    -------
    count : int
        Groups.  A single one is not filled in.
    """
    if len(ids) <= FEW and n_codes < np.uint32(1 << 26):
        return _few(codes, start, step, ids, work)
    return _many(codes, start, step, ids, work, counts, words)


@inlined
def _few(codes, start, step, ids, work):
    """Few rows, by keys of a code and a position, which all differ."""
    zero, one, m = np.uint64(0), np.uint64(1), np.uint64(len(ids))
    buffer, order = work[np.uint64(CODES)], work[np.uint64(ORDER)]
    code_of, ends = work[np.uint64(CODE_OF)], work[np.uint64(ENDS)]
    bits, low = np.uint32(6), np.uint32(63)
    first, differ = np.uint32(codes[start + np.uint64(ids[zero]) * step]), np.uint32(0)
    for i in range(m):
        code = np.uint32(codes[start + np.uint64(ids[i]) * step])
        buffer[i] = (code << bits) | np.uint32(i)
        differ |= code ^ first
    if differ == np.uint32(0):
        return np.int64(1)
    for i in range(m):
        key = buffer[i]
        smaller = np.uint32(0)
        for j in range(m):
            smaller += np.uint32(buffer[j] < key)
        order[np.uint64(smaller)] = key
    count, code = zero, order[zero] >> bits
    order[zero] &= low
    code_of[zero] = code
    for j in range(one, m):
        key = order[j]
        order[j] = key & low
        ends[count] = np.uint32(j)
        count += np.uint64((key >> bits) != code)
        code = key >> bits
        code_of[count] = code
    ends[count] = np.uint32(m)
    return np.int64(count + one)


@kernel
def _many(codes, start, step, ids, work, counts, words):
    m = np.uint64(len(ids))
    buffer, order = work[np.uint64(CODES)], work[np.uint64(ORDER)]
    code_of, ends = work[np.uint64(CODE_OF)], work[np.uint64(ENDS)]
    lowest, highest = np.uint32(0xFFFFFFFF), np.uint32(0)
    for i in range(m):
        code = np.uint32(codes[start + np.uint64(ids[i]) * step])
        buffer[i] = code
        lowest = min(lowest, code)
        highest = max(highest, code)
    if lowest == highest:
        return np.int64(1)
    span = np.uint64(highest - lowest) + np.uint64(1)
    if span <= np.uint64(SPREAD) * m:
        return _counted(buffer, order, m, lowest, span, counts, words, code_of, ends)
    sorted_positions(buffer, order, work[np.uint64(OTHER)], counts, m, lowest, highest)
    one, count = np.uint64(1), np.uint64(0)
    for j in range(m):
        code = buffer[np.uint64(order[j])]
        if j == np.uint64(0) or code != code_of[count - one]:
            code_of[count] = code
            count += one
        ends[count - one] = np.uint32(j + one)
    return np.int64(count)


@inlined
def _counted(buffer, order, m, lowest, span, counts, present, code_of, ends):
    """Count the rows of each code present; bits tell which are, so that no others cost."""
    one, six, low = np.uint64(1), np.uint64(6), np.uint64(63)
    words = ((span - one) >> six) + one
    for w in range(words):
        present[w] = np.uint64(0)
    for i in range(m):
        code = np.uint64(buffer[i] - lowest)
        word, bit = present[code >> six], code & low
        seen = np.uint32((word >> bit) & one)
        counts[code] = counts[code] * seen + np.uint32(1)
        present[code >> six] = word | (one << bit)
    count, to = np.uint64(0), np.uint32(0)
    for w in range(words):
        word = present[w]
        while word:
            code = (w << six) + lowest_bit(word)
            word &= word - one
            begin = to
            to += counts[code]
            counts[code] = begin
            code_of[count] = lowest + np.uint32(code)
            ends[count] = to
            count += one
    for i in range(m):
        code = np.uint64(buffer[i] - lowest)
        at = counts[code]
        order[np.uint64(at)] = np.uint32(i)
        counts[code] = at + np.uint32(1)
    return np.int64(count)
