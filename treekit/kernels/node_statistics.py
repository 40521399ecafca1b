"""Statistics of a node's rows, grouped by the codes of one column.

Every method of `tally_codes` gives the same compact table, ascending by code: one row of
statistics for each code present, and the code itself.  `sum_lanes` and `sum_values` write running
totals over the codes instead, one for each cut.

Classes with integer weights are added up as *lanes*: the sums of two or four classes side by
side in a word, so that a row costs a single integer addition.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import inlined, kernel, llvm_inlined
from treekit.kernels.function_pointers import (
    add_pair,
    borrow_arrays,
    borrow_row,
    count_bits,
    find_lowest_bit,
)
from treekit.kernels.records import Column
from treekit.kernels.row_records import CELL, FORM, MAX_LANE_WEIGHT, NO_RECORDS, STEP

# ---------------------------------------------------------------- statistics by code

CODES, ORDER, OTHER_ORDER, CODE_OF = 0, 1, 2, 3
"""Rows of ``Scratch.work``."""

BITMAP_ROWS = 512
"""Number of rows up to which a bitmap of the codes present beats a full histogram."""

PAIRWISE_ROWS = 16
"""Number of rows, at most 32, up to which comparing all pairs is as fast as any other method."""

INSERTION_SORT_ROWS = 48
"""Number of rows up to which insertion sort beats radix sort."""

BITMAP_CODES_PER_ROW = 32
"""Number of codes per row up to which a bitmap of the codes beats sorting the rows."""

NO_LANES = np.uint64(0)
"""Lane width if the sums do not fit into lanes."""

MAX_LANES = 32
"""Largest number of statistics for which there is a table with a place for each of 256 codes."""

CODES_PER_WORD = np.uint64(256)
"""Distance of the words of a code: the first words of all codes come first."""


@llvm_inlined
def tally_codes(column, rows, s, width, scratch):
    """Group a node's rows by the codes of one column.

    Parameters
    ----------
    column : Column
    rows : Rows
        The node's rows.
    s : uint64
        Number of statistics.
    width : uint64
        Bits of a lane, from `pack_lanes` for this node, which writes each row's weight in the
        lane of its class to ``scratch.lanes``.
    scratch : Scratch

    Returns
    -------
    k : int
        Distinct codes present (including missing, which sorts last), in
        ``work[CODE_OF, :k]``, with their statistics in ``flat[: k * s]``.
        If there is only one code, its statistics are not computed: a constant column
        has no splits.
    """
    m = np.uint64(len(rows.ids))
    if m <= np.uint64(PAIRWISE_ROWS) and column.n_codes < np.uint32(1 << 26):
        return _tally_few_rows(column, rows, s, scratch)
    if column.n_codes < np.uint32(256) and width > NO_LANES:
        return _tally_lanes(column, rows.ids, s, width, scratch)
    lowest, highest = copy_codes(column, rows.ids, borrow_row(scratch.work, CODES))
    if lowest == highest:
        borrow_row(scratch.work, CODE_OF)[np.uint64(0)] = lowest
        return 1
    span = np.uint64(highest - lowest) + np.uint64(1)
    if span <= m and span <= np.uint64(2048):
        return _tally_code_range(rows, s, lowest, span, scratch)
    if span <= m * np.uint64(BITMAP_CODES_PER_ROW):
        return _tally_by_rank(rows, s, lowest, span, scratch)
    return _tally_sorted_rows(rows, s, lowest, highest, scratch)


@inlined
def copy_codes(column, ids, buffer):
    """Copy the codes of the rows `ids` to `buffer`; return the lowest and the highest of them."""
    codes, first, step = column.codes, column.first, column.step
    lowest, highest = np.uint32(0xFFFFFFFF), np.uint32(0)
    for i in range(np.uint64(len(ids))):
        code = np.uint32(codes[first + np.uint64(ids[i]) * step])
        buffer[i] = code
        lowest = min(lowest, code)
        highest = max(highest, code)
    return lowest, highest


@inlined
def _tally_few_rows(column, rows, s, scratch):
    """Group a few rows by code: sort keys of code and position by counting smaller keys."""
    codes, first, step = column.codes, column.first, column.step
    ids, cells, values = rows
    m, flat, code_of = np.uint64(len(ids)), scratch.flat, borrow_row(scratch.work, CODE_OF)
    buffer, order = borrow_row(scratch.work, CODES), borrow_row(scratch.work, ORDER)
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
    _set_row(flat, zero, cells, values, np.uint64(order[zero] & low), s)
    for j in range(one, m):
        key = order[j]
        if key >> bits == last:
            _add_row(flat, at, cells, values, np.uint64(key & low), s)
        else:
            last = key >> bits
            code_of[count] = last
            at += s
            _set_row(flat, at, cells, values, np.uint64(key & low), s)
            count += one
    return np.int64(count)


@llvm_inlined
def _set_row(flat, at, cells, values, i, s):
    """Set the statistics at `at` to those of row `i`, the first of its code."""
    zero, one = np.uint64(0), np.uint64(1)
    if len(cells) > 0:
        flat[at] = flat[at + one] = 0.0
        for k in range(np.uint64(2), s):  # LLVM calls a function for a loop that is not run here
            flat[at + k] = 0.0
        flat[at + np.uint64(cells[i])] = values[i, zero]
    elif s == np.uint64(2):
        flat[at], flat[at + one] = values[i, zero], values[i, one]
    else:
        for k in range(s):
            flat[at + k] = values[i, k]


@llvm_inlined
def _add_row(flat, at, cells, values, i, s):
    """Add row `i` to the statistics that begin at `at`; two statistics without a loop."""
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
def _tally_lanes(column, ids, s, width, scratch):
    """Sum rows with one addition each into `packed`, which is zero before and after."""
    codes, first, step = column.codes, column.first, column.step
    lanes, slots, packed = scratch.lanes, scratch.slots, scratch.packed
    words, flat, code_of = scratch.words, scratch.flat, borrow_row(scratch.work, CODE_OF)
    zero, one, low6 = np.uint64(0), np.uint64(1), np.uint64(63)
    m, n_words = np.uint64(len(ids)), count_lane_words(s, width)
    count = zero
    for w in range(BITMAPS * np.uint64(4)):
        words[w] = zero
    for i in range(m):
        code = np.uint64(codes[first + np.uint64(ids[i]) * step])
        at = code if n_words == one else code + np.uint64(slots[i])
        packed[at] += lanes[i]
        words[_find_word(i, code)] |= one << (code & low6)
    for w in range(np.uint64(4)):
        word = _join_bitmaps(words, w)
        while word:
            code = (w << np.uint64(6)) + find_lowest_bit(word)
            word &= word - one
            _take_sums(packed, code, width, s, flat, count)
            code_of[count] = np.uint32(code)
            count += one
    return np.int64(count)


@llvm_inlined
def _take_sums(packed, code, width, s, flat, at):
    """Write the sums of a code as row `at` of `flat`, and clear them."""
    mask, per_word = (np.uint64(1) << width) - np.uint64(1), np.uint64(64) // width
    for k in range(s):
        sums = packed[code + (k // per_word) * CODES_PER_WORD]
        flat[at * s + k] = np.float64(np.int64((sums >> ((k % per_word) * width)) & mask))
    for w in range(count_lane_words(s, width)):
        packed[code + w * CODES_PER_WORD] = np.uint64(0)


@inlined
def _tally_code_range(rows, s, lowest, span, scratch):
    """Sum into one row per code of the range, then squeeze out codes without rows."""
    cells, values, flat = rows.cells, rows.values, scratch.flat
    buffer, code_of = borrow_row(scratch.work, CODES), borrow_row(scratch.work, CODE_OF)
    m, present = np.uint64(len(rows.ids)), borrow_row(scratch.work, ORDER)
    for j in range(span):
        present[j] = np.uint32(0)
    for k in range(span * s):
        flat[k] = 0.0
    for i in range(m):
        at = np.uint64(buffer[i] - lowest)
        present[at] = np.uint32(1)
        _add_row(flat, at * s, cells, values, i, s)
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
def _tally_by_rank(rows, s, lowest, span, scratch):
    """Sum by the rank of codes in a bitmap of the codes present, found by population counts.

    Words of the bitmap, and the number of codes before each word, alternate in
    ``words[: 2 * n]``.
    """
    cells, values, words, flat = rows.cells, rows.values, scratch.words, scratch.flat
    buffer, code_of = borrow_row(scratch.work, CODES), borrow_row(scratch.work, CODE_OF)
    m = np.uint64(len(rows.ids))
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
            code_of[count] = np.uint32(first + find_lowest_bit(word))
            word &= word - one
            count += one
    for k in range(count * s):
        flat[k] = 0.0
    for i in range(m):
        code = np.uint64(buffer[i] - lowest)
        w = (code >> np.uint64(6)) << one
        below = words[w] & ((one << (code & low6)) - one)
        _add_row(flat, (words[w + one] + count_bits(below)) * s, cells, values, i, s)
    return np.int64(count)


@inlined
def _tally_sorted_rows(rows, s, lowest, highest, scratch):
    """Sum along the sorted rows, for many codes and few rows."""
    cells, values, flat, work = rows.cells, rows.values, scratch.flat, scratch.work
    buffer, code_of = borrow_row(work, CODES), borrow_row(work, CODE_OF)
    order, other = borrow_row(work, ORDER), borrow_row(work, OTHER_ORDER)
    m = np.uint64(len(rows.ids))
    if m <= np.uint64(INSERTION_SORT_ROWS):
        _insertion_sort(buffer, order, m)
    elif _radix_sort(buffer, order, other, scratch.counts, m, lowest, highest):
        order = other
    count, at = np.uint64(0), np.uint64(0)
    last = np.uint32(0)
    for j in range(m):
        i = np.uint64(order[j])
        code = buffer[i]
        if j > np.uint64(0) and code == last:
            _add_row(flat, at, cells, values, i, s)
        else:
            last = code
            at = count * s
            code_of[count] = code
            _set_row(flat, at, cells, values, i, s)
            count += np.uint64(1)
    return np.int64(count)


@inlined
def _insertion_sort(codes, order, m):
    """Sort the positions of the node's rows by code, with insertion sort."""
    one = np.uint64(1)
    for j in range(m):
        code = codes[j]
        at = j
        while at > np.uint64(0) and codes[np.uint64(order[at - one])] > code:
            order[at] = order[at - one]
            at -= one
        order[at] = np.uint32(j)


