"""Splits of a nominal column by its single levels: a branch for each, or one against the rest."""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import inlined
from treekit.kernels.cuts import weight_of
from treekit.kernels.found import (
    BAD_NUMBER,
    BRANCHES,
    CUT,
    FEATURE,
    KIND,
    LEVELS,
    MISSING,
    MISSING_BRANCH,
    MULTIWAY,
    RANK,
    SCORE,
    SUBSET,
    TOLERANCE,
    better,
    finite,
)
from treekit.kernels.tally import CODE_OF

__all__ = ["try_branches", "try_single_levels"]


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
    """One branch for each level present, or (`empty`) declared.

    Missing rows join the heaviest branch, or (`known_only`) count in none.
    """
    if known < 2:
        return
    s = np.uint64(len(stats))
    heaviest, heaviest_weight = np.uint64(0), -1.0
    heavy_enough = 0
    for j in range(np.uint64(known)):
        weight = weight_of(compact[j], dense)
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
    if not finite(score):
        for k in range(s):
            best[k + np.uint64(2)] = compact[np.uint64(0), k]
        out[KIND] = BAD_NUMBER
        return
    if not better(score, np.int64(feature), np.int64(0), impurity, out, numbers):
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
def try_single_levels(
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
    """Keep the best split of one level from the rest, if it beats what was found so far.

    Parameters
    ----------
    by_score : bool
        The levels compete by the criterion's own score, not by its gain.
    tolerance : float
        Of levels that differ by no more the first is kept.
    known, count : int
        Known codes of the table `compact`; rows of it (one more if missing rows follow).
    totals : (S,) float64
        What the two sides add up to: `stats`, or (`known_only`) the known rows' part.
    children : (2, S) float64
        Working memory.

    Missing rows go right, then left, and in the end are told from all others;
    under `known_only` they take no side.
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
            if min(weight_of(children[zero], dense), weight_of(children[one], dense)) < limit:
                continue
            judged = many(stats, children, which)
            kept = judged > bar and finite(judged)
            if kept:
                kept_at, kept_side = np.int64(at), side
                bar = judged + max(TOLERANCE * max(abs(judged), impurity), tolerance)
                gain = many(stats, children, 0) if by_score else judged
            if kept or not finite(judged):
                for k in range(s):
                    best[k + two] = children[zero, k]
            if not finite(judged) or (kept_at >= 0 and not finite(gain)):
                out[KIND] = BAD_NUMBER
                return
    if kept_at < 0 or not better(gain, np.int64(feature), kept_at, impurity, out, numbers):
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
    elif weight_of(pair[zero], dense) < weight_of(pair[one], dense):
        out[MISSING_BRANCH] = 1  # no missing row to learn from: the heavier branch
    for level in range(np.uint64(codes_in_all)):
        levels[level] = 1
    levels[np.uint64(work[np.uint64(CODE_OF), np.uint64(kept_at)])] = 0
