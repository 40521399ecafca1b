"""Oblique splits: weighted sums of columns, and the best cut of each.

Every artifact computes a sum the same way: in double precision, from 0.0, term after
term in column order, over numbers of the input type; products of float32 numbers are
exact in double.  The sum of a row with a missing term is missing.
"""

from __future__ import annotations

import math

import numpy as np

from treekit.kernels.axis_splits import search_columns
from treekit.kernels.compile import kernel
from treekit.kernels.cut_batches import make_scorer, scan_cuts
from treekit.kernels.linear_algebra import (
    compute_weighted_gram,
    find_eigenvectors,
    multiply_by_vector,
    solve,
)
from treekit.kernels.random_numbers import draw_integer
from treekit.kernels.records import BAD_NUMBER, TOLERANCE, Node, Rows, replace_split
from treekit.kernels.thresholds import READABLE_FLOAT32, round_decimal

# ---------------------------------------------------------------- search at a node

OBLIQUE = 5
LINEAR, COORDINATE, PRINCIPAL = 0, 1, 2
"""Methods to find directions; see `treekit.kernels.oblique_splits`."""

MAX_THRESHOLD_DIGITS = 17
"""Maximum number of significant digits tried for a readable threshold of a sum."""


@kernel
def project_rows(table, terms, threshold, ids, begin, end, sides):
    """Write the side of each of the rows ``ids[begin:end]`` to `sides`.

    Parameters
    ----------
    table : Table
    terms : (2 * terms,) int32
        Columns alternating with the bits of their float32 weights.
    threshold : float
    sides : (all rows,) unsigned
        Output, indexed by row number: the side, 0 or 1, or 2 if the row's sum is missing.
    """
    weights = terms.view(np.float32)
    for i in range(np.uint64(begin), np.uint64(end)):
        row = np.uint64(ids[i])
        total = 0.0
        for t in range(np.uint64(0), np.uint64(len(terms)), np.uint64(2)):
            feature = np.uint64(terms[t])
            weight = np.float64(weights[t + np.uint64(1)])
            total += weight * _decode_value(table, feature, table.codes[feature, row])
        side = 2
        if total == total:
            side = 0 if total <= threshold else 1
        sides[row] = side


@kernel
def _decode_value(table, feature, code):
    """Return the number behind a code of an exactly coded column; NaN = missing."""
    if np.uint32(code) == table.n_codes[feature]:
        return np.nan
    return table.low[np.uint64(table.value_start[feature]) + np.uint64(code)]


@kernel
def find_oblique_split(node, scratch, criterion, rng, best_split):
    """Find the best split of one node, on single columns or on sums of them.

    Arguments are those of `treekit.kernels.axis_splits.find_axis_split`.
    """
    search_columns(node, scratch, criterion, True, None, None, best_split)
    search_sums(node, scratch, make_scorer(criterion, scratch.scan), best_split[0])


@kernel
def search_sums(node, scratch, scorer, split):
    """Find a split on a sum of columns that beats the best split on a single one.

    A sum wins only if it scores higher by more than the tolerance for ties, to keep
    trees readable.  It uses only columns that were tried at the node.
    ``scratch.options`` holds

    method
        `LINEAR`, `COORDINATE` or `PRINCIPAL`.
    terms
        Maximum number of columns in a sum.
    restarts
        `COORDINATE`: random restarts, in addition to the best single column.
    digits
        Significant decimal digits of the weights; with readable thresholds at most as
        many, see `_shorten_split`.
    ridge
        `LINEAR`: penalty on squared standardised weights.

    and the terms are written to ``scratch.levels`` in the form that `project_rows` reads.

    Cost: rows x columns squared for `LINEAR` and `PRINCIPAL`; for every
    direction tried a sort of the rows.
    """
    options = scratch.options
    method, most_terms = np.int64(options[0]), np.int64(options[1])
    restarts, digits, ridge = np.int64(options[2]), np.int64(options[3]), options[4]
    columns = _list_tried_columns(node, scratch.features)
    if len(columns) < 2 or split.kind < 0:
        return
    x = _decode_columns(node, columns)
    centers, scales = _compute_scales(x, node.rows.values)
    varying = np.flatnonzero(scales > 0.0)
    if len(varying) < 2:
        return
    columns, x, centers, scales = columns[varying], x[varying], centers[varying], scales[varying]
    directions = _find_directions(
        node, scratch, scorer, x, centers, scales, method, most_terms, restarts, ridge
    )
    keys = np.empty(x.shape[1])
    best_cut = np.empty(4)
    for i in range(np.uint64(len(directions))):
        weights = _round_weights(directions[i], scales, digits)
        if np.count_nonzero(weights) < 2:
            continue
        _sum_columns(x, weights, keys)
        find_best_cut(node, keys, scorer, scratch.start, scratch.best, best_cut)
        if best_cut[0] != best_cut[0]:
            split.kind = BAD_NUMBER
            return
        slack = TOLERANCE * max(abs(split.score), node.impurity)
        if split.kind != 0 and not best_cut[0] > split.score + slack:
            continue
        if best_cut[0] > -np.inf and best_cut[0] < np.inf:
            low, high = best_cut[1], best_cut[2]
            middle = low + (high - low) / 2.0
            threshold = middle if middle < high else low
            if node.rules.placement >= READABLE_FLOAT32:
                threshold = _shorten_split(
                    directions[i], scales, digits, x, keys, weights, threshold
                )
            _write_split(columns, weights, threshold, best_cut, scratch.levels, split)


