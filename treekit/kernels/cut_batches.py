"""Cuts that are scored together, and the best of them.

A criterion scores a batch of cuts with one call, given the statistics of their left sides.  LLVM
vectorises its loop, which calls no other function and tracks no best cut.  A loop that also sums
rows and tracks the best cut takes three to five times as long (measured).

Of the cuts whose score is within the tolerance of the highest, the first one of the
lowest-numbered column is taken.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import called, inlined, llvm_inlined
from treekit.kernels.function_pointers import borrow_row, read_bits, write_bits
from treekit.kernels.monotonic import HIGHEST, LOWEST, N_CUTS, SIGN, is_within_constraint
from treekit.kernels.node_statistics import (
    CODE_OF,
    MAX_LANES,
    NO_LANES,
    count_lane_words,
    sum_lanes,
    sum_values,
    unpack_lanes,
)
from treekit.kernels.records import (
    BAD_NUMBER,
    MISSING,
    THRESHOLD,
    TOLERANCE,
    CutBatch,
    choose_missing_branch,
    is_better,
    is_finite,
    replace_split,
    sum_weight,
    write_sides,
)
from treekit.kernels.row_records import STEP

LANES = 8
"""Batches are padded to a multiple of this number of cuts, for whole vectors."""

CODE, AFTER, FEATURE, START, N_CUT_ROWS = range(5)
"""Rows of `CutBatch.cuts`: the codes below and above a cut; each column, and its first cut."""

_BATCH_CELLS = 2048
_MIN_CUTS = 520  # those of two columns of 255 codes, padded
# A column of records adds at most 509 cuts: 254 with missing values on the right, as many with
# them on the left, and that between known and missing values; a few places more are written.
_COLUMN_CUTS = 513
_MIN_SHARED_CUTS = 1040  # room for two such columns


def count_batch_cuts(n_sums: int) -> int:
    """Return the number of cuts in a batch: as many as remain in the cache."""
    return max(_BATCH_CELLS // n_sums // LANES * LANES, _MIN_CUTS)


class CutScorer(NamedTuple):
    """A criterion's function for batches of cuts, and a `treekit.kernels.records.CutBatch`.

    `score_cuts` is a pointer; see `treekit.compiling.criterion`.
    """

    score_cuts: Any
    sums: npt.NDArray[np.float64]
    scores: npt.NDArray[np.float64]
    cuts: npt.NDArray[np.uint32]
    left: npt.NDArray[np.float64]


@inlined
def make_scorer(criterion, batch):
    """Return the `CutScorer` of a criterion and a batch."""
    return CutScorer(criterion.score_cuts, batch.sums, batch.scores, batch.cuts, batch.left)


def allocate_batch(n_sums: int, size: int, n_cut_rows: int) -> CutBatch:
    """Return a batch for cuts of `size` statistics, of which `n_sums` are written."""
    is_shared = n_cut_rows > 1
    n = max(count_batch_cuts(size), _MIN_SHARED_CUTS if is_shared else 0)
    n_words = -(-size // 2) if is_shared and size <= MAX_LANES else 0
    return CutBatch(
        np.empty((n_sums, n)),
        np.empty(n),
        np.empty((n_cut_rows, n), np.uint32),
        np.empty(size),
        np.empty((n_words, n), np.uint64),
    )


# ---------------------------------------------------------------- scores

_MAGNITUDE = np.int64(0x7FFFFFFFFFFFFFFF)


@llvm_inlined
def score_batch(scorer, n, totals):
    """Score the first n cuts; return the highest score, and the first that is not finite, or n."""
    sums, scores = scorer.sums, scorer.scores
    one = np.uint64(1)
    last = n - one
    padded = (last | np.uint64(LANES - 1)) + one
    for k in range(np.uint64(sums.shape[0])):
        for j in range(n, padded):  # by the last cut: a criterion is given no impossible sides
            sums[k, j] = sums[k, last]
    scorer.score_cuts(sums, np.int64(padded), totals, scores)
    # LLVM finds the maximum of integers in vectors, but not of doubles.
    highest, largest = ~_MAGNITUDE, np.int64(0)
    for j in range(padded):
        bits = read_bits(scores[j])
        magnitude = bits & _MAGNITUDE
        order = bits ^ ((bits >> np.int64(63)) & _MAGNITUDE)  # ascending, also below 0
        largest = magnitude if magnitude > largest else largest
        highest = order if order > highest else highest
    bad = n
    if not is_finite(write_bits(largest)):
        bad = np.uint64(0)
        while is_finite(scores[bad]):
            bad += one
    return write_bits(highest ^ ((highest >> np.int64(63)) & _MAGNITUDE)), bad


@inlined
def compute_floor(highest, impurity, tolerance):
    """Return the lowest score that ties with the highest one."""
    return highest - max(TOLERANCE * max(abs(highest), impurity), tolerance)


# ---------------------------------------------------------------- cuts of one column


@called
def scan_cuts(scorer, rows, count, start, totals, limit, dense, impurity, tolerance, best):
    """Find the best cut along one order of groups of rows.

    Parameters
    ----------
    scorer : CutScorer
    rows : (groups, S) float64
        What moves to the left side at each cut.
    count : int
        Number of cuts.
    start : (S,) float64
        Left side before the first cut.
    totals : (S,) float64
        Sum of both sides.
    limit : float
        Least weight of a side.
    dense : bool
        Whether cell 0 is the weight; otherwise the weight is the sum of all cells.
    impurity, tolerance : float
        Of the node, and of the criterion, for ties.
    best : (S + 6,) float64
        On entry, the monotonic constraint of the column (`treekit.kernels.monotonic`) after S + 2
        cells.  Receives the score of the best cut, the weight and the statistics on its left; or
        the statistics for which the score is not finite.

    Returns
    -------
    int
        Position of the best cut, -1 if there is none, or -2 if a score is not finite.
    """
    return _scan(scorer, rows, count, start, totals, limit, dense, impurity, tolerance, best, None)


@called
def scan_sides(scorer, rows, count, totals, limit, impurity, tolerance, best):
    """Find the best cut as `scan_cuts`, given both sides of each cut: rows 2i and 2i + 1."""
    return _scan(scorer, rows, count, totals, totals, limit, True, impurity, tolerance, best, True)


@inlined
def _scan(scorer, rows, count, start, totals, limit, dense, impurity, tolerance, best, two_sided):
    sums, scores, places, left = scorer.sums, scorer.scores, scorer.cuts, scorer.left
    zero, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
    s, n_cuts, size = np.uint64(len(totals)), np.uint64(count), np.uint64(len(scorer.scores))
    whole = sum_weight(totals, dense)
    constraint = s + two
    sign, n_known = best[constraint + np.uint64(SIGN)], best[constraint + np.uint64(N_CUTS)]
    lowest, highest = best[constraint + np.uint64(LOWEST)], best[constraint + np.uint64(HIGHEST)]
    best_at, best_score = np.int64(-1), -np.inf
    top, floor, is_chain, is_second = -np.inf, -np.inf, False, False
    while True:
        for k in range(s):
            left[k] = start[k]
        i = zero
        while i < n_cuts:
            n = zero
            while i < n_cuts and n < size:
                if two_sided is None:
                    for k in range(s):
                        left[k] += rows[i, k]
                        sums[k, n] = left[k]
                    weight = sum_weight(left, dense)
                    is_allowed = weight >= limit and whole - weight >= limit  # sums are exact
                    if sign != 0.0 and is_allowed and i < np.uint64(n_known):
                        mean = (totals[one] - left[one]) / (whole - weight)
                        is_allowed = is_within_constraint(
                            left[one] / weight, mean, sign, lowest, highest
                        )
                else:
                    for k in range(s):
                        sums[k, n] = rows[two * i, k]
                        sums[k + s, n] = rows[two * i + one, k]
                    is_allowed = sums[zero, n] >= limit and sums[s, n] >= limit
                places[zero, n] = i
                n += np.uint64(is_allowed)
                i += one
            if n == zero:
                continue
            here, at = score_batch(scorer, n, totals)
            if at < n:
                best_at = np.int64(-2)
            else:
                if is_second:
                    if here < floor:
                        continue
                else:
                    if here <= top:
                        continue
                    floor = compute_floor(here, impurity, tolerance)
                    # A cut of an earlier batch that was not the first may be now.
                    is_chain = is_chain or best_score < floor <= top
                    top = here
                    if best_score >= floor:
                        continue
                at = zero
                while scores[at] < floor:
                    at += one
                best_at, best_score = np.int64(places[zero, at]), scores[at]
            for k in range(s):
                best[k + two] = sums[k, at]
            if best_at == -2 or is_second:
                break
        if best_at == -2 or is_second or not is_chain:
            break
        is_second = True
    best[zero] = best_score
    best[one] = best[two]
    if not dense:
        for k in range(one, s):
            best[one] += best[k + two]
    return best_at


# ---------------------------------------------------------------- cuts of several columns


@inlined
def may_batch(node, criterion):
    """Return whether cuts of several columns can be scored together.

    They can if none is merged or penalised, and the criterion does not choose between columns nor
    has a tolerance, which is for the cuts of one column.
    """
    rules = node.rules
    return not (
        criterion.use_choose
        or criterion.use_penalty
        or rules.resolution > 0.0
        or rules.tolerance > 0.0
    )


@inlined
def is_plain_column(table, scratch, feature):
    """Return whether a column is numeric and has no monotonic constraint."""
    return table.nominal[feature] == 0 and scratch.offers[3, feature] == 0.0


@inlined
def fits_batch(node, scratch, feature, count, n_cuts):
    """Return whether the batch has room for a column of numbers, unconstrained and all known."""
    code = scratch.work[CODE_OF, np.uint64(count - 1)]
    return (
        np.int64(code) != np.int64(node.table.n_codes[feature])
        and is_plain_column(node.table, scratch, feature)
        and np.uint64(count) <= np.uint64(len(scratch.batch.scores)) - n_cuts
    )


@inlined
def must_take_cuts(scratch, n_cuts, is_over):
    """Return whether to score the batch now: there is no other column, or hardly room for one."""
    usual = np.uint64(0) if is_over else np.uint64(len(scratch.batch.scores) - _COLUMN_CUTS)
    return n_cuts > usual


@inlined
def begin_column(scratch, feature, n_cuts, n_columns):
    """Note the column whose cuts follow the first `n_cuts` of the batch."""
    scratch.batch.cuts[FEATURE, n_columns] = feature
    scratch.batch.cuts[START, n_columns] = n_cuts


@llvm_inlined
def add_cuts(scorer, flat, code_of, count, whole, limit, dense, n):
    """Add the cuts of a column to the batch; return the number of cuts in it.

    Parameters
    ----------
    flat : (codes * S,) float64
        Statistics of each code.
    code_of : (codes,) uint32
    count : int
        Number of codes.
    whole, limit : float
        Weight of the node, and least weight of a side.
    n : uint64
        Number of cuts in the batch before.
    """
    sums, left = scorer.sums, scorer.left
    codes, afters = borrow_row(scorer.cuts, CODE), borrow_row(scorer.cuts, AFTER)
    zero, one = np.uint64(0), np.uint64(1)
    s, last = np.uint64(len(left)), np.uint64(count) - np.uint64(1)
    if s == np.uint64(2):
        first, second = 0.0, 0.0
        firsts, seconds = borrow_row(sums, zero), borrow_row(sums, one)
        for i in range(last):
            first += flat[i + i]
            second += flat[i + i + one]
            weight = first if dense else first + second
            firsts[n], seconds[n] = first, second
            codes[n], afters[n] = code_of[i], code_of[i + one]
            n += np.uint64((weight >= limit) & (whole - weight >= limit))
        return n
    for k in range(s):
        left[k] = 0.0
    at = zero
    for i in range(last):
        weight = 0.0
        for k in range(s):
            value = left[k] + flat[at + k]
            left[k] = value
            sums[k, n] = value
            weight += value
        at += s
        weight = left[zero] if dense else weight
        codes[n], afters[n] = code_of[i], code_of[i + one]
        n += np.uint64((weight >= limit) & (whole - weight >= limit))
    return n


@llvm_inlined
def add_record_cuts(node, scratch, width, feature, n):
    """Add the cuts of a column of records to the batch, as `add_cuts`.

    If values are missing, each cut is added twice, with them on the right and on the left; the
    last one added is that between known and missing values.

    Parameters
    ----------
    node : Node
        Its cells and statistics are not used if there are lanes.
    width : uint64
        Bits of a lane; 0 if cuts have sums instead of lanes.
    feature : uint64
    n : uint64
        Number of cuts in the batch before the call.

    Returns
    -------
    n, count : uint64
        Cuts in the batch after it, and codes that occur in the node.
    """
    rows, whole, limit, batch = node.rows, node.weight, node.min_weight_leaf, scratch.batch
    m, s = np.uint64(len(rows.ids)), np.uint64(len(node.stats))
    one, two, codes = np.uint64(1), np.uint64(2), borrow_row(batch.cuts, CODE)
    at = np.uint64(rows.ids[np.uint64(0)]) * scratch.layout[np.uint64(STEP)] + feature
    if width > NO_LANES:
        count = sum_lanes(scratch, at, m, count_lane_words(s, width), batch.words, codes, n)
    else:
        count = sum_values(scratch, at, rows, s, batch.sums, codes, n)
    end = n + count - one
    if count == one:
        return n, count
    parts = s if len(rows.cells) > 0 else one  # statistics that add up to a weight
    is_known = codes[end] != node.table.n_codes[feature]
    if not is_known:
        _add_missing_left(batch, codes, s, width, n, count - one)
        end = n + two * (count - one) - one
    if width > NO_LANES and limit <= 1.0:  # rows with lanes weigh at least 1, and so does a side
        return end, count
    # Weights are positive: the first cut has the lightest left side, the last the lightest right.
    if is_known:
        first_left = _weigh_left(batch, width, s, parts, n)
        last_right = whole - _weigh_left(batch, width, s, parts, end - one)
        if min(first_left, last_right) >= limit:
            return end, count
    kept = n
    for j in range(n, end):
        weight = _weigh_left(batch, width, s, parts, j)
        if weight >= limit and whole - weight >= limit:
            _copy_cut(batch, codes, s, width, j, kept, codes[j])
            kept += one
    return kept, count


MISSING_LEFT, MISSING_RIGHT, MISSING_APART = map(np.uint32, (1 << 31, 1 << 30, 1 << 29))
"""Flags of the code of a cut where values are missing: they go left, right, or right alone."""

_CODE_BITS = np.uint32((1 << 29) - 1)


@llvm_inlined
def _add_missing_left(batch, codes, s, width, n, known):
    """Add a cut with missing values on the left after each of those from `n` on but the last."""
    if width > NO_LANES:
        for w in range(count_lane_words(s, width)):
            _interleave(borrow_row(batch.words, w), n, known)
    else:
        for k in range(s):
            _interleave(borrow_row(batch.sums, k), n, known)
    last = known - np.uint64(1)
    codes[n + last + last] = codes[n + last] | MISSING_APART
    for i in range(last):
        j = last - np.uint64(1) - i
        code = codes[n + j]
        codes[n + j + j] = code | MISSING_RIGHT
        codes[n + j + j + np.uint64(1)] = code | MISSING_LEFT


@llvm_inlined
def _interleave(sums, n, known):
    """Add the statistic of missing values, the last one, to each sum, and put it after the sum."""
    last = known - np.uint64(1)
    lost = sums[n + known] - sums[n + last]
    sums[n + last + last] = sums[n + last]
    for i in range(last):
        j = last - np.uint64(1) - i
        known_sum = sums[n + j]
        sums[n + j + j], sums[n + j + j + np.uint64(1)] = known_sum, known_sum + lost


@inlined
def _copy_cut(batch, codes, s, width, j, to, code):
    """Copy cut `j` of the batch to place `to`."""
    codes[to] = code
    if width > NO_LANES:
        for w in range(count_lane_words(s, width)):
            batch.words[w, to] = batch.words[w, j]
    else:
        for k in range(s):
            batch.sums[k, to] = batch.sums[k, j]


@llvm_inlined
def _weigh_left(batch, width, s, parts, j):
    """Return the weight on the left of a cut; `parts` statistics add up to a weight."""
    if width == NO_LANES:
        weight = 0.0
        for k in range(parts):
            weight += batch.sums[k, j]
        return weight
    total, mask = np.uint64(0), (np.uint64(1) << width) - np.uint64(1)
    for w in range(count_lane_words(s, width)):
        word = batch.words[w, j]
        while word:
            total += word & mask
            word = word >> width
    return np.float64(np.int64(total))


@llvm_inlined
def take_best_cut(node, scratch, criterion, width, in_records, n, n_columns, split):
    """Score the batch, and keep its best cut if it is the best split so far.

    If a score is not finite, ``split.kind`` is `BAD_NUMBER`, and ``scratch.best`` holds the
    statistics of the left side of that cut.

    Parameters
    ----------
    width : uint64
        Bits of a lane, to unpack into sums; 0: cuts have sums instead of lanes.
    in_records : bool
        Whether codes have flags of missing values, and the code above a cut is one more.
    n, n_columns : uint64
        Number of cuts, and of their columns.
    split : SPLIT
    """
    stats, impurity, best, pair = node.stats, node.impurity, scratch.best, scratch.pair
    scorer = make_scorer(criterion, scratch.batch)
    sums, scores = scorer.sums, scorer.scores
    features, starts = borrow_row(scorer.cuts, FEATURE), borrow_row(scorer.cuts, START)
    if width > NO_LANES:
        unpack_lanes(scratch.batch.words, n, width, sums)
    highest, at = score_batch(scorer, n, stats)
    is_bad, feature = at < n, np.uint32(0xFFFFFFFF)
    if not is_bad:
        floor = compute_floor(highest, impurity, 0.0)
        starts[n_columns] = n
        for t in range(n_columns):
            if features[t] < feature:
                j, end = np.uint64(starts[t]), np.uint64(starts[t + np.uint64(1)])
                while j < end and scores[j] < floor:
                    j += np.uint64(1)
                if j < end:
                    at, feature = j, features[t]
    for k in range(np.uint64(len(stats))):
        best[k + np.uint64(2)] = sums[k, at]
    if is_bad:
        split.kind = BAD_NUMBER
        return
    score, noted = scores[at], scorer.cuts[CODE, at]
    code = np.int64(noted & _CODE_BITS) if in_records else np.int64(noted)
    if not is_better(score, np.int64(feature), code, impurity, split):
        return
    replace_split(split, THRESHOLD, feature, score, code)
    write_sides(pair, best[np.uint64(2) :], stats)
    if in_records and noted & MISSING_APART:
        split.kind = MISSING
        return
    is_compared = in_records and noted & (MISSING_LEFT | MISSING_RIGHT) != np.uint32(0)
    side = 0 if noted & MISSING_LEFT else 1
    left_weight = sum_weight(pair[0], len(node.rows.cells) == 0)
    split.missing = choose_missing_branch(
        side, is_compared, node.rules.right_if_even, left_weight, node.weight
    )
    split.cut = code
    split.after = code + 1 if in_records else np.int64(scorer.cuts[AFTER, at])
