"""Monotonic constraints: how far the answers of a node's branches may go.

A split of a column that answers must rise with is one whose upper branch says
no less than its lower one; halfway between the two lies a bound that no
answer below the one branch may exceed and none below the other may fall short
of.  Bounds are handed down to all nodes below, so that the tree rises as a
whole, not each split alone (as scikit-learn's ``monotonic_cst``).
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import inlined, kernel

__all__ = [
    "BOUNDS", "CUTS", "HIGHEST", "LOWEST", "SIGN", "fits", "hand_bounds", "in_order", "within",
]  # fmt: skip

SIGN, CUTS, LOWEST, HIGHEST, BOUNDS = range(5)
"""What ``scratch.best`` tells a search, after its S + 2 own cells.

The constraint of the column asked, 1, -1 or 0 = none; how many cuts divide
its known values, for one more puts missing rows apart; and the bounds of what
the node may answer.  BOUNDS is the number of cells.

What a node answers is cell 1 of its statistics over its weight: the mean of a
number, or the share of the second of two classes.
"""


@inlined
def fits(left, right, sign, lowest, highest):
    """Whether the answers of two branches keep to the order and to the bounds.

    Splits of free columns need not (as in scikit-learn): their leaves are put
    within the bounds in the end.
    """
    ordered = min(left, right) >= lowest and max(left, right) <= highest
    return sign == 0.0 or (ordered and sign * (right - left) >= 0.0)


@kernel
def hand_bounds(bounds, node, first, branches, sign, left, right):
    """Bounds of a node's branches, from its own and from what the first two say.

    Parameters
    ----------
    bounds : (nodes, 2) float64
        Lowest and highest answer of each node; those of the branches are filled.
    sign : float
        Constraint of the split: 1, -1 or 0.
    left, right : float
        Without a constraint of no meaning.
    """
    zero, one = np.uint64(0), np.uint64(1)
    lowest, highest = bounds[np.uint64(node), zero], bounds[np.uint64(node), one]
    for b in range(np.uint64(branches)):
        bounds[np.uint64(first) + b, zero] = lowest
        bounds[np.uint64(first) + b, one] = highest
    if sign != 0.0:
        middle = min(max(0.5 * left + 0.5 * right, lowest), highest)
        upper = one if sign > 0.0 else zero
        bounds[np.uint64(first) + upper, zero] = middle
        bounds[np.uint64(first) + (one - upper), one] = middle


@kernel
def within(kind, feature, first_child, n_children, signs, answers):
    """Answers of a tree's nodes, put within the bounds that its splits hand down.

    Parameters
    ----------
    kind, feature, first_child, n_children : (n,) arrays
        Of a `treekit.model.tree.Tree`.
    signs : (features,) float64
    answers : (n,) float64
        What each node says: a number, or the share of the second class.

    Returns
    -------
    (n,) float64
    """
    n = np.uint64(len(kind))
    bounds = np.empty((len(kind), 2))
    bounds[np.uint64(0), np.uint64(0)] = -np.inf
    bounds[np.uint64(0), np.uint64(1)] = np.inf
    kept = np.empty(len(kind))
    for i in range(n):
        kept[i] = min(max(answers[i], bounds[i, np.uint64(0)]), bounds[i, np.uint64(1)])
        if kind[i] == 0:
            continue
        sign, first = 0.0, np.uint64(first_child[i])
        if kind[i] == 1:
            sign = signs[np.uint64(feature[i])]
        left, right = answers[first], answers[first + np.uint64(1)]
        hand_bounds(bounds, i, first, n_children[i], sign, left, right)
    return kept


@kernel
def in_order(kind, feature, first_child, n_children, signs, answers):
    """Whether no leaf on one side of a constrained split passes a leaf of the other.

    Parameters are those of `within`.
    """
    one = np.uint64(1)
    low, high = answers.copy(), answers.copy()
    for at in range(np.uint64(len(kind))):
        i = np.uint64(len(kind)) - one - at  # children before parents
        if kind[i] == 0:
            continue
        first = np.uint64(first_child[i])
        low[i], high[i] = low[first], high[first]
        for b in range(first + one, first + np.uint64(n_children[i])):
            low[i], high[i] = min(low[i], low[b]), max(high[i], high[b])
        sign = signs[np.uint64(feature[i])] if kind[i] == 1 else 0.0
        if sign > 0.0 and high[first] > low[first + one]:
            return False
        if sign < 0.0 and high[first + one] > low[first]:
            return False
    return True
