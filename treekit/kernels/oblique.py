"""Oblique splits: sums of columns at a node, and the best cut along each.

A sum is taken as every artifact takes it: in double, from 0.0, term after term
in column order, over numbers of the input type; products of float32 numbers
are exact in double.  A row that lacks one of the columns lacks the sum.
"""

from __future__ import annotations

import math

import numpy as np

from treekit.kernels.along import best_cut
from treekit.kernels.axis import find_axis
from treekit.kernels.compile import kernel
from treekit.kernels.directions import coordinate_search, linear_fit, principal_axes
from treekit.kernels.found import (
    BAD_NUMBER,
    BRANCHES,
    CUT,
    FEATURE,
    KIND,
    LEVELS,
    MISSING_BRANCH,
    SCORE,
    THRESHOLD_VALUE,
    TOLERANCE,
)

__all__ = [
    "COORDINATE",
    "LINEAR",
    "PRINCIPAL",
    "find_oblique",
    "find_oblique_of_numbers",
    "project",
]

OBLIQUE = 5
LINEAR, COORDINATE, PRINCIPAL = 0, 1, 2
"""Ways to find directions; see `treekit.kernels.directions`."""


@kernel
def project(table, terms, threshold, ids, begin, end, sides):
    """Write the side of each of the rows ``ids[begin:end]`` into `sides`.

    Parameters
    ----------
    table : Table
    terms : (2 * terms,) int32
        Column, and the bits of its float32 weight, by turns.
    threshold : float
    sides : (all rows,) unsigned
        Receives, at the number of each row, 0 or 1, and 2 if its sum is not known.
    """
    weights = terms.view(np.float32)
    for i in range(np.uint64(begin), np.uint64(end)):
        row = np.uint64(ids[i])
        total = 0.0
        for t in range(np.uint64(0), np.uint64(len(terms)), np.uint64(2)):
            feature = np.uint64(terms[t])
            weight = np.float64(weights[t + np.uint64(1)])
            total += weight * _value(table, feature, table.codes[feature, row])
        side = 2
        if total == total:
            side = 0 if total <= threshold else 1
        sides[row] = side


@kernel
def _value(table, feature, code):
    """The number behind a code of an exactly coded column; NaN = missing."""
    if np.uint32(code) == table.n_codes[feature]:
        return np.nan
    return table.low[np.uint64(table.value_start[feature]) + np.uint64(code)]


@kernel
def find_oblique(
    node,
    scratch,
    scan,
    many,
    key,
    choose,
    penalty,
    n_keys,
    use_choose,
    use_penalty,
    score,
    rng,
    out,
    numbers,
):
    """Find the best split of one node, by single columns or by sums of them.

    A sum wins only by more than the tolerance of ties, so that trees stay
    readable.  It is of the columns tried at the node.  Arguments are those of
    `treekit.kernels.axis.find_axis`; ``scratch.options`` holds

    method
        `LINEAR`, `COORDINATE` or `PRINCIPAL`.
    terms
        Columns in a sum, at most.
    restarts
        `COORDINATE`: random starts, besides the best single column.
    digits
        Significant decimal digits that weights keep.
    ridge
        `LINEAR`: penalty on squared standardised weights.

    and ``scratch.levels`` receives the terms as `project` takes them.

    Cost: rows x columns squared for `LINEAR` and `PRINCIPAL`; for every
    direction tried a sort of the rows.
    """
    find_axis(
        node,
        scratch,
        scan,
        many,
        key,
        choose,
        penalty,
        n_keys,
        use_choose,
        use_penalty,
        score,
        rng,
        out,
        numbers,
    )
    options = scratch.options
    method, most_terms = np.int64(options[0]), np.int64(options[1])
    restarts, digits, ridge = np.int64(options[2]), np.int64(options[3]), options[4]
    columns = _columns_tried(node, scratch.features)
    if len(columns) < 2 or out[KIND] < 0:
        return
    x = _values(node, columns)
    centers, scales = _standards(x, node.rows.values)
    kept = np.flatnonzero(scales > 0.0)
    if len(kept) < 2:
        return
    columns, x, centers, scales = columns[kept], x[kept], centers[kept], scales[kept]
    directions = _directions(
        node, scratch, scan, x, centers, scales, method, most_terms, restarts, ridge
    )
    keys = np.empty(x.shape[1])
    found = np.empty(4)
    for i in range(np.uint64(len(directions))):
        weights = _rounded_weights(directions[i], scales, digits)
        if np.count_nonzero(weights) < 2:
            continue
        _sums(x, weights, keys)
        best_cut(node, keys, scan, scratch.start, scratch.best, found)
        if found[0] != found[0]:
            out[KIND] = BAD_NUMBER
            return
        slack = TOLERANCE * max(abs(numbers[SCORE]), node.impurity)
        if out[KIND] != 0 and not found[0] > numbers[SCORE] + slack:
            continue
        if found[0] > -np.inf and found[0] < np.inf:
            _take(columns, weights, found, scratch.levels, out, numbers)


