"""Built-in axis-aligned splitters: the best test of a single column, over the columns tried.

The exact and the histogram splitter differ in the coding of columns, and in the fast search of
columns of bins whose rows are records (`treekit.kernels.row_records`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from treekit.kernels.compile import inlined, kernel, llvm_inlined
from treekit.kernels.cut_batches import (
    add_cuts,
    add_record_cuts,
    begin_column,
    fits_batch,
    is_plain_column,
    make_scorer,
    may_batch,
    must_take_cuts,
    scan_cuts,
    take_best_cut,
)
from treekit.kernels.function_pointers import borrow_arrays, borrow_row, find_lowest_bit
from treekit.kernels.monotonic import N_CUTS, SIGN
from treekit.kernels.node_statistics import (
    CODE_OF,
    CODES,
    MAX_LANES,
    NO_LANES,
    ORDER,
    choose_place,
    locate_column,
    pack_lanes,
    pack_record_lanes,
    sort_by_key,
    sort_rows,
    tally_codes,
)
from treekit.kernels.random_numbers import draw_column
from treekit.kernels.records import (
    BAD_CHOICE,
    BAD_NUMBER,
    BAD_ORDER,
    BAD_PENALTY,
    MISSING,
    MULTIWAY,
    SUBSET,
    THRESHOLD,
    TOLERANCE,
    choose_missing_branch,
    clear_split,
    is_better,
    is_finite,
    replace_split,
    report_statistics,
    sum_weight,
    write_sides,
)
from treekit.kernels.row_records import FORM, NO_RECORDS, PLAIN, SHORT

# ---------------------------------------------------------------- search over columns


@kernel
def find_axis_split(node, scratch, criterion, rng, best_split):
    """Find the best split of one node.

    Parameters
    ----------
    node : Node
    scratch : Scratch
    criterion : CriterionPointers
    rng : numpy.random.Generator
        For splitters that propose their own branches; not used here.
    best_split : (1,) SPLIT
        Receives the split.

    Cost: tries x rows, plus tries x codes for large nodes.
    """
    search_columns(node, scratch, criterion, True, None, None, best_split)


@kernel
def find_binned_split(node, scratch, criterion, rng, best_split):
    """Find the best split of one node as `find_axis_split`, by the fast search of records."""
    search_columns(node, scratch, criterion, True, True, None, best_split)


@inlined
def search_columns(node, scratch, criterion, by_row, records, counts, best_split):
    """Find the best split of one node on a single column, as `find_axis_split`.

    Parameters
    ----------
    by_row : bool or None
        None = the counts of codes are given, and no search of rows is compiled.
    records : bool or None
        None = the fast search of columns of records is not compiled.
    counts : (codes of the columns tried, S) float64, or None
        The node's counts in the order of its columns.
    """
    node, scratch, best_split = borrow_arrays((node, scratch, best_split))
    table, rows, split = node.table, node.rows, best_split[0]
    m, s, dense = np.uint64(len(rows.ids)), np.uint64(len(node.stats)), len(rows.cells) == 0
    n_features = np.uint64(len(table.n_codes))
    n_try = min(np.uint64(node.n_try), n_features)
    clear_offers(criterion, scratch.offers)
    is_batched, in_records = may_batch(node, criterion), False
    width = batch_width = NO_LANES
    if by_row is not None:
        flat = borrow_arrays(table.codes.reshape(table.codes.size))
        place = choose_place(m, np.uint64(table.codes.shape[1]), scratch)
        by_term = criterion.use_terms and node.rules.resolution == 0.0 and not criterion.use_penalty
        form = scratch.layout[np.uint64(FORM)]
        if form == np.uint64(PLAIN) or form == np.uint64(SHORT):
            width = pack_record_lanes(rows, m, s, node.weight, scratch)
        else:
            width = pack_lanes(rows, m, s, node.weight, scratch)
        if records is not None:
            in_records = is_batched and form != np.uint64(NO_RECORDS) and s <= np.uint64(MAX_LANES)
            in_records &= node.rules.min_side_share == 0.0
            batch_width = width if in_records else NO_LANES
    chosen = np.int64(-1)
    while True:
        clear_split(split)
        tried, at, n_cuts, n_columns = np.uint64(0), np.int64(0), np.uint64(0), np.uint64(0)
        for j in range(n_features + np.uint64(1)):
            is_over = j == n_features or tried == n_try
            if must_take_cuts(scratch, n_cuts, is_over):
                take_best_cut(
                    node, scratch, criterion, batch_width, in_records, n_cuts, n_columns, split
                )
                n_cuts, n_columns = np.uint64(0), np.uint64(0)
                if split.kind < 0:
                    return
            if is_over:
                break
            if counts is not None:
                if at == len(counts):  # further columns have not been counted
                    scratch.counts[LACKS_COLUMNS] = 1
                    clear_split(split)
                    return
            feature = pick_column(scratch, j, n_try, chosen)
            if records is not None:
                if in_records and is_plain_column(table, scratch, feature):
                    begin_column(scratch, feature, n_cuts, n_columns)
                    before = n_cuts
                    n_cuts, present = add_record_cuts(node, scratch, width, feature, n_cuts)
                    tried += np.uint64(present > np.uint64(1))
                    n_columns += np.uint64(n_cuts > before)
                    continue
            if counts is not None:
                if chosen >= 0:
                    at = find_counts(scratch.features, table.n_codes, feature)
                size = np.int64(table.n_codes[feature]) + 1
                count = gather_counts(counts[at : at + size], dense, scratch)
                at += size
            if by_row is not None:
                column = locate_column(table, flat, scratch.lines, feature, place)
                is_large = s * column.n_codes > m * ROWS_PER_CELL
                if by_term and is_large and table.nominal[feature] == 0:
                    known = sort_rows(column, rows.ids, scratch)
                    if known < 0:
                        continue
                    tried += np.uint64(1)
                    if not search_sorted_column(
                        node, scratch, criterion, feature, known, chosen, split
                    ):
                        return
                    continue
                count = tally_codes(column, rows, s, width, scratch)
            if count <= 1:
                continue  # a constant column does not count as a try: sparse tables still split
            tried += np.uint64(1)
            if is_batched and not in_records and fits_batch(node, scratch, feature, count, n_cuts):
                begin_column(scratch, feature, n_cuts, n_columns)
                before = n_cuts
                n_cuts = collect_cuts(node, scratch, criterion, count, n_cuts)
                n_columns += np.uint64(n_cuts > before)  # all cuts may be too light
            elif not search_counted_column(node, scratch, criterion, feature, count, chosen, split):
                return
        if not criterion.use_choose:
            return
        chosen = choose_column(criterion, scratch.offers, split)
        if chosen < 0:
            return


@inlined
def search_plain_columns(node, scratch, criterion, lanes):
    """Find the best cut of a node of a plain table, whose rows are records.

    Parameters
    ----------
    lanes : bool or None
        See `treekit.kernels.records.SplitSearch`.
    """
    node, scratch = borrow_arrays((node, scratch))
    rows, split = node.rows, scratch.split[0]
    m, s = np.uint64(len(rows.ids)), np.uint64(len(node.stats))
    n_features = np.uint64(len(node.table.n_codes))
    n_try = min(np.uint64(node.n_try), n_features)
    width = NO_LANES
    if lanes is not None:
        # Never 0: there are 2 to 32 classes that weigh less than 2**31 (`PLAIN`).  LLVM is told so,
        # and leaves out the code for statistics.
        width = max(pack_record_lanes(rows, m, s, node.weight, scratch), np.uint64(1))
    clear_split(split)
    tried, n_cuts, n_columns = np.uint64(0), np.uint64(0), np.uint64(0)
    for j in range(n_features + np.uint64(1)):
        is_over = j == n_features or tried == n_try
        if must_take_cuts(scratch, n_cuts, is_over):
            take_best_cut(node, scratch, criterion, width, True, n_cuts, n_columns, split)
            n_cuts, n_columns = np.uint64(0), np.uint64(0)
            if split.kind < 0:
                return
        if is_over:
            return
        feature = pick_column(scratch, j, n_try, np.int64(-1))
        begin_column(scratch, feature, n_cuts, n_columns)
        before = n_cuts
        n_cuts, present = add_record_cuts(node, scratch, width, feature, n_cuts)
        tried += np.uint64(present > np.uint64(1))
        n_columns += np.uint64(n_cuts > before)


# ---------------------------------------------------------------- counts instead of rows

LACKS_COLUMNS = np.uint64(0)
"""Entry of ``Scratch.counts``: 1 if a node drew constant columns and needs further ones."""


@inlined
def gather_counts(counts, dense, scratch):
    """Write the codes that have rows, and their statistics, to `scratch`; return how many."""
    s, flat = np.uint64(counts.shape[1]), scratch.flat
    code_of = scratch.work[np.uint64(CODE_OF)]
    count = np.uint64(0)
    for code in range(np.uint64(len(counts))):
        if sum_weight(counts[code], dense) > 0.0:
            code_of[count] = np.uint32(code)
            for k in range(s):
                flat[count * s + k] = counts[code, k]
            count += np.uint64(1)
    return np.int64(count)


@inlined
def find_counts(features, n_codes, feature):
    """Return the offset of a column's counts among those of the columns `features`."""
    at, j = np.int64(0), np.uint64(0)
    while np.uint64(features[j]) != feature:
        at += np.int64(n_codes[np.uint64(features[j])]) + 1
        j += np.uint64(1)
    return at


