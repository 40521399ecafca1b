"""Count the keys of a column's values by their leading digits, to find bins without sorting.

Keys are integers in the order of the values; see `treekit.kernels.feature_codes`.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import kernel
from treekit.kernels.feature_codes import make_key

DIGIT_BITS = 8
"""Bits of each digit after the first, which has `FIRST_BITS`."""

FIRST_BITS = 16


@kernel
def summarise_keys(bits, sign, infinity, weights, shift, counts, distinct, largest):
    """Count keys by their first digit, and list the distinct keys unless they are too many.

    Parameters
    ----------
    bits, sign, infinity, weights
        See `treekit.kernels.feature_codes.sort_keys`.
    shift : uint64
        Position of the first digit.
    counts : (65536,) float64
        Output, zeros on entry: weight of each first digit.
    distinct : (most + 1,) uint64
        Output: the lowest distinct keys, ascending.
    largest : (2,) uint64
        Output: the largest key, and the largest below it (0 = none).

    Returns
    -------
    int
        Number of distinct keys; ``most + 1`` if there are more than ``most``.
    """
    zero, one = np.uint64(0), np.uint64(1)
    n, room = zero, np.uint64(len(distinct))
    for i in range(np.uint64(len(bits))):
        b = np.uint64(bits[i])
        if (b & ~sign) > infinity:
            continue
        weight = 1.0
        if len(weights) > 0:
            weight = weights[i]
        if not weight > 0.0:
            continue
        key = np.uint64(make_key(b, sign))
        counts[key >> shift] += weight
        if key > largest[zero]:
            largest[one], largest[zero] = largest[zero], key
        elif key < largest[zero] and key > largest[one]:
            largest[one] = key
        if n == room:
            continue
        at = _find_first(distinct, n, key)
        if at < n and distinct[at] == key:
            continue
        for k in range(n, at, -1):
            distinct[np.uint64(k)] = distinct[np.uint64(k) - one]
        distinct[at] = key
        n += one
    return np.int64(n)


@kernel
def _find_first(keys, n, key):
    """Return the position of the first of `n` ascending keys that is not below `key`."""
    low, high = np.uint64(0), np.uint64(n)
    while low < high:
        middle = (low + high) >> np.uint64(1)
        if keys[middle] < key:
            low = middle + np.uint64(1)
        else:
            high = middle
    return low


@kernel
def count_next_digits(bits, sign, infinity, weights, first_shift, shift, prefixes, counts):
    """Count the keys that begin with one of the prefixes, by their next digit.

    Parameters
    ----------
    first_shift, shift : uint64
        Position of the first digit, and of the next one.
    prefixes : (prefixes,) uint64
        Leading digits, ascending.
    counts : (prefixes, 256) float64
        Output, zeros on entry: weight of each next digit.
    """
    one, bits_of_digit = np.uint64(1), np.uint64(DIGIT_BITS)
    below_first = first_shift - shift - bits_of_digit  # bits of a prefix after the first digit
    starts = np.zeros((1 << FIRST_BITS) + 1, np.uint32)  # prefixes with a smaller first digit
    for at in range(np.uint64(len(prefixes))):
        starts[(prefixes[at] >> below_first) + one] += np.uint32(1)
    for digit in range(np.uint64(1 << FIRST_BITS)):
        starts[digit + one] += starts[digit]
    for i in range(np.uint64(len(bits))):
        b = np.uint64(bits[i])
        if (b & ~sign) > infinity:
            continue
        key = np.uint64(make_key(b, sign))
        first, digits = key >> first_shift, key >> shift
        prefix = digits >> bits_of_digit
        for at in range(np.uint64(starts[first]), np.uint64(starts[first + one])):
            if prefixes[at] == prefix:
                weight = 1.0
                if len(weights) > 0:
                    weight = weights[i]
                counts[at, digits & np.uint64(255)] += weight


@kernel
def find_lowest_keys(bits, sign, infinity, weights, codes, lowest):
    """Find the lowest key of each code among the rows of positive weight.

    Parameters
    ----------
    codes : (rows,) unsigned
    lowest : (bins,) uint64
        Output, the largest integer on entry.
    """
    for i in range(np.uint64(len(bits))):
        b = np.uint64(bits[i])
        if (b & ~sign) > infinity:
            continue
        if len(weights) > 0:
            if not weights[i] > 0.0:
                continue
        key, code = np.uint64(make_key(b, sign)), np.uint64(codes[i])
        lowest[code] = min(lowest[code], key)
