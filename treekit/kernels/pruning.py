"""Bottom-up passes over a tree, for pruners."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.kernels.compile import inlined, kernel
from treekit.kernels.function_pointers import borrow_arrays
from treekit.kernels.partition_rows import (
    compute_cumulative_shares,
    copy_rows,
    copy_slice,
    distribute_rows,
    extend_rows,
    reserve_rows,
    sum_rows,
)
from treekit.kernels.route_rows import assign_node_branches

# ---------------------------------------------------------------- costs of subtrees


@kernel
def find_weakest_links(kind, first_child, n_children, risk, other_costs):
    """Compute the nested sequence of cost-complexity pruning (Breiman et al. 1984, ch. 3).

    The sequence repeatedly collapses the inner node t with the smallest
    ``g(t) = (R(t) - R(T_t)) / (leaves(T_t) - 1)``.  It is computed bottom up, from the alpha a
    at which ``R(t) + a`` crosses the lowest cost of t's branches: a piecewise linear function,
    whose slope is their number of leaves and which bends where a node below t collapses.  The
    nodes that collapse are kept in one heap per subtree; those that would collapse later than
    t never do so on their own.
    Cost: nodes x (log(nodes) + q), independent of the depth.

    Links that differ only by rounding break in the same step: a tree between them
    is not part of the sequence.

    Parameters
    ----------
    risk : (n,) float64
        Risk of each node as a leaf.
    other_costs : (q, n) float64
        Other costs of each node as a leaf, to be summed over the leaves.

    Returns
    -------
    alpha_of : (n,) float64
        The alpha at which a node becomes a leaf; inf for leaves, and for nodes
        that have been removed by then.
    steps : (2 + q, steps) float64
        Along the sequence, from the smallest tree of alpha 0: alpha, leaves,
        and the sums of `other_costs` over the leaves.
    """
    n, q = len(kind), np.uint64(len(other_costs))
    # Of inner nodes: the link that breaks there, then risk and number of leaves below it
    # just before it breaks.
    link, below, count = np.empty(n), np.empty(n), np.empty(n)
    held_below = np.empty((q, n))
    heap = np.full(n, -1)  # top of the heap of a node and those below it
    lower, other = np.full(n, -1), np.full(n, -1)  # children in the heap
    for node in range(n):
        t = np.uint64(n - 1 - node)
        if kind[t] == 0:
            continue
        top, cost, leaves = np.int64(-1), 0.0, np.float64(n_children[t])
        for k in range(q):
            held_below[k, t] = 0.0
        for branch in range(n_children[t]):
            c = np.uint64(first_child[t] + branch)
            cost += risk[c]
            for k in range(q):
                held_below[k, t] += other_costs[k, c]
            top = _meld_heaps(heap[c], top, link, lower, other)
        while True:
            gain = risk[t] - cost
            alpha = gain / max(leaves - 1.0, 1.0)
            if top < 0 or alpha > link[np.uint64(top)]:
                break
            later = np.uint64(top)
            if leaves == 1.0 and gain >= 0.0:  # a single leaf below: collapsing keeps their number
                alpha = link[later]
                break
            cost += below[later] - risk[later]
            leaves += count[later] - 1.0
            for k in range(q):
                held_below[k, t] += held_below[k, later] - other_costs[k, later]
            top = _meld_heaps(lower[later], other[later], link, lower, other)
        link[t], below[t], count[t] = alpha, cost, leaves
        lower[t], heap[t] = top, np.int64(t)
    return _list_steps(
        kind, first_child, n_children, risk, other_costs, link, count, held_below, lower, other
    )


@kernel
def _meld_heaps(one, two, link, lower, other):
    """Meld two heaps, the largest link on top (skew heaps, Sleator and Tarjan 1986)."""
    if one < 0 or two < 0:
        return max(one, two)
    if link[np.uint64(one)] < link[np.uint64(two)]:
        one, two = two, one
    top = one
    while True:
        at = np.uint64(one)
        rest = other[at]
        other[at] = lower[at]
        if rest < 0:
            lower[at] = two
            return top
        if link[np.uint64(rest)] < link[np.uint64(two)]:
            rest, two = two, rest
        lower[at] = rest
        one = rest


@kernel
def _list_steps(kind, first_child, n_children, risk, held, link, count, held_below, lower, other):
    """Return the results of `find_weakest_links`, from the root's heap of nodes to collapse."""
    n, q = len(kind), np.uint64(len(held))
    order = np.empty(n, np.int64)  # nodes that collapse, the last one first
    top, m = np.int64(0 if kind[np.uint64(0)] != 0 else -1), np.uint64(0)
    while top >= 0:
        order[m] = top
        m += np.uint64(1)
        top = _meld_heaps(lower[np.uint64(top)], other[np.uint64(top)], link, lower, other)
    alpha_of = np.full(n, np.inf)
    steps = np.empty((q + np.uint64(2), m + np.uint64(1)))
    zero, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
    slack = 0.0
    for i in range(np.uint64(n)):
        slack = max(slack, 1e-12 * abs(risk[i]))
    steps[zero, zero], steps[one, zero] = 0.0, 0.0
    for i in range(np.uint64(n)):
        steps[one, zero] += kind[i] == 0
    for k in range(q):
        steps[two + k, zero] = sum_leaves_below(kind, first_child, n_children, held[k])[zero]
    last = zero
    for rank in range(m):
        t = np.uint64(order[m - one - rank])
        if link[t] > steps[zero, last] + slack:
            for row in range(q + two):
                steps[row, last + one] = steps[row, last]
            last += one
            steps[zero, last] = link[t]
        alpha_of[t] = steps[zero, last]
        steps[one, last] -= count[t] - 1.0
        for k in range(q):
            steps[two + k, last] += held[k, t] - held_below[k, t]
    return alpha_of, steps[:, : last + one].copy()


