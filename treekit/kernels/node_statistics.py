"""Statistics of a node's rows, grouped by the codes of one column.

Every way gives the same compact table, ascending by code: one row of
statistics for each code present, and the code itself.

Classes of whole weights are added up as *lanes*: the sums of all classes side
by side in one word, so that a row costs one addition of integers.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import inlined, kernel, merged
from treekit.kernels.function_pointers import bit_count, borrowed, lowest_bit

__all__ = [
    "CODES",
    "CODE_OF",
    "NO_LANES",
    "ORDER",
    "OTHER",
    "add_side",
    "are_sparse",
    "lanes_of",
    "order_by_key",
    "pack",
    "place_of",
    "sorted_positions",
    "tally",
]


# ---------------------------------------------------------------- tally

CODES, ORDER, OTHER, CODE_OF = 0, 1, 2, 3
"""Rows of ``Scratch.work``."""

SMALL = 512
"""Up to so many rows a bitmap of occupied codes beats a full histogram."""

FEW = 16
"""Up to so many rows, and at most 32, comparing all with all costs no more than anything else."""

INSERTION = 48
"""Up to so many rows insertion beats a radix sort."""

SPREAD = 32
"""Up to so many codes a row a bitmap of them beats a sort of the rows."""

NO_LANES = np.uint64(0)
"""Width of lanes where sums do not fit them."""


@merged
def tally(
    codes, first, step, n_codes, ids, cells, values, s, work, words, counts, flat, width, lanes,
    packed,
):  # fmt: skip
    """Group a node's rows by the codes of one column.

    Parameters
    ----------
    codes, first, step : array of unsigned, uint64, uint64
        Row i has the code ``codes[first + i * step]``; see `treekit.kernels.node_statistics`.
    n_codes : uint32
        Codes of the column, missing not counted.
    ids, cells, values : arrays
        The node's `Rows`.
    s : uint64
        Cells of the statistics.
    work, words, counts, flat, packed : arrays
        Of the `Scratch`.
    lanes : (rows,) uint64
        Each row's weight in the lane of its class.
    width : uint64
        Bits of a lane, as `treekit.kernels.node_statistics.lanes_of` said of this node.

    Returns
    -------
    k : int
        Distinct codes present (missing, which sorts last, included), in
        ``work[CODE_OF, :k]``, with their statistics in ``flat[: k * s]``.
        A single code is not tallied: nobody needs statistics of a constant
        column.
    """
    buffer, code_of = borrowed(work[CODES]), borrowed(work[CODE_OF])
    slot = borrowed(work[ORDER])
    m = np.uint64(len(ids))
    if m <= np.uint64(FEW) and n_codes < np.uint32(1 << 26):
        return _few(codes, first, step, ids, cells, values, m, s, buffer, slot, code_of, flat)
    if n_codes < np.uint32(256):
        if width > NO_LANES:
            return _add_lanes(
                codes, first, step, n_codes, ids, s, words, flat, width, lanes, packed, code_of
            )
        if m <= np.uint64(SMALL):
            count = _mark(codes, first, step, ids, buffer, words, slot, code_of)
            if count > np.uint64(1):
                _add_by_slot(buffer, slot, cells, values, m, s, count, flat)
            return np.int64(count)
    lowest, highest = np.uint32(0xFFFFFFFF), np.uint32(0)
    for i in range(m):
        code = np.uint32(codes[first + np.uint64(ids[i]) * step])
        buffer[i] = code
        lowest = min(lowest, code)
        highest = max(highest, code)
    if lowest == highest:
        code_of[np.uint64(0)] = lowest
        return 1
    span = np.uint64(highest - lowest) + np.uint64(1)
    if span <= m and span <= np.uint64(2048):
        return _add_all(buffer, lowest, cells, values, m, s, span, slot, code_of, flat)
    if span <= m * np.uint64(SPREAD):
        return _add_by_rank(buffer, lowest, cells, values, m, s, span, words, code_of, flat)
    return _sorted_tally(
        buffer, slot, work[OTHER], counts, lowest, highest, cells, values, m, s, code_of, flat
    )


@inlined
def _few(codes, first, step, ids, cells, values, m, s, buffer, order, code_of, flat):
    """A handful of rows, by keys of a code and a position: each goes where so many are smaller."""
    zero, one, bits, low = np.uint64(0), np.uint64(1), np.uint32(5), np.uint32(31)
    differ = np.uint32(0)
    last = np.uint32(codes[first + np.uint64(ids[zero]) * step])
    for i in range(m):
        code = np.uint32(codes[first + np.uint64(ids[i]) * step])
        buffer[i] = (code << bits) | np.uint32(i)
        differ |= code ^ last
    if differ == np.uint32(0):
        code_of[zero] = last
        return np.int64(1)
    for i in range(m):
        key, smaller = buffer[i], np.uint32(0)
        for j in range(m):
            smaller += np.uint32(buffer[j] < key)
        order[np.uint64(smaller)] = key
    last = order[zero] >> bits
    code_of[zero] = last
    count, at = one, zero
    _put(flat, zero, cells, values, np.uint64(order[zero] & low), s)
    for j in range(one, m):
        key = order[j]
        if key >> bits == last:
            _add(flat, at, cells, values, np.uint64(key & low), s)
        else:
            last = key >> bits
            code_of[count] = last
            at += s
            _put(flat, at, cells, values, np.uint64(key & low), s)
            count += one
    return np.int64(count)


@merged
def _put(flat, at, cells, values, i, s):
    """Row `i` as the first of its code."""
    zero, one = np.uint64(0), np.uint64(1)
    if len(cells) > 0:
        for k in range(s):
            flat[at + k] = 0.0
        flat[at + np.uint64(cells[i])] = values[i, zero]
    elif s == np.uint64(2):
        flat[at], flat[at + one] = values[i, zero], values[i, one]
    else:
        for k in range(s):
            flat[at + k] = values[i, k]


@merged
def _add(flat, at, cells, values, i, s):
    """Row `i` added to the statistics that begin at `at`; two cells without a loop."""
    zero, one = np.uint64(0), np.uint64(1)
    if len(cells) > 0:
        flat[at + np.uint64(cells[i])] += values[i, zero]
    elif s == np.uint64(2):
        flat[at] += values[i, zero]
        flat[at + one] += values[i, one]
    else:
        for k in range(s):
            flat[at + k] += values[i, k]


@inlined
def _add_lanes(codes, first, step, n_codes, ids, s, words, flat, width, lanes, packed, code_of):
    """One addition a row, into `packed`, which holds zeros before and after."""
    zero, one, low6 = np.uint64(0), np.uint64(1), np.uint64(63)
    m = np.uint64(len(ids))
    count = zero
    if m > np.uint64(SMALL):
        for i in range(m):
            packed[np.uint64(codes[first + np.uint64(ids[i]) * step])] += lanes[i]
        for code in range(np.uint64(n_codes) + one):
            sums = packed[code]
            if sums:
                packed[code] = zero
                _unpack(sums, width, s, flat, count)
                code_of[count] = np.uint32(code)
                count += one
        return np.int64(count)
    for w in range(np.uint64(4)):
        words[w] = zero
    for i in range(m):
        code = np.uint64(codes[first + np.uint64(ids[i]) * step])
        packed[code] += lanes[i]
        words[code >> np.uint64(6)] |= one << (code & low6)
    for w in range(np.uint64(4)):
        word = words[w]
        while word:
            code = (w << np.uint64(6)) + lowest_bit(word)
            word &= word - one
            _unpack(packed[code], width, s, flat, count)
            packed[code] = zero
            code_of[count] = np.uint32(code)
            count += one
    return np.int64(count)


@merged
def _unpack(sums, width, s, flat, at):
    """The sums of a word of lanes, as row `at` of `flat`."""
    mask = (np.uint64(1) << width) - np.uint64(1)
    if s == np.uint64(2):
        flat[at + at] = np.float64(np.int64(sums & mask))
        flat[at + at + np.uint64(1)] = np.float64(np.int64(sums >> width))
    else:
        base = at * s
        for k in range(s):
            flat[base + k] = np.float64(np.int64(sums & mask))
            sums >>= width


@inlined
def _mark(codes, first, step, ids, buffer, words, slot, code_of):
    """Small nodes: mark the codes present and rank them; returns how many."""
    one, low6 = np.uint64(1), np.uint64(63)
    for w in range(np.uint64(4)):
        words[w] = np.uint64(0)
    for i in range(np.uint64(len(ids))):
        code = np.uint64(codes[first + np.uint64(ids[i]) * step])
        buffer[i] = np.uint32(code)
        words[code >> np.uint64(6)] |= one << (code & low6)
    count = np.uint64(0)
    for w in range(np.uint64(4)):
        word = words[w]
        while word:
            code = (w << np.uint64(6)) + lowest_bit(word)
            word &= word - one
            slot[code] = np.uint32(count)
            code_of[count] = np.uint32(code)
            count += one
    return count


@inlined
def _add_by_slot(buffer, slot, cells, values, m, s, count, flat):
    for k in range(count * s):
        flat[k] = 0.0
    for i in range(m):
        at = np.uint64(slot[np.uint64(buffer[i])])
        _add(flat, at * s, cells, values, i, s)


@inlined
def _add_all(buffer, lowest, cells, values, m, s, span, present, code_of, flat):
    """A row for every code of the range, then those without rows squeezed out."""
    for j in range(span):
        present[j] = np.uint32(0)
    for k in range(span * s):
        flat[k] = 0.0
    for i in range(m):
        at = np.uint64(buffer[i] - lowest)
        present[at] = np.uint32(1)
        _add(flat, at * s, cells, values, i, s)
    count = np.uint64(0)
    for j in range(span):
        if present[j]:
            if count != j:
                for k in range(s):
                    flat[count * s + k] = flat[j * s + k]
            code_of[count] = lowest + np.uint32(j)
            count += np.uint64(1)
    return np.int64(count)


@inlined
def _add_by_rank(buffer, lowest, cells, values, m, s, span, words, code_of, flat):
    """Many codes: a bitmap of those present, whose population count ranks a code.

    Words of the bitmap and the codes before each of them lie side by side, in
    ``words[: 2 * n]``.
    """
    zero, one, low6 = np.uint64(0), np.uint64(1), np.uint64(63)
    last = (span - one) >> np.uint64(6)
    for w in range(np.uint64(2) * (last + one)):
        words[w] = zero
    for i in range(m):
        code = np.uint64(buffer[i] - lowest)
        words[(code >> np.uint64(6)) << one] |= one << (code & low6)
    count = zero
    for w in range(last + one):
        word, first = words[w << one], np.uint64(lowest) + (w << np.uint64(6))
        words[(w << one) + one] = count
        while word:
            code_of[count] = np.uint32(first + lowest_bit(word))
            word &= word - one
            count += one
    for k in range(count * s):
        flat[k] = 0.0
    for i in range(m):
        code = np.uint64(buffer[i] - lowest)
        w = (code >> np.uint64(6)) << one
        below = words[w] & ((one << (code & low6)) - one)
        _add(flat, (words[w + one] + bit_count(below)) * s, cells, values, i, s)
    return np.int64(count)


@inlined
def _sorted_tally(
    buffer, order, other, counts, lowest, highest, cells, values, m, s, code_of, flat
):
    """Many codes, few rows: add up along the sorted rows."""
    if m <= np.uint64(INSERTION):
        _insertion(buffer, order, m)
    elif _radix(buffer, order, other, counts, m, lowest, highest):
        order = other
    count, at = np.uint64(0), np.uint64(0)
    last = np.uint32(0)
    for j in range(m):
        i = np.uint64(order[j])
        code = buffer[i]
        if j > np.uint64(0) and code == last:
            _add(flat, at, cells, values, i, s)
        else:
            last = code
            at = count * s
            code_of[count] = code
            _put(flat, at, cells, values, i, s)
            count += np.uint64(1)
    return np.int64(count)


@inlined
def _insertion(codes, order, m):
    """Positions of the node's rows, ascending by code."""
    one = np.uint64(1)
    for j in range(m):
        code = codes[j]
        at = j
        while at > np.uint64(0) and codes[np.uint64(order[at - one])] > code:
            order[at] = order[at - one]
            at -= one
        order[at] = np.uint32(j)