@inlined
def _radix_sort(codes, order, other, counts, m, lowest, highest):
    """Sort positions by code with radix sort; return True if the result is in `other`."""
    one = np.uint64(1)
    for j in range(m):
        order[j] = np.uint32(j)
    bits = 8 if m < np.uint64(2048) else 11  # clearing the counts of a wide digit must pay off
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
def sort_positions(codes, order, other, counts, m, lowest, highest):
    """Write positions 0..m-1 to `order`, ascending by code, in stable order.

    Parameters
    ----------
    codes : (m or more,) uint32
    order, other : (m or more,) uint32
        The result, and working memory.
    counts : (2050,) uint32
    lowest, highest : uint32
        Bounds of the codes.
    """
    if m <= np.uint64(INSERTION_SORT_ROWS):
        _insertion_sort(codes, order, m)
    elif _radix_sort(codes, order, other, counts, m, lowest, highest):
        for j in range(m):
            order[j] = other[j]


@llvm_inlined
def sort_rows(column, ids, scratch):
    """Sort the positions of a node's rows by the codes of one column.

    Parameters
    ----------
    column : Column
    ids : (m,) uint32
    scratch : Scratch
        Receives the positions in ``work[ORDER, :m]``, in stable order, and the code of each
        position in ``work[CODES, :m]``.

    Returns
    -------
    known : int
        Number of rows with a known value, which come first; -1 if all codes are equal.
    """
    buffer, order = borrow_row(scratch.work, CODES), borrow_row(scratch.work, ORDER)
    m, one, n_codes = np.uint64(len(ids)), np.uint64(1), column.n_codes
    lowest, highest = copy_codes(column, ids, buffer)
    if lowest == highest:
        return np.int64(-1)
    if m <= np.uint64(PAIRWISE_ROWS):
        for i in range(m):
            smaller = np.uint64(0)
            for j in range(i):
                smaller += np.uint64(buffer[j] <= buffer[i])
            for j in range(i + one, m):
                smaller += np.uint64(buffer[j] < buffer[i])
            order[smaller] = np.uint32(i)
    elif n_codes < np.uint32(256):
        _counting_sort(buffer, order, scratch.counts, scratch.words, m)
    else:
        other = borrow_row(scratch.work, OTHER_ORDER)
        sort_positions(buffer, order, other, scratch.counts, m, lowest, highest)
    known = m
    while buffer[np.uint64(order[known - one])] == n_codes:
        known -= one
    return np.int64(known)


