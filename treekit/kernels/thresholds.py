"""Readable thresholds: numbers with few decimal digits between two training values.

Any threshold between two neighbouring values splits the training rows alike, and the
midpoint of 1.9 and 3 is 2.4499998 as a float32: the loops here find 2.45.
"""

from __future__ import annotations

import math

import numpy as np

from treekit.kernels.compile import inlined, kernel

MIDPOINT, VALUE_BELOW, READABLE_FLOAT32, READABLE_FLOAT64 = range(4)
"""Ways to place a threshold between two neighbouring values."""

MAX_OFFSET = 0.01
"""Maximum distance of a readable threshold from the midpoint, as a share of the gap.

Large enough to drop digits that only separate the midpoint from its neighbours, and small
enough for the midpoints of textbooks: 2.45, not 2.5, between 1.9 and 3.
"""

_POWERS = np.array([float(f"1e{exponent}") for exponent in range(23)])
"""The powers of ten that are exact as doubles."""


@kernel
def find_readable_threshold(low, high, placement):
    """Return the number with the fewest decimal digits near the midpoint of two values.

    Parameters
    ----------
    low, high : float
        Neighbouring values, ``low < high``, of the model's input type.
    placement : int
        `READABLE_FLOAT32` or `READABLE_FLOAT64`, by the model's input type.

    Returns
    -------
    float
        A number t of that type with ``low <= t < high``, the nearest one to its decimal
        text; NaN if digits within the range of `_POWERS` do not suffice, and for other
        values of `placement`.
    """
    if placement < READABLE_FLOAT32:
        return np.nan
    middle = 0.5 * low + 0.5 * high
    reach = MAX_OFFSET * (high - low)
    if not reach < np.inf:
        return np.nan
    digits = -np.int64(math.floor(math.log10(abs(middle) + reach))) - 1
    while digits < len(_POWERS):
        number = round_decimal(middle, digits)
        if np.isnan(number):
            return np.nan
        near = abs(number - middle) <= reach
        if placement == READABLE_FLOAT32:
            number = np.float64(np.float32(number))
        if near and low <= number < high:
            return number + 0.0  # not -0.0
        digits += 1
    return np.nan


@kernel
def round_decimal(number, places):
    """Return the double nearest to a number rounded to `places` decimals (negative: tens).

    NaN if the rounded number has more digits than doubles represent exactly, or
    more decimals than `_POWERS` has.
    """
    if places >= len(_POWERS):
        return np.nan
    # An integer below 2**53, multiplied or divided once: the double nearest to the decimal.
    power = _POWERS[np.uint64(min(abs(places), len(_POWERS) - 1))]
    integer = np.rint(number / power if places < 0 else number * power)
    if abs(integer) >= 9007199254740992.0:
        return np.nan
    return integer * power if places < 0 else integer / power


@kernel
def place_readable_thresholds(low, high, placement):
    """Return `find_readable_threshold` of each pair of values: (thresholds,) float64."""
    placed = np.empty(len(low))
    for i in range(np.uint64(len(low))):
        placed[i] = find_readable_threshold(low[i], high[i], placement)
    return placed


@inlined
def place_threshold(table, feature, cut, after, rules):
    """Return the threshold between the values of two codes by `rules`; NaN: their midpoint."""
    if rules.placement == VALUE_BELOW:
        return find_value_below(table, feature, cut, after, rules.resolution)
    start = table.value_start[feature]
    low, high = table.high[np.uint64(start + cut)], table.low[np.uint64(start + after)]
    return find_readable_threshold(low, high, rules.placement)


@inlined
def find_last_code(table, held_table, feature, cut, after, threshold):
    """Return the last code of `held_table` whose values do not exceed the threshold; -1 = none.

    A threshold of NaN is the midpoint between the values of codes `cut` and
    `after` of `table`.
    """
    a = table.high[np.uint64(table.value_start[feature] + cut)]
    b = table.low[np.uint64(table.value_start[feature] + after)]
    # Knuth 1969, section 4.2.2, theorem B: the exact error of the rounded sum.
    double = a + b
    part = double - a
    error = (a - (double - part)) + (b - part)
    start = held_table.value_start[feature]
    low, high = np.int64(-1), np.int64(held_table.n_codes[feature])
    while high - low > 1:
        middle = (low + high) // 2
        value = held_table.low[np.uint64(start + middle)]
        if np.isnan(threshold):
            twice = 2.0 * value
            beyond = twice > double or (twice == double and error < 0.0)
        else:
            beyond = value > threshold
        if beyond:
            high = middle
        else:
            low = middle
    return low


@inlined
def find_value_below(table, feature, cut, after, resolution):
    """Return the largest value of `table` not above the midpoint of the values of two codes.

    A tolerance absorbs rounding, or `resolution`: in decimal, 3.7 is the midpoint of 3.6
    and 3.8; in binary it is slightly above.
    """
    start = table.value_start[feature]
    below = find_last_code(table, table, feature, cut, after, np.nan)
    middle = 0.5 * table.high[np.uint64(start + cut)] + 0.5 * table.low[np.uint64(start + after)]
    middle += resolution
    while below + 1 < after and table.high[np.uint64(start + below + 1)] <= middle:
        below += 1
    return table.high[np.uint64(start + below)]
