"""Error-based pruning with subtree raising: the rows of a node led through its largest branch.

Quinlan 1993, *C4.5*, chapter 4.  The tree keeps its node numbers: ``source[i]``
is the node whose question, and whose children, node i has; -1 = it is a leaf.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import inlined, kernel
from treekit.kernels.fractional import cumulative_shares, send
from treekit.kernels.move import longer, more_rows, total
from treekit.kernels.splits import mark_branches

__all__ = ["Bound", "pessimistic", "pessimistic_errors", "prune_and_raise"]

EXPAND, JUDGE = 0, 1
SMALL = 1e-6
"""Errors and weights that differ by less are equal, as in J48."""


class Bound(NamedTuple):
    """The upper limit of errors.

    Attributes
    ----------
    confidence : float
        Confidence factor, between 0 and 1.
    z : float
        Its standard normal quantile, ``P(Z > z) = confidence``.
    release8 : bool
        As C4.5 release 8 has it at the ends of the range, not as J48.
    costs : (classes, classes) float64
        ``costs[i, j]``: cost of saying j when it is i, from 0 to 1.
    """

    confidence: float
    z: float
    release8: bool
    costs: npt.NDArray[np.float64]


@kernel
def pessimistic(n, e, bound):
    """Errors to expect of `n` rows of which `e` are wrong: the upper limit at a confidence.

    Quinlan 1993, page 41, with a continuity correction and linear between no
    error and one, and (J48) to n at the upper end.  Above a confidence of 0.5 the limit of
    many errors may lie below those seen.
    """
    nearly = 1.0
    if bound.release8:
        nearly = 0.9999
        e = 0.0 if e < SMALL else e
    if e < nearly:
        none = n * (1.0 - bound.confidence ** (1.0 / n))
        if e == 0.0:
            return none
        return none + e * (_limit(n, 1.0, bound) - none)
    return _limit(n, e, bound)


@kernel
def _limit(n, e, bound):
    """`pessimistic` for one error or more."""
    if e + 0.5 >= n:
        return e + 0.67 * (n - e) if bound.release8 else max(n, e)
    f = (e + 0.5) / n
    z2 = bound.z * bound.z
    inner = f / n - f * f / n + z2 / (4.0 * n * n)
    return n * (f + z2 / (2.0 * n) + bound.z * np.sqrt(inner)) / (1.0 + z2 / n)


@kernel
def _errors(stats, bound):
    """Weight of the rows that a leaf gets wrong (times the costs), and all weight."""
    k = np.uint64(len(stats))
    weight, least = 0.0, np.inf
    for i in range(k):
        weight += stats[i]
    for j in range(k):
        cost = 0.0
        for i in range(k):
            cost += stats[i] * bound.costs[i, j]
        least = min(least, cost)
    return least, weight


@kernel
def _estimate(stats, bound):
    """Pessimistic errors of a leaf; none of an empty one."""
    wrong, weight = _errors(stats, bound)
    return 0.0 if weight < SMALL else pessimistic(weight, wrong, bound)


@kernel
def pessimistic_errors(stats, bound):
    """Errors, and pessimistic errors, of each node as a leaf: two arrays (n,) float64."""
    n = len(stats)
    wrong, limit = np.empty(n), np.empty(n)
    for i in range(np.uint64(n)):
        wrong[i] = _errors(stats[i], bound)[0]
        limit[i] = _estimate(stats[i], bound)
    return wrong, limit


@kernel
def prune_and_raise(splits, table, rows, steps, fractional, bound, stats):
    """Bottom up, make a node a leaf, or its largest branch, where that errs less.

    A node's branches are pruned first.  If its largest branch takes its place,
    all rows of the node go through that branch, which is then pruned again.

    Parameters
    ----------
    splits : Splits
    table : Table
    rows : Rows
        All training rows; not changed.
    steps : (columns of values,) float64
        Grid on which rows are cut into parts.
    fractional : bool
        Rows go down every branch of a split whose value they miss, in
        proportion to the known weight there; otherwise they take its missing way.
    bound : Bound
    stats : (n, S) float64
        Overwritten with the sums of the rows that now reach each node.

    Returns
    -------
    (n,) int64
        ``source``; see the module.
    """
    n = len(splits.kind)
    source = np.arange(n)
    for i in range(np.uint64(n)):
        if splits.kind[i] == 0:
            source[i] = -1
    expected = np.zeros(n)
    room = (rows.ids.copy(), rows.cells.copy(), rows.values.copy())
    spare = (rows.ids.copy(), rows.cells.copy(), rows.values.copy())
    branch_of = np.empty(len(rows.ids), np.uint32)
    sides = np.empty(table.codes.shape[1] if len(splits.terms) > 0 else 0, table.codes.dtype)
    # node, first row, end of rows, phase, rows in use
    frames = np.zeros((64, 5), np.int64)
    frames[0, 2] = frames[0, 4] = len(rows.ids)
    total(room[1], room[2], 0, len(rows.ids), stats[0], None)
    waiting = 1
    while waiting > 0:
        waiting -= 1
        node, begin, end, phase, top = (
            frames[waiting, 0],
            frames[waiting, 1],
            frames[waiting, 2],
            frames[waiting, 3],
            frames[waiting, 4],
        )
        at = source[node]
        if at < 0:
            expected[node] = _estimate(stats[node], bound)
            continue
        first, branches = np.int64(splits.first_child[at]), np.int64(splits.n_children[at])
        if phase == EXPAND:
            frames = _room_for(frames, waiting + branches + 1)
            frames[waiting] = np.array([node, begin, end, JUDGE, top])
            waiting += 1
            room, spare, ends = _hand_down(
                splits, at, table, sides, room, spare, begin, end, top, steps, fractional,
                branch_of,
            )  # fmt: skip
            # Branches lie on top of all rows in use, and their own branches on top of them.
            last = ends[branches - 1]
            begin = top
            for b in range(branches):
                total(room[1], room[2], begin, ends[b], stats[first + b], None)
                frames[waiting] = np.array([first + b, begin, ends[b], EXPAND, last])
                waiting += 1
                begin = ends[b]
            continue
        tree, largest, most = 0.0, np.int64(0), 0.0
        for b in range(branches):
            tree += expected[first + b]
            weight = stats[first + b].sum()
            if weight > most - SMALL:  # of equals the last, as in J48
                largest, most = b, weight
        leaf = _estimate(stats[node], bound)
        branch, room, spare = _expected_below(
            splits, source, first + largest, table, sides, room, spare, begin, end, top, steps,
            fractional, bound, branch_of,
        )  # fmt: skip
        if leaf < tree + 0.1 + SMALL and leaf < branch + 0.1 + SMALL:
            source[node] = -1
            expected[node] = leaf
        elif branch < tree + 0.1 + SMALL:
            source[node] = source[first + largest]
            frames[waiting] = np.array([node, begin, end, EXPAND, top])
            waiting += 1
        else:
            expected[node] = tree
    return source


@kernel
def _expected_below(
    splits,
    source,
    start,
    table,
    sides,
    room,
    spare,
    begin,
    end,
    top,
    steps,
    fractional,
    bound,
    branch_of,
):
    """Pessimistic errors of the tree at node `start`, if rows[begin:end] arrive there."""
    own = np.zeros(len(bound.costs))
    frames = np.zeros((64, 4), np.int64)  # node, first row, end of rows, rows in use
    frames[0] = np.array([start, begin, end, top])
    waiting = 1
    errors = 0.0
    while waiting > 0:
        waiting -= 1
        node, begin, end, top = (
            frames[waiting, 0],
            frames[waiting, 1],
            frames[waiting, 2],
            frames[waiting, 3],
        )
        at = source[node]
        if at < 0:
            total(room[1], room[2], begin, end, own, None)
            errors += _estimate(own, bound)
            continue
        first, branches = np.int64(splits.first_child[at]), np.int64(splits.n_children[at])
        room, spare, ends = _hand_down(
            splits, at, table, sides, room, spare, begin, end, top, steps, fractional, branch_of
        )
        frames = _room_for(frames, waiting + branches)
        last = ends[branches - 1]
        begin = top
        for b in range(branches):
            frames[waiting] = np.array([first + b, begin, ends[b], last])
            waiting += 1
            begin = ends[b]
    return errors, room, spare


@kernel
def _hand_down(
    splits, at, table, sides, room, spare, begin, end, top, steps, fractional, branch_of
):
    """Put the branches of rows[begin:end] at a node's split one after the other, from `top` on.

    Returns
    -------
    room, spare
        Longer arrays where they were too short.
    ends : (branches,) int64
    """
    ids, cells, values = room
    branches = np.int64(splits.n_children[at])
    mark_branches(splits, at, table, ids, begin, end, fractional, sides, branch_of)
    upto = np.empty(branches)
    cumulative_shares(branch_of, values, begin, end, upto)
    ends = np.zeros(branches, np.int64)
    ids2, cells2, values2 = send(
        branch_of, upto, steps, ids, cells, values, begin, end, spare[0], spare[1], spare[2], ends
    )
    count = ends[branches - 1]
    if top + count > len(ids):
        size = 2 * (top + count)
        ids, values = longer(ids, size), more_rows(values, size)
        cells = longer(cells, size)
    for i in range(np.uint64(count)):
        to = np.uint64(top) + i
        ids[to] = ids2[i]
        cells[to] = cells2[i]
        values[to, np.uint64(0)] = values2[i, np.uint64(0)]
    for b in range(branches):
        ends[b] += top
    return (ids, cells, values), (ids2, cells2, values2), ends


@inlined
def _room_for(frames, count):
    """The frames, in an array with room for `count`."""
    return more_rows(frames, 2 * count) if count > len(frames) else frames