@kernel
def _columns_tried(node, features):
    """Numeric columns that `find_axis` tried, in the order that it left `features`; ascending."""
    table, ids = node.table, node.rows.ids
    n = np.uint64(len(table.n_codes))
    wanted = np.zeros(len(table.n_codes), np.bool_)
    tried = 0
    for j in range(n):
        if tried == node.n_try:
            break
        f = np.uint64(features[j])
        codes = table.codes[f]
        i, rows = np.uint64(1), np.uint64(len(ids))
        while i < rows and codes[ids[i]] == codes[ids[np.uint64(0)]]:
            i += np.uint64(1)
        if i < rows:  # a constant column is no try
            tried += 1
            wanted[f] = table.nominal[f] == 0
    return np.flatnonzero(wanted)


@kernel
def _values(node, columns):
    """(columns, rows) float64: numbers of the node's rows; NaN = missing or infinite."""
    table, ids = node.table, node.rows.ids
    x = np.empty((len(columns), len(ids)))
    for j in range(np.uint64(len(columns))):
        feature = np.uint64(columns[j])
        codes = table.codes[feature]
        for i in range(np.uint64(len(ids))):
            value = _value(table, feature, codes[np.uint64(ids[i])])
            x[j, i] = value if abs(value) < np.inf else np.nan
    return x


@kernel
def _standards(x, values):
    """Mean and standard deviation of each row of `x`, over what is known; 0 if constant."""
    centers, scales = np.zeros(len(x)), np.zeros(len(x))
    for j in range(np.uint64(len(x))):
        weight, total, low, high = 0.0, 0.0, np.inf, -np.inf
        for i in range(np.uint64(x.shape[1])):
            if x[j, i] == x[j, i]:
                weight += values[i, np.uint64(0)]
                total += values[i, np.uint64(0)] * x[j, i]
                low, high = min(low, x[j, i]), max(high, x[j, i])
        if not high > low:
            continue
        centers[j] = total / weight
        spread = 0.0
        for i in range(np.uint64(x.shape[1])):
            if x[j, i] == x[j, i]:
                spread += values[i, np.uint64(0)] * (x[j, i] - centers[j]) ** 2
        scales[j] = math.sqrt(spread / weight)
    return centers, scales


@kernel
def _directions(node, scratch, scan, x, centers, scales, method, most_terms, restarts, ridge):
    """(directions, columns) float64: weights of standardised columns, few of them not 0."""
    z = np.empty(x.shape)
    for j in range(np.uint64(len(x))):
        for i in range(np.uint64(x.shape[1])):
            known = x[j, i] == x[j, i]
            z[j, i] = (x[j, i] - centers[j]) / scales[j] if known else 0.0
    if method == LINEAR:
        return linear_fit(z, node.rows.cells, node.rows.values, node.stats, most_terms, ridge)
    if method == PRINCIPAL:
        return principal_axes(z, node.rows.values, most_terms)
    return coordinate_search(
        z, node, scan, scratch.start, scratch.best, scratch.state, most_terms, restarts
    )


@kernel
def _rounded_weights(direction, scales, digits):
    """Weights of the raw columns, the largest 1, each a float32 of few decimal digits."""
    weights = direction / scales
    largest = np.abs(weights).max()
    for j in range(np.uint64(len(weights))):
        share = weights[j] / largest
        if share == 0.0 or not abs(share) > 1e-30:
            weights[j] = 0.0
            continue
        step = 10.0 ** (math.floor(math.log10(abs(share))) - digits + 1)
        weights[j] = np.float64(np.float32(np.rint(share / step) * step))
    return weights


@kernel
def _sums(x, weights, keys):
    """The sum of each row, as `project` takes it."""
    keys[:] = 0.0
    for j in range(np.uint64(len(weights))):
        if weights[j] != 0.0:
            for i in range(np.uint64(len(keys))):
                keys[i] += weights[j] * x[j, i]


@kernel
def _take(columns, weights, found, levels, out, numbers):
    """Write an oblique split where `grow` reads it."""
    bits = levels.view(np.float32)
    at = np.uint64(0)
    for j in range(np.uint64(len(columns))):
        if weights[j] != 0.0:
            levels[at] = np.int32(columns[j])
            bits[at + np.uint64(1)] = np.float32(weights[j])
            at += np.uint64(2)
    low, high = found[np.uint64(1)], found[np.uint64(2)]
    middle = low + (high - low) / 2.0
    out[KIND] = OBLIQUE
    out[FEATURE] = np.int64(levels[np.uint64(0)])
    out[CUT] = 0
    out[BRANCHES] = 2
    out[LEVELS] = np.int64(at)
    out[MISSING_BRANCH] = np.int64(found[np.uint64(3)])
    numbers[THRESHOLD_VALUE] = middle if middle < high else low
    numbers[SCORE] = found[np.uint64(0)]


@kernel
def find_oblique_of_numbers(
    node,
    scratch,
    scan,
    many,
    key,
    choose,
    penalty,
    n_keys,
    use_choose,
    use_penalty,
    score,
    rng,
    out,
    numbers,
):
    """Search a table without nominal columns; see `treekit.kernels.axis.find_axis_of_numbers`."""
    find_oblique(
        node,
        scratch,
        scan,
        many,
        None,
        choose,
        penalty,
        n_keys,
        use_choose,
        use_penalty,
        score,
        rng,
        out,
        numbers,
    )
