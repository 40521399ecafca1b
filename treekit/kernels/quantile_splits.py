"""Built-in splitters for a rank target: the best test of a single column.

The counterpart of `treekit.kernels.axis_splits` for statistics that do not add up:
the sides of every cut are computed in two sweeps over the column's rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from treekit.kernels.axis_splits import (
    check_keys,
    choose_column,
    clear_offers,
    finish_column,
    make_groups,
    pick_column,
    write_branches,
)
from treekit.kernels.compile import inlined, kernel
from treekit.kernels.cut_batches import make_scorer, scan_sides
from treekit.kernels.function_pointers import borrow_arrays, find_lowest_bit
from treekit.kernels.node_statistics import (
    CODE_OF,
    CODES,
    ORDER,
    OTHER_ORDER,
    choose_place,
    copy_codes,
    locate_column,
    sort_by_key,
    sort_positions,
)
from treekit.kernels.quantile_statistics import (
    SLACK,
    SMALLEST_WEIGHT,
    lay_out_rows,
    summarise_rows,
)
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
)

# ---------------------------------------------------------------- search over columns


@kernel
def find_quantile_split(node, scratch, criterion, rng, best_split):
    """Find the best split of one node; see `treekit.kernels.axis_splits.find_axis_split`.

    Penalties and C4.5's limits (`treekit.kernels.records.SplitRules`) apply to
    classification only and are ignored here.

    Cost: tries x rows (see `treekit.kernels.quantile_splits.sweep_cuts`).
    """
    node, scratch, best_split = borrow_arrays((node, scratch, best_split))
    table, rows, work, split = node.table, node.rows, scratch.work, best_split[0]
    flat = borrow_arrays(table.codes.reshape(table.codes.size))
    n_rows, n_features = np.uint64(table.codes.shape[1]), np.uint64(len(table.n_codes))
    place = choose_place(np.uint64(len(rows.ids)), n_rows, scratch)
    n_try = min(np.uint64(node.n_try), n_features)
    ends = work[GROUP_ENDS]
    ranked = lay_out_rows(rows.values, node.quantile, scratch.start)
    clear_offers(criterion, scratch.offers)
    chosen = np.int64(-1)
    while True:
        clear_split(split)
        tried = np.uint64(0)
        for j in range(n_features):
            if tried == n_try:
                break
            feature = pick_column(scratch, j, n_try, chosen)
            column = locate_column(table, flat, scratch.lines, feature, place)
            count = group_rows(column, rows.ids, work, scratch.counts, scratch.words)
            if count == 1:
                continue
            tried += np.uint64(1)
            if criterion.use_choose:
                clear_split(split)
            groups = make_groups(node, scratch, feature, count)
            if table.nominal[feature] > 0:
                for g in range(np.uint64(count)):
                    begin = ends[g - np.uint64(1)] if g > np.uint64(0) else 0
                    stats = scratch.compact[g]
                    summarise_rows(rows.values, work[ORDER], begin, ends[g], node.quantile, stats)
            if node.rules.known_only and groups.known < 2:
                continue
            if table.nominal[feature] == 2:
                try_branches(node, scratch, criterion, groups, split)
            else:
                _try_cuts(node, scratch, criterion, groups, ranked, split)
            if not finish_column(node, scratch, criterion, feature, groups.known, chosen, split):
                return
        if not criterion.use_choose:
            return
        chosen = choose_column(criterion, scratch.offers, split)
        if chosen < 0:
            return


@inlined
def _try_cuts(node, scratch, criterion, groups, ranked, split):
    """Try binary splits of a column, as in `treekit.kernels.axis_splits`."""
    feature, codes_in_all, known, count = groups
    stats, known_only, work = node.stats, node.rules.known_only, scratch.work
    compact, keys, sides, pair = scratch.compact, scratch.keys, scratch.ordered, scratch.pair
    levels, best = scratch.levels, scratch.best
    n_keys = criterion.n_category_orders if node.table.nominal[feature] == 1 else 0
    order, stops, places = work[ORDER], work[GROUP_ENDS], work[GROUP_ORDER]
    first_of, two = work[CODE_OF], np.uint64(2)
    for attempt in range(max(n_keys, 1)):
        if n_keys > 0:
            criterion.category_keys(compact, known, attempt, keys)
            if not check_keys(keys, known, compact, best, split):
                return
            sort_by_key(keys, known, places)  # stable: equal keys in the order of codes
            order, stops = work[OTHER_ORDER], work[ORDERED_ENDS]
            _arrange_groups(places, known, count, work, order, stops)
        for side in range(1, -1, -1):
            if side == 0 and (count == known or known < 2 or known_only):
                break
            apart = known_only and count > known
            last = known - 1 if apart or side == 0 else count - 1
            aside = known if apart or side == 0 else -1
            sweep_cuts(ranked, order, stops, aside, not apart, last, scratch.words, sides)
            totals = sides[two * np.uint64(last)] if apart else stats
            limit, impurity = node.min_weight_leaf, node.impurity
            at = scan_sides(
                make_scorer(criterion, scratch.scan), sides, last, totals, limit, impurity,
                node.rules.tolerance, best,
            )  # fmt: skip
            if at == -2:
                split.kind = BAD_NUMBER
                return
            rank = (np.int64(attempt) << 32) + at
            score = best[0] * totals[0] / stats[0]
            if at < 0 or not is_better(score, np.int64(feature), rank, impurity, split):
                continue
            replace_split(split, MISSING, feature, score, rank)
            row = two * np.uint64(at)
            for k in range(np.uint64(4)):
                pair[0, k], pair[1, k] = sides[row, k], sides[row + np.uint64(1), k]
            if at == known - 1 and not apart:  # all known values left, missing right
                continue
            split.missing = side
            if count == known or apart:  # no missing rows in training: the heavier branch
                split.missing = choose_missing_branch(
                    side, False, node.rules.right_if_even, pair[0, 0], pair[0, 0] + pair[1, 0]
                )
            if n_keys == 0:
                split.kind = THRESHOLD
                split.cut = np.int64(first_of[np.uint64(at)])
                split.after = np.int64(first_of[np.uint64(at + 1)])
                continue
            split.kind, split.levels = SUBSET, codes_in_all
            for level in range(np.uint64(codes_in_all)):
                levels[level] = -1
            for j in range(np.uint64(known)):
                level = np.uint64(first_of[np.uint64(places[j])])
                levels[level] = 0 if np.int64(j) <= at else 1


@kernel
def _arrange_groups(places, known, count, work, arranged, stops):
    """Write groups of rows in the order of `places`; a group that it leaves out stays last."""
    zero, one = np.uint64(0), np.uint64(1)
    order, ends = work[ORDER], work[GROUP_ENDS]
    to = zero
    for j in range(np.uint64(count)):
        group = np.uint64(places[j]) if j < np.uint64(known) else j
        begin = np.uint64(ends[group - one]) if group > zero else zero
        for i in range(begin, np.uint64(ends[group])):
            arranged[to] = order[i]
            to += one
        stops[j] = np.uint32(to)


# ---------------------------------------------------------------- groups of rows by code

GROUP_ENDS, ORDERED_ENDS, GROUP_ORDER = 4, 5, 6
"""Further rows of ``Scratch.work`` for rank targets.

