"""What is drawn for one column of a node: a threshold, or the sides of its levels.

Numbers come from a hash of the node's seed and the column, so that what one
column draws does not depend on which others were tried.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import inlined

__all__ = [
    "KEYS",
    "code_range",
    "cut_at",
    "draw_one",
    "draw_sides",
    "draw_threshold",
    "gather",
    "value_of",
]

MOST_DRAWS = 64
"""Draws of the sides of categories before the first one is put apart."""

KEYS = np.uint32(0xFFFFFFFF)
"""The missing code of numeric columns whose codes are keys; see `treekit.data.binning`."""


@inlined
def gather(codes, first, step, ids, buffer):
    """The codes of the node's rows in one column, into `buffer`; see `treekit.kernels.lines`."""
    for i in range(np.uint64(len(ids))):
        buffer[i] = codes[first + np.uint64(ids[i]) * step]


@inlined
def code_range(codes, m, absent):
    """Smallest and largest known code of the node's rows, and how many rows are missing.

    If no value is known, both codes are `absent`.
    """
    lowest, highest = np.uint32(0xFFFFFFFF), np.uint32(0)
    for i in range(m):
        lowest = min(lowest, codes[i])
        highest = max(highest, codes[i])
    gone = np.int64(0)
    if highest == absent:
        highest = lowest
        for i in range(m):
            code = codes[i]
            if code == absent:
                gone += 1
            else:
                highest = max(highest, code)
    return lowest, highest, gone


@inlined
def value_of(code, absent, low, start):
    """The number that a code stands for: its key's, or the smallest with that rank."""
    if absent != KEYS:
        return low[start + np.uint64(code)]
    top = np.uint32(0x80000000)
    bits = np.uint32(code ^ top if code >= top else ~code)
    return np.float64(bits.view(np.float32))


@inlined
def mixed(seed, at):
    """Number `at` of the sequence that belongs to `seed` (splitmix64, Steele et al. 2014)."""
    z = seed + (at + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inlined
def draw_threshold(seed, feature, a, b):
    """A number drawn uniformly from [a, b)."""
    share = (mixed(seed, feature) >> np.uint64(11)) * 2.0**-53
    threshold = a + share * (b - a)
    if not threshold < np.inf:  # the span of two doubles may be no double
        threshold = a * (1.0 - share) + b * share
    return threshold if a <= threshold < b else a


@inlined
def cut_at(threshold, codes, m, lowest, highest, absent, low, start):
    """The last code, of the node's or between them, whose number is not above a threshold.

    A key is rounded from the threshold itself.  The numbers of ranks are
    looked up, those that lie between the nearest found so far on either side:
    after a few rows hardly any does (a binary search costs more, for it reads
    numbers that are not in the cache).
    """
    if absent == KEYS:
        top = np.uint32(0x80000000)
        rounded = np.float32(threshold)
        bits = rounded.view(np.uint32)
        key = np.uint32(~bits if bits > top else bits | top)  # -0.0 is 0.0
        return np.uint32(key - np.uint32(np.float64(rounded) > threshold))
    below, above = lowest, highest
    for i in range(m):
        code = codes[i]
        if below < code < above:
            if low[start + np.uint64(code)] <= threshold:
                below = code
            else:
                above = code
    return below


@inlined
def draw_sides(seed, feature, codes, absent, lowest, m, sides):
    """A side, 0 or 1, for each level present, both sides taken; `absent` for missing rows."""
    for attempt in range(MOST_DRAWS + 1):
        salt = mixed(seed, feature + (np.uint64(attempt) << np.uint64(32)))
        any_left, any_right = False, False
        for i in range(m):
            code = codes[i]
            if code == absent:
                sides[i] = absent
                continue
            side = np.uint32(mixed(salt, np.uint64(code)) & np.uint64(1))
            if attempt == MOST_DRAWS:
                side = np.uint32(code != lowest)
            sides[i] = side
            any_right |= side > np.uint32(0)
            any_left |= side == np.uint32(0)
        if any_left and any_right:
            return


@inlined
def draw_one(seed, feature, codes, absent, m, sides):
    """Side 0 for one level present, each equally likely, and 1 for the rest.

    The level is that of the least number drawn; `absent` for missing rows.
    """
    salt = mixed(seed, feature)
    one, least = np.uint32(absent), np.uint64(0xFFFFFFFFFFFFFFFF)
    for i in range(m):
        code = codes[i]
        if code != absent:
            number = mixed(salt, np.uint64(code))
            if number <= least:
                one, least = code, number
    for i in range(m):
        code = codes[i]
        sides[i] = absent if code == absent else np.uint32(code != one)
