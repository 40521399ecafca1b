"""Surrogate splits: tests for rows whose value of the split feature is missing.

Breiman, Friedman, Olshen and Stone 1984, section 5.3; details as in rpart
(Therneau and Atkinson 1997): candidates are ranked by the weight of the rows
on which both tests agree, among all rows with a known split feature, so
that a column with many missing values ranks low; a candidate must beat
"all go with the majority" and send at least two rows each way.  Numeric cuts lie
between neighbouring values of all rows of the node, the first of equally good ones:
also of rows where only the surrogate is known.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import inlined, kernel
from treekit.kernels.function_pointers import borrow_arrays
from treekit.kernels.node_statistics import CODE_OF, NO_LANES, tally_codes
from treekit.kernels.partition_rows import extend_array, find_branch
from treekit.kernels.records import Column, Rows
from treekit.kernels.thresholds import find_last_code, find_readable_threshold

SURROGATE_DTYPE = np.dtype(
    [
        ("node", np.int64),
        ("feature", np.int64),
        ("below", np.int64),
        ("cut", np.int64),
        ("after", np.int64),
        ("level_start", np.int64),
        ("n_levels", np.int64),
    ],
    align=True,
)
"""A surrogate of a node.

Numeric columns: codes up to `cut` take branch `below`, `after` is the next
code present.  Nominal columns: a slice of the pool of category branches.
"""

AGREEMENT_MARGIN = 1e-10
"""Margin by which a candidate must beat the majority, as a share of the minority."""


class SurrogateSearch(NamedTuple):
    """Settings of surrogate splits, and working memory for one tree.

    Attributes
    ----------
    most : int
        Maximum number of surrogates per node.
    of_known : bool
        Rank candidates by their agreement as a share of the rows whose value they
        know (rpart's ``surrogatestyle=1``), and compare with the majority of these rows.
    right_and_wrong : bool
        Use rpart 4.1.19's condition on nominal candidates: at least two rows on
        which the tests agree and two on which they do not, instead of "two rows
        each way".
    ids, cells, values : (rows,) uint32, (rows,) uint32, (rows, 1) float64
        The rows of a node with a known split feature: number, branch, weight.
    routed, held_routed : (1, all rows) of the type of codes
        Branch of each training and held-out row: a column of codes 0 and 1.
    agreement : (features,) float64
        Weight on which the best test of a column agrees with the node's own.
    tests : (features, 2) int64
        Cut and branch below, of that test.
    """

    most: int
    of_known: bool
    right_and_wrong: bool
    ids: npt.NDArray[np.uint32]
    cells: npt.NDArray[np.uint32]
    values: npt.NDArray[np.float64]
    routed: npt.NDArray[np.uint8]
    held_routed: npt.NDArray[np.uint8]
    agreement: npt.NDArray[np.float64]
    tests: npt.NDArray[np.int64]


@kernel
def find_surrogates(node, grown, n_surrogates, route, table, rows, scratch, search):
    """Append the best surrogates of a node's test to those of the tree, best first.

    Parameters
    ----------
    node : int
    grown : treekit.kernels.grow_tree.GrowthArrays
        The used part of its branches of categories ends with the last surrogate's.
    n_surrogates : int
        Surrogates of the tree so far.
    route : Route
        The node's test.
    table : Table
    rows : Rows
        Rows of the tree; the first column of their values is weight.
    scratch : Scratch
    search : SurrogateSearch

    Returns
    -------
    surrogates, n_surrogates, levels
        Replaced by longer arrays if they were full.

    Cost: rows x columns.
    """
    zero, route, scratch = np.uint64(0), borrow_arrays(route), borrow_arrays(scratch)
    codes, n_codes, nominal = table.codes, table.n_codes, table.nominal
    split = grown.nodes[np.uint64(node)]
    surrogates, levels = grown.surrogates, grown.surrogate_levels
    feature, begin, end = np.uint64(split.feature), split.begin, split.end
    ids, values = rows.ids, rows.values
    m = np.uint64(0)
    left, right, lightest = 0.0, 0.0, np.inf
    for i in range(np.uint64(begin), np.uint64(end)):
        branch = find_branch(route, ids[i])
        if branch < 0:
            continue
        weight = values[i, zero]
        search.ids[m], search.cells[m], search.values[m, zero] = ids[i], np.uint32(branch), weight
        m += np.uint64(1)
        lightest = min(lightest, weight)
        left, right = (left + weight, right) if branch == 0 else (left, right + weight)
    # Two rows, or one row of weight two, which counts as two.
    least = min(2.0, 2.0 * lightest)
    majority = max(left, right)
    work, flat = scratch.work, scratch.flat
    n_rows, all_codes = np.uint64(codes.shape[1]), codes.reshape(codes.size)
    known_rows = Rows(search.ids[:m], search.cells[:m], search.values[:m])
    for f in range(np.uint64(len(n_codes))):
        search.agreement[f] = -1.0
        # A constrained column cannot be a surrogate: the branches of another column's
        # split do not follow its order.
        if f == feature or scratch.offers[np.uint64(3), f] != 0.0:
            continue
        column = Column(all_codes, f * n_rows, np.uint64(1), n_codes[f])
        count = tally_codes(column, known_rows, np.uint64(2), NO_LANES, scratch)
        if count == 1:
            continue
        known = count
        if work[np.uint64(CODE_OF), np.uint64(count - 1)] == n_codes[f]:
            known -= 1
        known_left, known_right = _sum_sides(flat, np.uint64(known))
        if nominal[f] > 0:
            agreement = _score_categories(
                flat, np.uint64(known), right > left, least, search.right_and_wrong
            )
        else:
            agreement = _score_cuts(
                flat,
                np.uint64(known),
                known_left,
                known_right,
                least,
                work[CODE_OF],
                search.tests[f],
            )
        base, base_majority = left + right, majority
        if search.of_known:
            base, base_majority = known_left + known_right, max(known_left, known_right)
        if agreement > base_majority + AGREEMENT_MARGIN * (base - base_majority):
            search.agreement[f] = agreement / base if search.of_known else agreement
    for _ in range(search.most):
        best, most = np.int64(-1), 0.0
        for f in range(np.uint64(len(n_codes))):
            if search.agreement[f] > most:
                best, most = np.int64(f), search.agreement[f]
        if best < 0:
            break
        f = np.uint64(best)
        search.agreement[f] = -1.0
        used = np.int64(0)
        if n_surrogates > 0:
            last = surrogates[np.uint64(n_surrogates - 1)]
            used = last.level_start + last.n_levels
        if n_surrogates == len(surrogates):
            surrogates = extend_array(surrogates, 2 * n_surrogates)
        this = surrogates[np.uint64(n_surrogates)]
        n_surrogates += 1
        this.node, this.feature, this.level_start, this.n_levels = node, best, used, 0
        this.cut, this.after, this.below = 0, 0, 0
        if nominal[f] == 0:
            this.cut, this.below = search.tests[f, 0], search.tests[f, 1]
            this.after = _find_next_code(codes[f], np.int64(n_codes[f]), this.cut, ids, begin, end)
            continue
        this.n_levels = np.int64(n_codes[f])
        if used + this.n_levels > len(levels):
            levels = extend_array(levels, max(2 * len(levels), used + this.n_levels))
        column = Column(all_codes, f * n_rows, np.uint64(1), n_codes[f])
        count = tally_codes(column, known_rows, np.uint64(2), NO_LANES, scratch)
        for level in range(np.uint64(this.n_levels)):
            levels[np.uint64(used) + level] = -1
        for j in range(np.uint64(count)):
            level = np.uint64(work[np.uint64(CODE_OF), j])
            if level < np.uint64(this.n_levels):
                goes = _choose_side(flat, j, right > left)
                levels[np.uint64(used) + level] = np.int32(goes)
    return surrogates, n_surrogates, levels


@inlined
def _choose_side(flat, j, default_right):
    """Return the branch of most of a category's rows; in a tie, the node's majority branch."""
    two = np.uint64(2)
    a, b = flat[two * j], flat[two * j + np.uint64(1)]
    return 1 if b > a or (b == a and default_right) else 0


@inlined
def _find_next_code(column, n_codes, cut, ids, begin, end):
    """Return the smallest code above `cut` among the rows of a node, which has such a code."""
    after = n_codes
    for i in range(np.uint64(begin), np.uint64(end)):
        code = np.int64(column[np.uint64(ids[i])])
        if cut < code < after:
            after = code
    return after


@inlined
def _sum_sides(flat, known):
    """Return the weights that the node's own test sends left and right, for `known` codes."""
    two = np.uint64(2)
    left, right = 0.0, 0.0
    for j in range(known):
        left += flat[two * j]
        right += flat[two * j + np.uint64(1)]
    return left, right


@inlined
def _score_categories(flat, known, default_right, least, right_and_wrong):
    """Return the agreement if each category takes its majority branch; -1 = too few rows."""
    two = np.uint64(2)
    agreement = 0.0
    sent = np.zeros(2)
    for j in range(known):
        a, b = flat[two * j], flat[two * j + np.uint64(1)]
        agreement += max(a, b)
        if right_and_wrong:
            sent[np.uint64(0)] += max(a, b)
            sent[np.uint64(1)] += min(a, b)
        else:
            sent[np.uint64(_choose_side(flat, j, default_right))] += a + b
    if min(sent[np.uint64(0)], sent[np.uint64(1)]) < least:
        return -1.0
    return agreement


@inlined
def _score_cuts(flat, known, left, right, least, code_of, test):
    """Find the best cut, in either direction; return its agreement, or -1 if there is none.

    The cut is written to `test`.
    """
    one, two = np.uint64(1), np.uint64(2)
    best = -1.0
    a, b = 0.0, 0.0
    for j in range(known - one if known > one else np.uint64(0)):
        a += flat[two * j]
        b += flat[two * j + one]
        if a + b < least or left + right - a - b < least:
            continue
        same, other = a + right - b, b + left - a
        if max(same, other) > best:
            best = max(same, other)
            test[0] = np.int64(code_of[j])
            test[1] = 0 if same >= other else 1
    return best


@kernel
def route_by_surrogates(table, row_table, route, rules, surrogates, levels, ids, routed):
    """Write the branch of each of the rows `ids` of the table `row_table` to ``routed[0]``.

    It is the branch of the node's test, or else of the first surrogate with a known value, or
    else the route's branch for missing values.

    Parameters
    ----------
    table, row_table : Table
        The table of the tests' codes, and the table of the rows.
    route : Route
        The node's test, on codes of `row_table`.
    rules : SplitRules
    surrogates : (surrogates,) SURROGATE
        Those of the node.
    levels : (pool,) int32
        Branches of categories of all surrogates.
    ids : (rows,) uint32
        The node's rows.
    """
    route, row_table = borrow_arrays(route), borrow_arrays(row_table)
    cuts = np.zeros(len(surrogates) + 1, np.int64)
    for k in range(np.uint64(len(surrogates))):
        this = surrogates[k]
        if this.n_levels == 0:
            f = np.uint64(this.feature)
            after = this.after if rules.midpoints else this.cut + 1
            low = table.high[np.uint64(table.value_start[f] + this.cut)]
            high = table.low[np.uint64(table.value_start[f] + after)]
            at = find_readable_threshold(low, high, rules.placement)
            cuts[k] = find_last_code(table, row_table, f, this.cut, after, at)
    for i in range(np.uint64(len(ids))):
        row = np.uint64(ids[i])
        branch = find_branch(route, row)
        for k in range(np.uint64(len(surrogates))):
            if branch >= 0:
                break
            this = surrogates[k]
            f = np.uint64(this.feature)
            code = np.int64(row_table.codes[f, row])
            if code >= np.int64(row_table.n_codes[f]):
                continue
            if this.n_levels == 0:
                branch = this.below if code <= cuts[k] else 1 - this.below
            else:
                branch = np.int64(levels[np.uint64(this.level_start + code)])
        routed[np.uint64(0), row] = route.missing if branch < 0 else branch
