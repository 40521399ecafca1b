"""Random splitter: draw one test for each column tried, and keep the best.

P. Geurts, D. Ernst and L. Wehenkel, "Extremely randomized trees", Machine
Learning 63, 2006, pp. 3-42, table 1.  A node costs two passes over its rows
for each column: no sorting, no statistics per code.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.axis_splits import compute_side_limit, draw_column, sum_weight, try_branches
from treekit.kernels.compile import inlined, kernel
from treekit.kernels.function_pointers import borrow_array
from treekit.kernels.monotonic import HIGHEST, LOWEST, is_within_constraint
from treekit.kernels.node_statistics import (
    CODE_OF,
    NO_LANES,
    is_sparse_node,
    locate_column,
    pack_statistics,
    sum_side,
    tally_codes,
)
from treekit.kernels.records import (
    BAD_CHOICE,
    BAD_NUMBER,
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
    SUBSET,
    THRESHOLD,
    THRESHOLD_VALUE,
    is_better,
    is_finite,
)

# ---------------------------------------------------------------- search over columns

MAX_ROUNDS = 8
"""Draws of K tests after which a node stays a leaf if no test scored."""


@kernel
def find_random_split(
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
    """Draw a test for each of K columns that are not constant, and keep the best.

    Numeric columns: a threshold drawn uniformly between the smallest and the
    largest known value of the node.  Nominal columns: a side drawn for each
    category present, so that all binary splits of them are equally likely; or one
    category drawn, against the rest; or one branch per category.  Missing rows go to
    the side that scores better; a column with one value and missing cells is split
    into missing and not missing.

    Parameters are those of `treekit.kernels.axis_splits.find_axis_split`.  The test is not
    chosen from many candidates, so that there is no penalty.
    """
    table, rows = node.table, node.rows
    codes, n_codes, nominal = borrow_array(table.codes), borrow_array(table.n_codes), table.nominal
    value_start, low = table.value_start, borrow_array(table.low)
    ids, cells, values = borrow_array(rows.ids), borrow_array(rows.cells), borrow_array(rows.values)
    stats, impurity = borrow_array(node.stats), node.impurity
    limit, weight = node.min_weight_leaf, node.weight
    known_only, empty, side = (
        node.ways.known_only,
        node.ways.empty_branches,
        node.ways.min_side_share,
    )
    features, state, offers = scratch.features, scratch.state, scratch.offers
    work, words, counts, flat = (
        borrow_array(scratch.work),
        scratch.words,
        scratch.counts,
        scratch.flat,
    )
    compact, best, pair = scratch.compact, borrow_array(scratch.best), borrow_array(scratch.pair)
    levels, left = borrow_array(scratch.levels), borrow_array(scratch.start)
    children = borrow_array(scratch.ordered[:2])
    buffer, sides = borrow_array(work[0]), borrow_array(work[1])
    packed = borrow_array(work[2:].reshape(-1).view(np.uint64))
    s, m = np.uint64(len(stats)), np.uint64(len(ids))
    form = pack_statistics(cells, values, m, s, weight, packed)
    n_rows, all_codes = np.uint64(codes.shape[1]), borrow_array(codes.reshape(codes.size))
    lines = borrow_array(scratch.lines)
    sparse = is_sparse_node(m, n_rows, lines)
    n_features = np.uint64(len(n_codes))
    n_try = min(np.uint64(node.n_try), n_features)
    draw = n_try < n_features
    chosen, seed = np.int64(-1), np.uint64(0)
    drawn = 0
    while True:
        if chosen < 0:
            drawn += 1
            state[np.uint64(0)] += np.uint64(0x9E3779B97F4A7C15)
            seed = state[np.uint64(0)]  # for the tests of this round; columns use `state`
            if use_choose:
                for j in range(n_features):
                    offers[np.uint64(0), j] = np.nan
                    offers[np.uint64(1), j] = np.nan
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
            absent = n_codes[feature]
            source, first, step = locate_column(
                all_codes, lines, feature, n_rows, n_features, sparse
            )
            gather_codes(source, first, step, ids, buffer)
            lowest, highest, gone = find_code_range(buffer, m, absent)
            if lowest == highest and (gone == 0 or lowest == absent or known_only):
                continue  # a constant column does not count as a try: sparse tables still split
            tried += np.uint64(1)
            if use_choose:
                out[KIND] = 0
                numbers[SCORE] = -np.inf
            way = nominal[feature]
            if way == 2 and lowest != highest:
                count = tally_codes(
                    source, first, step, absent, ids, cells, values, s, work, words, counts, flat,
                    NO_LANES, scratch.lanes, scratch.packed,
                )  # fmt: skip
                form = np.uint64(0)  # `tally` overwrote the packed statistics
                known = count
                if work[np.uint64(CODE_OF), np.uint64(count - 1)] == absent:
                    known -= 1
                try_branches(
                    many,
                    best,
                    len(cells) == 0,
                    known_only,
                    empty,
                    feature,
                    absent,
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
                _try_drawn_test(
                    many,
                    seed,
                    feature,
                    way,
                    (lowest, highest, gone, absent),
                    low,
                    np.uint64(value_start[feature]),
                    buffer,
                    sides,
                    cells,
                    values,
                    (form, packed),
                    m,
                    stats,
                    weight,
                    limit,
                    side,
                    known_only,
                    impurity,
                    compact,
                    left,
                    children,
                    best,
                    pair,
                    levels,
                    offers[np.uint64(3), feature],
                    out,
                    numbers,
                )
            if out[KIND] < 0 or chosen >= 0:
                return
            if use_choose and out[KIND] > 0:
                offers[np.uint64(0), feature] = numbers[SCORE]
                branches = pair
                if out[KIND] == MULTIWAY:
                    branches = compact[:known]
                final = many(stats, branches, 1)
                offers[np.uint64(1), feature] = final
                if not is_finite(final):
                    for k in range(s):
                        best[k + np.uint64(2)] = branches[np.uint64(0), k]
                    out[KIND] = BAD_NUMBER
                    return
        if not use_choose:
            useless = out[KIND] == 0 or numbers[SCORE] <= 1e-12 * impurity
            if useless and tried > np.uint64(0) and drawn < MAX_ROUNDS:
                continue
            return
        chosen = choose(offers[0], offers[1], offers[2])
        if chosen < 0 or chosen >= np.int64(n_features):
            out[KIND] = 0 if chosen == -1 else BAD_CHOICE
            if chosen == -1 and tried > np.uint64(0) and drawn < MAX_ROUNDS:
                continue
            return
        if np.isnan(offers[np.uint64(0), np.uint64(chosen)]):
            out[KIND] = BAD_CHOICE
            return


@inlined
def _try_drawn_test(
    many,
    seed,
    feature,
    way,
    present,
    low,
    start,
    codes,
    sides,
    cells,
    values,
    words,
    m,
    stats,
    weight,
    limit,
    numeric_side,
    known_only,
    impurity,
    compact,
    left,
    children,
    best,
    pair,
    levels,
    sign,
    out,
    numbers,
):
    """Draw a binary test of one column, and keep it if it beats the best so far."""
    s = np.uint64(len(stats))
    zero, two = np.uint64(0), np.uint64(2)
    lowest, highest, gone, absent = present
    kind, threshold = THRESHOLD, np.nan
    lookup, cut = codes, lowest
    if lowest == highest:  # a single known value: split known (left) from missing
        kind = MISSING
    elif way == 0:
        a = decode_value(lowest, absent, low, start)
        b = decode_value(highest, absent, low, start)
        threshold = draw_threshold(seed, feature, a, b)
        cut = find_cut_code(threshold, codes, m, lowest, highest, absent, low, start)
    else:
        kind = SUBSET
        if way == 3:
            draw_one_category(seed, feature, codes, absent, m, sides)
        else:
            draw_sides(seed, feature, codes, absent, lowest, m, sides)
        lookup, cut = sides, np.uint32(0)
    sum_side(lookup, np.uint32(0), cut, cells, values, words, m, s, left)
    totals, known_weight, share, lost = stats, weight, 1.0, best[two:]
    if gone > 0:
        sum_side(lookup, absent, absent, cells, values, words, m, s, lost)
        for k in range(s):
            compact[zero, k] = stats[k] - lost[k]
        known_weight = sum_weight(compact[zero], len(cells) == 0)
        if known_only:
            totals, share = compact[zero], known_weight / weight
    if way == 0 and numeric_side > 0.0:
        limit = compute_side_limit(numeric_side * known_weight, limit)
    for side in range(1, -1, -1):
        if side == 0 and (gone == 0 or kind == MISSING or known_only):
            break
        for k in range(s):
            children[zero, k] = left[k] + (lost[k] if side == 0 else 0.0)
            children[np.uint64(1), k] = totals[k] - children[zero, k]
        left_weight = sum_weight(children[zero], len(cells) == 0)
        right_weight = sum_weight(children[np.uint64(1)], len(cells) == 0)
        if not min(left_weight, right_weight) >= max(limit, 5e-324):
            continue
        if (
            kind == THRESHOLD
            and sign != 0.0
            and not is_within_constraint(
                children[zero, np.uint64(1)] / left_weight,
                children[np.uint64(1), np.uint64(1)] / right_weight,
                sign,
                best[s + two + np.uint64(LOWEST)],
                best[s + two + np.uint64(HIGHEST)],
            )
        ):
            continue
        score = many(totals, children, 0) * share
        if not is_finite(score):
            for k in range(s):
                best[k + two] = children[zero, k]
            out[KIND] = BAD_NUMBER
            return
        if not is_better(score, np.int64(feature), np.int64(1 - side), impurity, out, numbers):
            continue
        out[KIND] = kind
        out[FEATURE] = np.int64(feature)
        out[CUT] = np.int64(cut)
        out[NEXT_CODE] = np.int64(cut) + 1
        out[BRANCHES] = 2
        out[LEVELS] = 0
        out[RANK] = 1 - side
        out[MISSING_BRANCH] = np.int64(left_weight < right_weight)  # the heavier one
        if gone > 0 and not known_only:
            out[MISSING_BRANCH] = side
        numbers[THRESHOLD_VALUE] = threshold
        numbers[SCORE] = score
        for k in range(s):
            pair[zero, k] = children[zero, k]
            pair[np.uint64(1), k] = children[np.uint64(1), k]
        if kind == MISSING:
            out[MISSING_BRANCH] = 0
        elif kind == SUBSET:
            out[CUT], out[LEVELS] = 0, np.int64(absent)
            for level in range(np.uint64(absent)):
                levels[level] = 1 if way == 3 else -1  # category not present at the node
            for i in range(m):
                if codes[i] != absent:
                    levels[np.uint64(codes[i])] = np.int32(sides[i])


# ---------------------------------------------------------------- random draws
# A threshold, or a side for each category, for one column of a node.
#
# Numbers come from a hash of the node's seed and the column, so that the draws of a
# column do not depend on which other columns were tried.

MAX_DRAWS = 64
"""Draws of the sides of categories before the lowest one is separated from the rest."""

MISSING_KEY = np.uint32(0xFFFFFFFF)
"""Missing code of numeric columns whose codes are keys; see `treekit.data.binning`."""


@inlined
def gather_codes(codes, first, step, ids, buffer):
    """Copy the codes of the node's rows in one column to `buffer`.

    See `treekit.kernels.node_statistics`.
    """
    for i in range(np.uint64(len(ids))):
        buffer[i] = codes[first + np.uint64(ids[i]) * step]


@inlined
def find_code_range(codes, m, absent):
    """Return the smallest and largest known code of the node's rows, and the number of missing.

    If no value is known, both codes are `absent`.
    """
    lowest, highest = np.uint32(0xFFFFFFFF), np.uint32(0)
    for i in range(m):
        lowest = min(lowest, codes[i])
        highest = max(highest, codes[i])
    gone = np.int64(0)
    if highest == absent:
        highest = lowest
        for i in range(m):
            code = codes[i]
            if code == absent:
                gone += 1
            else:
                highest = max(highest, code)
    return lowest, highest, gone


@inlined
def decode_value(code, absent, low, start):
    """Return the number behind a code: the key's, or the smallest with that rank."""
    if absent != MISSING_KEY:
        return low[start + np.uint64(code)]
    top = np.uint32(0x80000000)
    bits = np.uint32(code ^ top if code >= top else ~code)
    return np.float64(bits.view(np.float32))