# ---------------------------------------------------------------- one column


@inlined
def collect_cuts(node, scratch, criterion, count, n_cuts):
    """Add the cuts of a counted column to the batch; return the number of cuts in it."""
    code_of = borrow_row(scratch.work, CODE_OF)
    return add_cuts(
        make_scorer(criterion, scratch.batch), scratch.flat, code_of, count, node.weight,
        compute_cut_limit(node), len(node.rows.cells) == 0, n_cuts,
    )  # fmt: skip


@inlined
def compute_cut_limit(node):
    """Return the least weight of either side of a cut, if all values are known."""
    limit = node.min_weight_leaf
    if node.rules.min_side_share > 0.0:
        limit = compute_side_limit(node.rules.min_side_share * node.weight, limit)
    return limit


@llvm_inlined
def search_counted_column(node, scratch, criterion, feature, count, chosen, split):
    """Search the counts of one column for a split, and keep it if it is the best so far.

    Parameters
    ----------
    feature : uint64
    count : int
        Codes present, including missing: ``work[CODE_OF, :count]``, with their statistics in
        ``compact[:count]``; at least two.
    chosen : int
        Column that the criterion chose, which is searched again; -1 = none yet.

    Returns
    -------
    bool
        Whether to search further columns; false after an error, and for the chosen column.
    """
    if criterion.use_choose:
        clear_split(split)
    groups = make_groups(node, scratch, feature, count)
    way = node.table.nominal[feature]
    if way == 2:
        try_branches(node, scratch, criterion, groups, split)
    else:
        _try_binary_splits(node, scratch, criterion, groups, way, split)
    return finish_column(node, scratch, criterion, feature, groups.known, chosen, split)


