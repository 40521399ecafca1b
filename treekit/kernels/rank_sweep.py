"""Both sides of every cut along a column, for a rank target: one pass over the rows.

Rows leave the right side for the left one, group by group.  Each side is a set of
ranks and knows its quantile: the row, and the sums of the side's rows before it.
A row that comes or goes moves the quantile by a row or so, which bits tell at once
(`treekit.kernels.bitset`).  A side of at most 64 rows is one word, in a register.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import inlined
from treekit.kernels.pointers import highest_bit, lowest_bit
from treekit.kernels.rank_many import sweep_many
from treekit.kernels.ranks import (
    AT,
    BEFORE,
    FEW,
    LEAST,
    SLACK,
    SUM_BEFORE,
    TOTAL,
    WEIGHT,
    record,
)

__all__ = ["sweep"]


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
    """Sides of at most `FEW` rows: each set is a word."""
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
        right_at, right_before, right_sum = _settle(
            right, mass, right_at, right_before, right_sum, max(least * rest, LEAST)
        )
        later = (right >> right_at) >> one
        after = right_at + one + lowest_bit(later) if later else right_at
        row = two * np.uint64(cuts) if step < 0 else two * np.uint64(step) + one
        record(
            sides, row, mass, place, right_at, after,
            right_before, right_sum, rest, rest_total, most * rest,
        )  # fmt: skip
        if step < 0:
            if not joins:
                weight, total = rest, rest_total
                left, left_at, left_before, left_sum = zero, right_at, 0.0, 0.0
                left_weight, left_total = 0.0, 0.0
            continue
        left_at, left_before, left_sum = _settle(
            left, mass, left_at, left_before, left_sum, max(least * left_weight, LEAST)
        )
        later = (left >> left_at) >> one
        after = left_at + one + lowest_bit(later) if later else left_at
        record(
            sides, two * np.uint64(step), mass, place, left_at, after,
            left_before, left_sum, left_weight, left_total, most * left_weight,
        )  # fmt: skip


@inlined
def _settle(members, mass, at, before, sum_before, enough):
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