@inlined
def mix_bits(seed, at):
    """Return number `at` of the sequence of `seed` (splitmix64, Steele et al. 2014)."""
    z = seed + (at + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inlined
def draw_threshold(seed, feature, a, b):
    """Draw a number uniformly from [a, b)."""
    share = (mix_bits(seed, feature) >> np.uint64(11)) * 2.0**-53
    threshold = a + share * (b - a)
    if not threshold < np.inf:  # b - a may overflow
        threshold = a * (1.0 - share) + b * share
    return threshold if a <= threshold < b else a


@inlined
def find_cut_code(threshold, codes, m, lowest, highest, absent, low, start):
    """Return the last code, at or between the node's codes, whose number is up to the threshold.

    A key is computed from the rounded threshold.  With ranks, only the rows whose code is
    between the nearest codes found so far are looked up: after a few rows there are hardly
    any (a binary search is slower, because it reads numbers that are not in the cache).
    """
    if absent == MISSING_KEY:
        top = np.uint32(0x80000000)
        rounded = np.float32(threshold)
        bits = rounded.view(np.uint32)
        key = np.uint32(~bits if bits > top else bits | top)  # -0.0 is 0.0
        return np.uint32(key - np.uint32(np.float64(rounded) > threshold))
    below, above = lowest, highest
    for i in range(m):
        code = codes[i]
        if below < code < above:
            if low[start + np.uint64(code)] <= threshold:
                below = code
            else:
                above = code
    return below


@inlined
def draw_sides(seed, feature, codes, absent, lowest, m, sides):
    """Draw a side, 0 or 1, for each category present, both used; `absent` for missing rows."""
    for attempt in range(MAX_DRAWS + 1):
        salt = mix_bits(seed, feature + (np.uint64(attempt) << np.uint64(32)))
        any_left, any_right = False, False
        for i in range(m):
            code = codes[i]
            if code == absent:
                sides[i] = absent
                continue
            side = np.uint32(mix_bits(salt, np.uint64(code)) & np.uint64(1))
            if attempt == MAX_DRAWS:
                side = np.uint32(code != lowest)
            sides[i] = side
            any_right |= side > np.uint32(0)
            any_left |= side == np.uint32(0)
        if any_left and any_right:
            return


@inlined
def draw_one_category(seed, feature, codes, absent, m, sides):
    """Put one category, drawn uniformly from those present, on side 0 and the rest on side 1.

    It is the category with the smallest random number; `absent` for missing rows.
    """
    salt = mix_bits(seed, feature)
    one, least = np.uint32(absent), np.uint64(0xFFFFFFFFFFFFFFFF)
    for i in range(m):
        code = codes[i]
        if code != absent:
            number = mix_bits(salt, np.uint64(code))
            if number <= least:
                one, least = code, number
    for i in range(m):
        code = codes[i]
        sides[i] = absent if code == absent else np.uint32(code != one)
