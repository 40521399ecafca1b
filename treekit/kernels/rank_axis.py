"""The built-in splitters for a rank target: the best test of one column.

What `treekit.kernels.axis` does for statistics that add up, for those that do
not: each cut's sides are known from two sweeps over the column's rows.
"""

from __future__ import annotations

import math

import numpy as np

from treekit.kernels.axis import draw_column
from treekit.kernels.compile import inlined, kernel
from treekit.kernels.found import (
    AFTER,
    BAD_CHOICE,
    BAD_NUMBER,
    BAD_ORDER,
    BRANCHES,
    CUT,
    FEATURE,
    KIND,
    LEVELS,
    MISSING,
    MISSING_BRANCH,
    MULTIWAY,
    RANK,
    SCORE,
    SUBSET,
    THRESHOLD,
    THRESHOLD_VALUE,
    better,
    finite,
)
from treekit.kernels.lines import are_sparse, place_of
from treekit.kernels.pointers import borrowed
from treekit.kernels.rank_groups import ENDS, PLACES, STOPS, group_rows
from treekit.kernels.rank_levels import tell, try_branches
from treekit.kernels.rank_sweep import sweep
from treekit.kernels.ranks import lay_out, summarise
from treekit.kernels.tally import CODE_OF, ORDER, OTHER, order_by_key

__all__ = ["find_rank_axis"]