ROWS_PER_CELL = np.uint64(4)
"""Classes times codes per row above which cuts are scanned row by row."""


@llvm_inlined
def search_sorted_column(node, scratch, criterion, feature, known, chosen, split):
    """Search the sorted rows of one column for a cut, as `search_counted_column` its counts.

    With many classes most statistics of a code are 0; a row changes those of one class.

    Parameters
    ----------
    known : int
        Rows with a known value; see `treekit.kernels.node_statistics.sort_rows`.
    """
    if criterion.use_choose:
        clear_split(split)
    rows, rules = node.rows, node.rules
    order, codes = borrow_row(scratch.work, ORDER), borrow_row(scratch.work, CODES)
    start, best = scratch.start, scratch.best
    m, s = np.uint64(len(rows.ids)), np.uint64(len(node.stats))
    first_lost, known_weight, limit = np.uint64(known), node.weight, node.min_weight_leaf
    totals = scratch.ordered[0]
    for k in range(s):
        totals[k] = node.stats[k]
    for i in range(first_lost, m):
        weight = rows.values[np.uint64(order[i]), 0]
        known_weight -= weight
        if rules.known_only:
            totals[np.uint64(rows.cells[np.uint64(order[i])])] -= weight
    sides_of_missing = first_lost < m and not rules.known_only
    if rules.min_side_share > 0.0:
        limit = compute_side_limit(rules.min_side_share * known_weight, limit)
    share = known_weight / node.weight if rules.known_only else 1.0
    for side in range(1, -1, -1):
        for k in range(s):
            start[k] = 0.0
        last = known - 1
        if side == 0:
            if not sides_of_missing:
                break
            _add_rows(rows, order, first_lost, m, start)
        elif sides_of_missing:
            last = known
        at = criterion.row_scan(
            order, codes, rows.cells, rows.values, last, start, totals, limit, node.impurity, best
        )
        if at == -2:
            split.kind = BAD_NUMBER
            return False
        score = best[0] * share
        if at < 0 or not is_better(score, np.int64(feature), at, node.impurity, split):
            continue
        _add_rows(rows, order, np.uint64(0), np.uint64(at + 1), start)
        write_sides(scratch.pair, start, totals)
        if at == known - 1:  # all known values left, missing right
            replace_split(split, MISSING, feature, score, at)
            continue
        replace_split(split, THRESHOLD, feature, score, at)
        split.missing = choose_missing_branch(
            side, sides_of_missing, rules.right_if_even, best[1], known_weight
        )
        split.cut = np.int64(codes[np.uint64(order[np.uint64(at)])])
        split.after = np.int64(codes[np.uint64(order[np.uint64(at + 1)])])
    return finish_column(node, scratch, criterion, feature, known, chosen, split)


