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
from treekit.kernels.tally import CODE_OF, ORDER, tally

__all__ = [
    "AFTER",
    "BRANCHES",
    "CUT",
    "FEATURE",
    "FOUND",
    "KIND",
    "LEVELS",
    "MISSING_BRANCH",
    "RANK",
    "SCORE",
    "THRESHOLD_VALUE",
    "TOLERANCE",
    "find_axis",
]

TOLERANCE = 1e-9
"""Scores closer than this, relative, are ties (see the design's semantics)."""

THRESHOLD, SUBSET, MULTIWAY, MISSING = 1, 2, 3, 4

KIND, FEATURE, CUT, AFTER, MISSING_BRANCH, BRANCHES, LEVELS, RANK, FOUND = range(9)
"""Cells of `out`: the split found.

Kind 0 = none, -1 = NaN from the criterion, -3 = an impossible split.  Codes up
to the cut go left; after = the next code present at the node.  Levels are
counted here and lie in ``scratch.levels``.  Rank orders the splits of one
column for ties.  FOUND is the number of cells.
"""

THRESHOLD_VALUE, SCORE = 0, 1
"""Cells of `numbers`: the threshold (NaN = the builder's own) and the score."""


@kernel
def find_axis(node, scratch, scan, many, key, choose, n_keys, use_choose, score, rng, out, numbers):
    """Find the best split of one node.

    Parameters
    ----------
    node : Node
    scratch : Scratch
    scan, many, key, choose : pointers
        See `treekit.grow.criterion`.
    n_keys : int
        Orderings of categories to try for subset splits.
    use_choose : bool
        Whether the criterion picks between features itself.
    score, rng
        For splitters that propose their own branches; not used here.
    out : (FOUND,) int64
    numbers : (2,) float64
        Receive the split.

    Cost: tries x rows, plus tries x codes for large nodes.
    """
    table, rows = node.table, node.rows
    codes, n_codes, nominal = table.codes, table.n_codes, table.nominal
    ids, cells, values = rows.ids, rows.cells, rows.values
    stats, weight, impurity = node.stats, node.weight, node.impurity
    limit = node.min_weight_leaf
    features, state, offers = scratch.features, scratch.state, scratch.offers
    work, words, counts, flat = scratch.work, scratch.words, scratch.counts, scratch.flat
    compact, ordered, keys = scratch.compact, scratch.ordered, scratch.keys
    start, best, pair, levels = scratch.start, scratch.best, scratch.pair, scratch.levels
    s = np.uint64(len(stats))
    n_features = np.uint64(len(n_codes))
    n_try = min(np.uint64(node.n_try), n_features)
    draw = n_try < n_features
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
            elif draw:
                feature = _draw(features, state, j)
            codes_in_all = n_codes[feature]
            count = tally(
                codes[feature], codes_in_all, ids, cells, values, s, work, words, counts, flat
            )
            if count == 1:
                continue  # a constant column is no try, so that sparse tables still split
            tried += np.uint64(1)
            if use_choose:
                out[KIND] = 0
                numbers[SCORE] = -np.inf
            known = count
            if work[np.uint64(CODE_OF), np.uint64(count - 1)] == codes_in_all:
                known -= 1
            way = nominal[feature]
            if way == 2:
                _try_branches(
                    many,
                    best,
                    len(cells) == 0,
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
            else:
                _try_cuts(
                    scan,
                    key,
                    n_keys if way == 1 else 0,
                    feature,
                    codes_in_all,
                    known,
                    count,
                    stats,
                    weight,
                    limit,
                    impurity,
                    work,
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
                    sides = compact[: out[BRANCHES]]
                final = many(stats, sides, 1)
                offers[np.uint64(1), feature] = final
                if math.isnan(final):
                    for k in range(s):
                        best[k + np.uint64(2)] = sides[np.uint64(0), k]
                    out[KIND] = -1
                    return
        if not use_choose:
            return
        chosen = choose(offers[0], offers[1])
        if chosen < 0 or chosen >= np.int64(n_features):
            out[KIND] = 0 if chosen == -1 else -5
            return


@inlined
def _draw(features, state, j):
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


@kernel
def _better(score, feature, rank, impurity, out, numbers):
    """Whether a split beats the best so far: ties go to the lower column, then rank."""
    if not (score > -np.inf and score < np.inf):
        return False
    if out[KIND] == 0:
        return True
    slack = TOLERANCE * max(abs(numbers[SCORE]), impurity)
    if score > numbers[SCORE] + slack:
        return True
    if score < numbers[SCORE] - slack:
        return False
    return feature < out[FEATURE] or (feature == out[FEATURE] and rank < out[RANK])


@inlined
def _try_cuts(
    scan,
    key,
    n_keys,
    feature,
    codes_in_all,
    known,
    count,
    stats,
    weight,
    limit,
    impurity,
    work,
    compact,
    ordered,
    keys,
    start,
    best,
    pair,
    levels,
    out,
    numbers,
):
    """Cuts of a column into two: along its codes, or along each order of its levels.

    Missing rows are tried right, then left.  On the right, the last cut is
    "known or missing".
    """
    s = np.uint64(len(stats))
    code_of, order = work[CODE_OF], work[ORDER]
    unknown = np.uint64(known)
    table = compact
    for attempt in range(max(n_keys, 1)):
        if n_keys > 0:
            key(compact, known, attempt, keys)
            _sort_by_key(keys, compact, ordered, order, np.uint64(known), np.uint64(count), s)
            table = ordered
        for side in range(1, -1, -1):
            if side == 0 and (count == known or known < 2):
                break
            last = known - 1
            for k in range(s):
                start[k] = 0.0
            if count > known:
                if side == 0:
                    for k in range(s):
                        start[k] = table[unknown, k]
                else:
                    last = known
            at = scan(table, last, start, stats, limit, impurity, best)
            if at == -2:
                out[KIND] = -1
                return
            rank = (np.int64(attempt) << 32) + at
            score = best[np.uint64(0)]
            if at < 0 or not _better(score, np.int64(feature), rank, impurity, out, numbers):
                continue
            out[FEATURE] = np.int64(feature)
            out[BRANCHES] = 2
            out[LEVELS] = 0
            out[CUT] = 0
            out[RANK] = rank
            numbers[SCORE] = score
            for k in range(s):
                left = best[k + np.uint64(2)]
                pair[np.uint64(0), k] = left
                pair[np.uint64(1), k] = stats[k] - left
            if at == known - 1:  # all known values left, missing right
                out[KIND] = MISSING
                out[MISSING_BRANCH] = 0
                continue
            left_weight = best[np.uint64(1)]
            if count > known:
                out[MISSING_BRANCH] = side
            else:  # no missing row to learn from: the heavier branch
                out[MISSING_BRANCH] = 0 if left_weight >= weight - left_weight else 1
            if n_keys == 0:
                out[KIND] = THRESHOLD
                out[CUT] = np.int64(code_of[np.uint64(at)])
                out[AFTER] = np.int64(code_of[np.uint64(at + 1)])
                continue
            out[KIND] = SUBSET
            out[LEVELS] = np.int64(codes_in_all)
            for level in range(np.uint64(codes_in_all)):
                levels[level] = -1
            for j in range(unknown):
                level = np.uint64(code_of[np.uint64(order[j])])
                levels[level] = 0 if np.int64(j) <= at else 1


@inlined
def _sort_by_key(keys, compact, ordered, order, known, count, s):
    """`compact` into `ordered`, ascending by key, equal keys by code; missing stays last.

    Shell's sort (1959) on (key, code): short, in place, and compiles at once.
    """
    for j in range(count):
        order[j] = np.uint32(j)
    gap = known >> np.uint64(1)
    while gap > np.uint64(0):
        for j in range(gap, known):
            moved = order[j]
            own = keys[np.uint64(moved)]
            at = j
            while at >= gap:
                other = order[at - gap]
                theirs = keys[np.uint64(other)]
                if theirs < own or (theirs == own and other < moved):
                    break
                order[at] = other
                at -= gap
            order[at] = moved
        gap = (gap * np.uint64(5)) // np.uint64(11) if gap != np.uint64(2) else np.uint64(1)
    for j in range(count):
        i = np.uint64(order[j])
        for k in range(s):
            ordered[j, k] = compact[i, k]


@inlined
def _try_branches(
    many,
    best,
    dense,
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
):
    """One branch for each level present; missing rows join the heaviest."""
    if known < 2:
        return
    s = np.uint64(len(stats))
    heaviest, heaviest_weight = np.uint64(0), -1.0
    heavy_enough = 0
    for j in range(np.uint64(known)):
        weight = compact[j, np.uint64(0)]
        if not dense:
            for k in range(np.uint64(1), s):
                weight += compact[j, k]
        if weight > heaviest_weight:
            heaviest, heaviest_weight = j, weight
        if weight >= limit:
            heavy_enough += 1
    if heavy_enough < 2:
        return
    if count > known:
        for k in range(s):
            compact[heaviest, k] += compact[np.uint64(known), k]
    score = many(stats, compact[:known], 0)
    if math.isnan(score):
        for k in range(s):
            best[k + np.uint64(2)] = compact[np.uint64(0), k]
        out[KIND] = -1
        return
    if not _better(score, np.int64(feature), np.int64(0), impurity, out, numbers):
        return
    out[KIND] = MULTIWAY
    out[FEATURE] = np.int64(feature)
    out[CUT] = 0
    out[MISSING_BRANCH] = np.int64(heaviest)
    out[BRANCHES] = known
    out[LEVELS] = np.int64(codes_in_all)
    out[RANK] = 0
    numbers[SCORE] = score
    for level in range(np.uint64(codes_in_all)):
        levels[level] = -1
    for j in range(np.uint64(known)):
        levels[np.uint64(work[np.uint64(CODE_OF), j])] = np.int32(j)
