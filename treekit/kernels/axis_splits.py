"""Built-in axis-aligned splitters: the best test of a single column, over the columns tried.

`find_axis_split` is used by the exact and the histogram splitter: they differ only in the
coding of columns.

Records are unpacked once, at the top: each access to a field costs compile
time for all fields of its record.
"""

from __future__ import annotations

import math

import numpy as np

from treekit.kernels.compile import inlined, kernel, llvm_inlined
from treekit.kernels.function_pointers import borrow_array, find_lowest_bit
from treekit.kernels.monotonic import N_CUTS, SIGN
from treekit.kernels.node_statistics import (
    CODE_OF,
    ORDER,
    is_sparse_node,
    locate_column,
    pack_lanes,
    tally_codes,
)
from treekit.kernels.records import (
    BAD_CHOICE,
    BAD_NUMBER,
    BAD_ORDER,
    BAD_PENALTY,
    BRANCHES,
    CUT,
    FEATURE,
    KIND,
    LEVELS,
    MISSING,
    MISSING_BRANCH,
    MULTIWAY,
    NEXT_CODE,
    RANK,
    SCORE,
    SHRINK,
    SUBSET,
    THRESHOLD,
    THRESHOLD_VALUE,
    TOLERANCE,
    is_better,
    is_finite,
)

# ---------------------------------------------------------------- search over columns


