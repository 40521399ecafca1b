"""Reduced-error pruning on a hold-out (Quinlan 1987, *Simplifying decision trees*)."""

from __future__ import annotations

import numpy as np

from treekit.contracts import PrunerFunctions
from treekit.kernels.pruning import cheapest_cuts
from treekit.model.tree import Tree
from treekit.pruners.collapse import collapse, kept_nodes
from treekit.pruners.context import Context

__all__ = ["reduced_error"]


def reduced_error(holdout: float, prune_ties: bool) -> PrunerFunctions:
    """Bottom up, replace a subtree by a leaf where that lowers the hold-out error.

    Parameters
    ----------
    holdout : float
        Share of the training rows that are set aside.
    prune_ties : bool
        Also where the error stays the same (Quinlan's rule); otherwise only
        on a strict rise of accuracy (Zhou, *Machine Learning*, section 4.3).
    """

    def after(tree: Tree, context: Context) -> Tree:
        context.need_holdout("reduced_error")
        risk = context.held_risk
        grown, judged = (
            float(context.losses.weight(stats[0])) for stats in (context.stats, context.held_stats)
        )
        cut = cheapest_cuts(
            tree.kind, tree.first_child, tree.n_children, risk, np.zeros_like(risk), 0.0, prune_ties
        )
        pruned = collapse(tree, cut)
        leaves = kept_nodes(tree, np.where(cut, -1, np.arange(tree.n_nodes)))[pruned.leaves]
        context.report["weight_grown_on"] = grown
        context.report["weight_judged_by"] = judged
        if context.task == "classification":  # the loss of numbers lacks a constant
            context.report["held_risk"] = float(risk[leaves].sum()) / judged
        return pruned

    return PrunerFunctions(after=after, holdout=holdout)
