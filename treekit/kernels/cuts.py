"""Two-way splits of one column: cuts along an order, or subsets of levels.

Every search is a list of steps: at each one some rows join the left side, and
the criterion's scan keeps the best position.  Numbers step along their codes;
levels step along an order of theirs, or through all their subsets.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import inlined, merged
from treekit.kernels.found import (
    AFTER,
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
    RANK,
    SCORE,
    SHRINK,
    SUBSET,
    THRESHOLD,
    better,
    finite,
)
from treekit.kernels.pointers import lowest_bit
from treekit.kernels.tally import CODE_OF, ORDER

__all__ = ["STEPS", "try_cuts", "weight_of"]

STEPS = 256
"""Subsets of levels that one scan walks through."""

ALONG, ORDERED, SUBSETS = 0, 1, 2
"""Ways to step: along the codes, along an order of levels, all subsets."""


@merged
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
    """Keep the best two-way split of a column, if it beats what was found so far.

    Parameters
    ----------
    key : pointer or None
        None = there are no nominal columns, and the code for them is not compiled.
    n_keys : int
        Orders of the levels to try; 0 = a numeric column.
    known, count : int
        Known codes of the table `compact`; rows of it (one more if missing rows follow).
    first_of : (known,) uint32
        Where neighbouring numbers count as one code, the first of each.

    Missing rows are tried right, then left.  On the right, the last step is
    "known or missing".  Under `known_only` they take no side, `totals` are
    those of the known rows, and the score is scaled by their share.
    """
    s = np.uint64(len(totals))
    sides_of_missing = count > known and not known_only
    share = known_weight / weight if known_only else 1.0
    code_of, order = work[CODE_OF], work[ORDER]
    unknown = np.uint64(known)
    way, attempts, table = ALONG, np.int64(1), compact
    if key is not None:
        if n_keys > 1 and 3 <= known <= exact_levels:  # two levels make one subset
            way, table = SUBSETS, ordered
            attempts = ((np.int64(1) << (known - 1)) - 2) // STEPS + 1
        elif n_keys > 0:
            way, attempts, table = ORDERED, np.int64(n_keys), ordered
    for attempt in range(attempts):
        steps, closes = known - 1, True
        mask = np.uint64(0)
        if key is not None:
            if way == ORDERED:
                key(compact, known, attempt, keys)
                for j in range(unknown):
                    if not finite(keys[j]):
                        for k in range(s):
                            best[k + np.uint64(2)] = compact[j, k]
                        out[KIND] = BAD_ORDER
                        return
                _sort_by_key(keys, compact, ordered, order, unknown, np.uint64(count), s)
            elif way == SUBSETS:
                first = np.uint64(attempt * STEPS)
                mask = first ^ (first >> np.uint64(1))
                steps = min((np.int64(1) << (known - 1)) - 1 - attempt * STEPS, STEPS)
                closes = attempt == attempts - 1
                _walk_subsets(compact, ordered, first, np.uint64(steps), s)
                if closes:  # the walk ends with the last but one level alone
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
                candidates = _candidates(table, last, start, totals, limit, dense)
                fee = penalty(candidates, weight)
                if not finite(fee):
                    best[np.uint64(0)] = candidates
                    out[KIND] = BAD_PENALTY
                    return
                paid = score - fee
                if not paid > 0.0:
                    continue
                score, shrink = paid, paid / score
            if at < 0 or not better(score, np.int64(feature), rank, impurity, out, numbers):
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
            else:  # no missing row to learn from: the heavier branch
                out[MISSING_BRANCH] = 0 if left_weight >= known_weight - left_weight else 1
            if way == ALONG:
                out[KIND] = THRESHOLD
                out[CUT] = np.int64(code_of[np.uint64(at)])
                out[AFTER] = np.int64(first_of[np.uint64(at + 1)])
                continue
            if key is not None:
                out[KIND] = SUBSET
                out[LEVELS] = np.int64(codes_in_all)
                for level in range(np.uint64(codes_in_all)):
                    levels[level] = -1
                reached = np.uint64(attempt * STEPS + at + 1)
                reached ^= reached >> np.uint64(1)
                for j in range(unknown):
                    if way == SUBSETS:
                        levels[np.uint64(code_of[j])] = 0 if (reached >> j) & np.uint64(1) else 1
                    else:
                        level = np.uint64(code_of[np.uint64(order[j])])
                        levels[level] = 0 if np.int64(j) <= at else 1


@inlined
def weight_of(stats, dense):
    """Weight of a node's or a group's statistics."""
    weight = stats[np.uint64(0)]
    if not dense:
        for k in range(np.uint64(1), np.uint64(len(stats))):
            weight += stats[k]
    return weight


@inlined
def _candidates(table, last, start, totals, limit, dense):
    """How many of the first `last` cuts have the weight `limit` on both sides."""
    left, whole = weight_of(start, dense), weight_of(totals, dense)
    count = np.int64(0)
    for i in range(np.uint64(last)):
        left += weight_of(table[i], dense)
        if left >= limit and whole - left >= limit:
            count += 1
    return count


@inlined
def _walk_subsets(compact, steps_out, first, steps, s):
    """Steps first + 1, ... of the Gray code (Gray 1953) over all levels but the last.

    Each step moves one level, so each subset costs one addition; a level that
    leaves is a negative row.
    """
    one = np.uint64(1)
    for i in range(steps):
        step = first + i + one
        level = lowest_bit(step)
        joins = ((step ^ (step >> one)) >> level) & one
        for k in range(s):
            value = compact[level, k]
            steps_out[i, k] = value if joins else -value


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