@kernel
def find_breaking_links(kind, parent, alpha_of):
    """Return (n,) int64: the weakest link whose pruning removes each inner node; -1 for leaves.

    It is the node itself, or its parent's link if that has the same or a smaller alpha.
    """
    link = np.full(len(kind), -1)
    for i in range(np.uint64(len(kind))):
        if kind[i] != 0:
            link[i] = np.int64(i)
            if parent[i] >= 0 and alpha_of[np.uint64(parent[i])] <= alpha_of[i]:
                link[i] = link[np.uint64(parent[i])]
    return link


@kernel
def find_cheapest_cuts(kind, first_child, n_children, leaf, split, slack, cut_ties):
    """Replace subtrees by leaves, bottom up, where a leaf costs less.

    Parameters
    ----------
    leaf, split : (n,) float64
        Cost of each node as a leaf, and cost of its split without its branches.
    slack : float
        A leaf may cost more by less than this.
    cut_ties : bool
        Also cut if both cost the same.

    Returns
    -------
    (n,) bool
        The nodes to cut.
    """
    n = len(kind)
    best = leaf.copy()
    cut = np.zeros(n, np.bool_)
    for i in range(n - 1, -1, -1):
        if kind[i] == 0:
            continue
        below = split[i]
        for c in range(first_child[i], first_child[i] + n_children[i]):
            below += best[c]
        cut[i] = leaf[i] < below + slack or (cut_ties and leaf[i] == below)
        if not cut[i]:
            best[i] = below
    return cut


@kernel
def sum_leaves_below(kind, first_child, n_children, leaf):
    """Return (n,) float64: sum of `leaf` over the leaves at or below each node."""
    below = leaf.copy()
    for i in range(len(kind) - 1, -1, -1):
        if kind[i] != 0:
            below[i] = 0.0
            for c in range(first_child[i], first_child[i] + n_children[i]):
                below[i] += below[c]
    return below


# ---------------------------------------------------------------- subtree raising
# Error-based pruning with subtree raising: a node's rows are routed through its largest branch.
#
# Quinlan 1993, *C4.5*, chapter 4.  The tree keeps its node numbers: node i has the split
# and the children of node ``source[i]``; -1 = it is a leaf.

EXPAND, JUDGE = 0, 1
ROUNDING_MARGIN = 1e-6
"""Errors and weights that differ by less are equal, as in J48."""


