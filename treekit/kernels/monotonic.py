"""Monotonic constraints: bounds on the predictions below a node.

For an increasing constraint the upper branch of a split must predict no less than
the lower one.  The midpoint of the two predictions is the upper bound of the lower
branch and the lower bound of the upper one.  Bounds are passed on to all nodes below, so
that the complete tree is monotonic, not only each split (as in scikit-learn's
``monotonic_cst``).
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import inlined, kernel

SIGN, N_CUTS, LOWEST, HIGHEST, N_CONSTRAINT_CELLS = range(5)
"""Entries of ``scratch.best`` that pass the constraints to a search, after its S + 2 results.

SIGN: the constraint of the split feature, 1, -1 or 0 = none.  CUTS: how many cuts
separate known values; one more cut separates missing rows.  LOWEST, HIGHEST: bounds of the
node's predictions.  BOUNDS is the number of entries.

The prediction of a node is statistic 1 over its weight: the mean in regression, or the
share of the second of two classes.
"""


@inlined
def is_within_constraint(left, right, sign, lowest, highest):
    """Check whether the predictions of two branches respect the constraint and the bounds.

    Splits of unconstrained columns always pass (as in scikit-learn): their leaves are
    clipped to the bounds in the end.
    """
    ordered = min(left, right) >= lowest and max(left, right) <= highest
    return sign == 0.0 or (ordered and sign * (right - left) >= 0.0)


@kernel
def propagate_bounds(bounds, node, first, branches, sign, left, right):
    """Compute the bounds of a node's branches from its own and the first two predictions.

    Parameters
    ----------
    bounds : (nodes, 2) float64
        Lowest and highest prediction of each node; those of the branches are written.
    sign : float
        Constraint of the split: 1, -1 or 0.
    left, right : float
        Predictions of the first two branches; ignored without a constraint.
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
def clip_to_bounds(kind, feature, first_child, n_children, signs, predictions):
    """Clip the predictions of a tree's nodes to the bounds that its splits impose.

    Parameters
    ----------
    kind, feature, first_child, n_children : (n,) arrays
        Of a `treekit.model.tree.Tree`.
    signs : (features,) float64
    predictions : (n,) float64
        Prediction of each node: a number, or the share of the second class.

    Returns
    -------
    (n,) float64
    """
    n = np.uint64(len(kind))
    bounds = np.empty((len(kind), 2))
    bounds[np.uint64(0), np.uint64(0)] = -np.inf
    bounds[np.uint64(0), np.uint64(1)] = np.inf
    clipped = np.empty(len(kind))
    for i in range(n):
        clipped[i] = min(max(predictions[i], bounds[i, np.uint64(0)]), bounds[i, np.uint64(1)])
        if kind[i] == 0:
            continue
        sign, first = 0.0, np.uint64(first_child[i])
        if kind[i] == 1:
            sign = signs[np.uint64(feature[i])]
        left, right = predictions[first], predictions[first + np.uint64(1)]
        propagate_bounds(bounds, i, first, n_children[i], sign, left, right)
    return clipped


@kernel
def is_tree_monotonic(kind, feature, first_child, n_children, signs, predictions):
    """Check that no leaf on one side of a constrained split passes a leaf on the other.

    Parameters are those of `clip_to_bounds`.
    """
    one = np.uint64(1)
    low, high = predictions.copy(), predictions.copy()
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
