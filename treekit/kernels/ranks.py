"""Weighted quantiles of a node and along a column, and the losses on either side.

Rows of a rank target are ``(w, y, w * (y - center))`` and lie ascending by y in
every node, because rows are sorted once and partitions are stable: a row's
position is its rank.  Sums are taken of the centred numbers, which lie on a
grid (`treekit.grow.target`); quantiles are the numbers themselves.  Statistics
are ``(weight, q, below, above)``, as `treekit.contracts.Ranks` says.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import inlined, kernel

__all__ = ["fenwick", "judge", "needs_tree", "summarise", "sweep"]

SLACK = 2.0**-51
"""Relative error of ``quantile * weight``: a level rounded, and a product."""

WALKED = 16.0
"""Mean weight, in lightest rows, up to which walking to the quantile stays cheap."""


@kernel
def summarise(values, order, begin, end, quantile, stats):
    """Statistics of the rows ``order[begin:end]``, or of begin..end where `order` is None.

    Parameters
    ----------
    values : (rows, 3) float64
        ``(w, y, w * (y - center))``; y ascends along the rows named.
    stats : (4,) float64
        Receives the statistics.

    Returns
    -------
    weight : float
    """
    weight, total = 0.0, 0.0
    for j in range(np.uint64(begin), np.uint64(end)):
        i = _position(order, j)
        weight += values[i, np.uint64(0)]
        total += values[i, np.uint64(2)]
    for k in range(np.uint64(4)):
        stats[k] = 0.0
    if begin == end:
        return 0.0
    enough = (quantile - SLACK) * weight
    at, last = np.uint64(begin), np.uint64(end) - np.uint64(1)
    below, sum_below = 0.0, 0.0
    i = _position(order, at)
    while at < last and below + values[i, np.uint64(0)] < enough:
        below += values[i, np.uint64(0)]
        sum_below += values[i, np.uint64(2)]
        at += np.uint64(1)
        i = _position(order, at)
    after = _position(order, at + np.uint64(1)) if at < last else i
    q, lower, upper = _about(values, i, after, quantile, weight, total, below, sum_below)
    stats[np.uint64(0)], stats[np.uint64(1)] = weight, q
    stats[np.uint64(2)], stats[np.uint64(3)] = lower, upper
    return weight


@kernel
def _position(order, j):
    if order is None:
        return j
    return np.uint64(order[j])


@kernel
def _about(values, at, after, quantile, weight, total, below, sum_below):
    """The quantile and the losses on its sides, from the row `at` of it and the sums before it."""
    w, q, wy = values[at, np.uint64(0)], values[at, np.uint64(1)], values[at, np.uint64(2)]
    centred = wy / w  # exact where weights are whole numbers, as the sums are
    if below + w <= (quantile + SLACK) * weight:  # any number up to the next row's will do
        q = 0.5 * q + 0.5 * values[after, np.uint64(1)]
        centred = 0.5 * (centred + values[after, np.uint64(2)] / values[after, np.uint64(0)])
        below += w
        sum_below += wy
        w, wy = 0.0, 0.0
    lower = max(0.0, centred * below - sum_below)
    upper = max(0.0, (total - sum_below - wy) - centred * (weight - below - w))
    return q, lower, upper


@kernel
def judge(values, begin, end, answer, stats):
    """Statistics of held-out rows about the quantile `answer` of the training rows."""
    weight, below, above = 0.0, 0.0, 0.0
    for i in range(np.uint64(begin), np.uint64(end)):
        w = values[i, np.uint64(0)]
        apart = w * (values[i, np.uint64(1)] - answer)
        weight += w
        below += max(0.0, -apart)
        above += max(0.0, apart)
    stats[np.uint64(0)] = weight
    stats[np.uint64(1)] = answer if weight > 0.0 else 0.0
    stats[np.uint64(2)] = below
    stats[np.uint64(3)] = above


@kernel
def needs_tree(values):
    """Whether weights are so unequal that walking to the quantile could take long.

    Taking away a row of weight w moves the quantile over rows of at most that
    weight: w / lightest rows, and all of them together W / lightest steps.
    """
    weight, lightest = 0.0, np.inf
    for i in range(np.uint64(len(values))):
        weight += values[i, np.uint64(0)]
        lightest = min(lightest, values[i, np.uint64(0)])
    return weight > WALKED * lightest * len(values)


@kernel
def sweep(values, quantile, order, ends, gone, from_left, last, links, sides, tree):
    """Statistics of one side of every cut, as the groups of the other are taken away.

    Rows leave a linked list in the order of their ranks, and the quantile
    walks along it: linear in the rows.  Where weights are too unequal for
    that, a tree (Fenwick 1994) finds it: a logarithm more.

    Parameters
    ----------
    values : (rows, 3) float64
        Of the node, y ascending.
    order : (rows,) uint32
        Positions, group by group.
    ends : (groups,) uint32
        Where each group ends in `order`.
    gone : int
        Group that is on this side of no cut; -1 = none.
    from_left : bool
        Take groups 0, 1, ... away and record the right side of cuts 0, 1, ...;
        else groups last, last - 1, ... and the left side of cuts last - 1, ...
    last : int
        Number of cuts; cut j lies after group j.
    links : (rows + 2, 2) uint32
        Working memory: the rows before and after, counted from 1.
    sides : (2 * cuts + 1, 4) float64
        Receives the left side of cut j in row 2j, the right one in row 2j + 1,
        and in the last row all rows but those of `gone`.
    tree : (rows + 1, 2) float64, or (0, 2)
        Working memory for the tree, or nothing: walk.
    """
    zero, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
    rows = np.uint64(len(values))
    tail = rows + one
    weight, total = 0.0, 0.0
    for i in range(rows):
        weight += values[i, zero]
        total += values[i, two]
        links[i + one, zero] = np.uint32(i)
        links[i + one, one] = np.uint32(i + two)
    links[zero, one] = np.uint32(1)
    links[tail, zero] = np.uint32(rows)
    by_tree = len(tree) > 0
    if by_tree:
        fenwick(values, tree)
    at, below, sum_below = one, 0.0, 0.0
    for step in range(-1 if gone >= 0 else 0, last):
        group = np.uint64(gone)
        if step >= 0:
            group = np.uint64(step if from_left else last - step)
        begin = np.uint64(ends[group - one]) if group > zero else zero
        for j in range(begin, np.uint64(ends[group])):
            i = np.uint64(order[j])
            w, wy = values[i, zero], values[i, two]
            weight -= w
            total -= wy
            before, after = links[i + one, zero], links[i + one, one]
            links[np.uint64(before), one] = after
            links[np.uint64(after), zero] = before
            if by_tree:
                _subtract(tree, i + one, w, wy)
            elif i + one < at:
                below -= w
                sum_below -= wy
            elif i + one == at:
                at = np.uint64(after)
                if at == tail and before > 0:
                    at = np.uint64(before)
                    below -= values[at - one, zero]
                    sum_below -= values[at - one, two]
        enough = (quantile - SLACK) * weight
        if by_tree:
            at, below, sum_below = _descend(tree, enough)
        else:
            while below + values[at - one, zero] < enough and links[at, one] < tail:
                below += values[at - one, zero]
                sum_below += values[at - one, two]
                at = np.uint64(links[at, one])
            while below >= enough and links[at, zero] > zero:
                at = np.uint64(links[at, zero])
                below -= values[at - one, zero]
                sum_below -= values[at - one, two]
        after = np.uint64(links[at, one])
        after = after if after < tail else at
        row = two * np.uint64(last)  # what is left without the group `gone`
        if step >= 0:
            row = two * np.uint64(step) + one if from_left else two * np.uint64(last - 1 - step)
        q, lower, upper = _about(
            values, at - one, after - one, quantile, weight, total, below, sum_below
        )
        sides[row, zero], sides[row, one] = weight, q
        sides[row, two], sides[row, two + one] = lower, upper


@kernel
def fenwick(values, tree):
    """Sums of columns 0 and 2 of `values` into `tree`, counted from 1; linear."""
    rows = np.uint64(len(values))
    tree[:] = 0.0
    for i in range(np.uint64(1), rows + np.uint64(1)):
        tree[i, np.uint64(0)] += values[i - np.uint64(1), np.uint64(0)]
        tree[i, np.uint64(1)] += values[i - np.uint64(1), np.uint64(2)]
        parent = i + (i & (~i + np.uint64(1)))
        if parent <= rows:
            tree[parent, np.uint64(0)] += tree[i, np.uint64(0)]
            tree[parent, np.uint64(1)] += tree[i, np.uint64(1)]


@inlined
def _subtract(tree, at, w, wy):
    while at < np.uint64(len(tree)):
        tree[at, np.uint64(0)] -= w
        tree[at, np.uint64(1)] -= wy
        at += at & (~at + np.uint64(1))


@inlined
def _descend(tree, enough):
    """The first row up to which the weight is `enough`, and the sums before it."""
    rows = np.uint64(len(tree)) - np.uint64(1)
    bit = np.uint64(1)
    while bit << np.uint64(1) <= rows:
        bit <<= np.uint64(1)
    at, below, sum_below = np.uint64(0), 0.0, 0.0
    while bit > np.uint64(0):
        to = at + bit
        if to <= rows and below + tree[to, np.uint64(0)] < enough:
            at = to
            below += tree[to, np.uint64(0)]
            sum_below += tree[to, np.uint64(1)]
        bit >>= np.uint64(1)
    return min(at + np.uint64(1), rows), below, sum_below
