"""Bottom-up passes over a tree for the pruners."""

from __future__ import annotations

import heapq

import numpy as np

from treekit.kernels.compile import kernel

__all__ = ["cheapest_cuts", "sums_below", "weakest_links"]


@kernel
def weakest_links(kind, first_child, n_children, parent, risk, held):
    """The nested sequence of cost-complexity pruning (Breiman et al. 1984, ch. 3).

    Repeatedly collapse the inner node t with the smallest
    ``g(t) = (R(t) - R(T_t)) / (leaves(T_t) - 1)``.  A heap with lazy updates:
    nodes x depth x log(nodes).  Links that differ by rounding alone fall in
    one step: a tree between them is no tree of the sequence.

    Parameters
    ----------
    risk : (n,) float64
        Of each node as a leaf.
    held : (q, n) float64
        Other costs of each node as a leaf, to be summed over the leaves.

    Returns
    -------
    alpha_of : (n,) float64
        The alpha at which a node becomes a leaf; inf for leaves.
    steps : (2 + q, steps) float64
        Along the sequence, the smallest tree of alpha 0 first: alpha, leaves,
        and the sums of `held` over the leaves.
    """
    n, q = len(kind), len(held)
    below = risk.copy()
    held_below = held.copy()
    count = np.ones(n)
    for i in range(n - 1, -1, -1):
        if kind[i] != 0:
            below[i], count[i] = 0.0, 0.0
            held_below[:, i] = 0.0
            for c in range(first_child[i], first_child[i] + n_children[i]):
                below[i] += below[c]
                count[i] += count[c]
                for k in range(q):
                    held_below[k, i] += held_below[k, c]
    heap = [(np.inf, np.int64(-1))]
    for i in range(n):
        if kind[i] != 0:
            link = (risk[i] - below[i]) / max(count[i] - 1.0, 1.0)
            heapq.heappush(heap, (link, np.int64(i)))
    alpha_of = np.full(n, np.inf)
    closed = np.zeros(n, np.uint8)
    steps = [_step(0.0, count, held_below)]
    alpha = 0.0
    slack = 1e-12 * np.abs(risk).max()
    fewer_held = np.empty(q)
    while True:
        link, i = heapq.heappop(heap)
        if i < 0:
            break
        if closed[i] or link != (risk[i] - below[i]) / max(count[i] - 1.0, 1.0):
            continue
        changed = link > alpha + slack
        if changed:
            alpha = link
        _close_below(i, kind, first_child, n_children, closed)
        alpha_of[i] = alpha
        gained = risk[i] - below[i]
        fewer = count[i] - 1.0
        for k in range(q):
            fewer_held[k] = held_below[k, i] - held[k, i]
        at = i
        while at >= 0:
            below[at] += gained
            count[at] -= fewer
            for k in range(q):
                held_below[k, at] -= fewer_held[k]
            if at != i:
                link = (risk[at] - below[at]) / max(count[at] - 1.0, 1.0)
                heapq.heappush(heap, (link, np.int64(at)))
            at = parent[at]
        if changed:
            steps.append(_step(alpha, count, held_below))
        else:
            steps[-1] = _step(alpha, count, held_below)
    table = np.empty((2 + q, len(steps)))
    for s in range(len(steps)):
        table[:, s] = steps[s]
    return alpha_of, table


@kernel
def _step(alpha, count, held_below):
    """Alpha, leaves and held costs of the tree as it is: (2 + q,) float64."""
    row = np.empty(2 + len(held_below))
    row[0], row[1] = alpha, count[0]
    row[2:] = held_below[:, 0]
    return row


@kernel
def _close_below(top, kind, first_child, n_children, closed):
    """Mark a node and all inner nodes below it as no longer open."""
    stack = [np.int64(top)]
    while len(stack) > 0:
        i = stack.pop()
        closed[i] = 1
        for c in range(first_child[i], first_child[i] + n_children[i]):
            if kind[c] != 0 and closed[c] == 0:
                stack.append(np.int64(c))


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
