"""Error-based pruning (Quinlan 1993, *C4.5: Programs for Machine Learning*, chapter 4)."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from treekit.components.pruning import Context, collapse, graft, kept_nodes
from treekit.contracts import PrunerFunctions
from treekit.grow.route import encode_splits
from treekit.grow.target_statistics import choose_part_steps
from treekit.kernels.pruning import (
    ErrorBound,
    estimate_node_errors,
    find_cheapest_cuts,
    prune_and_raise,
    sum_leaves_below,
)
from treekit.model.tree import Split, Tree

__all__ = [
    "make_error_based",
]

Numbers = npt.NDArray[np.float64]

_MIN_ERROR_DECREASE = 1e-3
"""Decrease in training errors, in rows, below which a split is collapsed."""

_TOLERANCE = 0.1 + 1e-6
"""Errors by which a smaller tree may be worse, including J48's margin for rounding."""


def make_error_based(
    confidence: float | None, raising: bool, collapsing: bool, limit: str
) -> PrunerFunctions:
    """Replace a subtree by a leaf, or by its largest branch, if that lowers the expected errors.

    The expected errors of a leaf are an upper confidence limit: the number for which the
    observed errors would be as unlikely as the confidence factor.  Misclassification
    costs are scaled to a maximum of 1: a cost between 0 and 1 varies no more than an
    error of the same mean, so that the limit holds.

    Parameters
    ----------
    confidence : float or None
        Confidence factor, between 0 and 1: a lower one prunes more.  None: only
        collapse subtrees.
    raising : bool
        Also replace a subtree by its largest branch, and route its other rows
        through that branch.  Of branches with equal weight the last, as in J48.
    collapsing : bool
        First replace subtrees that lower the training errors by less than 0.001
        by leaves.
    limit : {"j48", "release8"}
        The limit with the exact normal quantile, as in Weka's J48; or with the
        table and the upper end of C4.5 release 8.
    """

    def after(tree: Tree, context: Context) -> Tree:
        bound = _make_bound(0.5 if confidence is None else confidence, limit, context)
        stats = context.stats
        wrong, expected = estimate_node_errors(stats, bound)
        if collapsing:
            below = sum_leaves_below(tree.kind, tree.first_child, tree.n_children, wrong)
            useless = (tree.kind != Split.LEAF) & (below >= wrong - _MIN_ERROR_DECREASE)
            kept = kept_nodes(tree, np.where(useless, -1, np.arange(tree.n_nodes)))
            tree, stats, expected = collapse(tree, useless), stats[kept], expected[kept]
        if confidence is None:
            return tree
        if raising:
            return _raise_subtrees(tree, context, bound, stats)
        cut = find_cheapest_cuts(
            tree.kind, tree.first_child, tree.n_children, expected, np.zeros_like(expected),
            _TOLERANCE, False,
        )  # fmt: skip
        return collapse(tree, cut)

    return PrunerFunctions(after=after, holdout=None)


def _raise_subtrees(tree: Tree, context: Context, bound: ErrorBound, stats: Numbers) -> Tree:
    """Prune and raise subtrees; leaf values are those of the rows that then reach each node."""
    rows, table = context.grown.rows, context.table
    stats = stats.copy()
    source = prune_and_raise(
        encode_splits(tree, table),
        table,
        rows,
        choose_part_steps(rows.values),
        context.fractional,
        bound,
        stats,
    )
    kept = kept_nodes(tree, source)
    grafted = graft(tree, source)
    stats = stats[kept]
    weight = stats.sum(axis=1)
    value = stats.copy()
    parent = grafted.parent
    for node in np.flatnonzero(weight == 0):  # parents first
        value[node] = value[parent[node]]
    return replace(grafted, value=value, weight=weight)


def _make_bound(confidence: float, limit: str, context: Context) -> ErrorBound:
    costs = context.costs
    k = context.stats.shape[1]
    scaled = 1.0 - np.eye(k) if costs is None else costs / costs.max()
    release8 = limit == "release8"
    return ErrorBound(confidence, compute_normal_quantile(confidence, release8), release8, scaled)


def compute_normal_quantile(confidence: float, release8: bool) -> float:
    """Return z with ``P(Z > z) = confidence``; release 8 interpolates linearly in a table."""
    if not release8:
        return NormalDist().inv_cdf(1.0 - confidence)
    probabilities = (0.0, 0.001, 0.005, 0.01, 0.05, 0.10, 0.20, 0.40, 1.00)
    quantiles = (4.0, 3.09, 2.58, 2.33, 1.65, 1.28, 0.84, 0.25, 0.00)
    return float(np.interp(confidence, probabilities, quantiles))
