"""Minimal cost-complexity pruning (Breiman, Friedman, Olshen and Stone 1984, chapter 3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.contracts import PrunerFunctions
from treekit.grow.builder import GrownTree
from treekit.kernels.prune import weakest_links
from treekit.model.tree import Tree
from treekit.pruners.context import Context, collapse, risks

__all__ = ["cost_complexity"]


def cost_complexity(alpha: float | None, folds: int, holdout: float) -> PrunerFunctions:
    """Cut every link weaker than alpha; choose alpha by cross-validation or a hold-out.

    The risk is the misclassified weight, or the squared error, as a share of
    all training weight; alpha is risk per leaf.

    Parameters
    ----------
    alpha : float or None
        None: the alpha of smallest hold-out risk, ties to the smaller tree.
    folds : int
        Folds of the cross-validation, used where neither alpha nor a hold-out is given.
    holdout : float
        Share of the rows to choose alpha on instead of cross-validation.
    """

    def after(tree: Tree, context: Context) -> Tree:
        grown = GrownTree(
            tree,
            context.stats,
            context.held_stats,
            np.empty(0, np.uint32),
            np.empty(0, np.int64),
            np.empty((0, 1)),
        )
        alpha_of, alphas, held = _sequence(grown, context)
        if alpha is not None:
            chosen = alpha
        elif holdout > 0:
            context.need_holdout("cost_complexity")
            chosen = float(alphas[len(held) - 1 - np.argmin(held[::-1])])
        else:
            chosen = _cross_validated(alphas, context, folds)
        context.report["alpha"] = chosen
        return collapse(tree, alpha_of <= chosen * (1.0 + 1e-12))

    return PrunerFunctions(after=after, holdout=holdout if alpha is None else 0.0)


def _sequence(
    grown: GrownTree, context: Context
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """``alpha_of`` the nodes, the alphas of the sequence and its hold-out risks."""
    tree = grown.tree
    weight = grown.stats[0].sum() if context.task == "classification" else grown.stats[0, 0]
    alpha_of, alphas, _, held = weakest_links(
        tree.kind,
        tree.first_child,
        tree.n_children,
        tree.parent,
        # Not yet as shares: counts are exact, and equal links come out equal.
        risks(context.task, grown.stats, grown.stats),
        risks(context.task, grown.stats, grown.held_stats),
    )
    return alpha_of / weight, alphas / weight, held


def _cross_validated(alphas: npt.NDArray[Any], context: Context, folds: int) -> float:
    """The alpha of the full tree whose geometric midpoint costs least over the folds."""
    if len(alphas) == 1:  # nothing to choose between
        return 0.0
    between = np.sqrt(alphas * np.append(alphas[1:], np.inf))
    cost = np.zeros(len(alphas))
    for grown in context.folds(folds):
        _, fold_alphas, held = _sequence(grown, context)
        cost += held[np.searchsorted(fold_alphas, between, side="right") - 1]
    return float(alphas[len(cost) - 1 - np.argmin(cost[::-1])])
