"""The built-in splitters: the best test of one column, over the columns tried.

`find_axis` serves the exact and the histogram splitter alike: they differ only
in how columns were coded.

Records are taken apart once, at the top: each access to a field costs compile
time for all fields of its record.
"""

from __future__ import annotations

import math

import numpy as np

from treekit.kernels.compile import inlined, kernel
from treekit.kernels.cuts import try_cuts, weight_of
from treekit.kernels.found import (
    BAD_CHOICE,
    BAD_NUMBER,
    KIND,
    MULTIWAY,
    SCORE,
    SHRINK,
    THRESHOLD_VALUE,
    finite,
)
from treekit.kernels.levels import try_branches, try_single_levels
from treekit.kernels.lines import are_sparse, place_of
from treekit.kernels.monotonic import CUTS, SIGN
from treekit.kernels.pointers import borrowed
from treekit.kernels.sides import lanes_of
from treekit.kernels.tally import CODE_OF, ORDER, tally

__all__ = ["draw_column", "find_axis", "find_axis_of_numbers", "side_limit"]


@kernel
def find_axis(
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
    """Find the best split of one node.

    Parameters
    ----------
    node : Node
    scratch : Scratch
    scan, many, key, choose, penalty : pointers
        See `treekit.grow.criterion`; key None = the search of levels is not compiled.
    n_keys : int
        Orderings of categories to try for subset splits.
    use_choose : bool
        Whether the criterion picks between features itself.
    use_penalty : bool
        Whether it takes something off the gain of a cut that was picked from many.
    score, rng
        For splitters that propose their own branches; not used here.
    out : (FOUND,) int64
    numbers : (NUMBERS,) float64
        Receive the split.

    Cost: tries x rows, plus tries x codes for large nodes.
    """
    table, rows = node.table, node.rows
    codes, n_codes = borrowed(table.codes), borrowed(table.n_codes)
    nominal = borrowed(table.nominal)
    ids, cells, values = borrowed(rows.ids), borrowed(rows.cells), borrowed(rows.values)
    stats, weight, impurity = borrowed(node.stats), node.weight, node.impurity
    limit = node.min_weight_leaf
    known_only, empty, resolution = node.ways.known_only, node.ways.empty, node.ways.resolution
    side, exact_levels, dense = node.ways.side, node.ways.exact_levels, len(cells) == 0
    by_score, tolerance = node.ways.levels_by_score, node.ways.tolerance
    features, state = borrowed(scratch.features), borrowed(scratch.state)
    offers, work, words = borrowed(scratch.offers), borrowed(scratch.work), borrowed(scratch.words)
    counts, flat = borrowed(scratch.counts), borrowed(scratch.flat)
    compact, ordered = borrowed(scratch.compact), borrowed(scratch.ordered)
    keys, start, best = borrowed(scratch.keys), borrowed(scratch.start), borrowed(scratch.best)
    pair, levels = borrowed(scratch.pair), borrowed(scratch.levels)
    n_rows, all_codes = np.uint64(codes.shape[1]), borrowed(codes.reshape(codes.size))
    lines = borrowed(scratch.lines)
    sparse = are_sparse(np.uint64(len(ids)), n_rows, lines)
    s = np.uint64(len(stats))
    n_features = np.uint64(len(n_codes))
    n_try = min(np.uint64(node.n_try), n_features)
    draw = n_try < n_features
    if use_choose:
        for j in range(n_features):
            offers[np.uint64(0), j] = np.nan
            offers[np.uint64(1), j] = np.nan
    lanes, packed = borrowed(scratch.lanes), borrowed(scratch.packed)
    width = lanes_of(cells, values, np.uint64(len(ids)), s, weight, lanes)
    chosen = np.int64(-1)
    while True:
        out[KIND] = 0
        numbers[THRESHOLD_VALUE] = np.nan
        numbers[SCORE] = -np.inf
        tried = np.uint64(0)
        for j in range(n_features):
            if tried == n_try:
                break
            feature = j
            if chosen >= 0:
                feature = np.uint64(chosen)
            elif draw:
                feature = draw_column(features, state, j)
            codes_in_all = n_codes[feature]
            source, first, step = place_of(all_codes, lines, feature, n_rows, n_features, sparse)
            count = tally(
                source,
                first,
                step,
                codes_in_all,
                ids,
                cells,
                values,
                s,
                work,
                words,
                counts,
                flat,
                width,
                lanes,
                packed,
            )
            if count == 1:
                continue  # a constant column is no try, so that sparse tables still split
            tried += np.uint64(1)
            if use_choose:
                out[KIND] = 0
                numbers[SCORE] = -np.inf
            numbers[SHRINK] = 1.0
            known = count
            if work[np.uint64(CODE_OF), np.uint64(count - 1)] == codes_in_all:
                known -= 1
            way, done = np.uint8(0), False
            if key is not None:
                way = nominal[feature]
                if way == 2:
                    try_branches(
                        many,
                        best,
                        dense,
                        known_only,
                        empty,
                        feature,
                        codes_in_all,
                        known,
                        count,
                        stats,
                        limit,
                        impurity,
                        work,
                        compact,
                        levels,
                        out,
                        numbers,
                    )
                    done = True
            if not done:
                own_limit = limit
                first_of = work[np.uint64(CODE_OF)]
                if way == 0 and resolution > 0.0:
                    first_of = work[np.uint64(ORDER)]
                    start_of = table.value_start[feature]
                    groups = _merge_close(
                        table.low, table.high, start_of, resolution, known, count, s, work, flat
                    )
                    count -= known - groups
                    known = groups
                totals, known_weight = stats, weight
                if count > known:
                    missing = compact[np.uint64(known)]
                    known_weight = weight - weight_of(missing, dense)
                    if known_only:
                        # Cuts are those of the known rows: of the missing ones only
                        # what they leave to the others matters.
                        for k in range(s):
                            missing[k] = stats[k] - missing[k]
                        totals = missing
                if way == 0 and side > 0.0:
                    own_limit = side_limit(side * known_weight, limit)
                if key is not None:
                    if way == 3:
                        try_single_levels(
                            many,
                            best,
                            dense,
                            known_only,
                            by_score,
                            tolerance,
                            feature,
                            codes_in_all,
                            known,
                            count,
                            stats,
                            totals,
                            limit,
                            impurity,
                            work,
                            compact,
                            ordered[:2],
                            pair,
                            levels,
                            out,
                            numbers,
                        )
                        done = True
                if not done:
                    best[s + np.uint64(2 + SIGN)] = offers[np.uint64(3), feature]
                    best[s + np.uint64(2 + CUTS)] = known - 1
                    try_cuts(
                        scan,
                        key,
                        penalty,
                        n_keys if way > 0 else 0,
                        exact_levels,
                        use_penalty and way == 0,
                        dense,
                        known_only,
                        feature,
                        codes_in_all,
                        known,
                        count,
                        totals,
                        weight,
                        known_weight,
                        own_limit,
                        impurity,
                        work,
                        first_of,
                        compact,
                        ordered,
                        keys,
                        start,
                        best,
                        pair,
                        levels,
                        out,
                        numbers,
                    )
            if out[KIND] < 0 or chosen >= 0:
                return
            if use_choose and out[KIND] > 0:
                offers[np.uint64(0), feature] = numbers[SCORE]
                sides = pair
                if out[KIND] == MULTIWAY:
                    sides = compact[:known]
                final = many(stats, sides, 1) * numbers[SHRINK]
                offers[np.uint64(1), feature] = final
                if not finite(final):
                    for k in range(s):
                        best[k + np.uint64(2)] = sides[np.uint64(0), k]
                    out[KIND] = BAD_NUMBER
                    return
        if not use_choose:
            return
        chosen = choose(offers[0], offers[1], offers[2])
        if chosen < 0 or chosen >= np.int64(n_features):
            out[KIND] = 0 if chosen == -1 else BAD_CHOICE
            return
        if math.isnan(offers[np.uint64(0), np.uint64(chosen)]):
            out[KIND] = BAD_CHOICE
            return


@inlined
def draw_column(features, state, j):
    """Column j of a random permutation (Fisher and Yates).

    The generator is splitmix64 (Steele, Lea and Flood 2014): numpy's own
    costs a second of compile time.
    """
    state[np.uint64(0)] += np.uint64(0x9E3779B97F4A7C15)
    z = state[np.uint64(0)]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = (z ^ (z >> np.uint64(31))) >> np.uint64(32)
    pick = j + ((z * (np.uint64(len(features)) - j)) >> np.uint64(32))
    feature = features[pick]
    features[pick] = features[j]
    features[j] = feature
    return np.uint64(feature)


@inlined
def side_limit(wanted, limit):
    """C4.5's least weight on either side of a numeric cut (Quinlan 1993, p. 25; release 8).

    Compared with a tolerance: a tenth of a weight is rarely a whole number.
    """
    if wanted <= limit:
        return limit
    return min(wanted, 25.0) * (1.0 - 1e-7)


@inlined
def _merge_close(low, high, start_of, resolution, known, count, s, work, flat):
    """Let groups of neighbouring values count as one code; returns how many there are.

    The code of a group is its last one; its first is in ``work[ORDER]``.
    Missing rows stay behind the last group.
    """
    code_of, first_of = work[np.uint64(CODE_OF)], work[np.uint64(ORDER)]
    one = np.uint64(1)
    base = np.uint64(start_of)
    at = np.uint64(0)
    first_of[at] = code_of[at]
    for j in range(one, np.uint64(count)):
        code = code_of[j]
        lost = j == np.uint64(known)
        if lost or low[base + np.uint64(code)] > high[base + np.uint64(code_of[at])] + resolution:
            at += one
            first_of[at] = code
            for k in range(s):
                flat[at * s + k] = flat[j * s + k]
        else:
            for k in range(s):
                flat[at * s + k] += flat[j * s + k]
        code_of[at] = code
    return np.int64(at) + 1 - (count - known)


@kernel
def find_axis_of_numbers(
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
    """Search a table without nominal columns; the search of levels is not compiled.

    `key` is not called: trees of any table take the same `treekit.kernels.grow.grow`.
    """
    find_axis(
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