class ErrorBound(NamedTuple):
    """Settings of the upper limit of errors.

    Attributes
    ----------
    confidence : float
        Confidence factor, between 0 and 1.
    z : float
        Its standard normal quantile, ``P(Z > z) = confidence``.
    release8 : bool
        Use the rules of C4.5 release 8 instead of J48 at the ends of the range.
    costs : (classes, classes) float64
        ``costs[i, j]``: cost of predicting j for i, from 0 to 1.
    """

    confidence: float
    z: float
    release8: bool
    costs: npt.NDArray[np.float64]


@kernel
def estimate_pessimistic_errors(n, e, bound):
    """Estimate the errors to expect for `n` rows with `e` errors: an upper confidence limit.

    Quinlan 1993, page 41, with a continuity correction; linear between no error and
    one error, and (J48) towards n at the upper end.  Above a confidence of 0.5 the limit
    for many errors can be below the observed number.
    """
    nearly = 1.0
    if bound.release8:
        nearly = 0.9999
        e = 0.0 if e < ROUNDING_MARGIN else e
    if e < nearly:
        none = n * (1.0 - bound.confidence ** (1.0 / n))
        if e == 0.0:
            return none
        return none + e * (_compute_upper_limit(n, 1.0, bound) - none)
    return _compute_upper_limit(n, e, bound)


@kernel
def _compute_upper_limit(n, e, bound):
    """Compute `estimate_pessimistic_errors` for one error or more."""
    if e + 0.5 >= n:
        return e + 0.67 * (n - e) if bound.release8 else max(n, e)
    f = (e + 0.5) / n
    z2 = bound.z * bound.z
    inner = f / n - f * f / n + z2 / (4.0 * n * n)
    return n * (f + z2 / (2.0 * n) + bound.z * np.sqrt(inner)) / (1.0 + z2 / n)


@kernel
def _count_errors(stats, bound):
    """Return the weight that a leaf predicts wrongly (times the costs), and the total weight."""
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
def _estimate_leaf_errors(stats, bound):
    """Estimate the pessimistic errors of a leaf; 0 for an empty leaf."""
    wrong, weight = _count_errors(stats, bound)
    return 0.0 if weight < ROUNDING_MARGIN else estimate_pessimistic_errors(weight, wrong, bound)


@kernel
def estimate_node_errors(stats, bound):
    """Return errors and pessimistic errors of each node as a leaf: two arrays (n,) float64."""
    n = len(stats)
    wrong, limit = np.empty(n), np.empty(n)
    for i in range(np.uint64(n)):
        wrong[i] = _count_errors(stats[i], bound)[0]
        limit[i] = _estimate_leaf_errors(stats[i], bound)
    return wrong, limit