@kernel
def _list_tried_columns(node, features):
    """Return the numeric columns that `search_columns` tried, ascending.

    `features` is in the order in which `search_columns` left it.
    """
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
        if i < rows:  # a constant column does not count as a try
            tried += 1
            wanted[f] = table.nominal[f] == 0
    return np.flatnonzero(wanted)


@kernel
def _decode_columns(node, columns):
    """Return (columns, rows) float64: values of the node's rows; NaN = missing or infinite."""
    table, ids = node.table, node.rows.ids
    x = np.empty((len(columns), len(ids)))
    for j in range(np.uint64(len(columns))):
        feature = np.uint64(columns[j])
        codes = table.codes[feature]
        for i in range(np.uint64(len(ids))):
            value = _decode_value(table, feature, codes[np.uint64(ids[i])])
            x[j, i] = value if abs(value) < np.inf else np.nan
    return x


@kernel
def _compute_scales(x, values):
    """Return mean and standard deviation of the known values of each row of `x`; 0 if constant."""
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
def _find_directions(
    node, scratch, scorer, x, centers, scales, method, most_terms, restarts, ridge
):
    """Return (directions, columns) float64: sparse weights of standardised columns."""
    z = np.empty(x.shape)
    for j in range(np.uint64(len(x))):
        for i in range(np.uint64(x.shape[1])):
            known = x[j, i] == x[j, i]
            z[j, i] = (x[j, i] - centers[j]) / scales[j] if known else 0.0
    if method == LINEAR:
        return fit_linear_directions(
            z, node.rows.cells, node.rows.values, node.stats, most_terms, ridge
        )
    if method == PRINCIPAL:
        return find_principal_axes(z, node.rows.values, most_terms)
    return search_coordinates(
        z, node, scorer, scratch.start, scratch.best, scratch.state, most_terms, restarts
    )


@kernel
def _round_weights(direction, scales, digits):
    """Return weights of the raw columns as float32 with few decimal digits, the largest 1."""
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
def _sum_columns(x, weights, keys):
    """Compute the sum of each row, as `project_rows` does."""
    keys[:] = 0.0
    for j in range(np.uint64(len(weights))):
        if weights[j] != 0.0:
            for i in range(np.uint64(len(keys))):
                keys[i] += weights[j] * x[j, i]


@kernel
def _shorten_split(direction, scales, digits, x, keys, weights, threshold):
    """Round weights and threshold to the fewest digits that keep the side of each row.

    Both get one digit, then two, and so on, the weights at most `digits`; the threshold
    is the number with so many digits that is nearest to the middle between the sides.

    Parameters
    ----------
    x : (columns, rows) float64
    keys : (rows,) float64
        Sums of the rows by `weights`; NaN = missing.
    weights : (columns,) float64
        Replaced in place.
    threshold : float

    Returns
    -------
    float
        The threshold for the new weights.
    """
    sums = np.empty(len(keys))
    for used in range(1, MAX_THRESHOLD_DIGITS + 1):
        rounded = _round_weights(direction, scales, min(used, digits))
        _sum_columns(x, rounded, sums)
        low, high = -np.inf, np.inf
        for i in range(np.uint64(len(keys))):
            if keys[i] <= threshold:
                low = max(low, sums[i])
            elif keys[i] > threshold:
                high = min(high, sums[i])
        if not low < high:
            continue
        # Digits count from the larger side, so that 0 is as short as any number.
        first = np.int64(math.floor(math.log10(max(abs(low), abs(high)))))
        placed = round_decimal(low + (high - low) / 2.0, used - 1 - first) + 0.0  # not -0.0
        if low <= placed < high:
            weights[:] = rounded
            return placed
    return threshold


