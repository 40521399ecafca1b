"""A split on several intervals of a number, as a nest of binary tests.

A splitter may part a numeric column into intervals at once.  The tree says so
by thresholds: the middle cut first, then those on either side of it, so that
all that reads trees (predictions, rules, every export) knows such a split
already.  The tests below the first are forced: nobody searches there, they gain
nothing of their own, and in the count of levels the nest is one.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import kernel

__all__ = ["INTERVALS", "PENDING", "hand_cuts", "nest_stats", "next_test"]

INTERVALS = 6
"""Kind of a node that will ask intervals; no node of a finished tree has it.

Its cuts, codes in ascending order, lie in the pool.  With a branch more than
intervals branch 0 is that of missing values, else `missing` is the interval that
takes them, counted from the node's first.
"""

PENDING = 64
"""Tests that may wait while a nest is opened: one a level, and cuts are halved."""


@kernel
def next_test(nodes, node, pool):
    """Make a node of intervals one test: whether the value is missing, or up to the middle cut.

    Returns
    -------
    int
        Cuts that are left for branch 0; -1 if that is the branch of missing values.
    """
    this = nodes[np.uint64(node)]
    cuts = np.int64(this.n_levels)
    apart = this.n_children > cuts + 1
    this.n_children, this.n_levels = 2, 0
    if apart:
        this.kind, this.missing = 4, 0
        return np.int64(-1)
    middle = cuts // 2
    this.kind = 1
    this.cut = pool[np.uint64(this.level_start + middle)]
    this.after = this.cut + 1
    this.missing = 0 if this.missing <= middle else 1
    return middle


@kernel
def hand_cuts(nodes, node, first_cut, cuts, below, lost, pending, n_pending):
    """Let the children of a test made by `next_test` ask for the cuts that are left.

    Parameters
    ----------
    first_cut, cuts, lost : int
        What the node's cuts were in the pool, and its `missing`.
    below : int
        As `next_test` returned it.
    pending : (PENDING,) int64
        Receives the children that have cuts, from `n_pending` on.

    Returns
    -------
    int
        How many nodes are pending.
    """
    this = nodes[np.uint64(node)]
    for branch in range(2):
        start, count, missing = first_cut, cuts, np.int64(0)
        if below >= 0:
            start = first_cut if branch == 0 else first_cut + below + 1
            count = below if branch == 0 else cuts - below - 1
            missing = lost if branch == 0 else lost - below - 1
        if count == 0 or (below < 0 and branch == 0):
            continue
        number = np.int64(this.first_child) + branch
        child = nodes[np.uint64(number)]
        child.kind, child.feature = INTERVALS, this.feature
        child.level_start, child.n_levels, child.n_children = start, count, count + 1
        child.missing, child.threshold = missing, np.nan
        pending[np.uint64(n_pending)] = number
        n_pending += 1
    return n_pending


@kernel
def nest_stats(nodes, root, size, stats, held_stats):
    """Statistics of the branches of a nest, in the order of its intervals.

    Parameters
    ----------
    size : int
        Nodes of the nest below its root; half of them and one are branches.

    Returns
    -------
    (branches, S) float64, twice
        Of the training rows and of the held-out ones.
    """
    branches = size // 2 + 1
    told = np.empty((branches, stats.shape[1]))
    held = np.empty((branches, stats.shape[1]))
    waiting = np.empty(PENDING, np.int64)
    waiting[0] = root
    n_waiting, branch = 1, 0
    while n_waiting > 0:
        n_waiting -= 1
        node = waiting[np.uint64(n_waiting)]
        if node != root and nodes[np.uint64(node)].kind == 0:
            told[np.uint64(branch)] = stats[np.uint64(node)]
            held[np.uint64(branch)] = held_stats[np.uint64(node)]
            branch += 1
        else:
            for child in range(2):  # the first of them on top
                number = np.int64(nodes[np.uint64(node)].first_child) + 1 - child
                waiting[np.uint64(n_waiting)] = number
                n_waiting += 1
    return told, held