The ends of groups, their ends in another order, and that order.
"""

PAIRWISE_ROWS = 64
"""Number of rows up to which ranks are found by counting smaller keys: branch-free, m * m / 16."""

COUNTING_CODES_PER_ROW = 64
"""Number of codes per row up to which counting beats a radix sort."""


@inlined
def group_rows(column, ids, work, counts, words):
    """Sort a node's rows by code.

    Parameters
    ----------
    column : Column
    ids : (rows,) uint32
        The node's rows.
    work, counts, words : arrays
        Arrays of the `Scratch`.  Output: the positions, ascending within a group, in
        ``work[ORDER]``, the end of each group in ``work[GROUP_ENDS]``, and its code in
        ``work[CODE_OF]``.

    Returns
    -------
    count : int
        Number of groups.  If it is 1, the arrays are not filled.
    """
    if len(ids) <= PAIRWISE_ROWS and column.n_codes < np.uint32(1 << 26):
        return _group_few_rows(column, ids, work)
    return _group_many_rows(column, ids, work, counts, words)


@inlined
def _group_few_rows(column, ids, work):
    """Group few rows by sorting keys of code and position, which are all distinct."""
    codes, start, step = column.codes, column.first, column.step
    zero, one, m = np.uint64(0), np.uint64(1), np.uint64(len(ids))
    buffer, order = work[np.uint64(CODES)], work[np.uint64(ORDER)]
    code_of, ends = work[np.uint64(CODE_OF)], work[np.uint64(GROUP_ENDS)]
    bits, low = np.uint32(6), np.uint32(63)
    first, differ = np.uint32(codes[start + np.uint64(ids[zero]) * step]), np.uint32(0)
    for i in range(m):
        code = np.uint32(codes[start + np.uint64(ids[i]) * step])
        buffer[i] = (code << bits) | np.uint32(i)
        differ |= code ^ first
    if differ == np.uint32(0):
        return np.int64(1)
    for i in range(m):
        key = buffer[i]
        smaller = np.uint32(0)
        for j in range(m):
            smaller += np.uint32(buffer[j] < key)
        order[np.uint64(smaller)] = key
    count, code = zero, order[zero] >> bits
    order[zero] &= low
    code_of[zero] = code
    for j in range(one, m):
        key = order[j]
        order[j] = key & low
        ends[count] = np.uint32(j)
        count += np.uint64((key >> bits) != code)
        code = key >> bits
        code_of[count] = code
    ends[count] = np.uint32(m)
    return np.int64(count + one)


@kernel
def _group_many_rows(column, ids, work, counts, words):
    m = np.uint64(len(ids))
    buffer, order = work[np.uint64(CODES)], work[np.uint64(ORDER)]
    code_of, ends = work[np.uint64(CODE_OF)], work[np.uint64(GROUP_ENDS)]
    lowest, highest = copy_codes(column, ids, buffer)
    if lowest == highest:
        return np.int64(1)
    span = np.uint64(highest - lowest) + np.uint64(1)
    if span <= np.uint64(COUNTING_CODES_PER_ROW) * m:
        return _group_by_counting(buffer, order, m, lowest, span, counts, words, code_of, ends)
    sort_positions(buffer, order, work[np.uint64(OTHER_ORDER)], counts, m, lowest, highest)
    one, count = np.uint64(1), np.uint64(0)
    for j in range(m):
        code = buffer[np.uint64(order[j])]
        if j == np.uint64(0) or code != code_of[count - one]:
            code_of[count] = code
            count += one
        ends[count - one] = np.uint32(j + one)
    return np.int64(count)


@inlined
def _group_by_counting(buffer, order, m, lowest, span, counts, present, code_of, ends):
    """Group rows by counting sort over the codes present, which a bitmap marks."""
    one, six, low = np.uint64(1), np.uint64(6), np.uint64(63)
    words = ((span - one) >> six) + one
    for w in range(words):
        present[w] = np.uint64(0)
    for i in range(m):
        code = np.uint64(buffer[i] - lowest)
        word, bit = present[code >> six], code & low
        seen = np.uint32((word >> bit) & one)
        counts[code] = counts[code] * seen + np.uint32(1)
        present[code >> six] = word | (one << bit)
    count, to = np.uint64(0), np.uint32(0)
    for w in range(words):
        word = present[w]
        while word:
            code = (w << six) + find_lowest_bit(word)
            word &= word - one
            begin = to
            to += counts[code]
            counts[code] = begin
            code_of[count] = lowest + np.uint32(code)
            ends[count] = to
            count += one
    for i in range(m):
        code = np.uint64(buffer[i] - lowest)
        at = counts[code]
        order[np.uint64(at)] = np.uint32(i)
        counts[code] = at + np.uint32(1)
    return np.int64(count)


# ---------------------------------------------------------------- splits by single categories


@inlined
def try_branches(node, scratch, criterion, groups, split):
    """Try one branch for each category, as in `treekit.kernels.axis_splits`."""
    known, count, quantile, values = groups.known, groups.count, node.quantile, node.rows.values
    stats, compact, work, limit = node.stats, scratch.compact, scratch.work, node.min_weight_leaf
    order, other, ends = work[ORDER], work[OTHER_ORDER], work[GROUP_ENDS]
    one, heaviest, enough = np.uint64(1), np.uint64(0), 0
    for j in range(np.uint64(known)):
        if compact[j, 0] > compact[heaviest, 0]:
            heaviest = j
        enough += 1 if compact[j, 0] >= limit else 0
    if known < 2 or enough < 2:
        return
    totals, last = stats, np.uint64(known) - one
    if count > known and node.rules.known_only:
        totals = compact[np.uint64(known)]  # overwrites the missing rows, no longer needed
        _select_known(order, ends[last], len(values), other)
        summarise_rows(values, other, 0, ends[last], quantile, totals)
    elif count > known:
        _merge_groups(order, ends, heaviest, np.uint64(known), other)
        first = ends[heaviest - one] if heaviest > np.uint64(0) else 0
        joined = ends[heaviest] - first + ends[last + one] - ends[last]
        summarise_rows(values, other, 0, joined, quantile, compact[heaviest])
    score = criterion.branch_score(totals, compact[:known], 0) * totals[0] / stats[0]
    if not is_finite(score):
        report_statistics(BAD_NUMBER, compact[0], scratch.best, split)
        return
    write_branches(node, scratch, groups, heaviest, score, split)


@kernel
def _select_known(order, known, rows, kept):
    """Write the first `known` positions of `order`, ascending."""
    there = np.zeros(rows, np.bool_)
    for j in range(np.uint64(known)):
        there[np.uint64(order[j])] = True
    to = np.uint64(0)
    for i in range(np.uint64(rows)):
        if there[i]:
            kept[to] = np.uint32(i)
            to += np.uint64(1)


@kernel
def _merge_groups(order, ends, one_group, other_group, joined):
    """Merge the rows of two groups, ascending."""
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


# ---------------------------------------------------------------- sides of cuts
# Both sides of every cut along a column, in one pass over the rows each.
#
# A side is a set of ranks with its quantile: the row, and the sums of the side's rows before
# it.  The ranks are a linked list: the right sides lose the rows of one group after the other
# from the first on, the left sides from the last on.  Removing a row moves the quantile by about
# a row; as the direction of a step is unpredictable, it is computed without branches.
#
# If weights are so unequal that the quantile could move over many rows at a time, a Fenwick
# tree (1994) finds it, at the cost of a logarithmic factor.

NEXT, PREVIOUS = np.uint64(0), np.uint64(1)


class Side(NamedTuple):
    """One side of a cut.

    Attributes
    ----------
    weight, total : float
        Weight and sum of its rows.
    at, before, sum_before : uint64, float, float
        Index of the row at the quantile, and weight and sum of the side's rows before it.
    """

    weight: float
    total: float
    at: np.uint64
    before: float
    sum_before: float


@kernel
def sweep_cuts(ranked, order, ends, aside, joins, cuts, words, sides):
    """Compute the statistics of both sides of every cut.

    Cost: linear in the rows; with ``ranked.tree`` a logarithmic factor more.

    Parameters
    ----------
    ranked : treekit.kernels.quantile_statistics.RankedRows
    order : (rows,) uint32
        Positions, group by group.
    ends : (groups,) uint32
        End of each group in `order`.
    aside : int
        Last group, if it is on the same side of all cuts; -1 = none.
    joins : bool
        Whether it is on the left; otherwise it is on neither side.
    cuts : int
        Cut j lies after group j.
    words : (rows + 1 or more,) uint64
        Working memory for the linked list.
    sides : (2 * cuts + 1, 4) float64
        Output: the left side of cut j in row 2j, the right side in row 2j + 1,
        and in the last row all rows except those of a group on neither side.
    """
    zero, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
    order, ends, links, sides = borrow_arrays((order, ends, words.view(np.uint32), sides))
    mass, place, tree = borrow_arrays((ranked.mass, ranked.place, ranked.tree))
    n, least, most = ranked.n, ranked.quantile - SLACK, ranked.quantile + SLACK
    side = _link_all_rows(ranked, mass, tree, links)
    kept, begin = n, zero  # rows order[:kept] are on either side
    if aside >= 0:
        kept = np.uint64(ends[np.uint64(aside) - one])
        side = _remove_rows(mass, tree, order, kept, n, links, side)
        side = _find_quantile(mass, tree, least, links, side)
        row = two * np.uint64(cuts)
        _write_side(mass, place, most, n, _find_next(links, side), side, sides, row)
    for j in range(np.uint64(cuts)):
        end = np.uint64(ends[j])
        side = _remove_rows(mass, tree, order, begin, end, links, side)
        side = _find_quantile(mass, tree, least, links, side)
        _write_side(mass, place, most, n, _find_next(links, side), side, sides, two * j + one)
        begin = end
    side = _link_all_rows(ranked, mass, tree, links)
    end = kept if joins else n
    for j in range(np.uint64(cuts), zero, -1):
        begin = np.uint64(ends[np.uint64(j) - one])
        side = _remove_rows(mass, tree, order, begin, end, links, side)
        side = _find_quantile(mass, tree, least, links, side)
        row = two * (np.uint64(j) - one)
        _write_side(mass, place, most, n, _find_next(links, side), side, sides, row)
        end = begin


@inlined
def _link_all_rows(ranked, mass, tree, links):
    """Put all rows into the linked list, which row `ranked.n`, of no weight, closes."""
    one, two = np.uint64(1), np.uint64(2)
    last = ranked.n
    for i in range(last + one):
        links[two * i + NEXT] = np.uint32(i + one)
        links[two * i + PREVIOUS] = np.uint32(i - one)
    links[two * last + NEXT], links[PREVIOUS] = np.uint32(0), np.uint32(last)
    if len(tree) > 0:
        _build_fenwick_tree(mass, last, tree)
    return Side(ranked.weight, ranked.total, ranked.at, ranked.before, ranked.sum_before)


@inlined
def _find_next(links, side):
    """Return the row after the quantile's; a number beyond the rows if there is none."""
    return np.uint64(links[np.uint64(2) * side.at + NEXT])


