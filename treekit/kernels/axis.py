"""The built-in splitters: the best test of one column, over the columns tried.

`find_axis` serves the exact and the histogram splitter alike: they differ only
in how columns were coded.
"""

from __future__ import annotations

import math

import numpy as np

from treekit.kernels.compile import inlined, kernel
from treekit.kernels.tally import tally

__all__ = ["TOLERANCE", "find_axis"]

TOLERANCE = 1e-9
"""Scores closer than this, relative, are ties (see the design's semantics)."""

THRESHOLD, SUBSET, MULTIWAY, MISSING = 1, 2, 3, 4


@kernel
def find_axis(node, scan, many, key, choose, n_keys, use_choose, score, rng, out, numbers):
    """Find the best split of one node.

    Parameters
    ----------
    node : Node
    scan, many, key, choose : pointers
        See `treekit.grow.criterion`.
    n_keys : int
        Orderings of categories to try for subset splits.
    use_choose : bool
        Whether the criterion picks between features itself.
    score : pointer
        Not used here: for splitters that propose their own branches.
    rng : Generator
    out : (7,) int64
        Receives kind, feature, cut (codes up to it go left), missing branch,
        branches, levels, and the next code present above the cut; kind 0 = no
        split, -1 = NaN from the criterion.
    numbers : (2,) float64
        Receives threshold (NaN = the builder's own) and score.

    Cost: tries x rows, plus tries x codes for large nodes.
    """
    scratch = node.scratch
    n_features = np.uint64(len(node.table.n_codes))
    n_try = min(np.uint64(node.n_try), n_features)
    draw = n_try < n_features
    out[0] = 0
    numbers[0] = np.nan
    numbers[1] = -np.inf
    tried = np.uint64(0)
    if use_choose:
        for j in range(n_features):
            scratch.feature_score[j] = np.nan
            scratch.feature_gain[j] = np.nan
    for j in range(n_features):
        if tried == n_try:
            break
        if draw:
            pick = j + np.uint64(rng.integers(0, np.int64(n_features - j)))
            feature = scratch.features[pick]
            scratch.features[pick] = scratch.features[j]
            scratch.features[j] = feature
        else:
            feature = np.int64(j)
        count = _tally(node, feature)
        if count == 1:
            continue  # a constant column is no try, so that sparse tables still split
        tried += np.uint64(1)
        if use_choose:
            _try_for_choice(node, scan, many, key, n_keys, feature, count, out, numbers)
        else:
            _try_feature(node, scan, many, key, n_keys, feature, count, out, numbers)
        if out[0] < 0:
            return
    if use_choose:
        _choose(node, scan, many, key, choose, n_keys, out, numbers)


@inlined
def _tally(node, feature):
    f = np.uint64(feature)
    rows = node.rows
    return tally(
        node.table.codes[f], node.table.n_codes[f], rows.ids, rows.cells, rows.values, node.scratch
    )


@inlined
def _try_feature(node, scan, many, key, n_keys, feature, count, out, numbers):
    scratch = node.scratch
    f = np.uint64(feature)
    missing_code = node.table.n_codes[f]
    known = count
    if scratch.code_of[np.uint64(count - 1)] == missing_code:
        known -= 1
    way = node.table.nominal[f]
    if way == 0:
        _try_numeric(node, scan, feature, known, count, out, numbers)
    elif way == 1:
        _try_subset(node, scan, key, n_keys, feature, known, count, out, numbers)
    else:
        _try_multiway(node, many, feature, known, count, out, numbers)


@inlined
def _better(score, feature, out, numbers, impurity):
    """Whether a split beats the best so far: ties go to the lower column."""
    if out[0] == 0:
        return score > -np.inf and score < np.inf
    slack = TOLERANCE * max(abs(numbers[1]), impurity)
    if score > numbers[1] + slack:
        return score < np.inf
    return score >= numbers[1] - slack and feature < out[1]


@inlined
def _keep(kind, feature, cut, missing, branches, levels, score, out, numbers):
    out[0] = kind
    out[1] = feature
    out[2] = cut
    out[3] = missing
    out[4] = branches
    out[5] = levels
    numbers[0] = np.nan
    numbers[1] = score


@inlined
def _run_scan(node, scan, table, known, count, side, out):
    """Scan cuts between known codes, missing rows (if any) on `side`.

    With missing rows on the right the last cut is "known or missing".
    """
    scratch = node.scratch
    s = np.uint64(len(node.stats))
    start = scratch.start
    last = known - 1
    for k in range(s):
        start[k] = 0.0
    if count > known:
        row = np.uint64(known)
        if side == 0:
            for k in range(s):
                start[k] = table[row, k]
        else:
            last = known
    at = scan(
        table, last, start, node.stats, node.min_weight_leaf, node.impurity, scratch.best
    )
    if at == -2:
        out[0] = -1
    return at


@inlined
def _try_numeric(node, scan, feature, known, count, out, numbers):
    scratch = node.scratch
    for side in range(1, -1, -1):
        if side == 0 and (count == known or known < 2):
            break
        at = _run_scan(node, scan, scratch.compact, known, count, side, out)
        if at == -2:
            return
        score = scratch.best[np.uint64(0)]
        if at < 0 or not _better(score, feature, out, numbers, node.impurity):
            continue
        if at == known - 1:  # all known values left, missing right
            _keep(MISSING, feature, 0, 0, 2, 0, score, out, numbers)
            _keep_left(node)
            continue
        missing = _missing_side(node, side, count > known)
        cut = np.int64(scratch.code_of[np.uint64(at)])
        _keep(THRESHOLD, feature, cut, missing, 2, 0, score, out, numbers)
        out[6] = np.int64(scratch.code_of[np.uint64(at + 1)])
        _keep_left(node)


