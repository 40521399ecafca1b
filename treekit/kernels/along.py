"""The best cut of a node's rows along any numbers: a sum of columns, say."""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import kernel

__all__ = ["best_cut", "best_turn"]


@kernel
def best_cut(node, keys, scan, start, best, found):
    """The best cut of a node's rows along their `keys` (rows,); NaN = unknown.

    Parameters
    ----------
    found : (4,) float64
        Receives the score (-inf: no cut; NaN: from the criterion), the keys on
        either side of the cut, and the branch of unknown rows.
    """
    rows, stats = node.rows, node.stats
    order = np.argsort(keys)
    compact = np.zeros((len(keys) + 1, len(stats)))
    value = np.empty(len(keys) + 1)
    groups, known_weight = _groups(keys, order, rows.cells, rows.values, compact, value)
    found[np.uint64(0)] = -np.inf
    if groups < 2:
        return
    at_end = np.uint64(groups)
    unknown = compact[at_end]
    lost = unknown.any()
    share, totals = 1.0, stats.copy()
    if lost and node.ways.known_only:
        share, totals, lost = known_weight / node.weight, stats - unknown, False
    for side in range(1, -1, -1):
        if side == 0 and not lost:
            break
        start[:] = 0.0
        if side == 0:
            start[:] = unknown
        limit = node.min_weight_leaf
        at = scan(compact, groups - 1, start, totals, limit, node.impurity, best)
        if at == -2:
            found[np.uint64(0)] = np.nan
            return
        if at < 0 or not best[np.uint64(0)] * share > found[np.uint64(0)]:
            continue
        found[np.uint64(0)] = best[np.uint64(0)] * share
        found[np.uint64(1)] = value[np.uint64(at)]
        found[np.uint64(2)] = value[np.uint64(at + 1)]
        branch = side
        if not lost:
            branch = 0 if 2.0 * best[np.uint64(1)] >= known_weight else 1
        found[np.uint64(3)] = branch


@kernel
def _groups(keys, order, cells, values, compact, value):
    """Statistics of the rows of each distinct key, ascending, and then of unknown ones.

    Returns how many keys there are, and the weight of their rows.
    """
    groups, known_weight = np.int64(0), 0.0
    for j in range(np.uint64(len(order))):
        row = np.uint64(order[j])
        key = keys[row]
        if key == key:
            known_weight += values[row, np.uint64(0)]
            if groups == 0 or key != value[np.uint64(groups - 1)]:
                value[np.uint64(groups)] = key
                groups += 1
        at = np.uint64(groups - 1) if key == key else np.uint64(groups)
        _add(compact[at], cells, values, row, 1.0)
    return groups, known_weight


@kernel
def best_turn(node, rest, bound, z, scan, start, best, found):
    """The best weight ``a`` in ``rest + a * z <= bound``, all else being fixed.

    Row i changes sides at ``U_i = (bound - rest_i) / z_i``: leaving the left as
    `a` grows if z is positive, joining it if z is negative (Murthy, Kasif and
    Salzberg 1994, section 3.1, where all are positive).  So the rows that
    change are scanned with a sign.

    Parameters
    ----------
    rest, z : (rows,) float64
    found : (2,) float64
        Receives the score (-inf: none; NaN: from the criterion) and the weight.
    """
    cells, values = node.rows.cells, node.rows.values
    keys = np.empty(len(z))
    start[:] = 0.0
    for i in range(np.uint64(len(z))):
        keys[i] = (bound - rest[i]) / z[i] if z[i] != 0.0 else np.nan
        if z[i] > 0.0 or (z[i] == 0.0 and rest[i] <= bound):
            _add(start, cells, values, i, 1.0)
    order = np.argsort(keys)
    compact = np.zeros((len(keys) + 1, len(start)))
    value = np.empty(len(keys) + 1)
    groups = np.int64(0)
    for j in range(np.uint64(len(order))):
        row = np.uint64(order[j])
        if not keys[row] == keys[row]:
            break
        if groups == 0 or keys[row] != value[np.uint64(groups - 1)]:
            value[np.uint64(groups)] = keys[row]
            groups += 1
        sign = -1.0 if z[row] > 0.0 else 1.0
        _add(compact[np.uint64(groups - 1)], cells, values, row, sign)
    found[np.uint64(0)] = -np.inf
    if groups < 2:
        return
    totals = node.stats.copy()
    at = scan(compact, groups - 1, start, totals, node.min_weight_leaf, node.impurity, best)
    if at == -2:
        found[np.uint64(0)] = np.nan
    elif at >= 0:
        found[np.uint64(0)] = best[np.uint64(0)]
        found[np.uint64(1)] = (value[np.uint64(at)] + value[np.uint64(at + 1)]) / 2.0


@kernel
def _add(stats, cells, values, row, sign):
    """Add a row to `stats`, or take it away."""
    if len(cells) > 0:
        stats[np.uint64(cells[row])] += sign * values[row, np.uint64(0)]
    else:
        for k in range(np.uint64(len(stats))):
            stats[k] += sign * values[row, k]
