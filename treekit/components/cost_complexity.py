"""Minimal cost-complexity pruning (Breiman, Friedman, Olshen and Stone 1984, chapter 3).

rpart 4.1.19 uses the same sequence, but where links of different strengths lie below a
node it leaves out the weaker ones: its printed alpha can be lower than the alpha from
which the pruned tree is the better one, which is the alpha reported here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treekit.components.pruning import Context, Losses, collapse
from treekit.contracts import PrunerFunctions
from treekit.errors import SettingError
from treekit.grow.recipe import GrownTree
from treekit.kernels.pruning import find_weakest_links
from treekit.model.tree import Tree

__all__ = [
    "PruningSequence",
    "compute_pruning_sequence",
    "make_cost_complexity",
]

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PruningSequence:
    """Nested subtrees of the cost-complexity sequence, one for each interval of alpha.

    Attributes
    ----------
    alpha_of : (nodes,) float64
        Smallest alpha at which a node is a leaf; inf for leaves.
    alphas : (trees,) float64
        Smallest alpha of each tree, ascending from 0: risk per leaf and unit of
        training weight.
    leaves : (trees,) float64
    risk : (trees,) float64
        Training cost of each tree, summed over the rows.
    held_risk, held_squares : (trees,) float64
        The same for the hold-out rows, and the sum of their squared costs.
    """

    alpha_of: Numbers
    alphas: Numbers
    leaves: Numbers
    risk: Numbers
    held_risk: Numbers
    held_squares: Numbers


def make_cost_complexity(
    alpha: float | None, rule: str, risk: str, folds: int, holdout: float
) -> PrunerFunctions:
    """Prune every link weaker than alpha; choose alpha by cross-validation or a hold-out.

    The risk is the misclassified weight (times the misclassification costs), or the
    squared error, as a share of all training weight; alpha is risk per leaf.  The
    complete sequence is reported: alphas, leaves, training risk, and the hold-out
    risk with its standard error.

    Parameters
    ----------
    alpha : float or None
        None: chosen by `rule`.
    rule : {"min", "one_se"}
        The tree of lowest hold-out risk, ties to the smaller tree; or the smallest
        tree whose risk is within one standard error of that
        (Breiman et al. 1984, section 3.4.3).
    risk : {"loss", "impurity"}
        Weigh links by the cost of wrong predictions, or by the criterion's
        impurity.  Hold-out rows are always judged by wrong predictions.
    folds : int
        Folds of the cross-validation, used if neither an alpha nor hold-out rows
        are given; stratified by class.
    holdout : float
        Share of the rows to choose alpha on instead of cross-validation.
    """

    def after(tree: Tree, context: Context) -> Tree:
        def compute_sequence(grown: GrownTree) -> PruningSequence:
            own = None if risk == "loss" else _compute_impurity_risk(grown, context)
            return compute_pruning_sequence(grown, context.losses, own)

        full = compute_sequence(context.grown)
        report: dict[str, list[float]] = {
            "alpha": full.alphas.tolist(),
            "leaves": full.leaves.tolist(),
            "risk": (full.risk / context.losses.weight(context.stats[0])).tolist(),
        }
        chosen = alpha
        if chosen is None and len(full.alphas) == 1:
            chosen = 0.0  # a single tree
        if chosen is None:
            if holdout > 0 or context.validated:
                context.need_holdout("cost_complexity")
                name, judged = "held", _estimate_held_out_risk(full, context)
                if rule == "one_se" and np.isnan(judged[1]).all():
                    raise SettingError(
                        "rule='one_se' on hold-out rows needs the cost of each row, but this "
                        "criterion's loss is defined for sums of rows only; drop the hold-out to "
                        "use cross-validation, or set rule='min'"
                    )
            else:
                name, judged = "cv", _cross_validate_risk(full, context, compute_sequence, folds)
            report[f"{name}_risk"], report[f"{name}_standard_error"] = (x.tolist() for x in judged)
            chosen = float(full.alphas[_choose_tree(*judged, rule)])
        context.report["alpha"] = chosen
        context.report["sequence"] = report
        return collapse(tree, full.alpha_of <= chosen * (1.0 + 1e-12))

    return PrunerFunctions(after=after, holdout=holdout if alpha is None else None)


def compute_pruning_sequence(
    grown: GrownTree, losses: Losses, node_risk: Numbers | None = None
) -> PruningSequence:
    """Compute the pruning sequence of a grown tree.

    Parameters
    ----------
    node_risk : (nodes,) float64, optional
        Cost by which links are weighed, of each node as a leaf and summed over
        its rows; default `Losses.risk`.
    """
    tree = grown.tree
    risk = losses.risk(grown, grown.stats)
    squares = losses.squared_risk(grown)
    held = losses.risk(grown, grown.held_stats)
    # Poisson: a count above 0 where a node predicts 0.  inf - inf is NaN, so that
    # infinite costs are counted instead of summed.
    infinite = np.isinf(held)
    sums = [risk, np.where(infinite, 0.0, held), infinite.astype(float)]
    sums.append(np.full(tree.n_nodes, np.nan) if squares is None else squares)
    # Sums, not yet shares: they are exact, so that equal links compare equal.
    alpha_of, steps = find_weakest_links(
        tree.kind, tree.first_child, tree.n_children,
        risk if node_risk is None else node_risk, np.array(sums),
    )  # fmt: skip
    weight = losses.weight(grown.stats[0])
    return PruningSequence(
        alpha_of=alpha_of / weight,
        alphas=steps[0] / weight,
        leaves=steps[1],
        risk=steps[2] + losses.squares(grown.rows.values),
        held_risk=np.where(steps[4] > 0, np.inf, steps[3] + losses.squares(grown.held_values)),
        held_squares=steps[5],
    )


def _compute_impurity_risk(grown: GrownTree, context: Context) -> Numbers:
    """Return (nodes,): the criterion's impurity of each node, times its weight."""
    impurity = context.impurity
    if impurity is None:
        raise SettingError(
            "risk='impurity' needs a criterion with an impurity of nodes, such as gini, entropy "
            "or poisson; choose one, or risk='loss'"
        )
    own: Numbers = np.array([impurity(said) for said in grown.said])
    return np.asarray(grown.tree.weight * own)


