"""Both sides of every cut along a column, for a rank target: one pass over the rows.

Rows leave the right side for the left one, group by group.  Each side is a set of
ranks and knows its quantile: the row, and the sums of the side's rows before it.
A row that comes or goes moves the quantile by a row or so, which bits tell at once
(`treekit.kernels.bitset`).  A side of at most 64 rows is one word, in a register.

Where weights are so unequal that the quantile could walk far, trees of sums
(Fenwick 1994) find it: a logarithm more.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.bitset import above, below, discard, fill, insert
from treekit.kernels.compile import inlined, kernel
from treekit.kernels.pointers import highest_bit, lowest_bit
from treekit.kernels.ranks import SLACK

__all__ = ["FEW", "START", "fenwick", "lay_out", "sweep", "sweep_many"]

FEW = 64
"""Up to so many rows a side is one word."""

LEAST = 2.0**-1000
"""Below every weight: a quantile's row is one that weighs something."""

WALKED = 16.0
"""Mean weight, in lightest rows, up to which walking to the quantile stays cheap."""

WEIGHT, TOTAL, BEFORE, SUM_BEFORE, AT, START = range(6)
"""Cells of what `lay_out` tells of a node: the weight and the sum of its rows, those of
its rows before the quantile, and the row of the quantile.  START is the number of cells.
"""


@inlined
def lay_out(values, quantile, start):
    """Lay out a node's rows for `sweep`, and find its quantile.

    Parameters
    ----------
    values : (rows, 3) float64
        ``(w, y, w * (y - center))``, y ascending.
    start : (START + 8 * rows + 4 or more,) float64
        Receives what is known of the whole node; then working memory.

    Returns
    -------
    mass, place : (2 * rows,) float64
        ``w, w * (y - center)`` and ``y, y - center`` of each row.
    trees : (2, rows + 1, 2) float64
        Room for trees of sums, or (2, 0, 2) where they are not needed.
    """
    zero, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
    rows = np.uint64(len(values))
    middle = np.uint64(START) + two * rows
    top = middle + two * rows
    mass, place = start[np.uint64(START) : middle], start[middle:top]
    weight, total, lightest = 0.0, 0.0, np.inf
    for i in range(rows):
        w, wy = values[i, zero], values[i, two]
        mass[two * i], mass[two * i + one] = w, wy
        # Exact where weights are whole numbers, as the sums are.
        place[two * i], place[two * i + one] = values[i, one], wy / w
        weight += w
        total += wy
        lightest = min(lightest, w)
    enough = (quantile - SLACK) * weight
    at, before, sum_before = zero, 0.0, 0.0
    while at + one < rows and before + mass[two * at] < enough:
        before += mass[two * at]
        sum_before += mass[two * at + one]
        at += one
    start[np.uint64(WEIGHT)], start[np.uint64(TOTAL)] = weight, total
    start[np.uint64(BEFORE)], start[np.uint64(SUM_BEFORE)] = before, sum_before
    start[np.uint64(AT)] = np.float64(at)
    # Taking away a row of weight w moves the quantile over rows of at most that
    # weight: w / lightest rows, and all of them together W / lightest steps.
    planted = zero
    if rows > np.uint64(FEW) and weight > WALKED * lightest * np.float64(rows):
        planted = rows + one
    trees = start[top : top + two * two * planted].reshape((2, np.int64(planted), 2))
    return mass, place, trees


@inlined
def sweep(mass, place, rows, quantile, start, order, ends, aside, joins, cuts, bits, trees, sides):
    """Statistics of both sides of every cut.

    Cost: linear in the rows; with `trees` a logarithm more.

    Parameters
    ----------
    mass, place, trees, start : arrays
        Of `lay_out`.
    rows : uint64
        Rows of the node.
    order : (rows,) uint32
        Positions, group by group.
    ends : (groups,) uint32
        Where each group ends in `order`.
    aside : int
        Group that is on one side of all cuts; -1 = none.
    joins : bool
        Whether it is on the left, else on neither side.
    cuts : int
        Cut j lies after group j.
    bits : (2 * words,) uint64
        Working memory for the sets of rows on either side (`treekit.kernels.bitset`).
    sides : (2 * cuts + 1, 4) float64
        Receives the left side of cut j in row 2j, the right one in row 2j + 1,
        and in the last row all rows but those of a group on neither side.
    """
    if rows <= np.uint64(FEW):
        _sweep_few(mass, place, rows, quantile, start, order, ends, aside, joins, cuts, sides)
    else:
        sweep_many(
            mass, place, rows, quantile, start, order, ends, aside, joins, cuts, bits, trees, sides
        )