@inlined
def _add_rows(rows, order, begin, end, stats):
    """Add the rows at the positions ``order[begin:end]`` to the weights of classes, `stats`."""
    for i in range(begin, end):
        position = np.uint64(order[i])
        stats[np.uint64(rows.cells[position])] += rows.values[position, 0]


class Groups(NamedTuple):
    """Rows of a node, grouped by the codes of a column.

    Attributes
    ----------
    feature : uint64
    n_codes : int
        Codes of the column in all rows, not counting missing.
    known, count : int
        Groups with a known code; all groups (one more if missing rows follow).
    """

    feature: np.uint64
    n_codes: int
    known: int
    count: int


@inlined
def make_groups(node, scratch, feature, count):
    """Return the `Groups` of a column whose `count` codes are in ``work[CODE_OF]``."""
    n_codes = np.int64(node.table.n_codes[feature])
    lost = np.int64(scratch.work[CODE_OF, np.uint64(count - 1)]) == n_codes
    return Groups(feature, n_codes, np.int64(count) - np.int64(lost), np.int64(count))


@inlined
def clear_offers(criterion, offers):
    """Clear the columns' splits, for a criterion that chooses between them."""
    if criterion.use_choose:
        for j in range(np.uint64(offers.shape[1])):
            offers[0, j] = np.nan
            offers[1, j] = np.nan


@inlined
def finish_column(node, scratch, criterion, feature, known, chosen, split):
    """Offer the split of a column, if any, to a criterion that chooses between columns.

    Returns
    -------
    bool
        Whether to search further columns; false after an error, and for the chosen column.
    """
    if split.kind < 0 or chosen >= 0:
        return False
    if not criterion.use_choose or split.kind == 0:
        return True
    sides = scratch.pair
    if split.kind == MULTIWAY:
        sides = scratch.compact[:known]
    final = criterion.branch_score(node.stats, sides, 1) * split.shrink
    scratch.offers[0, feature] = split.score
    scratch.offers[1, feature] = final
    if not is_finite(final):
        report_statistics(BAD_NUMBER, sides[0], scratch.best, split)
    return is_finite(final)


@inlined
def choose_column(criterion, offers, split):
    """Return the column whose split the criterion chooses; -1 = none, or an invalid choice."""
    chosen = criterion.choose(offers[0], offers[1], offers[2])
    if 0 <= chosen < np.int64(offers.shape[1]):
        if not math.isnan(offers[0, np.uint64(chosen)]):
            return chosen
    split.kind = 0 if chosen == -1 else BAD_CHOICE
    return np.int64(-1)


@inlined
def pick_column(scratch, j, n_try, chosen):
    """Return the chosen column, or else the j-th one to try, drawn if not all are tried."""
    if chosen >= 0:
        return np.uint64(chosen)
    if n_try == np.uint64(len(scratch.features)):
        return j
    return draw_column(scratch.features, scratch.state, j)


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
def _merge_close_values(node, scratch, feature, known, count):
    """Merge groups of neighbouring values into one code each; return the number of groups.

    The code of a group is its last one; its first is in ``work[ORDER]``.
    Missing rows stay behind the last group.
    """
    code_of, first_of = scratch.work[CODE_OF], scratch.work[ORDER]
    low, high, flat = node.table.low, node.table.high, scratch.flat
    base, one = np.uint64(node.table.value_start[feature]), np.uint64(1)
    s = np.uint64(len(node.stats))
    resolution = node.rules.resolution
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