@inlined
def _missing_side(node, side, some_missing):
    """The learned side, or the heavier branch where no row was missing."""
    if some_missing:
        return side
    left = node.scratch.best[np.uint64(1)]
    return 0 if left >= node.weight - left else 1


@inlined
def _keep_left(node):
    """Remember the left statistics of the split just kept, for `choose`."""
    for k in range(np.uint64(len(node.stats))):
        node.scratch.pair[np.uint64(0), k] = node.scratch.best[k + np.uint64(2)]


@kernel
def _try_subset(node, scan, key, n_keys, feature, known, count, out, numbers):
    scratch = node.scratch
    s = np.uint64(len(node.stats))
    for attempt in range(n_keys):
        key(scratch.compact, known, attempt, scratch.keys)
        _sort_by_key(scratch, known, s)
        if count > known:
            row = np.uint64(known)
            for k in range(s):
                scratch.sorted[row, k] = scratch.compact[row, k]
        for side in range(1, -1, -1):
            if side == 0 and (count == known or known < 2):
                break
            at = _run_scan(node, scan, scratch.sorted, known, count, side, out)
            if at == -2:
                return
            score = scratch.best[np.uint64(0)]
            if at < 0 or not _better(score, feature, out, numbers, node.impurity):
                continue
            if at == known - 1:
                _keep(MISSING, feature, 0, 0, 2, 0, score, out, numbers)
                _keep_left(node)
                continue
            missing = _missing_side(node, side, count > known)
            n_levels = np.int64(node.table.n_codes[np.uint64(feature)])
            for level in range(np.uint64(n_levels)):
                scratch.best_levels[level] = -1
            for j in range(np.uint64(known)):
                level = np.uint64(scratch.code_of[np.uint64(scratch.order[j])])
                scratch.best_levels[level] = 0 if np.int64(j) <= at else 1
            _keep(SUBSET, feature, 0, missing, 2, n_levels, score, out, numbers)
            _keep_left(node)


@kernel
def _sort_by_key(scratch, known, s):
    """Compact rows into ``scratch.sorted``, ascending by key, equal keys by code."""
    order = np.argsort(scratch.keys[:known], kind="mergesort")
    for j in range(np.uint64(known)):
        i = np.uint64(order[j])
        scratch.order[j] = np.uint32(i)
        for k in range(s):
            scratch.sorted[j, k] = scratch.compact[i, k]


@kernel
def _try_multiway(node, many, feature, known, count, out, numbers):
    scratch = node.scratch
    if known < 2:
        return
    s = np.uint64(len(node.stats))
    dense = len(node.rows.cells) == 0
    heaviest, heaviest_weight = np.uint64(0), -1.0
    heavy_enough = 0
    for j in range(np.uint64(known)):
        weight = scratch.compact[j, np.uint64(0)]
        if not dense:
            for k in range(np.uint64(1), s):
                weight += scratch.compact[j, k]
        if weight > heaviest_weight:
            heaviest, heaviest_weight = j, weight
        if weight >= node.min_weight_leaf:
            heavy_enough += 1
    if heavy_enough < 2:
        return
    if count > known:
        row = np.uint64(known)
        for k in range(s):
            scratch.compact[heaviest, k] += scratch.compact[row, k]
    score = many(node.stats, scratch.compact[:known], 0)
    if math.isnan(score):
        out[0] = -1
        return
    if not _better(score, feature, out, numbers, node.impurity):
        return
    n_levels = np.int64(node.table.n_codes[np.uint64(feature)])
    for level in range(np.uint64(n_levels)):
        scratch.best_levels[level] = -1
    for j in range(np.uint64(known)):
        scratch.best_levels[np.uint64(scratch.code_of[j])] = np.int32(j)
    _keep(MULTIWAY, feature, 0, np.int64(heaviest), known, n_levels, score, out, numbers)


@kernel
def _try_for_choice(node, scan, many, key, n_keys, feature, count, out, numbers):
    """Best split of one column alone: its gain and its score, for `choose`."""
    f = np.uint64(feature)
    out[0] = 0
    numbers[1] = -np.inf
    _try_feature(node, scan, many, key, n_keys, feature, count, out, numbers)
    if out[0] > 0:
        node.scratch.feature_gain[f] = numbers[1]
        node.scratch.feature_score[f] = _score_of_kept(node, many, out)


@kernel
def _score_of_kept(node, many, out):
    """The criterion's score of the split just kept, whose rank was by gain."""
    scratch = node.scratch
    if out[0] == MULTIWAY:
        return many(node.stats, scratch.compact[: out[4]], 1)
    for k in range(np.uint64(len(node.stats))):
        left = scratch.pair[np.uint64(0), k]
        scratch.pair[np.uint64(1), k] = node.stats[k] - left
    return many(node.stats, scratch.pair, 1)


@kernel
def _choose(node, scan, many, key, choose, n_keys, out, numbers):
    scratch = node.scratch
    feature = choose(scratch.feature_gain, scratch.feature_score)
    out[0] = 0
    numbers[1] = -np.inf
    if feature >= 0:
        count = _tally(node, feature)
        _try_feature(node, scan, many, key, n_keys, feature, count, out, numbers)
