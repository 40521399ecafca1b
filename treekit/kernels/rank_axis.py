"""The built-in splitters for a rank target: the best test of one column.

What `treekit.kernels.axis` does for statistics that add up, for those that do
not: each cut's sides are known from two sweeps over the column's rows.
"""

from __future__ import annotations

import math

import numpy as np

from treekit.kernels.axis import draw_column
from treekit.kernels.compile import kernel
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
from treekit.kernels.ranks import needs_tree, summarise, sweep
from treekit.kernels.tally import CODE_OF, CODES, ORDER, OTHER, order_by_key, sorted_positions

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

    Cost: tries x rows x log(rows) for the sort of a column's codes, else
    linear in the rows (see `treekit.kernels.ranks.sweep`).
    """
    table, rows = node.table, node.rows
    codes, n_codes, nominal = table.codes, table.n_codes, table.nominal
    ids, values = rows.ids, rows.values
    stats, quantile = node.stats, node.quantile
    features, state, offers = scratch.features, scratch.state, scratch.offers
    work, compact, pair = scratch.work, scratch.compact, scratch.pair
    n_features = np.uint64(len(n_codes))
    n_try = min(np.uint64(node.n_try), n_features)
    tree = np.empty((len(ids) + 1 if needs_tree(values) else 0, 2))
    ends = np.empty((2, len(ids) + 1), np.uint32)
    links = np.empty((len(ids) + 2, 2), np.uint32)
    sides = np.empty((2 * len(ids) + 3, 4))
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
            count = _group(codes[feature], ids, work, scratch.counts, ends[0])
            if count == 1:
                continue
            tried += np.uint64(1)
            if use_choose:
                out[KIND] = 0
                numbers[SCORE] = -np.inf
            known = count
            if work[np.uint64(CODE_OF), np.uint64(count - 1)] == n_codes[feature]:
                known -= 1
            if nominal[feature] > 0:
                for g in range(np.uint64(count)):
                    begin = ends[np.uint64(0), g - np.uint64(1)] if g > np.uint64(0) else 0
                    end = ends[np.uint64(0), g]
                    summarise(values, work[ORDER], begin, end, quantile, compact[g])
            if node.ways.known_only and known < 2:
                continue
            if nominal[feature] == 2:
                _try_branches(many, node, scratch, feature, known, count, ends[0], out, numbers)
            else:
                _try_cuts(
                    scan, key, n_keys if nominal[feature] == 1 else 0, node, scratch, feature,
                    known, count, ends, links, sides, tree, out, numbers,
                )  # fmt: skip
            if out[KIND] < 0 or chosen >= 0:
                return
            if use_choose and out[KIND] > 0:
                best = compact[:known] if out[KIND] == MULTIWAY else pair
                offers[np.uint64(0), feature] = numbers[SCORE]
                offers[np.uint64(1), feature] = many(stats, best, 1)
                if not finite(offers[np.uint64(1), feature]):
                    _tell(scratch.best, best[0])
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


@kernel
def _tell(best, stats):
    """Leave statistics where the error about a NaN finds them."""
    for k in range(np.uint64(4)):
        best[k + np.uint64(2)] = stats[k]


@kernel
def _group(codes, ids, work, counts, ends):
    """Sort a node's rows by code; returns how many groups there are.

    Their positions go to ``work[ORDER]``, each group's in the order of rows,
    its end to `ends` and its code to ``work[CODE_OF]``.
    """
    buffer, order, code_of = work[CODES], work[ORDER], work[CODE_OF]
    m = np.uint64(len(ids))
    lowest, highest = np.uint32(0xFFFFFFFF), np.uint32(0)
    for i in range(m):
        code = np.uint32(codes[ids[i]])
        buffer[i] = code
        lowest = min(lowest, code)
        highest = max(highest, code)
    if lowest == highest:
        return 1
    sorted_positions(buffer, order, work[OTHER], counts, m, lowest, highest)
    count = np.uint64(0)
    for j in range(m):
        code = buffer[np.uint64(order[j])]
        if j == np.uint64(0) or code != code_of[count - np.uint64(1)]:
            code_of[count] = code
            count += np.uint64(1)
        ends[count - np.uint64(1)] = np.uint32(j + np.uint64(1))
    return np.int64(count)


@kernel
def _try_cuts(
    scan,
    key,
    n_keys,
    node,
    scratch,
    feature,
    known,
    count,
    ends,
    links,
    sides,
    tree,
    out,
    numbers,
):
    """Cuts of a column into two, as in `treekit.kernels.axis`."""
    values, stats, quantile = node.rows.values, node.stats, node.quantile
    known_only = node.ways.known_only
    work, compact, keys, pair, best = (
        scratch.work, scratch.compact, scratch.keys, scratch.pair, scratch.best,
    )  # fmt: skip
    code_of, zero, one, two = work[CODE_OF], np.uint64(0), np.uint64(1), np.uint64(2)
    order, stops = work[ORDER][: len(values)], ends[0]
    places = np.empty(known if n_keys > 0 else 0, np.uint32)
    for attempt in range(max(n_keys, 1)):
        if n_keys > 0:
            key(compact, known, attempt, keys)
            for j in range(np.uint64(known)):
                if not finite(keys[j]):
                    _tell(best, compact[j])
                    out[KIND] = BAD_ORDER
                    return
            order_by_key(keys, known, places)  # equal keys stay in the order of codes
            order, stops = work[OTHER][: len(values)], ends[1]
            _arrange(places, count, work[ORDER], ends[0], order, stops)
        for side in range(1, -1, -1):
            if side == 0 and (count == known or known < 2 or known_only):
                break
            apart = known_only and count > known
            last = known - 1 if apart or side == 0 else count - 1
            lost = known if apart or side == 0 else -1
            sweep(values, quantile, order, stops, lost, True, last, links, sides, tree)
            lost = known if apart else -1
            sweep(values, quantile, order, stops, lost, False, last, links, sides, tree)
            totals = sides[two * np.uint64(last)] if apart else stats
            at = scan(sides, last, totals, totals, node.min_weight_leaf, node.impurity, best)
            if at == -2:
                out[KIND] = BAD_NUMBER
                return
            rank = (np.int64(attempt) << 32) + at
            score = best[zero] * totals[zero] / stats[zero]
            if at < 0 or not better(score, np.int64(feature), rank, node.impurity, out, numbers):
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
                out[CUT] = np.int64(code_of[np.uint64(at)])
                out[AFTER] = np.int64(code_of[np.uint64(at + 1)])
                continue
            out[KIND], out[LEVELS] = SUBSET, np.int64(node.table.n_codes[feature])
            for level in range(np.uint64(out[LEVELS])):
                scratch.levels[level] = -1
            for j in range(np.uint64(known)):
                level = np.uint64(code_of[np.uint64(places[j])])
                scratch.levels[level] = 0 if np.int64(j) <= at else 1


@kernel
def _arrange(places, count, order, ends, arranged, stops):
    """Groups of rows in the order of `places`; a group that it does not name stays last."""
    zero, one = np.uint64(0), np.uint64(1)
    to = zero
    for j in range(np.uint64(count)):
        group = np.uint64(places[j]) if j < np.uint64(len(places)) else j
        begin = np.uint64(ends[group - one]) if group > zero else zero
        for i in range(begin, np.uint64(ends[group])):
            arranged[to] = order[i]
            to += one
        stops[j] = np.uint32(to)


@kernel
def _try_branches(many, node, scratch, feature, known, count, ends, out, numbers):
    """One branch for each level, as in `treekit.kernels.axis`."""
    compact, work, stats = scratch.compact, scratch.work, node.stats
    values, quantile, ways = node.rows.values, node.quantile, node.ways
    zero, one = np.uint64(0), np.uint64(1)
    heaviest, enough = zero, 0
    for j in range(np.uint64(known)):
        if compact[j, zero] > compact[heaviest, zero]:
            heaviest = j
        enough += 1 if compact[j, zero] >= node.min_weight_leaf else 0
    if known < 2 or enough < 2:
        return
    totals, last = stats, np.uint64(known) - one
    if count > known and ways.known_only:
        totals = compact[np.uint64(known)]  # of the missing rows nothing else is asked
        _all_but(work[ORDER], ends[last], len(values), work[OTHER])
        summarise(values, work[OTHER], 0, ends[last], quantile, totals)
    elif count > known:
        _join(work[ORDER], ends, heaviest, np.uint64(known), work[OTHER])
        first = ends[heaviest - one] if heaviest > zero else 0
        size = ends[heaviest] - first + ends[last + one] - ends[last]
        summarise(values, work[OTHER], 0, size, quantile, compact[heaviest])
    score = many(totals, compact[:known], 0) * totals[zero] / stats[zero]
    if not finite(score):
        _tell(scratch.best, compact[0])
        out[KIND] = BAD_NUMBER
        return
    if not better(score, np.int64(feature), np.int64(0), node.impurity, out, numbers):
        return
    out[KIND], out[FEATURE], out[CUT], out[RANK] = MULTIWAY, np.int64(feature), 0, 0
    out[MISSING_BRANCH], out[BRANCHES] = np.int64(heaviest), known
    out[LEVELS] = np.int64(node.table.n_codes[feature])
    numbers[SCORE] = score
    for level in range(np.uint64(out[LEVELS])):
        scratch.levels[level] = np.int32(level) if ways.empty else -1
    if ways.empty:
        out[MISSING_BRANCH] = np.int64(work[np.uint64(CODE_OF), heaviest])
        out[BRANCHES] = out[LEVELS]
        return
    for j in range(np.uint64(known)):
        scratch.levels[np.uint64(work[np.uint64(CODE_OF), j])] = np.int32(j)


@kernel
def _all_but(order, known, rows, kept):
    """The first `known` positions of `order`, ascending."""
    there = np.zeros(rows, np.bool_)
    for j in range(np.uint64(known)):
        there[np.uint64(order[j])] = True
    to = np.uint64(0)
    for i in range(np.uint64(rows)):
        if there[i]:
            kept[to] = np.uint32(i)
            to += np.uint64(1)


@kernel
def _join(order, ends, one_group, other_group, joined):
    """Rows of two groups in one order, ascending."""
    one = np.uint64(1)
    a = np.uint64(ends[one_group - one]) if one_group > np.uint64(0) else np.uint64(0)
    b = np.uint64(ends[other_group - one])
    a_end, b_end = np.uint64(ends[one_group]), np.uint64(ends[other_group])
    to = np.uint64(0)
    while a < a_end or b < b_end:
        if b == b_end or (a < a_end and order[a] < order[b]):
            joined[to] = order[a]
            a += one
        else:
            joined[to] = order[b]
            b += one
        to += one