@inlined
def _counting_sort(codes, order, counts, words, m):
    """Write positions 0..m-1 to `order`, ascending by code (below 256), in stable order."""
    zero, one, low6 = np.uint64(0), np.uint64(1), np.uint64(63)
    for code in range(np.uint64(256)):
        counts[code] = np.uint32(0)
    for w in range(np.uint64(4)):
        words[w] = zero
    for i in range(m):
        code = np.uint64(codes[i])
        counts[code] += np.uint32(1)
        words[code >> np.uint64(6)] |= one << (code & low6)
    before = np.uint32(0)
    for w in range(np.uint64(4)):
        word = words[w]
        while word:
            code = (w << np.uint64(6)) + find_lowest_bit(word)
            word &= word - one
            count = counts[code]
            counts[code] = before
            before += count
    for i in range(m):
        code = np.uint64(codes[i])
        order[np.uint64(counts[code])] = np.uint32(i)
        counts[code] += np.uint32(1)


@kernel
def sort_by_key(keys, count, order):
    """Write 0..count-1 to `order`, ascending by key, in stable order.

    Shell's sort (1959) on (key, position), in place.
    """
    for j in range(np.uint64(count)):
        order[j] = np.uint32(j)
    gap = np.uint64(count) >> np.uint64(1)
    while gap > np.uint64(0):
        for j in range(gap, np.uint64(count)):
            moved = order[j]
            key = keys[np.uint64(moved)]
            at = j
            while at >= gap:
                other = order[at - gap]
                theirs = keys[np.uint64(other)]
                if theirs < key or (theirs == key and other < moved):
                    break
                order[at] = other
                at -= gap
            order[at] = moved
        gap = (gap * np.uint64(5)) // np.uint64(11) if gap != np.uint64(2) else np.uint64(1)


