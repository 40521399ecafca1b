"""Where to cut obliquely: weights of standardised columns, few of them not 0.

Three ways: a regularised linear classifier (or regression), coordinate search
with random restarts (Murthy, Kasif and Salzberg 1994, *A system for induction
of oblique decision trees*), and the principal axes of the node's rows.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.along import best_cut, best_turn
from treekit.kernels.compile import kernel
from treekit.kernels.node import Node, Rows

__all__ = ["coordinate_search", "linear_fit", "principal_axes"]

MOST_RESPONSES = 8
"""Classes, or outputs, that are each fitted against the rest; the heaviest ones."""

MOST_AXES = 4
SEARCHED_ROWS = 2000
"""Coordinate search looks at so many rows of a node; the cut itself sees all."""

STEPS = 50
"""Weights changed from one start, at most."""


@kernel
def linear_fit(z, cells, values, stats, most_terms, ridge):
    """Ridge regression of each class's membership, or of the number, on a few columns.

    Columns enter one by one, each time the one most correlated with what is
    left (orthogonal matching pursuit, Pati et al. 1993), so that sums of two
    columns and more are all offered.

    Parameters
    ----------
    z : (columns, rows) float64
        Standardised; 0 = missing.
    cells, values, stats : arrays
        Of the node; see `treekit.kernels.node`.

    Returns
    -------
    (directions, columns) float64
    """
    gram = _gram(z, values)
    responses = _responses(cells, values, stats)
    d = len(z)
    most = min(most_terms, d)
    found = np.zeros((len(responses) * max(most - 1, 0), d))
    made = np.uint64(0)
    for k in range(np.uint64(len(responses))):
        corr = _correlations(z, values, responses[k])
        chosen = np.empty(0, np.int64)
        coefficients = np.zeros(d)
        for size in range(1, most + 1):
            left = np.abs(corr - gram @ coefficients)
            left[chosen] = -1.0
            chosen = np.sort(np.append(chosen, np.argmax(left)))
            own = np.empty((size, size))
            for a in range(np.uint64(size)):
                for b in range(np.uint64(size)):
                    own[a, b] = gram[np.uint64(chosen[a]), np.uint64(chosen[b])]
                own[a, a] += ridge
            coefficients[chosen] = np.linalg.solve(own, corr[chosen])
            if size > 1:
                found[made] = coefficients
                made += np.uint64(1)
    return found


@kernel
def principal_axes(z, values, most_terms):
    """The axes along which the rows spread most, each cut down to its largest loadings.

    They are the left singular vectors of the weighted rows, found as the
    eigenvectors of their Gram matrix.  Parameters are those of `linear_fit`.
    """
    _, axes = np.linalg.eigh(_gram(z, values))
    d = len(z)
    count = min(d, MOST_AXES)
    found = np.zeros((count, d))
    for k in range(np.uint64(count)):
        axis = np.ascontiguousarray(axes[:, d - 1 - np.int64(k)])
        largest = np.argsort(-np.abs(axis))[:most_terms]
        for j in largest:
            found[k, np.uint64(j)] = axis[np.uint64(j)]
    return found


@kernel
def _gram(z, values):
    """(columns, columns) float64: weighted mean products of standardised columns."""
    weights = np.ascontiguousarray(values[:, 0])
    return (z * (weights / weights.sum())) @ z.T


@kernel
def _responses(cells, values, stats):
    """(responses, rows) float64: what the directions should tell apart."""
    if len(cells) == 0:
        count = min(values.shape[1] - 1, MOST_RESPONSES)
        found = np.empty((count, len(values)))
        for k in range(np.uint64(count)):
            found[k] = values[:, np.int64(k) + 1] / values[:, 0]
        return found
    present = np.count_nonzero(stats)
    count = 1 if present == 2 else min(present, MOST_RESPONSES)
    heaviest = np.argsort(-stats, kind="mergesort")
    found = np.zeros((count, len(cells)))
    for k in range(np.uint64(count)):
        for i in range(np.uint64(len(cells))):
            found[k, i] = 1.0 if np.int64(cells[i]) == heaviest[k] else 0.0
    return found


@kernel
def _correlations(z, values, response):
    """(columns,) float64: weighted mean products with the centred response."""
    weights = np.ascontiguousarray(values[:, 0])
    weights = weights / weights.sum()
    return z @ (weights * (response - (weights * response).sum()))


@kernel
def coordinate_search(z, node, scan, start, best, state, most_terms, restarts):
    """Climb one weight at a time to a better split (OC1, section 3.1).

    See `treekit.kernels.along.best_turn` for the step, which turns the cut about
    the mean of one column; after it the threshold is chosen anew.

    Parameters
    ----------
    z, most_terms
        As of `linear_fit`.
    node, scan, start, best
        See `treekit.kernels.along.best_cut`.
    state : (1,) uint64
        Of the generator.
    restarts : int
        Random starts, besides the best single column.

    Returns
    -------
    (restarts + 1, columns) float64
    """
    sample = np.arange(0, z.shape[1], 1 + z.shape[1] // SEARCHED_ROWS)
    node = _sampled(node, sample)
    p = np.empty((len(z), len(sample)))
    for j in range(np.uint64(len(z))):
        for i in range(np.uint64(len(sample))):
            p[j, i] = z[j, np.uint64(sample[i])]
    found = np.empty((restarts + 1, len(z)))
    for k in range(np.uint64(restarts + 1)):
        weights = np.zeros(len(z))
        if k == np.uint64(0):
            weights[np.uint64(_best_column(p, node, scan, start, best))] = 1.0
        else:
            for _ in range(most_terms):
                weights[np.uint64(_uniform(state) * len(z))] = 2.0 * _uniform(state) - 1.0
        _climb(p, weights, node, scan, start, best, most_terms)
        found[k] = weights
    return found


@kernel
def _sampled(node, sample):
    """The node with some of its rows; limits and statistics in proportion."""
    rows = node.rows
    cells = rows.cells if len(rows.cells) == 0 else rows.cells[sample]
    values = rows.values[sample]
    stats = np.zeros(len(node.stats))
    for i in range(np.uint64(len(sample))):
        if len(cells) > 0:
            stats[np.uint64(cells[i])] += values[i, np.uint64(0)]
        else:
            for k in range(np.uint64(len(stats))):
                stats[k] += values[i, k]
    weight = values[:, 0].sum()
    limit = node.min_weight_leaf * (weight / node.weight)
    few = Rows(rows.ids[sample], cells, values)
    return Node(
        node.table, few, stats, weight, node.impurity, node.depth, limit, node.n_try, node.ways,
        node.quantile,
    )  # fmt: skip


@kernel
def _best_column(p, node, scan, start, best):
    """The column with the best cut of its own."""
    found = np.empty(4)
    chosen, score = 0, -np.inf
    for j in range(np.uint64(len(p))):
        best_cut(node, p[j], scan, start, best, found)
        if found[np.uint64(0)] > score:
            chosen, score = np.int64(j), found[np.uint64(0)]
    return chosen


@kernel
def _climb(p, weights, node, scan, start, best, most_terms):
    """Improve `weights` in place by the weight that helps most, until none does."""
    found = np.empty(4)
    sums = np.zeros(p.shape[1])
    for j in range(np.uint64(len(p))):
        sums += weights[j] * p[j]
    best_cut(node, sums, scan, start, best, found)
    score, bound = found[np.uint64(0)], (found[np.uint64(1)] + found[np.uint64(2)]) / 2.0
    if not score > -np.inf:
        return
    for _ in range(STEPS):
        chosen, bar, weight = np.int64(-1), score * (1.0 + 1e-9), 0.0
        for m in range(np.uint64(len(p))):
            if weights[m] == 0.0 and np.count_nonzero(weights) >= most_terms:
                continue
            rest = sums - weights[m] * p[m]
            best_turn(node, rest, bound, p[m], scan, start, best, found)
            if found[np.uint64(0)] > bar:
                bar, chosen, weight = found[np.uint64(0)], np.int64(m), found[np.uint64(1)]
        if chosen < 0:
            return
        m = np.uint64(chosen)
        sums += (weight - weights[m]) * p[m]
        weights[m] = weight
        best_cut(node, sums, scan, start, best, found)
        bound = (found[np.uint64(1)] + found[np.uint64(2)]) / 2.0
        score = max(bar, found[np.uint64(0)])


@kernel
def _uniform(state):
    """A number from [0, 1): splitmix64 (Steele, Lea and Flood 2014)."""
    zero = np.uint64(0)
    state[zero] += np.uint64(0x9E3779B97F4A7C15)
    z = state[zero]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.float64((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