@kernel
def _write_split(columns, weights, threshold, best_cut, levels, split):
    """Write an oblique split to the output of the search."""
    bits = levels.view(np.float32)
    at = np.uint64(0)
    for j in range(np.uint64(len(columns))):
        if weights[j] != 0.0:
            levels[at] = np.int32(columns[j])
            bits[at + np.uint64(1)] = np.float32(weights[j])
            at += np.uint64(2)
    replace_split(split, OBLIQUE, levels[0], best_cut[0], 0)
    split.levels, split.missing = np.int64(at), np.int64(best_cut[3])
    split.threshold = threshold


# ---------------------------------------------------------------- directions
# Directions are sparse weights of standardised columns.
#
# Three methods: a regularised linear classifier (or regression), coordinate search
# with random restarts (Murthy, Kasif and Salzberg 1994, *A system for induction
# of oblique decision trees*), and the principal axes of the node's rows.

MAX_RESPONSES = 8
"""Maximum number of classes, or outputs, that are fitted one against the rest; the heaviest."""

MAX_AXES = 4
MAX_SEARCH_ROWS = 2000
"""Maximum number of a node's rows on which coordinate search works; the cut uses all rows."""

MAX_WEIGHT_CHANGES = 50
"""Maximum number of weight changes per start."""


@kernel
def fit_linear_directions(z, cells, values, stats, most_terms, ridge):
    """Fit ridge regressions of each class's membership, or of the target, on few columns.

    Columns enter one by one, each time the one with the highest correlation with the
    residual (orthogonal matching pursuit, Pati et al. 1993), so that sums of two
    columns and more are all offered.

    Parameters
    ----------
    z : (columns, rows) float64
        Standardised; 0 = missing.
    cells, values, stats : arrays
        Of the node; see `treekit.kernels.records`.

    Returns
    -------
    (directions, columns) float64
    """
    gram = _compute_gram(z, values)
    responses = _make_responses(cells, values, stats)
    d = len(z)
    most = min(most_terms, d)
    directions = np.zeros((len(responses) * max(most - 1, 0), d))
    made = np.uint64(0)
    for k in range(np.uint64(len(responses))):
        corr = _correlate_columns(z, values, responses[k])
        chosen = np.empty(0, np.int64)
        coefficients = np.zeros(d)
        for size in range(1, most + 1):
            left = np.abs(corr - multiply_by_vector(gram, coefficients))
            left[chosen] = -1.0
            chosen = np.sort(np.append(chosen, np.argmax(left)))
            submatrix = np.empty((size, size))
            for a in range(np.uint64(size)):
                for b in range(np.uint64(size)):
                    submatrix[a, b] = gram[np.uint64(chosen[a]), np.uint64(chosen[b])]
                submatrix[a, a] += ridge
            coefficients[chosen] = solve(submatrix, corr[chosen])
            if size > 1:
                directions[made] = coefficients
                made += np.uint64(1)
    return directions


@kernel
def find_principal_axes(z, values, most_terms):
    """Return the axes of largest variance, each reduced to its largest loadings.

    They are the left singular vectors of the weighted rows, computed as the
    eigenvectors of their Gram matrix.  Parameters are those of `fit_linear_directions`.
    """
    axes = find_eigenvectors(_compute_gram(z, values))
    d = len(z)
    count = min(d, MAX_AXES)
    directions = np.zeros((count, d))
    for k in range(np.uint64(count)):
        axis = axes[k]
        largest = np.argsort(-np.abs(axis))[:most_terms]
        for j in largest:
            directions[k, np.uint64(j)] = axis[np.uint64(j)]
    return directions


@kernel
def _compute_gram(z, values):
    """Return (columns, columns) float64: weighted mean products of standardised columns."""
    weights = np.ascontiguousarray(values[:, 0])
    return compute_weighted_gram(z, weights / weights.sum())


@kernel
def _make_responses(cells, values, stats):
    """Return (responses, rows) float64: the regression targets of the directions."""
    if len(cells) == 0:
        count = min(values.shape[1] - 1, MAX_RESPONSES)
        responses = np.empty((count, len(values)))
        for k in range(np.uint64(count)):
            responses[k] = values[:, np.int64(k) + 1] / values[:, 0]
        return responses
    present = np.count_nonzero(stats)
    count = 1 if present == 2 else min(present, MAX_RESPONSES)
    heaviest = np.argsort(-stats, kind="mergesort")
    responses = np.zeros((count, len(cells)))
    for k in range(np.uint64(count)):
        for i in range(np.uint64(len(cells))):
            responses[k, i] = 1.0 if np.int64(cells[i]) == heaviest[k] else 0.0
    return responses