# ---------------------------------------------------------------- binary splits
# Cuts along an order, or subsets of categories.
#
# Every search is a sequence of steps: at each step some rows join the left side, and
# `scan_cuts` keeps the best position.  Numeric columns step along their
# codes, nominal columns along an order of the categories or through all subsets.

SUBSETS_PER_SCAN = 256
"""Number of category subsets in one scan."""

ALONG_CODES, ALONG_ORDER, ALL_SUBSETS = 0, 1, 2
"""Ways to step: along the codes, along an order of categories, through all subsets."""


@inlined
def _try_binary_splits(node, scratch, criterion, groups, way, split):
    """Try the binary splits of a column.

    `way` is the column's entry of `Table.nominal`: 0 tries cuts of numbers, 1 subsets of
    categories, 3 one category against the rest.
    """
    rules, compact, best, limit = node.rules, scratch.compact, scratch.best, node.min_weight_leaf
    known, count, s = groups.known, groups.count, np.uint64(len(node.stats))
    first_of = scratch.work[CODE_OF]
    if way == 0 and rules.resolution > 0.0:
        first_of = scratch.work[ORDER]
        known = _merge_close_values(node, scratch, groups.feature, known, count)
        count -= groups.known - known
    totals, known_weight = node.stats, node.weight
    if count > known:
        missing = compact[np.uint64(known)]
        known_weight = node.weight - sum_weight(missing, len(node.rows.cells) == 0)
        if rules.known_only:
            # Only known rows are cut: overwrite the statistics of the missing
            # rows with those of the known ones.
            for k in range(s):
                missing[k] = node.stats[k] - missing[k]
            totals = missing
    if way == 0 and rules.min_side_share > 0.0:
        limit = compute_side_limit(rules.min_side_share * known_weight, limit)
    groups = Groups(groups.feature, groups.n_codes, known, count)
    if way == 3:
        try_one_vs_rest(node, scratch, criterion, groups, totals, split)
        return
    best[s + np.uint64(2 + SIGN)] = scratch.offers[3, groups.feature]
    best[s + np.uint64(2 + N_CUTS)] = known - 1
    try_cuts(
        node, scratch, criterion, groups, way > 0, totals, known_weight, limit, first_of, split
    )


