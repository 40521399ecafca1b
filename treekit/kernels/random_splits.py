"""Random splitter: draw one test for each column tried, and keep the best.

P. Geurts, D. Ernst and L. Wehenkel, "Extremely randomized trees", Machine
Learning 63, 2006, pp. 3-42, table 1.  A node costs two passes over its rows
for each column: no sorting, no statistics per code.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.axis_splits import (
    choose_column,
    clear_offers,
    compute_side_limit,
    finish_column,
    make_groups,
    pick_column,
    try_branches,
)
from treekit.kernels.compile import inlined, kernel
from treekit.kernels.function_pointers import borrow_arrays
from treekit.kernels.monotonic import HIGHEST, LOWEST, is_within_constraint
from treekit.kernels.node_statistics import (
    NO_LANES,
    choose_place,
    locate_column,
    pack_statistics,
    sum_side,
    tally_codes,
)
from treekit.kernels.random_numbers import draw_integer, mix_bits
from treekit.kernels.records import (
    BAD_NUMBER,
    MISSING,
    SUBSET,
    THRESHOLD,
    choose_missing_branch,
    clear_split,
    is_better,
    is_finite,
    replace_split,
    report_statistics,
    sum_weight,
    write_sides,
)

# ---------------------------------------------------------------- search over columns

MAX_ROUNDS = 8
"""Draws of K tests after which a node stays a leaf if no test scored."""


@kernel
def find_random_split(node, scratch, criterion, rng, best_split):
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
    node, scratch, best_split = borrow_arrays((node, scratch, best_split))
    table, rows, state, work = node.table, node.rows, scratch.state, scratch.work
    split = best_split[0]
    known_only = node.rules.known_only
    codes, sides, children = borrow_arrays((work[0], work[1], scratch.ordered[:2]))
    packed = borrow_arrays(work[2:].reshape(-1).view(np.uint64))
    flat = borrow_arrays(table.codes.reshape(table.codes.size))
    m, s = np.uint64(len(rows.ids)), np.uint64(len(node.stats))
    codes, sides = codes[:m], sides[:m]
    form = pack_statistics(rows.cells, rows.values, m, s, node.weight, packed)
    place = choose_place(m, np.uint64(table.codes.shape[1]), scratch)
    n_features = np.uint64(len(table.n_codes))
    n_try = min(np.uint64(node.n_try), n_features)
    chosen, seed = np.int64(-1), np.uint64(0)
    drawn = 0
    while True:
        if chosen < 0:
            drawn += 1
            seed = draw_integer(state)  # for the tests of this round; columns use `state`
            clear_offers(criterion, scratch.offers)
        clear_split(split)
        tried = np.uint64(0)
        for j in range(n_features):
            if tried == n_try:
                break
            feature = pick_column(scratch, j, n_try, chosen)
            column = locate_column(table, flat, scratch.lines, feature, place)
            of_node = gather_codes(column, rows.ids, codes)
            is_constant = of_node.lowest == of_node.highest
            n_absent, has_known = of_node.n_absent, of_node.lowest != of_node.absent
            if is_constant and (n_absent == 0 or not has_known or known_only):
                continue  # a constant column does not count as a try: sparse tables still split
            tried += np.uint64(1)
            if criterion.use_choose:
                clear_split(split)
            known = np.int64(0)
            if table.nominal[feature] == 2 and not is_constant:
                count = tally_codes(column, rows, s, NO_LANES, scratch)
                form = np.uint64(0)  # `tally_codes` overwrote the packed statistics
                groups = make_groups(node, scratch, feature, count)
                known = groups.known
                try_branches(node, scratch, criterion, groups, split)
            else:
                test = _draw_test(node.table, seed, feature, of_node, sides)
                _try_test(
                    node, scratch, criterion, feature, test, of_node, (form, packed), sides,
                    children, split,
                )  # fmt: skip
            if not finish_column(node, scratch, criterion, feature, known, chosen, split):
                return
        if criterion.use_choose:
            chosen = choose_column(criterion, scratch.offers, split)
            useless = chosen < 0 and split.kind == 0
        else:
            useless = split.kind == 0 or split.score <= 1e-12 * node.impurity
        if chosen < 0 and not (useless and tried > np.uint64(0) and drawn < MAX_ROUNDS):
            return


class DrawnTest(NamedTuple):
    """A binary test of a column.

    Attributes
    ----------
    kind : int
        `THRESHOLD`, `SUBSET` or `MISSING`.
    cut : uint32
        Codes up to it go left, or for `SUBSET` sides up to it.
    threshold : float
    """

    kind: int
    cut: np.uint32
    threshold: float


@inlined
def _draw_test(table, seed, feature, of_node, sides):
    """Draw a `DrawnTest` of one column; the sides of categories are written to `sides`."""
    nominal, low = table.nominal[feature], table.low
    if of_node.lowest == of_node.highest:  # a single known value: split known (left) from missing
        return DrawnTest(np.int64(MISSING), of_node.lowest, np.nan)
    if nominal == 0:
        start = np.uint64(table.value_start[feature])
        a = decode_value(of_node.lowest, of_node.absent, low, start)
        b = decode_value(of_node.highest, of_node.absent, low, start)
        threshold = draw_threshold(seed, feature, a, b)
        cut = find_cut_code(threshold, of_node, low, start)
        return DrawnTest(np.int64(THRESHOLD), cut, threshold)
    if nominal == 3:
        draw_one_category(seed, feature, of_node, sides)
    else:
        draw_sides(seed, feature, of_node, sides)
    return DrawnTest(np.int64(SUBSET), np.uint32(0), np.nan)


@inlined
def _try_test(node, scratch, criterion, feature, test, of_node, words, sides, children, split):
    """Keep a drawn test if it beats the best so far.

    Parameters
    ----------
    of_node : NodeCodes
    words : (form, packed)
        From `treekit.kernels.node_statistics.pack_statistics`.
    sides : (rows,) uint32
        Side of each row of the node.
    children : (2, S) float64
        Working memory.
    """
    stats, cells, values = node.stats, node.rows.cells, node.rows.values
    known, left, best = scratch.compact[0], scratch.start, scratch.best
    levels, sign = scratch.levels, scratch.offers[3, feature]
    m, s, dense = np.uint64(len(values)), np.uint64(len(stats)), len(cells) == 0
    known_only, given = node.rules.known_only, s + np.uint64(2)
    nominal, limit = node.table.nominal[feature], node.min_weight_leaf
    codes, absent, gone = of_node.codes, of_node.absent, of_node.n_absent
    tested = sides if test.kind == SUBSET else codes
    sum_side(tested, np.uint32(0), test.cut, cells, values, words, m, s, left)
    totals, known_weight, share, lost = stats, node.weight, 1.0, best[2:]
    if gone > 0:
        sum_side(tested, absent, absent, cells, values, words, m, s, lost)
        for k in range(s):
            known[k] = stats[k] - lost[k]
        known_weight = sum_weight(known, dense)
        if known_only:
            totals, share = known, known_weight / node.weight
    if nominal == 0 and node.rules.min_side_share > 0.0:
        limit = compute_side_limit(node.rules.min_side_share * known_weight, limit)
    for side in range(1, -1, -1):
        if side == 0 and (gone == 0 or test.kind == MISSING or known_only):
            break
        for k in range(s):
            children[0, k] = left[k] + (lost[k] if side == 0 else 0.0)
            children[1, k] = totals[k] - children[0, k]
        left_weight = sum_weight(children[0], dense)
        right_weight = sum_weight(children[1], dense)
        if not min(left_weight, right_weight) >= max(limit, 5e-324):
            continue
        if (
            test.kind == THRESHOLD
            and sign != 0.0
            and not is_within_constraint(
                children[0, 1] / left_weight,
                children[1, 1] / right_weight,
                sign,
                best[given + np.uint64(LOWEST)],
                best[given + np.uint64(HIGHEST)],
            )
        ):
            continue
        score = criterion.branch_score(totals, children, 0) * share
        if not is_finite(score):
            report_statistics(BAD_NUMBER, children[0], best, split)
            return
        if not is_better(score, np.int64(feature), np.int64(1 - side), node.impurity, split):
            continue
        replace_split(split, test.kind, feature, score, 1 - side)
        write_sides(scratch.pair, children[0], totals)
        if test.kind == MISSING:
            continue
        split.missing = choose_missing_branch(
            side, gone > 0 and not known_only, node.rules.right_if_even, left_weight,
            left_weight + right_weight,
        )  # fmt: skip
        if test.kind == THRESHOLD:
            split.cut, split.after = np.int64(test.cut), np.int64(test.cut) + 1
            split.threshold = test.threshold
        else:
            split.levels = np.int64(absent)
            for level in range(np.uint64(absent)):
                levels[level] = 1 if nominal == 3 else -1  # category not present at the node
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


class NodeCodes(NamedTuple):
    """The codes of a node's rows in one column.

    Attributes
    ----------
    codes : (rows,) uint32
    lowest, highest : uint32
        Of the known ones; if no value is known, both are `absent`.
    absent : uint32
        The code of missing values.
    n_absent : int
        Number of rows with a missing value.
    """

    codes: npt.NDArray[np.uint32]
    lowest: np.uint32
    highest: np.uint32
    absent: np.uint32
    n_absent: int


@inlined
def gather_codes(column, ids, codes):
    """Copy the codes of the rows `ids` in one column to `codes`; return the `NodeCodes`."""
    all_codes, first, step, absent = column
    m = np.uint64(len(ids))
    for i in range(m):
        codes[i] = all_codes[first + np.uint64(ids[i]) * step]
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
    return NodeCodes(codes, lowest, highest, absent, gone)


@inlined
def decode_value(code, absent, low, start):
    """Return the number behind a code: the key's, or the smallest with that rank."""
    if absent != MISSING_KEY:
        return low[start + np.uint64(code)]
    top = np.uint32(0x80000000)
    bits = np.uint32(code ^ top if code >= top else ~code)
    return np.float64(bits.view(np.float32))