def _choose_tree(risk: Numbers, error: Numbers, rule: str) -> int:
    """Return the position of the chosen tree, from each tree's risk and its standard error."""
    best = len(risk) - 1 - int(np.argmin(risk[::-1]))
    if rule == "min":
        return best
    return int(np.flatnonzero(risk <= risk[best] + error[best])[-1])


def _estimate_held_out_risk(full: PruningSequence, context: Context) -> tuple[Numbers, Numbers]:
    """Return each tree's mean risk on the hold-out rows, and its standard error."""
    weight = context.losses.weight(context.held_stats[0])
    return full.held_risk / weight, _compute_standard_error(
        full.held_risk, full.held_squares, weight
    )


def _cross_validate_risk(
    full: PruningSequence,
    context: Context,
    sequence: Callable[[GrownTree], PruningSequence],
    folds: int,
) -> tuple[Numbers, Numbers]:
    """Return each tree's cross-validated mean risk, and its standard error.

    A tree of the sequence represents the alphas up to the next tree; the geometric
    mean of the two selects its counterpart among the trees of a fold (Breiman et al.
    1984, section 3.4.2).
    """
    between = np.append(np.sqrt(full.alphas[:-1] * full.alphas[1:]), np.inf)
    risks, squares, weights = [], [], []
    for grown in context.folds(folds):
        part = sequence(grown)
        at = np.searchsorted(part.alphas, between, side="right") - 1
        risks.append(part.held_risk[at])
        squares.append(part.held_squares[at])
        weights.append(context.losses.weight(grown.held_stats[0]))
    weight = sum(weights)
    risk = np.sum(risks, axis=0)
    error = _compute_standard_error(risk, np.sum(squares, axis=0), weight)
    if np.isnan(error).all():
        # The costs of single rows are unknown: use the spread of the folds' means.
        means = np.array(risks) / np.array(weights)[:, None]
        known = np.isfinite(risk)
        error[known] = means[:, known].std(axis=0, ddof=1) / np.sqrt(len(means))
        error[~known] = np.inf
    return risk / weight, error


def _compute_standard_error(risk: Numbers, squares: Numbers, weight: float) -> Numbers:
    """Return the standard error of the mean cost of a row.

    Breiman et al. 1984, section 3.4.3, and 8.3.2 for regression.  `risk` and `squares` are
    sums of ``w * cost`` and ``w * cost**2``, `weight` is the sum of w: a row of weight w
    counts as w rows.
    """
    mean = np.where(np.isfinite(risk), risk, np.nan) / weight
    return np.asarray(np.sqrt(np.maximum(squares / weight - mean * mean, 0.0) / weight))
