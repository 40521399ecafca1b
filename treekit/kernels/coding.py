"""Columns to codes: a radix sort of keys, where bins begin, and each row's code.

The key of a float is the unsigned integer of its width that is ordered as the
floats are: all bits of a negative number are flipped, the sign bit of another
one.  Both zeros have one key; NaN has none and is left out.  Digits are of 11
bits (Terdiman 2000, *Radix Sort Revisited*): a float32 takes three passes, and
digits that all keys share take none.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import kernel

__all__ = ["DIGITS", "assign_bins", "assign_ranks", "bin_starts", "sort_keys"]

DIGITS = 2048
"""Values of one digit of the radix sort."""

_BITS = np.uint64(11)
_MASK = np.uint64(DIGITS - 1)
_PADDED = 256


@kernel
def sort_keys(bits, sign, infinity, weights, keys, rows, other_keys, other_rows, counts):
    """Keys of a column's known values, ascending; those of equal keys in table order.

    Parameters
    ----------
    bits : (rows,) uint32 or uint64
        The column's floats, bit by bit.
    sign, infinity : uint64
        The sign bit, and the bits of infinity, of this width.
    weights : (rows,) float64
        Rows without weight are left out; empty = none of them.
    keys, other_keys : (rows,) of the type of `bits`
        Room for the keys; either may hold the answer.
    rows, other_rows : (rows,) uint32
        Room for the row of each key; empty if it is not asked for.
    counts : (digits, DIGITS) uint32
        Working memory.

    Returns
    -------
    keys, rows : (known,) arrays
        The second empty where it was not asked for.
    """
    weighted, carried = len(weights) > 0, len(rows) > 0
    n = np.uint64(0)
    for i in range(np.uint64(len(bits))):
        b = np.uint64(bits[i])
        if (b & ~sign) > infinity:
            continue
        if weighted and not weights[i] > 0.0:
            continue
        keys[n] = _key(b, sign)
        if carried:
            rows[n] = i
        n += np.uint64(1)
    n_digits = np.uint64(counts.shape[0])
    counts[:] = 0
    for i in range(n):
        key = np.uint64(keys[i])
        for d in range(n_digits):
            counts[d, (key >> (d * _BITS)) & _MASK] += np.uint32(1)
    for d in range(n_digits):
        shift = d * _BITS
        if n == 0 or counts[d, (np.uint64(keys[np.uint64(0)]) >> shift) & _MASK] == n:
            continue
        first = np.uint32(0)
        for v in range(np.uint64(DIGITS)):
            count = counts[d, v]
            counts[d, v] = first
            first += count
        for i in range(n):
            key = np.uint64(keys[i])
            digit = (key >> shift) & _MASK
            to = np.uint64(counts[d, digit])
            counts[d, digit] = np.uint32(to + np.uint64(1))
            other_keys[to] = key
            if carried:
                other_rows[to] = rows[i]
        keys, other_keys = other_keys, keys
        rows, other_rows = other_rows, rows
    return keys[:n], rows[: n if carried else np.uint64(0)]


@kernel
def _key(b, sign):
    """The key of a float's bits."""
    if b == sign:
        return sign  # -0.0 is 0.0
    ones = (sign << np.uint64(1)) - np.uint64(1)
    return b ^ ones if b & sign else b | sign


@kernel
def bin_starts(keys, rows, weights, total, starts, quantiles):
    """Where bins begin in ascending keys: at each distinct key, or at quantiles.

    Bins are of about equal weight; equal keys stay together.

    Parameters
    ----------
    keys : (known,) uint32 or uint64
    rows, weights : (known,) uint32 and (all rows,) float64
        The row of each key, and what rows weigh; empty = 1.
    total : float
        Sum of the weights.
    starts, quantiles : (bins,) int64
        Room for so many bins.

    Returns
    -------
    starts : (up to bins,) int64
        Ascending; those of the distinct keys if there are no more than bins.
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
    """Code of each row: the first bin whose largest key is not below its own.

    Rows above all bins (they have no weight) are in the last one; missing
    ones have the code `n_bins`.

    Parameters
    ----------
    bits, sign, infinity
        See `sort_keys`.
    high : (256,) of the type of `bits`
        Largest key of each bin, then the largest of the type.
    n_bins : int
        1 to 255.
    codes : (rows,) unsigned
        Filled.
    """
    last = np.uint64(n_bins - 1)
    for i in range(np.uint64(len(bits))):
        b = np.uint64(bits[i])
        key = _key(b, sign)
        at = np.uint64(0)
        step = np.uint64(_PADDED // 2)
        while step > 0:  # of constant length: unrolled, without a branch
            at += step * np.uint64(high[at + step - np.uint64(1)] < key)
            step >>= np.uint64(1)
        at = min(at, last)
        codes[i] = np.uint64(n_bins) if (b & ~sign) > infinity else at


@kernel
def assign_ranks(keys, rows, codes, values):
    """Code of each of the `rows`: how many distinct keys are below its own.

    Parameters
    ----------
    keys, rows : (known,) arrays
        Ascending keys, and the row of each.
    codes : (all rows,) unsigned
        Filled for these rows.
    values : (known,) of the type of `keys`
        Receives the distinct keys; may be `keys`.

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
