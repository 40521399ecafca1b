"""One branch for each level of a column, for a rank target."""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import inlined, kernel
from treekit.kernels.found import (
    BAD_NUMBER,
    BRANCHES,
    CUT,
    FEATURE,
    KIND,
    LEVELS,
    MISSING_BRANCH,
    MULTIWAY,
    RANK,
    SCORE,
    better,
    finite,
)
from treekit.kernels.rank_groups import ENDS
from treekit.kernels.ranks import summarise
from treekit.kernels.tally import CODE_OF, ORDER, OTHER

__all__ = ["tell", "try_branches"]


@inlined
def try_branches(
    many,
    known_only,
    empty,
    feature,
    codes_in_all,
    known,
    count,
    size,
    stats,
    limit,
    impurity,
    values,
    quantile,
    work,
    compact,
    levels,
    best,
    out,
    numbers,
):
    """One branch for each level, as in `treekit.kernels.levels`."""
    order, other, ends = work[np.uint64(ORDER)], work[np.uint64(OTHER)], work[np.uint64(ENDS)]
    code_of, zero, one = work[np.uint64(CODE_OF)], np.uint64(0), np.uint64(1)
    heaviest, enough = zero, 0
    for j in range(np.uint64(known)):
        if compact[j, zero] > compact[heaviest, zero]:
            heaviest = j
        enough += 1 if compact[j, zero] >= limit else 0
    if known < 2 or enough < 2:
        return
    totals, last = stats, np.uint64(known) - one
    if count > known and known_only:
        totals = compact[np.uint64(known)]  # of the missing rows nothing else is asked
        _all_but(order, ends[last], size, other)
        summarise(values, other, 0, ends[last], quantile, totals)
    elif count > known:
        _join(order, ends, heaviest, np.uint64(known), other)
        first = ends[heaviest - one] if heaviest > zero else 0
        joined = ends[heaviest] - first + ends[last + one] - ends[last]
        summarise(values, other, 0, joined, quantile, compact[heaviest])
    score = many(totals, compact[:known], 0) * totals[zero] / stats[zero]
    if not finite(score):
        tell(best, compact[0])
        out[KIND] = BAD_NUMBER
        return
    if not better(score, np.int64(feature), np.int64(0), impurity, out, numbers):
        return
    out[KIND], out[FEATURE], out[CUT], out[RANK] = MULTIWAY, np.int64(feature), 0, 0
    out[MISSING_BRANCH], out[BRANCHES] = np.int64(heaviest), known
    out[LEVELS] = np.int64(codes_in_all)
    numbers[SCORE] = score
    for level in range(np.uint64(out[LEVELS])):
        levels[level] = np.int32(level) if empty else -1
    if empty:
        out[MISSING_BRANCH] = np.int64(code_of[heaviest])
        out[BRANCHES] = out[LEVELS]
        return
    for j in range(np.uint64(known)):
        levels[np.uint64(code_of[j])] = np.int32(j)


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


@kernel
def tell(best, stats):
    """Leave statistics where the error about a NaN finds them."""
    for k in range(np.uint64(4)):
        best[k + np.uint64(2)] = stats[k]
