"""Both sides of every cut for a rank target, of more rows than a word has bits.

Where weights are so unequal that the quantile could walk far, trees of sums
(Fenwick 1994) find it: a logarithm more.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.bitset import above, below, discard, fill, insert
from treekit.kernels.compile import inlined, kernel
from treekit.kernels.ranks import AT, BEFORE, LEAST, SLACK, SUM_BEFORE, TOTAL, WEIGHT, record

__all__ = ["sweep_many"]


@kernel
def sweep_many(
    mass, place, rows, quantile, start, order, ends, aside, joins, cuts, bits, trees, sides
):
    """`treekit.kernels.rank_sweep.sweep`, for any number of rows."""
    zero, one, two, six = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(6)
    low = np.uint64(63)
    weight, total = start[np.uint64(WEIGHT)], start[np.uint64(TOTAL)]
    least, most = quantile - SLACK, quantile + SLACK
    right_at = np.uint64(start[np.uint64(AT)])
    right_before, right_sum = start[np.uint64(BEFORE)], start[np.uint64(SUM_BEFORE)]
    left_at, left_before, left_sum = right_at, 0.0, 0.0
    left_weight, left_total = 0.0, 0.0
    left, right = bits, bits[fill(bits, rows, False) :]
    fill(right, rows, True)
    planted = trees.shape[1] > 0
    left_tree, right_tree = trees[zero], trees[one]
    if planted:
        left_tree[:] = 0.0
        _fenwick(mass, rows, right_tree)
    begin = zero
    for step in range(np.int64(-1) if aside >= 0 else np.int64(0), cuts):
        group = np.uint64(step)
        if step < 0:
            group = np.uint64(aside)
            begin = np.uint64(ends[group - one])
        end = np.uint64(ends[group])
        for j in range(begin, end):
            i = np.uint64(order[j])
            w, wy = mass[two * i], mass[two * i + one]
            there, bit = i >> six, one << (i & low)
            old = left[there]
            left[there] = old | bit
            if not old:
                insert(left, rows, i)
            kept = right[there] & ~bit
            right[there] = kept
            if not kept:
                discard(right, rows, i)
            left_weight += w
            left_total += wy
            left_before += w if i < left_at else 0.0
            left_sum += wy if i < left_at else 0.0
            right_before -= w if i < right_at else 0.0
            right_sum -= wy if i < right_at else 0.0
            if planted:
                _add(left_tree, i + one, w, wy)
                _add(right_tree, i + one, -w, -wy)
        begin = end if step >= 0 else zero
        rest, rest_total = weight - left_weight, total - left_total
        if planted:
            right_at, right_before, right_sum = _descend(right_tree, max(least * rest, LEAST))
        else:
            right_at, right_before, right_sum = _settle(
                right, rows, mass, right_at, right_before, right_sum, max(least * rest, LEAST)
            )
        after = above(right, rows, right_at)
        after = after if after < rows else right_at
        row = two * np.uint64(cuts) if step < 0 else two * np.uint64(step) + one
        record(
            sides, row, mass, place, right_at, after,
            right_before, right_sum, rest, rest_total, most * rest,
        )  # fmt: skip
        if step < 0:
            if not joins:
                weight, total = rest, rest_total
                left_at, left_before, left_sum = right_at, 0.0, 0.0
                left_weight, left_total = 0.0, 0.0
                fill(left, rows, False)
                left_tree[:] = 0.0
            continue
        enough = max(least * left_weight, LEAST)
        if planted:
            left_at, left_before, left_sum = _descend(left_tree, enough)
        else:
            left_at, left_before, left_sum = _settle(
                left, rows, mass, left_at, left_before, left_sum, enough
            )
        after = above(left, rows, left_at)
        after = after if after < rows else left_at
        record(
            sides, two * np.uint64(step), mass, place, left_at, after,
            left_before, left_sum, left_weight, left_total, most * left_weight,
        )  # fmt: skip


@inlined
def _settle(members, rows, mass, at, before, sum_before, enough):
    """`treekit.kernels.rank_sweep._settle` for any number of rows."""
    one, two = np.uint64(1), np.uint64(2)
    while True:
        if before >= enough:
            at = below(members, rows, at)
            before -= mass[two * at]
            sum_before -= mass[two * at + one]
            continue
        if (members[at >> np.uint64(6)] >> (at & np.uint64(63))) & one:
            upto = before + mass[two * at]
            if upto >= enough:
                break
            before = upto
            sum_before += mass[two * at + one]
        at = above(members, rows, at)
    return at, before, sum_before


@kernel
def _fenwick(mass, rows, tree):
    """Sums of the rows' weights and numbers into `tree`, counted from 1; linear."""
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
def _add(tree, at, w, wy):
    while at < np.uint64(len(tree)):
        tree[at, np.uint64(0)] += w
        tree[at, np.uint64(1)] += wy
        at += at & (~at + np.uint64(1))


@kernel
def _descend(tree, enough):
    """The first row up to which the weight is `enough`, and the sums before it."""
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