@kernel
def find_axis_split(
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
        See `treekit.grow.compile_criterion`; key None = the search over categories
        is not compiled.
    n_keys : int
        Orderings of categories to try for subset splits.
    use_choose : bool
        Whether the criterion chooses between features itself.
    use_penalty : bool
        Whether it penalises the gain of a cut chosen from many candidates.
    score, rng
        For splitters that propose their own branches; not used here.
    out : (FOUND,) int64
    numbers : (NUMBERS,) float64
        Receive the split.

    Cost: tries x rows, plus tries x codes for large nodes.
    """
    table, rows = node.table, node.rows
    codes, n_codes = borrow_array(table.codes), borrow_array(table.n_codes)
    nominal = borrow_array(table.nominal)
    ids, cells, values = borrow_array(rows.ids), borrow_array(rows.cells), borrow_array(rows.values)
    stats, weight, impurity = borrow_array(node.stats), node.weight, node.impurity
    limit = node.min_weight_leaf
    known_only, empty, resolution = (
        node.ways.known_only,
        node.ways.empty_branches,
        node.ways.resolution,
    )
    side, exact_levels, dense = node.ways.min_side_share, node.ways.exact_levels, len(cells) == 0
    by_score, tolerance = node.ways.levels_by_score, node.ways.tolerance
    features, state = borrow_array(scratch.features), borrow_array(scratch.state)
    offers, work, words = (
        borrow_array(scratch.offers),
        borrow_array(scratch.work),
        borrow_array(scratch.words),
    )
    counts, flat = borrow_array(scratch.counts), borrow_array(scratch.flat)
    compact, ordered = borrow_array(scratch.compact), borrow_array(scratch.ordered)
    keys, start, best = (
        borrow_array(scratch.keys),
        borrow_array(scratch.start),
        borrow_array(scratch.best),
    )
    pair, levels = borrow_array(scratch.pair), borrow_array(scratch.levels)
    n_rows, all_codes = np.uint64(codes.shape[1]), borrow_array(codes.reshape(codes.size))
    lines = borrow_array(scratch.lines)
    sparse = is_sparse_node(np.uint64(len(ids)), n_rows, lines)
    s = np.uint64(len(stats))
    n_features = np.uint64(len(n_codes))
    n_try = min(np.uint64(node.n_try), n_features)
    draw = n_try < n_features
    if use_choose:
        for j in range(n_features):
            offers[np.uint64(0), j] = np.nan
            offers[np.uint64(1), j] = np.nan
    lanes, packed = borrow_array(scratch.lanes), borrow_array(scratch.packed)
    width = pack_lanes(cells, values, np.uint64(len(ids)), s, weight, lanes)
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
            source, first, step = locate_column(
                all_codes, lines, feature, n_rows, n_features, sparse
            )
            count = tally_codes(
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
                continue  # a constant column does not count as a try: sparse tables still split
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
                    groups = _merge_close_values(
                        table.low, table.high, start_of, resolution, known, count, s, work, flat
                    )
                    count -= known - groups
                    known = groups
                totals, known_weight = stats, weight
                if count > known:
                    missing = compact[np.uint64(known)]
                    known_weight = weight - sum_weight(missing, dense)
                    if known_only:
                        # Only known rows are cut: overwrite the statistics of the missing
                        # rows with those of the known ones.
                        for k in range(s):
                            missing[k] = stats[k] - missing[k]
                        totals = missing
                if way == 0 and side > 0.0:
                    own_limit = compute_side_limit(side * known_weight, limit)
                if key is not None:
                    if way == 3:
                        try_one_vs_rest(
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
                    best[s + np.uint64(2 + N_CUTS)] = known - 1
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
                if not is_finite(final):
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
    """Return column j of a random permutation (Fisher and Yates).

    The generator is splitmix64 (Steele, Lea and Flood 2014): numpy's generator
    adds a second of compile time.
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
def compute_side_limit(wanted, limit):
    """Return C4.5's minimum weight on either side of a numeric cut.

    Quinlan 1993, p. 25, and release 8.  Reduced by a tolerance, because a tenth of a weight is
    rarely an integer.
    """
    if wanted <= limit:
        return limit
    return min(wanted, 25.0) * (1.0 - 1e-7)


@inlined
def _merge_close_values(low, high, start_of, resolution, known, count, s, work, flat):
    """Merge groups of neighbouring values into one code each; return the number of groups.

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
def find_numeric_axis_split(
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
    """Search a table without nominal columns; the search over categories is not compiled.

    `key` is never called, but stays a parameter: `treekit.kernels.grow_tree.grow_nodes` is the
    same for all tables.
    """
    find_axis_split(
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


# ---------------------------------------------------------------- binary splits
# Cuts along an order, or subsets of categories.
#
# Every search is a sequence of steps: at each step some rows join the left side, and
# the criterion's scan keeps the best position.  Numeric columns step along their
# codes, nominal columns along an order of the categories or through all subsets.

SUBSETS_PER_SCAN = 256
"""Number of category subsets in one scan."""

ALONG_CODES, ALONG_ORDER, ALL_SUBSETS = 0, 1, 2
"""Ways to step: along the codes, along an order of categories, through all subsets."""


@llvm_inlined
def try_cuts(
    scan,
    key,
    penalty,
    n_keys,
    exact_levels,
    use_penalty,
    dense,
    known_only,
    feature,
    codes_in_all,
    known,
    count,
    totals,
    weight,
    known_weight,
    limit,
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
):
    """Keep the best binary split of a column, if it beats the best so far.

    Parameters
    ----------
    key : pointer or None
        None = there are no nominal columns, and the code for them is not compiled.
    n_keys : int
        Orders of the categories to try; 0 = a numeric column.
    known, count : int
        Known codes of the table `compact`; rows of it (one more if missing rows follow).
    first_of : (known,) uint32
        First code of each group of neighbouring values that were merged.

    Missing rows are tried right, then left.  On the right, the last step is
    "known or missing".  Under `known_only` they are on neither side, `totals` are
    those of the known rows, and the score is scaled by their share.
    """
    s = np.uint64(len(totals))
    sides_of_missing = count > known and not known_only
    share = known_weight / weight if known_only else 1.0
    code_of, order = work[CODE_OF], work[ORDER]
    unknown = np.uint64(known)
    way, attempts, table = ALONG_CODES, np.int64(1), compact
    if key is not None:
        if n_keys > 1 and 3 <= known <= exact_levels:  # two categories have a single subset
            way, table = ALL_SUBSETS, ordered
            attempts = ((np.int64(1) << (known - 1)) - 2) // SUBSETS_PER_SCAN + 1
        elif n_keys > 0:
            way, attempts, table = ALONG_ORDER, np.int64(n_keys), ordered
    for attempt in range(attempts):
        steps, closes = known - 1, True
        mask = np.uint64(0)
        if key is not None:
            if way == ALONG_ORDER:
                key(compact, known, attempt, keys)
                for j in range(unknown):
                    if not is_finite(keys[j]):
                        for k in range(s):
                            best[k + np.uint64(2)] = compact[j, k]
                        out[KIND] = BAD_ORDER
                        return
                _sort_rows_by_key(keys, compact, ordered, order, unknown, np.uint64(count), s)
            elif way == ALL_SUBSETS:
                first = np.uint64(attempt * SUBSETS_PER_SCAN)
                mask = first ^ (first >> np.uint64(1))
                steps = min(
                    (np.int64(1) << (known - 1)) - 1 - attempt * SUBSETS_PER_SCAN, SUBSETS_PER_SCAN
                )
                closes = attempt == attempts - 1
                _enumerate_subsets(compact, ordered, first, np.uint64(steps), s)
                if closes:  # the last Gray code has the last but one category alone
                    for k in range(s):
                        rest = totals[k] - compact[unknown - np.uint64(2), k]
                        if sides_of_missing:
                            rest -= compact[unknown, k]
                        ordered[np.uint64(steps), k] = rest
        for side in range(1, -1, -1):
            if side == 0 and (not sides_of_missing or known < 2):
                break
            last = steps
            for k in range(s):
                start[k] = 0.0
            if sides_of_missing:
                if side == 0:
                    for k in range(s):
                        start[k] = compact[unknown, k]
                elif closes:
                    last = steps + 1
            for j in range(unknown):
                if (mask >> j) & np.uint64(1):
                    for k in range(s):
                        start[k] += compact[j, k]
            at = scan(table, last, start, totals, limit, impurity, best)
            if at == -2:
                out[KIND] = BAD_NUMBER
                return
            rank = (np.int64(attempt) << 32) + at
            score = best[np.uint64(0)] * share
            shrink = 1.0
            if use_penalty and at >= 0:
                candidates = _count_candidates(table, last, start, totals, limit, dense)
                fee = penalty(candidates, weight)
                if not is_finite(fee):
                    best[np.uint64(0)] = candidates
                    out[KIND] = BAD_PENALTY
                    return
                paid = score - fee
                if not paid > 0.0:
                    continue
                score, shrink = paid, paid / score
            if at < 0 or not is_better(score, np.int64(feature), rank, impurity, out, numbers):
                continue
            out[FEATURE] = np.int64(feature)
            out[BRANCHES] = 2
            out[LEVELS] = 0
            out[CUT] = 0
            out[RANK] = rank
            numbers[SCORE] = score
            numbers[SHRINK] = shrink
            for k in range(s):
                left = best[k + np.uint64(2)]
                pair[np.uint64(0), k] = left
                pair[np.uint64(1), k] = totals[k] - left
            if at == steps:  # all known values left, missing right
                out[KIND] = MISSING
                out[MISSING_BRANCH] = 0
                continue
            left_weight = best[np.uint64(1)]
            if sides_of_missing:
                out[MISSING_BRANCH] = side
            else:  # no missing rows in training: the heavier branch
                out[MISSING_BRANCH] = 0 if left_weight >= known_weight - left_weight else 1
            if way == ALONG_CODES:
                out[KIND] = THRESHOLD
                out[CUT] = np.int64(code_of[np.uint64(at)])
                out[NEXT_CODE] = np.int64(first_of[np.uint64(at + 1)])
                continue
            if key is not None:
                out[KIND] = SUBSET
                out[LEVELS] = np.int64(codes_in_all)
                for level in range(np.uint64(codes_in_all)):
                    levels[level] = -1
                reached = np.uint64(attempt * SUBSETS_PER_SCAN + at + 1)
                reached ^= reached >> np.uint64(1)
                for j in range(unknown):
                    if way == ALL_SUBSETS:
                        levels[np.uint64(code_of[j])] = 0 if (reached >> j) & np.uint64(1) else 1
                    else:
                        level = np.uint64(code_of[np.uint64(order[j])])
                        levels[level] = 0 if np.int64(j) <= at else 1


@inlined
def sum_weight(stats, dense):
    """Return the weight of the statistics of a node or group."""
    weight = stats[np.uint64(0)]
    if not dense:
        for k in range(np.uint64(1), np.uint64(len(stats))):
            weight += stats[k]
    return weight


@inlined
def _count_candidates(table, last, start, totals, limit, dense):
    """Count the first `last` cuts that leave the weight `limit` on both sides."""
    left, whole = sum_weight(start, dense), sum_weight(totals, dense)
    count = np.int64(0)
    for i in range(np.uint64(last)):
        left += sum_weight(table[i], dense)
        if left >= limit and whole - left >= limit:
            count += 1
    return count


@inlined
def _enumerate_subsets(compact, steps_out, first, steps, s):
    """Write the steps first + 1, ... of the Gray code (Gray 1953) over all categories but the last.

    Each step moves one category, so that each subset costs one addition; a category
    that leaves the left side is a negative row.
    """
    one = np.uint64(1)
    for i in range(steps):
        step = first + i + one
        level = find_lowest_bit(step)
        joins = ((step ^ (step >> one)) >> level) & one
        for k in range(s):
            value = compact[level, k]
            steps_out[i, k] = value if joins else -value


@inlined
def _sort_rows_by_key(keys, compact, ordered, order, known, count, s):
    """Write `compact` to `ordered`, ascending by key, equal keys by code; missing stays last.

    Shell's sort (1959) on (key, code): short, in place, and fast to compile.
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


# ---------------------------------------------------------------- splits by single categories


@inlined
def try_branches(
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
):
    """Try one branch for each category present, or (`empty`) declared.

    Missing rows join the heaviest branch, or (`known_only`) are in no branch.
    """
    if known < 2:
        return
    s = np.uint64(len(stats))
    heaviest, heaviest_weight = np.uint64(0), -1.0
    heavy_enough = 0
    for j in range(np.uint64(known)):
        weight = sum_weight(compact[j], dense)
        if weight > heaviest_weight:
            heaviest, heaviest_weight = j, weight
        if weight >= limit:
            heavy_enough += 1
    if heavy_enough < 2:
        return
    if count > known and not known_only:
        for k in range(s):
            compact[heaviest, k] += compact[np.uint64(known), k]
    score = many(stats, compact[:known], 0)
    if not is_finite(score):
        for k in range(s):
            best[k + np.uint64(2)] = compact[np.uint64(0), k]
        out[KIND] = BAD_NUMBER
        return
    if not is_better(score, np.int64(feature), np.int64(0), impurity, out, numbers):
        return
    out[KIND] = MULTIWAY
    out[FEATURE] = np.int64(feature)
    out[CUT] = 0
    out[MISSING_BRANCH] = np.int64(heaviest)
    out[BRANCHES] = known
    if empty:
        out[MISSING_BRANCH] = np.int64(work[np.uint64(CODE_OF), heaviest])
        out[BRANCHES] = np.int64(codes_in_all)
    out[LEVELS] = np.int64(codes_in_all)
    out[RANK] = 0
    numbers[SCORE] = score
    for level in range(np.uint64(codes_in_all)):
        levels[level] = np.int32(level) if empty else -1
    if not empty:
        for j in range(np.uint64(known)):
            levels[np.uint64(work[np.uint64(CODE_OF), j])] = np.int32(j)


@inlined
def try_one_vs_rest(
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
    children,
    pair,
    levels,
    out,
    numbers,
):
    """Keep the best split of one category against the rest, if it beats the best so far.

    Parameters
    ----------
    by_score : bool
        Compare categories by the criterion's own score instead of its gain.
    tolerance : float
        Of categories that differ by at most this, keep the first.
    known, count : int
        Known codes of the table `compact`; rows of it (one more if missing rows follow).
    totals : (S,) float64
        Sum of the two sides: `stats`, or (`known_only`) the known rows' part.
    children : (2, S) float64
        Working memory.

    Missing rows are tried right, then left, and last as a branch of their own;
    under `known_only` they are on neither side.
    """
    s = np.uint64(len(stats))
    zero, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
    unknown = np.uint64(known)
    lost = count > known and not known_only
    singles = np.uint64(known if known > 1 else 0)
    which = 1 if by_score else 0
    kept_at, kept_side, bar, gain = np.int64(-1), 1, -np.inf, -np.inf
    for at in range(singles + np.uint64(lost)):
        for side in range(1, -1, -1):
            if side == 0 and (not lost or at == singles):
                break
            for k in range(s):
                own = compact[at, k] if at < singles else totals[k] - compact[unknown, k]
                if side == 0:
                    own += compact[unknown, k]
                children[zero, k] = own
                children[one, k] = totals[k] - own
            if min(sum_weight(children[zero], dense), sum_weight(children[one], dense)) < limit:
                continue
            judged = many(stats, children, which)
            kept = judged > bar and is_finite(judged)
            if kept:
                kept_at, kept_side = np.int64(at), side
                bar = judged + max(TOLERANCE * max(abs(judged), impurity), tolerance)
                gain = many(stats, children, 0) if by_score else judged
            if kept or not is_finite(judged):
                for k in range(s):
                    best[k + two] = children[zero, k]
            if not is_finite(judged) or (kept_at >= 0 and not is_finite(gain)):
                out[KIND] = BAD_NUMBER
                return
    if kept_at < 0 or not is_better(gain, np.int64(feature), kept_at, impurity, out, numbers):
        return
    out[FEATURE] = np.int64(feature)
    out[CUT] = 0
    out[RANK] = kept_at
    out[BRANCHES] = 2
    numbers[SCORE] = gain
    for k in range(s):
        pair[zero, k] = best[k + two]
        pair[one, k] = totals[k] - best[k + two]
    out[MISSING_BRANCH] = 0
    if kept_at == np.int64(singles):
        out[KIND] = MISSING
        out[LEVELS] = 0
        return
    out[KIND] = SUBSET
    out[LEVELS] = np.int64(codes_in_all)
    if lost:
        out[MISSING_BRANCH] = kept_side
    elif sum_weight(pair[zero], dense) < sum_weight(pair[one], dense):
        out[MISSING_BRANCH] = 1  # no missing rows in training: the heavier branch
    for level in range(np.uint64(codes_in_all)):
        levels[level] = 1
    levels[np.uint64(work[np.uint64(CODE_OF), np.uint64(kept_at)])] = 0


# ---------------------------------------------------------------- order of categories

SCORE_RESOLUTION = 2.0**24
"""Scores are rounded to this fraction of the largest."""

POWER_ITERATIONS = 30
"""Steps of the power iteration; if two components are equally large, either will do."""


@inlined
def score_on_first_component(rows, count, scaled, keys):
    """Score each category on the first principal component of the class shares.

    Categories ordered by these scores (Coppersmith, Hong and Hosking 1999,
    section 4) come close to the best subset for several classes.

    Parameters
    ----------
    rows : (levels, classes) float64
        Class weights of each category.
    count : int
        Number of categories.
    scaled : bool
        Divide the deviation of a class by the root of its overall share, as
        chi-squared does: closer for entropy; use the unscaled form for Gini.
    keys : (levels,) float64
        Receives the scores.

    Cost: categories x classes x `ROUNDS`, by the power iteration.
    """
    n, cells = np.uint64(count), np.uint64(rows.shape[1])
    apart = np.empty((count, rows.shape[1]))
    weights, mean = np.zeros(count), np.zeros(rows.shape[1])
    total = 0.0
    for i in range(n):
        for k in range(cells):
            weights[i] += rows[i, k]
            mean[k] += rows[i, k]
        total += weights[i]
    farthest, most = np.uint64(0), -1.0
    for i in range(n):
        distance = 0.0
        for k in range(cells):
            share = mean[k] / total
            apart[i, k] = 0.0
            if share > 0.0:
                apart[i, k] = rows[i, k] / weights[i] - share
                if scaled:
                    apart[i, k] /= math.sqrt(share)
            distance += apart[i, k] * apart[i, k]
        if weights[i] * distance > most * (1.0 + 1e-9):
            farthest, most = i, weights[i] * distance
    direction, turned = apart[farthest].copy(), np.empty(rows.shape[1])
    for _ in range(POWER_ITERATIONS):
        for k in range(cells):
            turned[k] = 0.0
        for i in range(n):
            along = 0.0
            for k in range(cells):
                along += apart[i, k] * direction[k]
            for k in range(cells):
                turned[k] += weights[i] * along * apart[i, k]
        largest = 0.0
        for k in range(cells):
            largest = max(largest, abs(turned[k]))
        if largest == 0.0:
            break  # all categories have equal class shares
        for k in range(cells):
            direction[k] = turned[k] / largest
    largest = 0.0
    for i in range(n):
        keys[i] = 0.0
        for k in range(cells):
            keys[i] += apart[i, k] * direction[k]
        largest = max(largest, abs(keys[i]))
    if largest > 0.0:
        for i in range(n):  # so that scores that differ by rounding errors are equal
            keys[i] = np.rint(keys[i] / largest * SCORE_RESOLUTION)