@kernel
def _correlate_columns(z, values, response):
    """Return (columns,) float64: weighted mean products with the centred response."""
    weights = np.ascontiguousarray(values[:, 0])
    weights = weights / weights.sum()
    return multiply_by_vector(z, weights * (response - (weights * response).sum()))


@kernel
def search_coordinates(z, node, scorer, start, best, state, most_terms, restarts):
    """Improve one weight at a time towards a better split (OC1, section 3.1).

    A step (`treekit.kernels.oblique_splits.find_best_weight`) turns the cut about
    the mean of one column; the threshold is then chosen again.

    Parameters
    ----------
    z, most_terms
        As in `fit_linear_directions`.
    node, scorer, start, best
        See `treekit.kernels.oblique_splits.find_best_cut`.
    state : (1,) uint64
        State of the random number generator.
    restarts : int
        Random restarts, in addition to the best single column.

    Returns
    -------
    (restarts + 1, columns) float64
    """
    sample = np.arange(0, z.shape[1], 1 + z.shape[1] // MAX_SEARCH_ROWS)
    node = _sample_node(node, sample)
    p = np.empty((len(z), len(sample)))
    for j in range(np.uint64(len(z))):
        for i in range(np.uint64(len(sample))):
            p[j, i] = z[j, np.uint64(sample[i])]
    directions = np.empty((restarts + 1, len(z)))
    for k in range(np.uint64(restarts + 1)):
        weights = np.zeros(len(z))
        if k == np.uint64(0):
            weights[np.uint64(_find_best_column(p, node, scorer, start, best))] = 1.0
        else:
            for _ in range(most_terms):
                weights[np.uint64(_draw_uniform(state) * len(z))] = 2.0 * _draw_uniform(state) - 1.0
        _improve_weights(p, weights, node, scorer, start, best, most_terms)
        directions[k] = weights
    return directions


@kernel
def _sample_node(node, sample):
    """Return the node with some of its rows, and with limits and statistics in proportion."""
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
        node.table, few, stats, weight, node.impurity, node.depth, limit, node.n_try, node.rules,
        node.quantile,
    )  # fmt: skip


@kernel
def _find_best_column(p, node, scorer, start, best):
    """Return the column with the best cut."""
    best_cut = np.empty(4)
    chosen, score = 0, -np.inf
    for j in range(np.uint64(len(p))):
        find_best_cut(node, p[j], scorer, start, best, best_cut)
        if best_cut[np.uint64(0)] > score:
            chosen, score = np.int64(j), best_cut[np.uint64(0)]
    return chosen


@kernel
def _improve_weights(p, weights, node, scorer, start, best, most_terms):
    """Improve `weights` in place, one best change at a time, until no change helps."""
    best_cut = np.empty(4)
    sums = np.zeros(p.shape[1])
    for j in range(np.uint64(len(p))):
        sums += weights[j] * p[j]
    find_best_cut(node, sums, scorer, start, best, best_cut)
    score, bound = best_cut[np.uint64(0)], (best_cut[np.uint64(1)] + best_cut[np.uint64(2)]) / 2.0
    if not score > -np.inf:
        return
    for _ in range(MAX_WEIGHT_CHANGES):
        chosen, bar, weight = np.int64(-1), score * (1.0 + 1e-9), 0.0
        for m in range(np.uint64(len(p))):
            if weights[m] == 0.0 and np.count_nonzero(weights) >= most_terms:
                continue
            rest = sums - weights[m] * p[m]
            find_best_weight(node, rest, bound, p[m], scorer, start, best, best_cut)
            if best_cut[np.uint64(0)] > bar:
                bar, chosen, weight = best_cut[np.uint64(0)], np.int64(m), best_cut[np.uint64(1)]
        if chosen < 0:
            return
        m = np.uint64(chosen)
        sums += (weight - weights[m]) * p[m]
        weights[m] = weight
        find_best_cut(node, sums, scorer, start, best, best_cut)
        bound = (best_cut[np.uint64(1)] + best_cut[np.uint64(2)]) / 2.0
        score = max(bar, best_cut[np.uint64(0)])


@kernel
def _draw_uniform(state):
    """Draw a number from [0, 1)."""
    return np.float64(draw_integer(state) >> np.uint64(11)) * 2.0**-53


