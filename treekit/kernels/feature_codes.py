"""Encode columns as codes: radix sort of keys, bin boundaries, and the code of each row.

The key of a float is an unsigned integer of the same width with the same order:
all bits of a negative number are flipped, only the sign bit of other numbers.  Both
zeros have the same key; NaN has none and is left out.  Digits have 11 bits
(Terdiman 2000, *Radix Sort Revisited*): a float32 takes three passes; a digit that
is equal in all keys takes none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import kernel

# ---------------------------------------------------------------- bins and ranks

DIGIT_VALUES = 2048
"""Number of values of a radix digit."""

_DIGIT_BITS = np.uint64(11)
_DIGIT_MASK = np.uint64(DIGIT_VALUES - 1)
_PADDED_BINS = 256


@kernel
def sort_keys(bits, sign, infinity, weights, keys, rows, other_keys, other_rows, counts):
    """Sort the keys of a column's known values; equal keys keep the table order.

    Parameters
    ----------
    bits : (rows,) uint32 or uint64
        The bits of the column's floats.
    sign, infinity : uint64
        The sign bit, and the bits of infinity, of this width.
    weights : (rows,) float64
        Rows without weight are left out; empty = keep all.
    keys, other_keys : (rows,) of the type of `bits`
        Buffers for the keys; either may hold the result.
    rows, other_rows : (rows,) uint32
        Buffers for the row of each key; empty if not needed.
    counts : (digits, DIGITS) uint32
        Working memory.

    Returns
    -------
    keys, rows : (known,) arrays
        `rows` is empty if not requested.
    """
    weighted, carried = len(weights) > 0, len(rows) > 0
    n = np.uint64(0)
    for i in range(np.uint64(len(bits))):
        b = np.uint64(bits[i])
        if (b & ~sign) > infinity:
            continue
        if weighted and not weights[i] > 0.0:
            continue
        keys[n] = make_key(b, sign)
        if carried:
            rows[n] = i
        n += np.uint64(1)
    n_digits = np.uint64(counts.shape[0])
    counts[:] = 0
    for i in range(n):
        key = np.uint64(keys[i])
        for d in range(n_digits):
            counts[d, (key >> (d * _DIGIT_BITS)) & _DIGIT_MASK] += np.uint32(1)
    for d in range(n_digits):
        shift = d * _DIGIT_BITS
        if n == 0 or counts[d, (np.uint64(keys[np.uint64(0)]) >> shift) & _DIGIT_MASK] == n:
            continue
        first = np.uint32(0)
        for v in range(np.uint64(DIGIT_VALUES)):
            count = counts[d, v]
            counts[d, v] = first
            first += count
        for i in range(n):
            key = np.uint64(keys[i])
            digit = (key >> shift) & _DIGIT_MASK
            to = np.uint64(counts[d, digit])
            counts[d, digit] = np.uint32(to + np.uint64(1))
            other_keys[to] = key
            if carried:
                other_rows[to] = rows[i]
        keys, other_keys = other_keys, keys
        rows, other_rows = other_rows, rows
    return keys[:n], rows[: n if carried else np.uint64(0)]


@kernel
def make_key(b, sign):
    """Return the key of a float, given its bits."""
    if b == sign:
        return sign  # -0.0 is 0.0
    ones = (sign << np.uint64(1)) - np.uint64(1)
    return b ^ ones if b & sign else b | sign


@kernel
def find_bin_starts(keys, rows, weights, total, starts, quantiles):
    """Return where bins begin in ascending keys: at each distinct key, or at quantiles.

    Bins have about equal weight; equal keys share a bin.

    Parameters
    ----------
    keys : (known,) uint32 or uint64
    rows, weights : (known,) uint32 and (all rows,) float64
        The row of each key, and the weights of rows; empty = 1.
    total : float
        Sum of the weights.
    starts, quantiles : (bins,) int64
        Buffers; their length is the maximum number of bins.

    Returns
    -------
    starts : (up to bins,) int64
        Ascending; those of the distinct keys if there are at most that many.
    """
    weighted = len(weights) > 0
    most = np.uint64(len(starts))
    step = total / float(most)
    n_distinct, n_quantiles, wanted = np.uint64(0), np.uint64(1), np.uint64(1)
    quantiles[np.uint64(0)] = 0
    last, so_far = np.uint64(0), 0.0
    for i in range(np.uint64(len(keys))):
        weight = 1.0
        if weighted:
            weight = weights[np.uint64(rows[i])]
        so_far += weight
        if i > 0 and keys[i] == keys[i - np.uint64(1)]:
            continue
        last = i
        if n_distinct < most:
            starts[n_distinct] = i
        n_distinct += np.uint64(1)
        below = so_far - weight
        begins = False
        while wanted < most and below >= float(wanted) * step:
            wanted += np.uint64(1)
            begins = i > 0
        if begins:
            quantiles[n_quantiles] = i
            n_quantiles += np.uint64(1)
    if n_distinct <= most:
        return starts[:n_distinct]
    if wanted < most and quantiles[n_quantiles - np.uint64(1)] != last:
        quantiles[n_quantiles] = last
        n_quantiles += np.uint64(1)
    return quantiles[:n_quantiles]


@kernel
def assign_bins(bits, sign, infinity, high, n_bins, codes):
    """Assign each row the first bin whose largest key is not below the row's key.

    Rows above all bins (they have no weight) are assigned the last one; missing
    values have the code `n_bins`.

    Parameters
    ----------
    bits, sign, infinity
        See `sort_keys`.
    high : (256,) of the type of `bits`
        Largest key of each bin, padded with the largest number of the type.
    n_bins : int
        1 to 255.
    codes : (rows,) unsigned
        Output.
    """
    last = np.uint64(n_bins - 1)
    for i in range(np.uint64(len(bits))):
        b = np.uint64(bits[i])
        key = make_key(b, sign)
        at = np.uint64(0)
        step = np.uint64(_PADDED_BINS // 2)
        while step > 0:  # constant trip count: unrolled, branch-free binary search
            at += step * np.uint64(high[at + step - np.uint64(1)] < key)
            step >>= np.uint64(1)
        at = min(at, last)
        codes[i] = np.uint64(n_bins) if (b & ~sign) > infinity else at


@kernel
def assign_ranks(keys, rows, codes, values):
    """Assign each of the `rows` the number of distinct keys below its own.

    Parameters
    ----------
    keys, rows : (known,) arrays
        Ascending keys, and the row of each.
    codes : (all rows,) unsigned
        Output, filled for these rows.
    values : (known,) of the type of `keys`
        Output: the distinct keys; may be `keys`.

    Returns
    -------
    n_distinct : int
    """
    n = np.uint64(0)
    for i in range(np.uint64(len(keys))):
        key = keys[i]
        if n == 0 or values[n - np.uint64(1)] != key:
            values[n] = key
            n += np.uint64(1)
        codes[np.uint64(rows[i])] = n - np.uint64(1)
    return n


@kernel
def rank_columns(bits, sign, infinity, keys, rows, counts, codes, sizes, values):
    """Compute the dense rank, from 0, of each value within its column.

    Parameters
    ----------
    bits : (features, rows) uint32 or uint64
    sign, infinity, counts
        See `sort_keys`.
    keys, rows : (2, rows) of the type of `bits`, and uint32
        Working memory.
    codes : (features, rows) unsigned
        Output; missing values have the number of distinct numbers.
    sizes : (features,) int64
        Output: the number of distinct numbers of each column.
    values : (features * rows,) of the type of `bits`
        Output: their keys, ascending, column by column.

    Returns
    -------
    n_values : int
    """
    zero, one, n_rows = np.uint64(0), np.uint64(1), np.uint64(bits.shape[1])
    all_rows = np.empty(0)
    end = zero
    for f in range(np.uint64(len(bits))):
        known, order = sort_keys(
            bits[f], sign, infinity, all_rows, keys[zero], rows[zero], keys[one], rows[one], counts
        )
        n = np.uint64(assign_ranks(known, order, codes[f], values[end:]))
        if len(known) < n_rows:
            for i in range(n_rows):
                if (np.uint64(bits[f, i]) & ~sign) > infinity:
                    codes[f, i] = n
        sizes[f] = n
        end += n
    return end


# ---------------------------------------------------------------- keys of rows for scoring
# Unsigned keys in the order of the numbers, compared by `treekit.kernels.score_batch`.
#
# Eight rows form a group.  A group stores the cells of its rows side by side, so that
# one address serves eight rows: first eight zeros, which leaves compare, then two cells
# per column, the *right* one, where missing is the largest key, and the *left* one,
# where missing is 0.  A node refers to the cell of the side to which missing values
# go, so that a step down needs no test for them.
#
# The left cell of a nominal column is 1 + its code.

Array = npt.NDArray[Any]

GROUP_SIZE = 8
"""Rows of a group, and the distance between two cells of one row."""


@kernel
def compute_group_width(n_columns: Any) -> Any:
    """Return the number of sort keys of a group of rows: a zero, and two a column, for each row."""
    return np.uint64(GROUP_SIZE) * (np.uint64(2) * np.uint64(n_columns) + np.uint64(1))


@kernel
def find_first_cell(row: Any, width: Any) -> Any:
    """Return the position of a row's first cell (the zero), in groups of `width` keys."""
    return (row // np.uint64(GROUP_SIZE)) * width + row % np.uint64(GROUP_SIZE)


@kernel
def encode_rows(rows: Array, columns: Array, n_codes: Array, keys: Array) -> None:
    """Write the keys of some rows, group by group.

    Parameters
    ----------
    rows : (rows, features) float32 or float64
    columns : (columns,) uint64
        Columns to encode.
    n_codes : (columns,) uint64
        Categories of their vocabularies, plus one for missing; 0 for numeric columns.
    keys : (at least groups * group_width(columns),) uint32 or uint64
        Output, as wide as the cells.  The last row fills up the last group.
    """
    n, group = np.uint64(len(rows)), np.uint64(GROUP_SIZE)
    width = compute_group_width(len(columns))
    whole = n - n % group
    for start in range(np.uint64(0), whole, group):
        _encode_group(rows, start, columns, n_codes, keys, (start // group) * width)
    if whole < n:
        last = np.empty((group, np.uint64(rows.shape[1])), rows.dtype)
        for lane in range(group):
            row = min(whole + lane, n - np.uint64(1))
            # Cell by cell: assigning a row would compile the check of shapes, for two seconds.
            for f in range(np.uint64(rows.shape[1])):
                last[lane, f] = rows[row, f]
        _encode_group(last, np.uint64(0), columns, n_codes, keys, (whole // group) * width)


@kernel
def _encode_group(
    rows: Array, start: Any, columns: Array, n_codes: Array, keys: Array, at: Any
) -> None:
    word, group = keys.dtype.type, np.uint64(GROUP_SIZE)
    missing = word(~word(0))
    top = word(missing - (missing >> np.uint64(1)))
    bits = rows.view(keys.dtype)
    for lane in range(group):
        keys[at + lane] = word(0)
    for i in range(np.uint64(len(columns))):
        f, right = columns[i], at + group * (np.uint64(2) * i + np.uint64(1))
        left = right + group
        if n_codes[i] == 0:
            for lane in range(group):
                b = bits[start + lane, f]
                # As integers, positive floats ascend and negative ones descend; -0.0 is 0.0.
                key = word(~b) if b > top else word(b | top)
                known = rows[start + lane, f] == rows[start + lane, f]
                keys[right + lane] = key if known else missing
                keys[left + lane] = key if known else word(0)
        else:
            n_levels = n_codes[i] - np.uint64(1)
            for lane in range(group):
                cell = rows[start + lane, f]
                # Anything that is not a code of the vocabulary is missing.
                known = cell >= 0 and cell < n_levels and cell == np.floor(cell)
                code = word(cell) if known else missing
                keys[right + lane] = code
                keys[left + lane] = word(code + word(1))


@kernel
def encode_row(row: Array, columns: Array, n_codes: Array, keys: Array) -> None:
    """Write the keys of one row (features,), as the first of a group."""
    word, group = keys.dtype.type, np.uint64(GROUP_SIZE)
    missing = word(~word(0))
    top = word(missing - (missing >> np.uint64(1)))
    bits = row.view(keys.dtype)
    keys[np.uint64(0)] = word(0)
    for i in range(np.uint64(len(columns))):
        b, cell = bits[columns[i]], row[columns[i]]
        right = group * (np.uint64(2) * i + np.uint64(1))
        if n_codes[i] == 0:
            key = word(~b) if b > top else word(b | top)
            keys[right] = key if cell == cell else missing
            keys[right + group] = key if cell == cell else word(0)
        else:
            known = cell >= 0 and cell < n_codes[i] - np.uint64(1) and cell == np.floor(cell)
            code = word(cell) if known else missing
            keys[right] = code
            keys[right + group] = word(code + word(1))