@inlined
def draw_threshold(seed, feature, a, b):
    """Draw a number uniformly from [a, b)."""
    share = (mix_bits(seed, feature) >> np.uint64(11)) * 2.0**-53
    threshold = a + share * (b - a)
    if not threshold < np.inf:  # b - a may overflow
        threshold = a * (1.0 - share) + b * share
    return threshold if a <= threshold < b else a


@inlined
def find_cut_code(threshold, of_node, low, start):
    """Return the last code, at or between the node's codes, whose number is up to the threshold.

    A key is computed from the rounded threshold.  With ranks, only the rows whose code is
    between the nearest codes found so far are looked up: after a few rows there are hardly
    any (a binary search is slower, because it reads numbers that are not in the cache).
    """
    if of_node.absent == MISSING_KEY:
        top = np.uint32(0x80000000)
        rounded = np.float32(threshold)
        bits = rounded.view(np.uint32)
        key = np.uint32(~bits if bits > top else bits | top)  # -0.0 is 0.0
        return np.uint32(key - np.uint32(np.float64(rounded) > threshold))
    codes, below, above = of_node.codes, of_node.lowest, of_node.highest
    for i in range(np.uint64(len(codes))):
        code = codes[i]
        if below < code < above:
            if low[start + np.uint64(code)] <= threshold:
                below = code
            else:
                above = code
    return below


@inlined
def draw_sides(seed, feature, of_node, sides):
    """Draw a side, 0 or 1, for each category present, both used; `absent` for missing rows."""
    codes, absent = of_node.codes, of_node.absent
    for attempt in range(MAX_DRAWS + 1):
        salt = mix_bits(seed, feature + (np.uint64(attempt) << np.uint64(32)))
        any_left, any_right = False, False
        for i in range(np.uint64(len(codes))):
            code = codes[i]
            if code == absent:
                sides[i] = absent
                continue
            side = np.uint32(mix_bits(salt, np.uint64(code)) & np.uint64(1))
            if attempt == MAX_DRAWS:
                side = np.uint32(code != of_node.lowest)
            sides[i] = side
            any_right |= side > np.uint32(0)
            any_left |= side == np.uint32(0)
        if any_left and any_right:
            return


@inlined
def draw_one_category(seed, feature, of_node, sides):
    """Put one category, drawn uniformly from those present, on side 0 and the rest on side 1.

    It is the category with the smallest random number; `absent` for missing rows.
    """
    salt, codes, absent = mix_bits(seed, feature), of_node.codes, of_node.absent
    m = np.uint64(len(codes))
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
