"""Weighted quantiles of a node's target, and the losses of the rows below and above them.

Rows of a rank target are ``(w, y, w * (y - center))``, ascending by y in every node,
because rows are sorted once and partitions are stable: a row's position is its rank.
Sums are taken over the centred values, which are fixed-point numbers
(`treekit.grow.target_statistics`); quantiles are the values themselves.  Statistics
are ``(weight, q, below, above)``, as in `treekit.contracts.Ranks`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import inlined, kernel

SLACK = 2.0**-51
"""Relative error of ``quantile * weight``: the rounded level, and the product."""

MAX_WALK_ROWS = 64
"""Number of rows up to which stepping to the quantile is fast."""

SMALLEST_WEIGHT = 2.0**-1000
"""A bound below all weights: the quantile is always a row of positive weight."""

MAX_WALK_WEIGHT = 16.0
"""Mean weight, relative to the lightest row, up to which stepping to the quantile is fast."""


class RankedRows(NamedTuple):
    """A node's rows for `treekit.kernels.quantile_splits`, ascending by y.

    Attributes
    ----------
    n : uint64
        Number of rows.
    quantile : float
        Quantile level.
    weight, total : float
        Weight and sum of the rows.
    at, before, sum_before : uint64, float, float
        Index of the row at the quantile, and weight and sum of the rows before it.
    mass, place : (2 * rows + 2,) float64
        ``w, w * (y - center)`` and ``y, y - center`` of each row, and of a last one of no weight.
    tree : (rows + 1, 2) float64
        Working memory for a Fenwick tree (prefix sums), or (0, 2) if it is not needed.
    """

    n: np.uint64
    quantile: float
    weight: float
    total: float
    at: np.uint64
    before: float
    sum_before: float
    mass: npt.NDArray[np.float64]
    place: npt.NDArray[np.float64]
    tree: npt.NDArray[np.float64]


@kernel
def summarise_rows(values, order, begin, end, quantile, stats):
    """Compute the statistics of the rows ``order[begin:end]``, or begin..end if `order` is None.

    Parameters
    ----------
    values : (rows, 3) float64
        ``(w, y, w * (y - center))``; y ascends along the selected rows.
    stats : (4,) float64
        Output: the statistics.

    Returns
    -------
    weight : float
    """
    weight, total = 0.0, 0.0
    for j in range(np.uint64(begin), np.uint64(end)):
        i = _get_position(order, j)
        weight += values[i, np.uint64(0)]
        total += values[i, np.uint64(2)]
    for k in range(np.uint64(4)):
        stats[k] = 0.0
    if begin == end:
        return 0.0
    enough = (quantile - SLACK) * weight
    at, last = np.uint64(begin), np.uint64(end) - np.uint64(1)
    below, sum_below = 0.0, 0.0
    i = _get_position(order, at)
    while at < last and below + values[i, np.uint64(0)] < enough:
        below += values[i, np.uint64(0)]
        sum_below += values[i, np.uint64(2)]
        at += np.uint64(1)
        i = _get_position(order, at)
    after = _get_position(order, at + np.uint64(1)) if at < last else i
    q, lower, upper = _compute_losses(values, i, after, quantile, weight, total, below, sum_below)
    stats[np.uint64(0)], stats[np.uint64(1)] = weight, q
    stats[np.uint64(2)], stats[np.uint64(3)] = lower, upper
    return weight


@kernel
def _get_position(order, j):
    if order is None:
        return j
    return np.uint64(order[j])


@kernel
def _compute_losses(values, at, after, quantile, weight, total, below, sum_below):
    """Return the quantile and the losses on either side of it.

    `at` is the row of the quantile; `below`, `sum_below` are the sums before it.
    """
    w, q, wy = values[at, np.uint64(0)], values[at, np.uint64(1)], values[at, np.uint64(2)]
    centred = wy / w  # exact if weights are integers, as are the sums
    if below + w <= (quantile + SLACK) * weight:  # a tie: the midpoint to the next row
        q = 0.5 * q + 0.5 * values[after, np.uint64(1)]
        centred = 0.5 * (centred + values[after, np.uint64(2)] / values[after, np.uint64(0)])
        below += w
        sum_below += wy
        w, wy = 0.0, 0.0
    lower = max(0.0, centred * below - sum_below)
    upper = max(0.0, (total - sum_below - wy) - centred * (weight - below - w))
    return q, lower, upper


@kernel
def summarise_held_out_rows(values, begin, end, quantile_value, stats):
    """Compute statistics of held-out rows about the training rows' `quantile_value`."""
    weight, below, above = 0.0, 0.0, 0.0
    for i in range(np.uint64(begin), np.uint64(end)):
        w = values[i, np.uint64(0)]
        apart = w * (values[i, np.uint64(1)] - quantile_value)
        weight += w
        below += max(0.0, -apart)
        above += max(0.0, apart)
    stats[np.uint64(0)] = weight
    stats[np.uint64(1)] = quantile_value if weight > 0.0 else 0.0
    stats[np.uint64(2)] = below
    stats[np.uint64(3)] = above


@inlined
def lay_out_rows(values, quantile, memory):
    """Lay out a node's rows, and find their quantile; return the `RankedRows`.

    Parameters
    ----------
    values : (rows, 3) float64
        ``(w, y, w * (y - center))``, y ascending.
    memory : (6 * rows + 6 or more,) float64
        Receives the arrays of the result.
    """
    zero, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
    rows = np.uint64(len(values))
    middle, top = two * rows + two, (two + two) * (rows + one)
    mass, place = memory[:middle], memory[middle:top]
    for k in range(two):
        mass[two * rows + k] = place[two * rows + k] = 0.0
    weight, total, lightest = 0.0, 0.0, np.inf
    for i in range(rows):
        w, wy = values[i, zero], values[i, two]
        mass[two * i], mass[two * i + one] = w, wy
        # Exact if weights are integers, as are the sums.
        place[two * i], place[two * i + one] = values[i, one], wy / w
        weight += w
        total += wy
        lightest = min(lightest, w)
    enough = (quantile - SLACK) * weight
    at, before, sum_before = zero, 0.0, 0.0
    while at + one < rows and before + mass[two * at] < enough:
        before += mass[two * at]
        sum_before += mass[two * at + one]
        at += one
    # Removing a row of weight w moves the quantile over at most w / lightest rows: in
    # total at most weight / lightest steps.
    planted = zero
    if rows > np.uint64(MAX_WALK_ROWS) and weight > MAX_WALK_WEIGHT * lightest * np.float64(rows):
        planted = rows + one
    tree = memory[top : top + two * planted].reshape((np.int64(planted), 2))
    return RankedRows(rows, quantile, weight, total, at, before, sum_before, mass, place, tree)