# ---------------------------------------------------------------- cuts along a direction


@kernel
def find_best_cut(node, keys, scorer, start, best, best_cut):
    """Find the best cut of a node's rows along their `keys` (rows,); NaN = unknown.

    Parameters
    ----------
    best_cut : (4,) float64
        Output: the score (-inf: no cut; NaN: the criterion's score was not finite),
        the keys on either side of the cut, and the branch of unknown rows.
    """
    rows, stats = node.rows, node.stats
    order = np.argsort(keys)
    compact = np.zeros((len(keys) + 1, len(stats)))
    value = np.empty(len(keys) + 1)
    groups, known_weight = _sum_groups(keys, order, rows.cells, rows.values, compact, value)
    best_cut[np.uint64(0)] = -np.inf
    if groups < 2:
        return
    at_end = np.uint64(groups)
    unknown = compact[at_end]
    lost = unknown.any()
    share, totals = 1.0, stats.copy()
    if lost and node.rules.known_only:
        share, totals, lost = known_weight / node.weight, stats - unknown, False
    for side in range(1, -1, -1):
        if side == 0 and not lost:
            break
        start[:] = 0.0
        if side == 0:
            start[:] = unknown
        at = scan_cuts(
            scorer, compact, groups - 1, start, totals, node.min_weight_leaf,
            len(rows.cells) == 0, node.impurity, node.rules.tolerance, best,
        )  # fmt: skip
        if at == -2:
            best_cut[np.uint64(0)] = np.nan
            return
        if at < 0 or not best[np.uint64(0)] * share > best_cut[np.uint64(0)]:
            continue
        best_cut[np.uint64(0)] = best[np.uint64(0)] * share
        best_cut[np.uint64(1)] = value[np.uint64(at)]
        best_cut[np.uint64(2)] = value[np.uint64(at + 1)]
        branch = side
        if not lost:
            branch = 0 if 2.0 * best[np.uint64(1)] >= known_weight else 1
        best_cut[np.uint64(3)] = branch


@kernel
def _sum_groups(keys, order, cells, values, compact, value):
    """Sum the statistics of the rows of each distinct key, ascending, and then of unknown rows.

    Returns the number of keys and the weight of their rows.
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
        _add_signed_row(compact[at], cells, values, row, 1.0)
    return groups, known_weight


@kernel
def find_best_weight(node, rest, bound, z, scorer, start, best, best_weight):
    """Find the best weight ``a`` in ``rest + a * z <= bound``, with all other weights fixed.

    Row i changes sides at ``U_i = (bound - rest_i) / z_i``: it leaves the left side as
    `a` grows if z is positive, and joins it if z is negative (Murthy, Kasif and Salzberg
    1994, section 3.1, where all are positive).  So the rows that change sides are
    scanned with a sign.

    Parameters
    ----------
    rest, z : (rows,) float64
    best_weight : (2,) float64
        Output: the score (-inf: none; NaN: the criterion's score was not finite) and
        the weight.
    """
    cells, values = node.rows.cells, node.rows.values
    keys = np.empty(len(z))
    start[:] = 0.0
    for i in range(np.uint64(len(z))):
        keys[i] = (bound - rest[i]) / z[i] if z[i] != 0.0 else np.nan
        if z[i] > 0.0 or (z[i] == 0.0 and rest[i] <= bound):
            _add_signed_row(start, cells, values, i, 1.0)
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
        _add_signed_row(compact[np.uint64(groups - 1)], cells, values, row, sign)
    best_weight[np.uint64(0)] = -np.inf
    if groups < 2:
        return
    totals = node.stats.copy()
    at = scan_cuts(
        scorer, compact, groups - 1, start, totals, node.min_weight_leaf, len(cells) == 0,
        node.impurity, node.rules.tolerance, best,
    )  # fmt: skip
    if at == -2:
        best_weight[np.uint64(0)] = np.nan
    elif at >= 0:
        best_weight[np.uint64(0)] = best[np.uint64(0)]
        best_weight[np.uint64(1)] = (value[np.uint64(at)] + value[np.uint64(at + 1)]) / 2.0


@kernel
def _add_signed_row(stats, cells, values, row, sign):
    """Add a row to `stats`, or subtract it."""
    if len(cells) > 0:
        stats[np.uint64(cells[row])] += sign * values[row, np.uint64(0)]
    else:
        for k in range(np.uint64(len(stats))):
            stats[k] += sign * values[row, k]