@llvm_inlined
def try_cuts(
    node, scratch, criterion, groups, nominal, totals, known_weight, limit, first_of, split
):
    """Keep the best binary split of a column, if it beats the best so far.

    Parameters
    ----------
    groups : Groups
        Rows of the table `compact`.
    totals, known_weight : (S,) float64, float
        Statistics to split, and weight of the rows with a known value.
    limit : float
        Minimum weight of either side.
    first_of : (known,) uint32
        First code of each group of neighbouring values that were merged.

    Missing rows are tried right, then left.  On the right, the last step is
    "known or missing".  Under `known_only` they are on neither side, `totals` are
    those of the known rows, and the score is scaled by their share.
    """
    feature, codes_in_all, known, count = groups
    work, compact, ordered, keys = scratch.work, scratch.compact, scratch.ordered, scratch.keys
    start, best, levels = scratch.start, scratch.best, scratch.levels
    weight, impurity, known_only = node.weight, node.impurity, node.rules.known_only
    n_keys = criterion.n_category_orders if nominal else 0
    use_penalty, dense = criterion.use_penalty and not nominal, len(node.rows.cells) == 0
    s = np.uint64(len(totals))
    sides_of_missing = count > known and not known_only
    share = known_weight / weight if known_only else 1.0
    code_of, order = work[CODE_OF], work[ORDER]
    unknown = np.uint64(known)
    way, attempts, table = ALONG_CODES, np.int64(1), compact
    # Two categories have a single subset.
    if n_keys > 1 and 3 <= known <= node.rules.exact_levels:
        way, table = ALL_SUBSETS, ordered
        attempts = ((np.int64(1) << (known - 1)) - 2) // SUBSETS_PER_SCAN + 1
    elif n_keys > 0:
        way, attempts, table = ALONG_ORDER, np.int64(n_keys), ordered
    for attempt in range(attempts):
        steps, closes = known - 1, True
        mask = np.uint64(0)
        if way == ALONG_ORDER:
            criterion.category_keys(compact, known, attempt, keys)
            if not check_keys(keys, known, compact, best, split):
                return
            sort_by_key(keys, known, order)
            for j in range(np.uint64(count)):  # missing rows stay last
                i = np.uint64(order[j]) if j < unknown else j
                for k in range(s):
                    ordered[j, k] = compact[i, k]
        elif way == ALL_SUBSETS:
            first = np.uint64(attempt * SUBSETS_PER_SCAN)
            mask = first ^ (first >> np.uint64(1))
            steps = min(
                (np.int64(1) << (known - 1)) - 1 - attempt * SUBSETS_PER_SCAN, SUBSETS_PER_SCAN
            )
            closes = attempt == attempts - 1
            _enumerate_subsets(compact, ordered, first, np.uint64(steps), s)
            if closes:  # the last Gray code has the last but one category alone
                last_but_one = unknown - np.uint64(2)
                for k in range(s):
                    rest = totals[k] - compact[last_but_one, k]
                    rest -= compact[unknown, k] if sides_of_missing else 0.0
                    ordered[np.uint64(steps), k] = rest
        for side in range(1, -1, -1):
            if side == 0 and (not sides_of_missing or known < 2):
                break
            last = steps + 1 if side == 1 and sides_of_missing and closes else steps
            for k in range(s):
                start[k] = compact[unknown, k] if side == 0 else 0.0
            for j in range(unknown):
                if (mask >> j) & np.uint64(1):
                    for k in range(s):
                        start[k] += compact[j, k]
            at = scan_cuts(
                make_scorer(criterion, scratch.scan), table, last, start, totals, limit, dense,
                impurity, node.rules.tolerance, best,
            )  # fmt: skip
            if at == -2:
                split.kind = BAD_NUMBER
                return
            rank = (np.int64(attempt) << 32) + at
            score = best[0] * share
            shrink = 1.0
            if use_penalty and at >= 0:
                candidates = _count_candidates(table, last, start, totals, limit, dense)
                fee = criterion.penalty(candidates, weight)
                if not is_finite(fee):
                    best[0] = candidates
                    split.kind = BAD_PENALTY
                    return
                paid = score - fee
                if not paid > 0.0:
                    continue
                score, shrink = paid, paid / score
            if at < 0 or not is_better(score, np.int64(feature), rank, impurity, split):
                continue
            replace_split(split, MISSING, feature, score, rank)
            split.shrink = shrink
            write_sides(scratch.pair, best[2:], totals)
            if at == steps:  # all known values left, missing right
                continue
            split.missing = choose_missing_branch(
                side, sides_of_missing, node.rules.right_if_even, best[1], known_weight
            )
            if way == ALONG_CODES:
                split.kind = THRESHOLD
                split.cut = np.int64(code_of[np.uint64(at)])
                split.after = np.int64(first_of[np.uint64(at + 1)])
                continue
            split.kind, split.levels = SUBSET, np.int64(codes_in_all)
            for level in range(np.uint64(codes_in_all)):
                levels[level] = -1
            if way == ALL_SUBSETS:
                step = np.uint64(attempt * SUBSETS_PER_SCAN + at + 1)
                members = step ^ (step >> np.uint64(1))
                for j in range(unknown):
                    levels[np.uint64(code_of[j])] = 0 if (members >> j) & np.uint64(1) else 1
            else:
                for j in range(unknown):
                    level = np.uint64(code_of[np.uint64(order[j])])
                    levels[level] = 0 if np.int64(j) <= at else 1


@inlined
def check_keys(keys, known, compact, best, split):
    """Check that the keys of the categories are finite; otherwise stop growth."""
    for j in range(np.uint64(known)):
        if not is_finite(keys[j]):
            report_statistics(BAD_ORDER, compact[j], best, split)
            return False
    return True


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


# ---------------------------------------------------------------- splits by single categories


@inlined
def try_branches(node, scratch, criterion, groups, split):
    """Try a split with one branch for each category in the node, or each declared one.

    Declared categories without rows have a branch if ``rules.empty_branches``.  Rows with
    missing values take the branch of largest weight, or no branch with ``rules.known_only``.
    """
    known, count = groups.known, groups.count
    if known < 2:
        return
    stats, dense, limit = node.stats, len(node.rows.cells) == 0, node.min_weight_leaf
    compact, s = scratch.compact, np.uint64(len(stats))
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
    if count > known and not node.rules.known_only:
        for k in range(s):
            compact[heaviest, k] += compact[np.uint64(known), k]
    score = criterion.branch_score(stats, compact[:known], 0)
    if not is_finite(score):
        report_statistics(BAD_NUMBER, compact[0], scratch.best, split)
        return
    write_branches(node, scratch, groups, heaviest, score, split)