@kernel
def prune_and_raise(routed, rows, bound, stats):
    """Replace subtrees, bottom up, by a leaf or by their largest branch, where that errs less.

    A node's branches are pruned first.  If the largest branch replaces the node,
    all rows of the node go through that branch, which is then pruned again.

    Parameters
    ----------
    routed : treekit.kernels.route_rows.RoutedTree
        Fractional instances are split in proportion to the known weight of each branch.
    rows : Rows
        All training rows; not changed.
    bound : ErrorBound
    stats : (n, S) float64
        Overwritten with the sums of the rows that now reach each node.

    Returns
    -------
    (n,) int64
        ``source``, as described above.
    """
    routed = borrow_arrays(routed)
    splits, n = routed.splits, len(routed.splits.kind)
    source = np.arange(n)
    for i in range(np.uint64(n)):
        if splits.kind[i] == 0:
            source[i] = -1
    expected = np.zeros(n)
    stack, spare = copy_rows(rows), copy_rows(rows)
    # node, first row, end of rows, phase, rows in use
    frames = np.zeros((64, 5), np.int64)
    frames[0, 2] = frames[0, 4] = len(rows.ids)
    sum_rows(stack, 0, len(rows.ids), stats[0], None)
    waiting = 1
    while waiting > 0:
        waiting -= 1
        node, begin, end = frames[waiting, 0], frames[waiting, 1], frames[waiting, 2]
        phase, top = frames[waiting, 3], frames[waiting, 4]
        at = source[node]
        if at < 0:
            expected[node] = _estimate_leaf_errors(stats[node], bound)
            continue
        first, branches = np.int64(splits.first_child[at]), np.int64(splits.n_children[at])
        if phase == EXPAND:
            frames = _extend_frames(frames, waiting + branches + 1)
            frames[waiting] = np.array([node, begin, end, JUDGE, top])
            waiting += 1
            stack, spare, offsets = _stack_branches(routed, at, stack, spare, begin, end, top)
            # Branches are written after all rows in use, their branches after them.
            for b in range(branches):
                begin, end = offsets[b], offsets[b + 1]
                sum_rows(stack, begin, end, stats[first + b], None)
                frames[waiting] = np.array([first + b, begin, end, EXPAND, offsets[branches]])
                waiting += 1
            continue
        tree, largest, most = 0.0, np.int64(0), 0.0
        for b in range(branches):
            tree += expected[first + b]
            weight = stats[first + b].sum()
            if weight > most - ROUNDING_MARGIN:  # the last of equal branches, as in J48
                largest, most = b, weight
        leaf = _estimate_leaf_errors(stats[node], bound)
        branch, stack, spare = _estimate_errors_below(
            routed, source, first + largest, stack, spare, begin, end, top, bound
        )
        if leaf < tree + 0.1 + ROUNDING_MARGIN and leaf < branch + 0.1 + ROUNDING_MARGIN:
            source[node] = -1
            expected[node] = leaf
        elif branch < tree + 0.1 + ROUNDING_MARGIN:
            source[node] = source[first + largest]
            frames[waiting] = np.array([node, begin, end, EXPAND, top])
            waiting += 1
        else:
            expected[node] = tree
    return source


@kernel
def _estimate_errors_below(routed, source, start, stack, spare, begin, end, top, bound):
    """Estimate the errors of the subtree at node `start` for rows[begin:end] of the stack."""
    splits, stats = routed.splits, np.zeros(len(bound.costs))
    frames = np.zeros((64, 4), np.int64)  # node, first row, end of rows, rows in use
    frames[0] = np.array([start, begin, end, top])
    waiting = 1
    errors = 0.0
    while waiting > 0:
        waiting -= 1
        node, begin, end = frames[waiting, 0], frames[waiting, 1], frames[waiting, 2]
        top = frames[waiting, 3]
        at = source[node]
        if at < 0:
            sum_rows(stack, begin, end, stats, None)
            errors += _estimate_leaf_errors(stats, bound)
            continue
        first, branches = np.int64(splits.first_child[at]), np.int64(splits.n_children[at])
        stack, spare, offsets = _stack_branches(routed, at, stack, spare, begin, end, top)
        frames = _extend_frames(frames, waiting + branches)
        for b in range(branches):
            frames[waiting] = np.array([first + b, offsets[b], offsets[b + 1], offsets[branches]])
            waiting += 1
    return errors, stack, spare


@kernel
def _stack_branches(routed, at, stack, spare, begin, end, top):
    """Write the branches of rows[begin:end] at a node's split one after the other, from `top` on.

    Returns
    -------
    stack, spare
        Replaced by longer arrays if they were too short.
    offsets : (branches + 1,) int64
    """
    branches, branch_of = np.int64(routed.splits.n_children[at]), routed.branch_of
    assign_node_branches(routed, at, stack.ids, begin, end)
    upto = np.empty(branches)
    compute_cumulative_shares(branch_of, stack.values, begin, end, upto)
    offsets = np.zeros(branches + 1, np.int64)
    spare = distribute_rows(
        branch_of, branches, upto, routed.steps, stack, begin, end, spare, offsets
    )
    count = offsets[branches]
    stack = reserve_rows(stack, top + count)
    copy_slice(spare, 0, count, stack, top)
    offsets += top
    return stack, spare, offsets


@inlined
def _extend_frames(frames, count):
    """Return the frames, in an array of `count` or more."""
    return extend_rows(frames, 2 * count) if count > len(frames) else frames
