"""Bottom-up passes over a tree for the pruners."""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import kernel

__all__ = ["breaking_links", "cheapest_cuts", "sums_below", "weakest_links"]


@kernel
def weakest_links(kind, first_child, n_children, risk, held):
    """The nested sequence of cost-complexity pruning (Breiman et al. 1984, ch. 3).

    It collapses, again and again, the inner node t with the smallest
    ``g(t) = (R(t) - R(T_t)) / (leaves(T_t) - 1)``.  Found here bottom up, from where
    ``R(t) + a`` crosses the least cost of t's branches at alpha a: a line whose slope is
    their leaves, and that bends where a node below t collapses.  Of these nodes, in a heap
    for each subtree, those that collapse later than t never do by themselves.
    Cost: nodes x (log(nodes) + q), whatever the depth.

    Links that differ by rounding alone fall in one step: a tree between them is
    no tree of the sequence.

    Parameters
    ----------
    risk : (n,) float64
        Of each node as a leaf.
    held : (q, n) float64
        Other costs of each node as a leaf, to be summed over the leaves.

    Returns
    -------
    alpha_of : (n,) float64
        The alpha at which a node becomes a leaf; inf for leaves, and for nodes
        that are gone by then.
    steps : (2 + q, steps) float64
        Along the sequence, the smallest tree of alpha 0 first: alpha, leaves,
        and the sums of `held` over the leaves.
    """
    n, q = len(kind), np.uint64(len(held))
    # Of inner nodes: the link that breaks there, and of the leaves below just before.
    link, below, count = np.empty(n), np.empty(n), np.empty(n)
    held_below = np.empty((q, n))
    heap = np.full(n, -1)  # the top one of those below a node, and itself
    lower, other = np.full(n, -1), np.full(n, -1)  # of the heap
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
                held_below[k, t] += held[k, c]
            top = _meld(heap[c], top, link, lower, other)
        while True:
            gain = risk[t] - cost
            own = gain / max(leaves - 1.0, 1.0)
            if top < 0 or own > link[np.uint64(top)]:
                break
            later = np.uint64(top)
            if leaves == 1.0 and gain >= 0.0:  # one branch: a leaf is no less than what is there
                own = link[later]
                break
            cost += below[later] - risk[later]
            leaves += count[later] - 1.0
            for k in range(q):
                held_below[k, t] += held_below[k, later] - held[k, later]
            top = _meld(lower[later], other[later], link, lower, other)
        link[t], below[t], count[t] = own, cost, leaves
        lower[t], heap[t] = top, np.int64(t)
    return _steps(kind, first_child, n_children, risk, held, link, count, held_below, lower, other)


@kernel
def _meld(one, two, link, lower, other):
    """Top of two heaps in one, the largest link first (skew heaps, Sleator and Tarjan 1986)."""
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
def _steps(kind, first_child, n_children, risk, held, link, count, held_below, lower, other):
    """The sequence, from the nodes that collapse: `weakest_links` but for finding them."""
    n, q = len(kind), np.uint64(len(held))
    order = np.empty(n, np.int64)  # those that collapse, the last one first
    top, m = np.int64(0 if kind[np.uint64(0)] != 0 else -1), np.uint64(0)
    while top >= 0:
        order[m] = top
        m += np.uint64(1)
        top = _meld(lower[np.uint64(top)], other[np.uint64(top)], link, lower, other)
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
        steps[two + k, zero] = sums_below(kind, first_child, n_children, held[k])[zero]
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
def breaking_links(kind, parent, alpha_of):
    """(n,) int64: the link that each inner node is lost with, in the unpruned tree; -1 for leaves.

    It is its own, unless the one above breaks at the same alpha.
    """
    link = np.full(len(kind), -1)
    for i in range(np.uint64(len(kind))):
        if kind[i] != 0:
            link[i] = np.int64(i)
            if parent[i] >= 0 and alpha_of[np.uint64(parent[i])] <= alpha_of[i]:
                link[i] = link[np.uint64(parent[i])]
    return link


@kernel
def cheapest_cuts(kind, first_child, n_children, leaf, split, slack, cut_ties):
    """Bottom up, make a node a leaf where that costs less than the subtree below it.

    Parameters
    ----------
    leaf, split : (n,) float64
        Cost of each node as a leaf, and what a split of it costs beside its branches.
    slack : float
        A leaf may cost so much more, less than that.
    cut_ties : bool
        Also where it costs the same.

    Returns
    -------
    (n,) bool
        The cuts.
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
def sums_below(kind, first_child, n_children, leaf):
    """(n,) float64: sum of `leaf` over the leaves at or below each node."""
    below = leaf.copy()
    for i in range(len(kind) - 1, -1, -1):
        if kind[i] != 0:
            below[i] = 0.0
            for c in range(first_child[i], first_child[i] + n_children[i]):
                below[i] += below[c]
    return below