@inlined
def _sweep_few(mass, place, rows, quantile, start, order, ends, aside, joins, cuts, sides):
    """Sides of few rows: each set is a word."""
    zero, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
    weight, total = start[np.uint64(WEIGHT)], start[np.uint64(TOTAL)]
    least, most = quantile - SLACK, quantile + SLACK
    right_at = np.uint64(start[np.uint64(AT)])
    right_before, right_sum = start[np.uint64(BEFORE)], start[np.uint64(SUM_BEFORE)]
    left_at, left_before, left_sum = right_at, 0.0, 0.0
    left_weight, left_total = 0.0, 0.0
    left, right = zero, ~zero >> (np.uint64(FEW) - rows)
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
            left |= one << i
            left_weight += w
            left_total += wy
            left_before += w if i < left_at else 0.0
            left_sum += wy if i < left_at else 0.0
            right_before -= w if i < right_at else 0.0
            right_sum -= wy if i < right_at else 0.0
        begin = end if step >= 0 else zero
        right &= ~left
        rest, rest_total = weight - left_weight, total - left_total
        right_at, right_before, right_sum = _settle_few(
            right, mass, right_at, right_before, right_sum, max(least * rest, LEAST)
        )
        later = (right >> right_at) >> one
        after = right_at + one + lowest_bit(later) if later else right_at
        row = two * np.uint64(cuts) if step < 0 else two * np.uint64(step) + one
        _record(
            sides, row, mass, place, right_at, after,
            right_before, right_sum, rest, rest_total, most * rest,
        )  # fmt: skip
        if step < 0:
            if not joins:
                weight, total = rest, rest_total
                left, left_at, left_before, left_sum = zero, right_at, 0.0, 0.0
                left_weight, left_total = 0.0, 0.0
            continue
        left_at, left_before, left_sum = _settle_few(
            left, mass, left_at, left_before, left_sum, max(least * left_weight, LEAST)
        )
        later = (left >> left_at) >> one
        after = left_at + one + lowest_bit(later) if later else left_at
        _record(
            sides, two * np.uint64(step), mass, place, left_at, after,
            left_before, left_sum, left_weight, left_total, most * left_weight,
        )  # fmt: skip


@inlined
def _settle_few(members, mass, at, before, sum_before, enough):
    """The quantile's row in a set that rows came to or left, and the sums before it.

    `at`, which need not be a member any longer, is where it was, and the sums
    are those of the members before `at`.
    """
    one, two = np.uint64(1), np.uint64(2)
    while True:
        if before >= enough:
            at = highest_bit(members & ((one << at) - one))
            before -= mass[two * at]
            sum_before -= mass[two * at + one]
            continue
        if (members >> at) & one:
            upto = before + mass[two * at]
            if upto >= enough:
                break
            before = upto
            sum_before += mass[two * at + one]
        at += one + lowest_bit((members >> at) >> one)
    return at, before, sum_before


@kernel
def sweep_many(
    mass, place, rows, quantile, start, order, ends, aside, joins, cuts, bits, trees, sides
):
    """The same for any number of rows."""
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
        fenwick(mass, rows, right_tree)
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
        _record(
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
        _record(
            sides, two * np.uint64(step), mass, place, left_at, after,
            left_before, left_sum, left_weight, left_total, most * left_weight,
        )  # fmt: skip


@inlined
def _settle(members, rows, mass, at, before, sum_before, enough):
    """`_settle_few` for any number of rows."""
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


@inlined
def _record(sides, row, mass, place, at, after, before, sum_before, weight, total, reach):
    """Statistics of a side whose quantile is at the row `at`, before the row `after`."""
    one, two = np.uint64(1), np.uint64(2)
    upto, sum_upto = before + mass[two * at], sum_before + mass[two * at + one]
    q, centred = place[two * at], place[two * at + one]
    if upto <= reach:  # any number up to the next row's will do
        q = 0.5 * q + 0.5 * place[two * after]
        centred = 0.5 * (centred + place[two * after + one])
        before, sum_before = upto, sum_upto
    sides[row, np.uint64(0)], sides[row, one] = weight, q
    sides[row, two] = max(0.0, centred * before - sum_before)
    sides[row, np.uint64(3)] = max(0.0, (total - sum_upto) - centred * (weight - upto))


@kernel
def fenwick(mass, rows, tree):
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