# ---------------------------------------------------------------- one side of a test
# Statistics of the rows on one side of a test, in one branch-free pass.
#
# Sums of statistics are exact in any order (`treekit.grow.target_statistics`), so that
# rows can be added in any order.  Classes with integer weights, the common case, are
# counted in integers: all classes of a row in one word, added to the sum or masked out.
# Adding to one of several float64 cells per row would be a chain of dependent stores,
# loads and additions.

UNIT_WEIGHTS = np.uint64(64)
"""Form returned by `pack_statistics` for a single regression target with unit weights."""


@inlined
def pack_statistics(cells, values, m, s, weight, packed):
    """Prepare the statistics of a node's rows for `sum_side`, where that is faster.

    Classes: see `_pack_one_word`.  A single target with unit weights: ``packed`` holds the bits of
    statistic 1.

    Returns
    -------
    form : uint64
        Width of a lane; `UNIT_WEIGHTS`; or 0 for all others.
    """
    zero, one = np.uint64(0), np.uint64(1)
    if np.uint64(len(cells)) == zero:
        if s != np.uint64(2):
            return zero
        unit_weights, sums = True, packed.view(np.float64)
        for i in range(m):
            unit_weights &= values[i, zero] == 1.0
            sums[i] = values[i, one]
        return UNIT_WEIGHTS if unit_weights else zero
    return _pack_one_word(cells, values, m, s, weight, packed)


@inlined
def _pack_one_word(cells, values, m, s, weight, packed):
    """Write a word for each row with its weight in the lane of its class; class 0 is lowest.

    Returns
    -------
    width : uint64
        Bits of each of the `s` lanes; 0: weights are not integers, their sum
        `weight` does not fit into a lane, or rows have no class.
    """
    zero = np.uint64(0)
    if np.uint64(len(cells)) == zero or s < np.uint64(2) or s > np.uint64(32):
        return zero
    width = np.uint64(64) // s
    if not weight < np.float64(np.uint64(1) << width):
        return zero
    all_integers = True
    for i in range(m):
        value = values[i, zero]
        count = np.int64(value)
        all_integers &= np.float64(count) == value
        packed[i] = np.uint64(count) << (np.uint64(cells[i]) * width)
    return width if all_integers else zero