@kernel
def find_rank_axis(
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
    """Find the best split of one node; see `treekit.kernels.axis.find_axis`.

    Penalties and the limits of C4.5 (`treekit.kernels.node.Ways`) are of
    classes, and have no meaning here.

    Cost: tries x rows (see `treekit.kernels.rank_groups` and `rank_sweep`).
    """
    table, rows = node.table, node.rows
    codes, n_codes, nominal = table.codes, table.n_codes, table.nominal
    ids, values = rows.ids, rows.values
    stats, quantile = node.stats, node.quantile
    impurity, limit = node.impurity, node.min_weight_leaf
    known_only, empty = node.ways.known_only, node.ways.empty
    features, state, offers = scratch.features, scratch.state, scratch.offers
    counts, words = borrowed(scratch.counts), borrowed(scratch.words)
    work, compact, pair = borrowed(scratch.work), borrowed(scratch.compact), borrowed(scratch.pair)
    keys, best, levels = borrowed(scratch.keys), borrowed(scratch.best), borrowed(scratch.levels)
    sides, start = borrowed(scratch.ordered), borrowed(scratch.start)
    n_rows, all_codes = np.uint64(codes.shape[1]), borrowed(codes.reshape(codes.size))
    lines = borrowed(scratch.lines)
    sparse = are_sparse(np.uint64(len(ids)), n_rows, lines)
    n_features = np.uint64(len(n_codes))
    n_try = min(np.uint64(node.n_try), n_features)
    ends, code_of = work[np.uint64(ENDS)], work[np.uint64(CODE_OF)]
    size = np.uint64(len(ids))
    mass, place, trees = lay_out(values, quantile, start)
    if use_choose:
        for j in range(n_features):
            offers[np.uint64(0), j] = np.nan
            offers[np.uint64(1), j] = np.nan
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
            elif n_try < n_features:
                feature = draw_column(features, state, j)
            source, first, step = place_of(all_codes, lines, feature, n_rows, n_features, sparse)
            count = group_rows(source, first, step, ids, n_codes[feature], work, counts, words)
            if count == 1:
                continue
            tried += np.uint64(1)
            if use_choose:
                out[KIND] = 0
                numbers[SCORE] = -np.inf
            known = count
            if code_of[np.uint64(count - 1)] == n_codes[feature]:
                known -= 1
            if nominal[feature] > 0:
                for g in range(np.uint64(count)):
                    begin = ends[g - np.uint64(1)] if g > np.uint64(0) else 0
                    summarise(values, work[np.uint64(ORDER)], begin, ends[g], quantile, compact[g])
            if known_only and known < 2:
                continue
            if nominal[feature] == 2:
                try_branches(
                    many, known_only, empty, feature, n_codes[feature], known, count, size,
                    stats, limit, impurity, values, quantile, work, compact, levels, best,
                    out, numbers,
                )  # fmt: skip
            else:
                _try_cuts(
                    scan, key, n_keys if nominal[feature] == 1 else 0, known_only, feature,
                    n_codes[feature], known, count, size, stats, limit, impurity, quantile,
                    mass, place, trees, start, work, words, compact, keys, sides, pair, levels,
                    best, out, numbers,
                )  # fmt: skip
            if out[KIND] < 0 or chosen >= 0:
                return
            if use_choose and out[KIND] > 0:
                own = compact[:known] if out[KIND] == MULTIWAY else pair
                offers[np.uint64(0), feature] = numbers[SCORE]
                offers[np.uint64(1), feature] = many(stats, own, 1)
                if not finite(offers[np.uint64(1), feature]):
                    tell(best, own[0])
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
def _try_cuts(
    scan,
    key,
    n_keys,
    known_only,
    feature,
    codes_in_all,
    known,
    count,
    size,
    stats,
    limit,
    impurity,
    quantile,
    mass,
    place,
    trees,
    start,
    work,
    words,
    compact,
    keys,
    sides,
    pair,
    levels,
    best,
    out,
    numbers,
):
    """Cuts of a column into two, as in `treekit.kernels.cuts`."""
    first_of, zero, one, two = work[np.uint64(CODE_OF)], np.uint64(0), np.uint64(1), np.uint64(2)
    order, stops, places = work[np.uint64(ORDER)], work[np.uint64(ENDS)], work[np.uint64(PLACES)]
    for attempt in range(max(n_keys, 1)):
        if n_keys > 0:
            key(compact, known, attempt, keys)
            for j in range(np.uint64(known)):
                if not finite(keys[j]):
                    tell(best, compact[j])
                    out[KIND] = BAD_ORDER
                    return
            order_by_key(keys, known, places)  # equal keys stay in the order of codes
            order, stops = work[np.uint64(OTHER)], work[np.uint64(STOPS)]
            _arrange(
                places, known, count, work[np.uint64(ORDER)], work[np.uint64(ENDS)], order, stops
            )
        for side in range(1, -1, -1):
            if side == 0 and (count == known or known < 2 or known_only):
                break
            apart = known_only and count > known
            last = known - 1 if apart or side == 0 else count - 1
            aside = known if apart or side == 0 else -1
            sweep(
                mass, place, size, quantile, start, order, stops, aside, not apart, last,
                words, trees, sides,
            )  # fmt: skip
            totals = sides[two * np.uint64(last)] if apart else stats
            at = scan(sides, last, totals, totals, limit, impurity, best)
            if at == -2:
                out[KIND] = BAD_NUMBER
                return
            rank = (np.int64(attempt) << 32) + at
            score = best[zero] * totals[zero] / stats[zero]
            if at < 0 or not better(score, np.int64(feature), rank, impurity, out, numbers):
                continue
            out[FEATURE], out[BRANCHES], out[LEVELS] = np.int64(feature), 2, 0
            out[CUT], out[RANK], out[MISSING_BRANCH] = 0, rank, side
            numbers[SCORE] = score
            row = two * np.uint64(at)
            for k in range(np.uint64(4)):
                pair[zero, k], pair[one, k] = sides[row, k], sides[row + one, k]
            if at == known - 1 and not apart:  # all known values left, missing right
                out[KIND] = MISSING
                out[MISSING_BRANCH] = 0
                continue
            if count == known or apart:  # no missing row to learn from: the heavier branch
                out[MISSING_BRANCH] = 0 if pair[zero, zero] >= pair[one, zero] else 1
            if n_keys == 0:
                out[KIND] = THRESHOLD
                out[CUT] = np.int64(first_of[np.uint64(at)])
                out[AFTER] = np.int64(first_of[np.uint64(at + 1)])
                continue
            out[KIND], out[LEVELS] = SUBSET, np.int64(codes_in_all)
            for level in range(np.uint64(out[LEVELS])):
                levels[level] = -1
            for j in range(np.uint64(known)):
                level = np.uint64(first_of[np.uint64(places[j])])
                levels[level] = 0 if np.int64(j) <= at else 1


@kernel
def _arrange(places, known, count, order, ends, arranged, stops):
    """Groups of rows in the order of `places`; a group that it does not name stays last."""
    zero, one = np.uint64(0), np.uint64(1)
    to = zero
    for j in range(np.uint64(count)):
        group = np.uint64(places[j]) if j < np.uint64(known) else j
        begin = np.uint64(ends[group - one]) if group > zero else zero
        for i in range(begin, np.uint64(ends[group])):
            arranged[to] = order[i]
            to += one
        stops[j] = np.uint32(to)