@inlined
def _radix(codes, order, other, counts, m, lowest, highest):
    """The same for larger nodes; True if the answer is in `other`."""
    one = np.uint64(1)
    for j in range(m):
        order[j] = np.uint32(j)
    bits = 8 if m < np.uint64(2048) else 11  # a wide digit must earn its clearing
    buckets = np.uint64(1 << bits)
    mask = np.uint32(buckets) - np.uint32(1)
    shift = np.uint32(0)
    span = highest - lowest
    swapped = False
    while shift < np.uint32(32) and (span >> shift) > np.uint32(0):
        for d in range(buckets + one):
            counts[d] = np.uint32(0)
        for j in range(m):
            digit = ((codes[j] - lowest) >> shift) & mask
            counts[np.uint64(digit) + one] += np.uint32(1)
        for d in range(buckets):
            counts[d + one] += counts[d]
        for j in range(m):
            row = order[j]
            digit = np.uint64(((codes[np.uint64(row)] - lowest) >> shift) & mask)
            other[np.uint64(counts[digit])] = row
            counts[digit] += np.uint32(1)
        order, other = other, order
        swapped = not swapped
        shift += np.uint32(bits)
    return swapped


@kernel
def sorted_positions(codes, order, other, counts, m, lowest, highest):
    """Positions 0..m-1 into `order`, ascending by code, equal ones as they are.

    Parameters
    ----------
    codes : (m or more,) uint32
    order, other : (m or more,) uint32
        The answer, and working memory.
    counts : (2050,) uint32
    lowest, highest : uint32
        Bounds of the codes.
    """
    if m <= np.uint64(INSERTION):
        _insertion(codes, order, m)
    elif _radix(codes, order, other, counts, m, lowest, highest):
        for j in range(m):
            order[j] = other[j]


