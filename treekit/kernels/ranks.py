"""Weighted quantiles of a node, and the losses on either side.

Rows of a rank target are ``(w, y, w * (y - center))`` and lie ascending by y in
every node, because rows are sorted once and partitions are stable: a row's
position is its rank.  Sums are taken of the centred numbers, which lie on a
grid (`treekit.grow.target`); quantiles are the numbers themselves.  Statistics
are ``(weight, q, below, above)``, as `treekit.contracts.Ranks` says.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import kernel

__all__ = ["SLACK", "judge", "summarise"]

SLACK = 2.0**-51
"""Relative error of ``quantile * weight``: a level rounded, and a product."""


@kernel
def summarise(values, order, begin, end, quantile, stats):
    """Statistics of the rows ``order[begin:end]``, or of begin..end where `order` is None.

    Parameters
    ----------
    values : (rows, 3) float64
        ``(w, y, w * (y - center))``; y ascends along the rows named.
    stats : (4,) float64
        Receives the statistics.

    Returns
    -------
    weight : float
    """
    weight, total = 0.0, 0.0
    for j in range(np.uint64(begin), np.uint64(end)):
        i = _position(order, j)
        weight += values[i, np.uint64(0)]
        total += values[i, np.uint64(2)]
    for k in range(np.uint64(4)):
        stats[k] = 0.0
    if begin == end:
        return 0.0
    enough = (quantile - SLACK) * weight
    at, last = np.uint64(begin), np.uint64(end) - np.uint64(1)
    below, sum_below = 0.0, 0.0
    i = _position(order, at)
    while at < last and below + values[i, np.uint64(0)] < enough:
        below += values[i, np.uint64(0)]
        sum_below += values[i, np.uint64(2)]
        at += np.uint64(1)
        i = _position(order, at)
    after = _position(order, at + np.uint64(1)) if at < last else i
    q, lower, upper = _about(values, i, after, quantile, weight, total, below, sum_below)
    stats[np.uint64(0)], stats[np.uint64(1)] = weight, q
    stats[np.uint64(2)], stats[np.uint64(3)] = lower, upper
    return weight


@kernel
def _position(order, j):
    if order is None:
        return j
    return np.uint64(order[j])


@kernel
def _about(values, at, after, quantile, weight, total, below, sum_below):
    """The quantile and the losses on its sides, from the row `at` of it and the sums before it."""
    w, q, wy = values[at, np.uint64(0)], values[at, np.uint64(1)], values[at, np.uint64(2)]
    centred = wy / w  # exact where weights are whole numbers, as the sums are
    if below + w <= (quantile + SLACK) * weight:  # any number up to the next row's will do
        q = 0.5 * q + 0.5 * values[after, np.uint64(1)]
        centred = 0.5 * (centred + values[after, np.uint64(2)] / values[after, np.uint64(0)])
        below += w
        sum_below += wy
        w, wy = 0.0, 0.0
    lower = max(0.0, centred * below - sum_below)
    upper = max(0.0, (total - sum_below - wy) - centred * (weight - below - w))
    return q, lower, upper


@kernel
def judge(values, begin, end, answer, stats):
    """Statistics of held-out rows about the quantile `answer` of the training rows."""
    weight, below, above = 0.0, 0.0, 0.0
    for i in range(np.uint64(begin), np.uint64(end)):
        w = values[i, np.uint64(0)]
        apart = w * (values[i, np.uint64(1)] - answer)
        weight += w
        below += max(0.0, -apart)
        above += max(0.0, apart)
    stats[np.uint64(0)] = weight
    stats[np.uint64(1)] = answer if weight > 0.0 else 0.0
    stats[np.uint64(2)] = below
    stats[np.uint64(3)] = above
