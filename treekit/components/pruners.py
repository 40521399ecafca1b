"""Built-in pruners, registered through the same hook as those of plugins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.components.pruning import Context, collapse, kept_nodes
from treekit.contracts import Pruner, PrunerFunctions, Setting
from treekit.hookspecs import hookimpl
from treekit.kernels.pruning import find_cheapest_cuts
from treekit.model.tree import Split, Tree

__all__ = [
    "count_class_bits",
    "count_split_bits",
    "make_chi_squared",
    "make_holdout",
    "make_mdl",
    "make_reduced_error",
    "treekit_pruners",
]


# ---------------------------------------------------------------- registration

_EXEMPT_FROM_DOUBLING = {"doubling-weights-changes-nothing": "a larger weight is stronger evidence"}


def _make_cost_complexity(**settings: Any) -> PrunerFunctions:
    from treekit.components.cost_complexity import make_cost_complexity

    return make_cost_complexity(**settings)


def _make_reduced_error(**settings: Any) -> PrunerFunctions:

    return make_reduced_error(**settings)


def _make_error_based(**settings: Any) -> PrunerFunctions:
    from treekit.components.error_based import make_error_based

    return make_error_based(**settings)


def _make_mdl(**settings: Any) -> PrunerFunctions:

    return make_mdl(**settings)


def _make_holdout(**settings: Any) -> PrunerFunctions:

    return make_holdout(**settings)


def _make_chi_squared(**settings: Any) -> PrunerFunctions:

    return make_chi_squared(**settings)


@hookimpl
def treekit_pruners() -> list[Pruner]:
    """Return the pruners of the literature, for use after and during growth."""
    return [
        Pruner(
            "cost_complexity",
            _make_cost_complexity,
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
            _make_reduced_error,
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
            _make_error_based,
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
            _make_mdl,
            summary="minimum description length (Mehta, Rissanen and Agrawal 1995)",
            task="classification",
            costs=False,
            exempt=_EXEMPT_FROM_DOUBLING,
        ),
        Pruner(
            "holdout",
            _make_holdout,
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
            _make_chi_squared,
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

    The node and its branches predict their largest class of training weight, ties to
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

Numbers = npt.NDArray[np.float64]


def make_mdl() -> PrunerFunctions:
    """Replace subtrees by leaves, bottom up, where that does not lengthen the description.

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
    """Compute (nodes,) bits of each node as a split: one, its feature and its test; 1 for leaves.

    For a column with v values in the training table, a threshold is one of v - 1 and a
    category set one of ``2**v - 2``; a multiway split and a missing-value test have no
    alternatives.  Each term of a linear combination costs as much as a threshold on its
    column.
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
