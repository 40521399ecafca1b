"""Built-in pruners, registered through the same hook as those of plugins."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.components.pruning import Context, Losses, collapse, graft, kept_nodes
from treekit.contracts import Pruner, PrunerFunctions, Setting
from treekit.errors import SettingError
from treekit.grow.recipe import GrownTree
from treekit.grow.route import prepare_routing
from treekit.grow.target_statistics import choose_part_steps
from treekit.hookspecs import hookimpl
from treekit.kernels.pruning import (
    ErrorBound,
    estimate_node_errors,
    find_cheapest_cuts,
    find_weakest_links,
    prune_and_raise,
    sum_leaves_below,
)
from treekit.model.tree import Split, Tree

# ---------------------------------------------------------------- cost-complexity pruning


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
    """Prune by minimal cost complexity; choose alpha by cross-validation or a hold-out.

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
        Measure the risk by the cost of wrong predictions, or by the criterion's
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
                weight = context.losses.weight(context.held_stats[0])
                error = _compute_standard_error(full.held_risk, full.held_squares, weight)
                name, judged = "held", (full.held_risk / weight, error)
                if rule == "one_se" and np.isnan(judged[1]).all():
                    raise SettingError(
                        "rule='one_se' on hold-out rows needs the cost of each row, but this "
                        "criterion's loss is not defined for single rows; set rule='min', or use "
                        "cross-validation: holdout=0 and no validation table"
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
    """Return (nodes,) float64: the criterion's impurity of each node, times its weight."""
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


# ---------------------------------------------------------------- error-based pruning


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
    factor, release8 = 0.5 if confidence is None else confidence, limit == "release8"
    quantile = compute_normal_quantile(factor, release8)

    def after(tree: Tree, context: Context) -> Tree:
        stats, costs = context.stats, context.costs
        scaled = 1.0 - np.eye(stats.shape[1]) if costs is None else costs / costs.max()
        bound = ErrorBound(factor, quantile, release8, scaled)
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
    steps = choose_part_steps(rows.values)
    routed = prepare_routing(tree, table, rows, steps, fractional=context.fractional)
    source = prune_and_raise(routed, rows, bound, stats)
    kept = kept_nodes(tree, source)
    grafted = graft(tree, source)
    stats = stats[kept]
    weight = stats.sum(axis=1)
    value = stats.copy()
    parent = grafted.parent
    for node in np.flatnonzero(weight == 0):  # parents first
        value[node] = value[parent[node]]
    return replace(grafted, value=value, weight=weight)


def compute_normal_quantile(confidence: float, release8: bool) -> float:
    """Return z with ``P(Z > z) = confidence``; release 8 interpolates linearly in a table."""
    if not release8:
        return NormalDist().inv_cdf(1.0 - confidence)
    probabilities = (0.0, 0.001, 0.005, 0.01, 0.05, 0.10, 0.20, 0.40, 1.00)
    quantiles = (4.0, 3.09, 2.58, 2.33, 1.65, 1.28, 0.84, 0.25, 0.00)
    return float(np.interp(confidence, probabilities, quantiles))


# ---------------------------------------------------------------- registration

_EXEMPT_FROM_DOUBLING = {"doubling-weights-changes-nothing": "a larger weight is stronger evidence"}


@hookimpl
def treekit_pruners() -> list[Pruner]:
    """Return the pruners of the literature, for use after and during growth."""
    return [
        Pruner(
            "cost_complexity",
            make_cost_complexity,
            settings=(
                Setting(
                    "alpha", None, "risk per leaf below which a link is cut; none: choose it",
                    type=(float, type(None)), minimum=0.0,
                ),
                Setting(
                    "rule", "min",
                    "alpha of lowest risk, or of the smallest tree within one standard error",
                    choices=("min", "one_se"),
                ),
                Setting(
                    "risk", "loss", "weigh links by misclassification cost or by impurity",
                    choices=("loss", "impurity"),
                ),
                Setting("folds", 10, "cross-validation folds to choose alpha", minimum=2),
                Setting(
                    "holdout", 0.0, "share of rows to choose alpha on instead of cross-validation",
                    minimum=0.0, maximum=0.9,
                ),
            ),
            summary="minimal cost-complexity pruning (Breiman et al. 1984)",
        ),
        Pruner(
            "reduced_error",
            make_reduced_error,
            settings=(
                Setting(
                    "holdout", 0.25, "share of rows to prune on", minimum=0.01, maximum=0.9
                ),
                Setting("prune_ties", False, "also prune if the error stays the same"),
            ),
            summary="reduced-error pruning on a hold-out (Quinlan 1987)",
        ),
        Pruner(
            "error_based",
            make_error_based,
            settings=(
                Setting(
                    "confidence", 0.25,
                    "confidence factor of the error limit; lower prunes more; none: only collapse",
                    type=(float, type(None)), minimum=1e-6, maximum=1 - 1e-6,
                ),
                Setting("raising", True, "also replace a subtree by its largest branch"),
                Setting("collapsing", True, "first collapse splits that lower no training error"),
                Setting(
                    "limit", "j48", "exact normal quantile (j48) or C4.5's table (release8)",
                    choices=("j48", "release8"),
                ),
            ),
            summary="error-based pruning (Quinlan 1993)",
            task="classification",
            exempt=_EXEMPT_FROM_DOUBLING,
        ),
        Pruner(
            "mdl",
            make_mdl,
            summary="minimum description length (Mehta, Rissanen and Agrawal 1995)",
            task="classification",
            costs=False,
            exempt=_EXEMPT_FROM_DOUBLING,
        ),
        Pruner(
            "holdout",
            make_holdout,
            settings=(
                Setting(
                    "holdout", 0.25, "share of rows to validate splits on",
                    minimum=0.01, maximum=0.9,
                ),
            ),
            summary="split only if the hold-out accuracy increases (Zhou 2016)",
            task="classification",
            costs=False,
        ),
        Pruner(
            "chi_squared",
            make_chi_squared,
            settings=(
                Setting(
                    "alpha", 0.05, "largest p-value at which a node is split",
                    minimum=0.0, maximum=1.0,
                ),
            ),
            summary="split only if class and branch are dependent (Quinlan 1986)",
            task="classification",
            exempt=_EXEMPT_FROM_DOUBLING,
        ),
    ]  # fmt: skip


# ---------------------------------------------------------------- pre-pruning

Stats = Any


def make_holdout(holdout: float) -> PrunerFunctions:
    """Split only if that increases the hold-out accuracy (Zhou 2016, section 4.3.1).

    The node and each branch predict the class with the most training weight, ties to
    the first class; a branch without training rows predicts the node's class.

    Parameters
    ----------
    holdout : float
        Share of the training rows to hold out.
    """

    def before(parent: Stats, children: Stats, held_parent: Stats, held_children: Stats) -> bool:
        node_label = np.argmax(parent)
        right = 0.0
        for b in range(children.shape[0]):
            label = np.argmax(children[b]) if children[b].sum() > 0.0 else node_label
            right += held_children[b, label]
        return bool(right > held_parent[node_label])

    return PrunerFunctions(before=before, holdout=holdout)


def make_chi_squared(alpha: float) -> PrunerFunctions:
    """Split only if class and branch are dependent (Quinlan 1986, section 4).

    Pearson's test of independence, without a continuity correction: the split is made
    if the p-value is at most `alpha`.  A row of weight w counts as w rows; rows that
    are in no branch do not count.

    Parameters
    ----------
    alpha : float
        Significance level.
    """

    def before(  # the contract passes four arrays; the test needs one
        parent: Stats,  # noqa: ARG001
        children: Stats,
        held_parent: Stats,  # noqa: ARG001
        held_children: Stats,  # noqa: ARG001
    ) -> bool:
        branches, classes = children.shape
        total = children.sum()
        of_class = children.sum(axis=0)
        rows, columns = 0, 0
        for k in range(classes):
            columns += 1 if of_class[k] > 0.0 else 0
        chi = 0.0
        for b in range(branches):
            weight = children[b].sum()
            if weight > 0.0:
                rows += 1
                for k in range(classes):
                    if of_class[k] > 0.0:
                        expected = weight * of_class[k] / total
                        chi += (children[b, k] - expected) ** 2 / expected
        if rows < 2 or columns < 2:
            return bool(alpha >= 1.0)
        return bool(_compute_upper_gamma(0.5 * (rows - 1) * (columns - 1), 0.5 * chi) <= alpha)

    return PrunerFunctions(before=before, holdout=None)


def _compute_upper_gamma(a: float, x: float) -> float:
    """Compute the regularised upper incomplete gamma function Q(a, x), a > 0, x >= 0.

    P(chi-squared with f degrees of freedom > c) is ``Q(f / 2, c / 2)``.  Below
    a + 1 it is one minus the series of P (Abramowitz and Stegun 1964, 6.5.29), above
    that the continued fraction (6.5.31), evaluated forwards (Lentz 1976).
    """
    if x <= 0.0:
        return 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1.0:
        term = 1.0 / a
        series, n = term, a
        while term > 1e-17 * series:
            n += 1.0
            term *= x / n
            series += term
        return max(1.0 - front * series, 0.0)
    # 1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / (x + 5 - a - ...)))
    b = x + 1.0 - a
    ahead, behind = 1e300, 1.0 / b
    fraction = behind
    for i in range(1, 10_000):
        step = -i * (i - a)
        b += 2.0
        behind = 1.0 / (b + step * behind)
        ahead = b + step / ahead
        change = behind * ahead
        fraction *= change
        if abs(change - 1.0) < 1e-16:
            break
    return front * fraction


# ---------------------------------------------------------------- reduced error
# Reduced-error pruning on a hold-out (Quinlan 1987, *Simplifying decision trees*).


def make_reduced_error(holdout: float, prune_ties: bool) -> PrunerFunctions:
    """Replace subtrees by leaves, bottom up, where that lowers the hold-out error.

    Parameters
    ----------
    holdout : float
        Share of the training rows to hold out.
    prune_ties : bool
        Also prune if the error stays the same (Quinlan's rule); otherwise only if
        the accuracy increases (Zhou, *Machine Learning*, section 4.3).
    """

    def after(tree: Tree, context: Context) -> Tree:
        context.need_holdout("reduced_error")
        risk = context.held_risk
        grown, judged = (
            float(context.losses.weight(stats[0])) for stats in (context.stats, context.held_stats)
        )
        cut = find_cheapest_cuts(
            tree.kind, tree.first_child, tree.n_children, risk, np.zeros_like(risk), 0.0, prune_ties
        )
        pruned = collapse(tree, cut)
        leaves = kept_nodes(tree, np.where(cut, -1, np.arange(tree.n_nodes)))[pruned.leaves]
        context.report["weight_grown_on"] = grown
        context.report["weight_judged_by"] = judged
        if context.task == "classification":  # in regression `risk` leaves out a constant
            context.report["held_risk"] = float(risk[leaves].sum()) / judged
        return pruned

    return PrunerFunctions(after=after, holdout=holdout)


# ---------------------------------------------------------------- minimum description length
# Mehta, Rissanen and Agrawal 1995.


def make_mdl() -> PrunerFunctions:
    """Replace subtrees by leaves, bottom up, unless that increases the description length.

    The description encodes tree and classes.  A node costs one bit (leaf or not), a leaf
    `count_class_bits`, a split `count_split_bits`: the code of Mehta, Rissanen and Agrawal,
    *MDL-based decision tree pruning* (KDD 1995), with splits encoded as by Rastogi and
    Shim (*PUBLIC*, VLDB 1998, section 2.3).
    """

    def after(tree: Tree, context: Context) -> Tree:
        cut = find_cheapest_cuts(
            tree.kind, tree.first_child, tree.n_children, count_class_bits(context.stats),
            count_split_bits(tree, context), 0.0, True,  # both include the bit "leaf or not"
        )  # fmt: skip
        return collapse(tree, cut)

    return PrunerFunctions(after=after, holdout=None)


def count_class_bits(stats: Numbers) -> Numbers:
    """Compute (nodes,) bits of each node as a leaf: one, plus the bits of its rows' classes.

    The latter are the stochastic complexity,
    ``sum n_k log(n / n_k) + (K - 1) / 2 log(n / 2) + log(pi**(K / 2) / gamma(K / 2))``
    (Mehta et al. 1995, equation 3), in bits; the sum of the last two terms, an
    approximation for many rows, is at least 0.

    Parameters
    ----------
    stats : (nodes, classes) float64
        Weight of each class; a row of weight w counts as w rows.
    """
    n, k = stats.sum(axis=1), stats.shape[1]
    full = n > 0
    n = np.where(full, n, 1.0)
    share = stats / n[:, None]
    entropy = -(share * np.log2(np.where(share > 0, share, 1.0))).sum(axis=1)
    constant = k / 2 * math.log2(math.pi) - math.lgamma(k / 2) / math.log(2)
    model = np.maximum((k - 1) / 2 * np.log2(n / 2) + constant, 0.0)
    return np.asarray(np.where(full, 1.0 + n * entropy + model, 1.0))


def count_split_bits(tree: Tree, context: Context) -> Numbers:
    """Return (nodes,) float64: the number of bits that encode each node's split, 1 for a leaf.

    A split costs one bit, plus the bits of its feature and of its test.  For a column with v
    values in the training table, a threshold is one of v - 1 and a category set one of
    ``2**v - 2``; multiway splits and missing-value tests cost no further bits.  Each term of
    a linear combination costs as much as a threshold on its column.
    """
    values = context.table.n_codes.astype(np.float64)
    column = math.log2(len(values))
    threshold = np.log2(np.maximum(values - 1.0, 1.0))
    subset = np.log2(np.maximum(2.0 ** np.minimum(values, 60.0) - 2.0, 1.0))
    subset = np.maximum(subset, np.where(values > 60, values, 0.0))
    bits = np.ones(tree.n_nodes)
    inner = tree.kind != Split.LEAF
    bits[inner] += column
    for kind, own in ((Split.THRESHOLD, threshold), (Split.SUBSET, subset)):
        at = tree.kind == kind
        bits[at] += own[tree.feature[at]]
    owner = np.repeat(np.arange(tree.n_nodes), np.diff(tree.term_offsets))
    terms = np.bincount(owner, column + threshold[tree.term_feature], minlength=tree.n_nodes)
    return np.asarray(np.where(tree.kind == Split.OBLIQUE, 1.0 + terms, bits))