@kernel
def order_by_key(keys, count, order):
    """0..count-1 into `order`, ascending by key, equal keys as they are.

    Shell's sort (1959) on (key, position): short, in place, and compiles at once.
    """
    for j in range(np.uint64(count)):
        order[j] = np.uint32(j)
    gap = np.uint64(count) >> np.uint64(1)
    while gap > np.uint64(0):
        for j in range(gap, np.uint64(count)):
            moved = order[j]
            own = keys[np.uint64(moved)]
            at = j
            while at >= gap:
                other = order[at - gap]
                theirs = keys[np.uint64(other)]
                if theirs < own or (theirs == own and other < moved):
                    break
                order[at] = other
                at -= gap
            order[at] = moved
        gap = (gap * np.uint64(5)) // np.uint64(11) if gap != np.uint64(2) else np.uint64(1)


# ---------------------------------------------------------------- sides
# Statistics of the rows on one side of a test, in one pass without branches.
#
# Sums of statistics are exact in any order (`treekit.grow.target_statistics`), so that how
# they are taken is free.  Classes of whole weights, the common case, are counted
# in integers: all classes of a row in one word, which adds to the sum as it is
# or masked.  Cells of float64 instead, one of which each row adds to, wait for
# each other: a store, a load and an addition a row.

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


# ---------------------------------------------------------------- lines
# Where the code of a row is read: down its column, or along its line.
#
# The matrix of codes lies in memory column by column.  Rows of a small node are
# far apart there, and each code of one costs a line of the cache; a copy that
# lies row by row has all columns of a row in one or two.  With it drawn tests
# were found in three fifths of the time; whole trees grow some tenth faster
# (measured).

SPARSE = np.uint64(16)
"""Where a node has fewer than one row in so many, hardly two of them share a line of a column."""


@inlined
def are_sparse(m, rows, lines):
    """Whether `m` of so many `rows` are read along `lines`, which may be none."""
    return m * SPARSE < rows and len(lines) > 0


@inlined
def place_of(flat, lines, feature, rows, columns, sparse):
    """Codes, the place of row 0 of a column among them, and the step to the next row.

    Parameters
    ----------
    flat : (columns * rows,) unsigned
        The matrix of codes, column by column.
    lines : (rows * columns,) unsigned
        The same row by row.
    """
    if sparse:
        return lines, feature, columns
    return flat, feature * rows, np.uint64(1)