@inlined
def sum_side(codes, least, most, cells, values, words, m, s, sums):
    """Sum the statistics of the rows with codes from `least` to `most` into ``sums[:s]``.

    Parameters
    ----------
    codes : (m,) uint32
        Codes of the node's rows.
    words : (form, packed)
        From `pack_statistics`.
    """
    form, packed = words
    zero, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
    span = np.uint32(most - least)  # unsigned wrap-around: one comparison checks both ends
    if form == UNIT_WEIGHTS:
        count, at, three = zero, zero, np.uint64(3)
        a, b, c, d = 0.0, 0.0, 0.0, 0.0  # four independent chains of additions
        for i in range(m):
            count += np.uint64(np.uint32(codes[i] - least) <= span)
        while at + three < m:
            a += _mask_outside(codes[at], least, span, packed[at])
            b += _mask_outside(codes[at + one], least, span, packed[at + one])
            c += _mask_outside(codes[at + two], least, span, packed[at + two])
            d += _mask_outside(codes[at + three], least, span, packed[at + three])
            at += three + one
        while at < m:
            a += _mask_outside(codes[at], least, span, packed[at])
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
def _mask_outside(code, least, span, bits):
    """Return the float with these bits, or 0 if the code is outside the span; branch-free."""
    inside = np.uint64(np.uint32(code - least) <= span)
    return np.uint64(bits & (np.uint64(0) - inside)).view(np.float64)


# ---------------------------------------------------------------- lanes


@inlined
def choose_lane_width(s, weight):
    """Return the bits of each lane at a node of this weight; 0: its sums do not fit into lanes."""
    if s < np.uint64(2) or s > np.uint64(MAX_LANES) or not weight < MAX_LANE_WEIGHT:
        return NO_LANES
    return np.uint64(32 if s == np.uint64(2) or weight >= 65536.0 else 16)


@inlined
def count_lane_words(s, width):
    """Return the number of words for the lanes of all classes."""
    per_word = np.uint64(64) // width
    return (s + per_word - np.uint64(1)) // per_word