@inlined
def _remove_rows(mass, tree, order, begin, end, links, side):
    """Remove the rows ``order[begin:end]`` from a side.

    If the quantile's row is among them, the next row takes its place.
    """
    one, two = np.uint64(1), np.uint64(2)
    weight, total, at, before, sum_before = side
    for j in range(begin, end):
        i = np.uint64(order[j])
        w, wy = mass[two * i], mass[two * i + one]
        after, last = np.uint64(links[two * i + NEXT]), np.uint64(links[two * i + PREVIOUS])
        links[two * last + NEXT], links[two * after + PREVIOUS] = np.uint32(after), np.uint32(last)
        weight -= w
        total -= wy
        before -= w if i < at else 0.0
        sum_before -= wy if i < at else 0.0
        at = after if i == at else at
        if len(tree) > 0:
            _update_fenwick_tree(tree, i + one, -w, -wy)
    return Side(weight, total, at, before, sum_before)


@inlined
def _find_quantile(mass, tree, least, links, side):
    """Move from the side's former quantile to its present one."""
    one, two = np.uint64(1), np.uint64(2)
    weight, total, at, before, sum_before = side
    enough = max(least * weight, SMALLEST_WEIGHT)
    if len(tree) > 0:
        at, before, sum_before = _search_fenwick_tree(tree, enough)
        return Side(weight, total, at, before, sum_before)
    back, on = np.uint64(before >= enough), np.uint64(before + mass[two * at] < enough)
    there = np.uint64(links[two * at + back])
    passed = two * (there if back else at)
    step = np.float64(on) - np.float64(back)
    before += step * mass[passed]
    sum_before += step * mass[passed + one]
    at = there if back + on else at
    # A single row removed moves the quantile no further, unless weights differ.
    while before >= enough:
        at = np.uint64(links[two * at + PREVIOUS])
        before -= mass[two * at]
        sum_before -= mass[two * at + one]
    while before + mass[two * at] < enough:
        before += mass[two * at]
        sum_before += mass[two * at + one]
        at = np.uint64(links[two * at + NEXT])
    return Side(weight, total, at, before, sum_before)