@inlined
def write_branches(node, scratch, groups, heaviest, score, split):
    """Keep a split with a branch for each category if it is the best so far.

    Its branches are those of ``rules.empty_branches``; missing values follow category `heaviest`.
    """
    if not is_better(score, np.int64(groups.feature), np.int64(0), node.impurity, split):
        return
    empty, code_of, levels = node.rules.empty_branches, scratch.work[CODE_OF], scratch.levels
    replace_split(split, MULTIWAY, groups.feature, score, 0)
    split.levels = groups.n_codes
    split.branches = groups.n_codes if empty else groups.known
    split.missing = np.int64(code_of[heaviest]) if empty else np.int64(heaviest)
    for level in range(np.uint64(groups.n_codes)):
        levels[level] = np.int32(level) if empty else -1
    if not empty:
        for j in range(np.uint64(groups.known)):
            levels[np.uint64(code_of[j])] = np.int32(j)


@llvm_inlined
def try_one_vs_rest(node, scratch, criterion, groups, totals, split):
    """Find the best split of one category against the rest; keep it if it is the best so far.

    Parameters
    ----------
    groups : Groups
        Rows of the table `compact`.
    totals : (S,) float64
        Sum of the two sides: `stats`, or with `known_only` the sum over rows with known values.

    With ``rules.levels_by_score``, categories are compared by the criterion's score instead of
    the gain; of scores that differ by at most ``rules.tolerance``, the first is kept.

    Rows with missing values are put on the right, then on the left, and last in a separate
    branch; with `known_only` they are on neither side.
    """
    feature, codes_in_all, known, count = groups
    stats, compact, children = node.stats, scratch.compact, scratch.ordered[:2]
    best, pair, levels = scratch.best, scratch.pair, scratch.levels
    dense, by_score, impurity = len(node.rows.cells) == 0, node.rules.levels_by_score, node.impurity
    s = np.uint64(len(stats))
    unknown = np.uint64(known)
    lost = count > known and not node.rules.known_only
    singles = np.uint64(known if known > 1 else 0)
    which = 1 if by_score else 0
    kept_at, kept_side, bar, gain = np.int64(-1), 1, -np.inf, -np.inf
    for at in range(singles + np.uint64(lost)):
        for side in range(1, -1, -1):
            if side == 0 and (not lost or at == singles):
                break
            for k in range(s):
                single = compact[at, k] if at < singles else totals[k] - compact[unknown, k]
                if side == 0:
                    single += compact[unknown, k]
                children[0, k] = single
                children[1, k] = totals[k] - single
            left, right = sum_weight(children[0], dense), sum_weight(children[1], dense)
            if min(left, right) < node.min_weight_leaf:
                continue
            judged = criterion.branch_score(stats, children, which)
            kept = judged > bar and is_finite(judged)
            if kept:
                kept_at, kept_side = np.int64(at), side
                bar = judged + max(TOLERANCE * max(abs(judged), impurity), node.rules.tolerance)
                gain = criterion.branch_score(stats, children, 0) if by_score else judged
            if kept or not is_finite(judged):
                for k in range(s):
                    best[k + np.uint64(2)] = children[0, k]
            if not is_finite(judged) or (kept_at >= 0 and not is_finite(gain)):
                split.kind = BAD_NUMBER
                return
    if kept_at < 0 or not is_better(gain, np.int64(feature), kept_at, impurity, split):
        return
    replace_split(split, MISSING, feature, gain, kept_at)
    write_sides(pair, best[2:], totals)
    if kept_at == np.int64(singles):
        return
    split.kind, split.levels = SUBSET, np.int64(codes_in_all)
    left_weight = sum_weight(pair[0], dense)
    split.missing = choose_missing_branch(
        kept_side, lost, node.rules.right_if_even, left_weight,
        left_weight + sum_weight(pair[1], dense),
    )  # fmt: skip
    for level in range(np.uint64(codes_in_all)):
        levels[level] = 1
    levels[np.uint64(scratch.work[CODE_OF, np.uint64(kept_at)])] = 0


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
        Output: the scores.

    Cost: categories x classes x `POWER_ITERATIONS`, by the power iteration.
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