@llvm_inlined
def pack_lanes(rows, m, s, weight, scratch):
    """Write a word for each of m rows with its weight in the lane of its class.

    ``scratch.slots`` receives the distance of the class's word from the first, if there are
    several.

    Returns
    -------
    width : uint64
        Bits of a lane; 0: weights are not integers, their sum `weight` does not fit into a lane,
        or rows have no class.
    """
    cells, values, lanes, slots = rows.cells, rows.values, scratch.lanes, scratch.slots
    width = choose_lane_width(s, weight) if len(cells) > 0 else NO_LANES
    if width == NO_LANES:
        return width
    zero, per_word, all_integers = np.uint64(0), np.uint64(64) // width, True
    for i in range(m):
        value, cell = values[i, zero], np.uint64(cells[i])
        count = np.int64(value)
        all_integers &= np.float64(count) == value
        lanes[i] = np.uint64(count) << ((cell % per_word) * width)
        if s > per_word:
            slots[i] = np.uint16((cell // per_word) * CODES_PER_WORD)
    return width if all_integers else NO_LANES


@llvm_inlined
def pack_record_lanes(rows, m, s, weight, scratch):
    """Write a word for each of m short records, as `pack_lanes`."""
    codes, lanes, slots = scratch.lines, scratch.lanes, scratch.slots
    step = scratch.layout[np.uint64(STEP)]
    at = np.uint64(rows.ids[np.uint64(0)]) * step + scratch.layout[np.uint64(CELL)]
    width = choose_lane_width(s, weight)
    if width == NO_LANES:
        return width
    one, low = np.uint64(1), np.uint64(64) // width - np.uint64(1)
    shift = np.uint64(1) if width == np.uint64(32) else np.uint64(2)
    if s <= low + one:
        for i in range(m):
            lanes[i] = np.uint64(codes[at + one]) << (np.uint64(codes[at]) * width)
            at += step
        return width
    for i in range(m):
        cell = np.uint64(codes[at])
        lanes[i] = np.uint64(codes[at + one]) << ((cell & low) * width)
        slots[i] = np.uint16((cell >> shift) * CODES_PER_WORD)
        at += step
    return width


@llvm_inlined
def sum_lanes(scratch, at, m, n_words, sums, code_of, n):
    """Sum the lanes of a node's records up to each code of one column.

    Parameters
    ----------
    scratch : Scratch
        ``packed`` is zero before and after.
    at : uint64
        Place of the code of the node's first record in ``scratch.lines``.
    m, n_words : uint64
        Number of the node's records, and of the words of lanes of each.
    sums : (words, cuts) uint64
        Receives, from `n` on, the sums over the codes up to each that is present.
    code_of : (cuts,) uint32
        Receives these codes.

    Returns
    -------
    count : uint64
        Number of codes present.
    """
    codes, step = scratch.lines, scratch.layout[np.uint64(STEP)]
    lanes, slots, packed, present = scratch.lanes, scratch.slots, scratch.packed, scratch.words
    zero, one, low6 = np.uint64(0), np.uint64(1), np.uint64(63)
    end, total = n, zero
    if n_words == one and m <= np.uint64(RANKED_ROWS):
        totals = borrow_row(sums, zero)
        for i in range(m):
            place = n + _rank_code(codes, at, step, m, i)
            totals[place] = lanes[i]
            code_of[place] = np.uint32(codes[at + i * step])
        for i in range(m):
            place = n + i
            total += totals[place]
            code = code_of[place]
            totals[end], code_of[end] = total, code
            end += np.uint64(i + one == m or code_of[place + one] != code)
        return end - n
    if n_words == one and m > np.uint64(BITMAP_ROWS):
        totals = borrow_row(sums, zero)
        for i in range(m):
            packed[np.uint64(codes[at])] += lanes[i]
            at += step
        for code in range(CODES_PER_WORD):
            word = packed[code]
            packed[code] = zero
            total += word
            totals[end], code_of[end] = total, np.uint32(code)
            end += np.uint64(word != zero)
        return end - n
    for w in range(BITMAPS * np.uint64(4)):
        present[w] = zero
    if n_words == one:
        totals = borrow_row(sums, zero)
        for i in range(m):
            code = np.uint64(codes[at])
            packed[code] += lanes[i]
            present[_find_word(i, code)] |= one << (code & low6)
            at += step
        for w in range(np.uint64(4)):
            word = _join_bitmaps(present, w)
            while word:
                code = (w << np.uint64(6)) + find_lowest_bit(word)
                word &= word - one
                total += packed[code]
                packed[code] = zero
                totals[end], code_of[end] = total, np.uint32(code)
                end += one
        return end - n
    for i in range(m):
        code = np.uint64(codes[at])
        packed[np.uint64(slots[i]) + code] += lanes[i]
        present[_find_word(i, code)] |= one << (code & low6)
        at += step
    for w in range(n_words):
        sums[w, n] = zero
    for v in range(np.uint64(4)):
        word = _join_bitmaps(present, v)
        while word:
            code = (v << np.uint64(6)) + find_lowest_bit(word)
            word &= word - one
            place = code
            for w in range(n_words):
                total = sums[w, end] + packed[place]
                packed[place] = zero
                sums[w, end] = total
                sums[w, end + one] = total
                place += CODES_PER_WORD
            code_of[end] = np.uint32(code)
            end += one
    return end - n


@llvm_inlined
def sum_values(scratch, at, rows, s, sums, code_of, n):
    """Sum the statistics of a node's records up to each code of one column, as `sum_lanes`.

    Parameters
    ----------
    rows : Rows
        The node's rows.
    s : uint64
        Number of statistics.
    sums : (S, cuts) float64
    """
    codes, step, m = scratch.lines, scratch.layout[np.uint64(STEP)], np.uint64(len(rows.ids))
    cells, values, packed, present = rows.cells, rows.values, scratch.packed, scratch.words
    zero, one, low6 = np.uint64(0), np.uint64(1), np.uint64(63)
    end, start, has_cells = n, zero, len(cells) > 0
    flat = borrow_arrays(packed.view(np.float64))
    if s == np.uint64(2) and not has_cells and m <= np.uint64(RANKED_ROWS):
        first, second = 0.0, 0.0
        firsts, seconds = borrow_row(sums, zero), borrow_row(sums, one)
        for i in range(m):
            place = n + _rank_code(codes, at, step, m, i)
            firsts[place], seconds[place] = values[i, zero], values[i, one]
            code_of[place] = np.uint32(codes[at + i * step])
        for i in range(m):
            place = n + i
            first += firsts[place]
            second += seconds[place]
            code_here = code_of[place]
            firsts[end], seconds[end], code_of[end] = first, second, code_here
            end += np.uint64(i + one == m or code_of[place + one] != code_here)
        return end - n
    for w in range(BITMAPS * np.uint64(4)):
        present[w] = zero
    if s == np.uint64(2) and not has_cells:
        for i in range(m):
            code = np.uint64(codes[at])
            add_pair(flat, code + code, values, i)
            present[_find_word(i, code)] |= one << (code & low6)
            at += step
        first, second = 0.0, 0.0
        firsts, seconds = borrow_row(sums, zero), borrow_row(sums, one)
        for w in range(np.uint64(4)):
            word = _join_bitmaps(present, w)
            while word:
                code = (w << np.uint64(6)) + find_lowest_bit(word)
                word &= word - one
                first += flat[code + code]
                second += flat[code + code + one]
                flat[code + code] = flat[code + code + one] = 0.0
                firsts[end], seconds[end], code_of[end] = first, second, np.uint32(code)
                end += one
        return end - n
    for i in range(m):
        code = np.uint64(codes[at])
        start = code * s
        if has_cells:
            flat[start + np.uint64(cells[i])] += values[i, zero]
        else:
            for k in range(s):
                flat[start + k] += values[i, k]
        present[_find_word(i, code)] |= one << (code & low6)
        at += step
    for k in range(s):
        sums[k, n] = 0.0
    for w in range(np.uint64(4)):
        word = _join_bitmaps(present, w)
        while word:
            code = (w << np.uint64(6)) + find_lowest_bit(word)
            word &= word - one
            for k in range(s):
                total = sums[k, end] + flat[code * s + k]
                flat[code * s + k] = 0.0
                sums[k, end] = total
                sums[k, end + one] = total
            code_of[end] = np.uint32(code)
            end += one
    return end - n


RANKED_ROWS = 4
"""Number of records up to which comparing all codes (`_rank_code`) is faster than a bitmap."""


@inlined
def _rank_code(codes, at, step, m, i):
    """Return the place of record `i`, from 0, when m records are sorted by code; ties by number."""
    code, rank, other = codes[at + i * step], np.uint64(0), at
    for j in range(m):
        rank += np.uint64((codes[other] < code) | ((codes[other] == code) & (j < i)))
        other += step
    return rank


BITMAPS = np.uint64(4)
"""Bitmaps of the codes present, for every fourth row each: a word is not changed twice in a row,
which would take as long as writing it to memory and reading it again.
"""


@inlined
def _find_word(i, code):
    """Return the word of the code of row `i`, in the bitmap of the row."""
    return ((i & (BITMAPS - np.uint64(1))) << np.uint64(2)) + (code >> np.uint64(6))


@inlined
def _join_bitmaps(words, w):
    """Return a word of the bitmap of all rows."""
    four, eight, twelve = np.uint64(4), np.uint64(8), np.uint64(12)
    return words[w] | words[w + four] | words[w + eight] | words[w + twelve]


@llvm_inlined
def unpack_lanes(words, n, width, sums):
    """Convert the lanes of n cuts, (words, cuts), to statistics (S, cuts)."""
    mask = np.uint64(0xFFFF) if width == np.uint64(16) else np.uint64(0xFFFFFFFF)
    per_word = np.uint64(64) // width
    for k in range(np.uint64(sums.shape[0])):
        packed, numbers = borrow_row(words, k // per_word), borrow_row(sums, k)
        shift = (k % per_word) * width
        for j in range(n):
            numbers[j] = np.float64(np.int32((packed[j] >> shift) & mask))


# ---------------------------------------------------------------- row-major codes
# Codes are stored by column.  The rows of a small node are far apart there, and each
# code costs a cache line; a row-major copy has all columns of a row in one or two
# lines.  With it, random tests were found in three fifths of the time and trees
# grew about a tenth faster (measured).

SPARSE_RATIO = np.uint64(16)
"""Ratio of all rows to the node's rows above which few of them share a cache line of a column."""


@inlined
def choose_place(m, rows, scratch):
    """Return the distance of a node's m rows in `lines`; 0: their codes are read by column."""
    lines, layout = scratch.lines, scratch.layout
    if layout[np.uint64(FORM)] != np.uint64(NO_RECORDS):
        return layout[np.uint64(STEP)]
    if m * SPARSE_RATIO < rows and len(lines) > 0:
        return np.uint64(len(lines)) // rows
    return np.uint64(0)


@inlined
def locate_column(table, flat, lines, feature, place):
    """Return a `Column` of the table.

    Parameters
    ----------
    flat : (columns * rows,) unsigned
        The matrix of codes, column-major.
    lines : unsigned
        The same, row-major, or the node's records.
    place : uint64
        From `choose_place`.
    """
    if place > np.uint64(0):
        return Column(lines, np.uint64(feature), place, table.n_codes[feature])
    rows = np.uint64(table.codes.shape[1])
    return Column(flat, feature * rows, np.uint64(1), table.n_codes[feature])