@inlined
def _write_side(mass, place, most, n, after, side, sides, row):
    """Write the statistics of a side to a row of `sides`; `after` follows the quantile's row."""
    at, one, two = side.at, np.uint64(1), np.uint64(2)
    after = after if after < n else at
    upto, sum_upto = side.before + mass[two * at], side.sum_before + mass[two * at + one]
    tie = upto <= most * side.weight  # the midpoint to the next row
    q, centred, other = place[two * at], place[two * at + one], two * (after if tie else at)
    middle = 0.5 * q + 0.5 * place[other]
    centred_middle = 0.5 * (centred + place[other + one])
    q, centred = middle if tie else q, centred_middle if tie else centred
    before = side.before + np.float64(tie) * mass[two * at]
    sum_before = side.sum_before + np.float64(tie) * mass[two * at + one]
    sides[row, np.uint64(0)], sides[row, one] = side.weight, q
    sides[row, two] = max(0.0, centred * before - sum_before)
    sides[row, np.uint64(3)] = max(0.0, (side.total - sum_upto) - centred * (side.weight - upto))


@kernel
def _build_fenwick_tree(mass, rows, tree):
    """Build the Fenwick tree of the rows' weights and sums in `tree`, from index 1; linear."""
    one, two = np.uint64(1), np.uint64(2)
    tree[:] = 0.0
    for i in range(one, rows + one):
        tree[i, np.uint64(0)] += mass[two * (i - one)]
        tree[i, one] += mass[two * (i - one) + one]
        parent = i + (i & (~i + one))
        if parent <= rows:
            tree[parent, np.uint64(0)] += tree[i, np.uint64(0)]
            tree[parent, one] += tree[i, one]


@kernel
def _update_fenwick_tree(tree, at, w, wy):
    while at < np.uint64(len(tree)):
        tree[at, np.uint64(0)] += w
        tree[at, np.uint64(1)] += wy
        at += at & (~at + np.uint64(1))


@kernel
def _search_fenwick_tree(tree, enough):
    """Return the first row with a cumulative weight of `enough`, and the sums before it."""
    rows = np.uint64(len(tree)) - np.uint64(1)
    bit = np.uint64(1)
    while bit << np.uint64(1) <= rows:
        bit <<= np.uint64(1)
    at, before, sum_before = np.uint64(0), 0.0, 0.0
    while bit > np.uint64(0):
        to = at + bit
        if to <= rows and before + tree[to, np.uint64(0)] < enough:
            at = to
            before += tree[to, np.uint64(0)]
            sum_before += tree[to, np.uint64(1)]
        bit >>= np.uint64(1)
    return min(at, rows - np.uint64(1)), before, sum_before
