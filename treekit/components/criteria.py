"""Built-in criteria, registered through the same hook as those of plugins."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from treekit.contracts import (
    MAX_COUNT,
    Criterion,
    CriterionExtras,
    CriterionFunctions,
    Ranks,
    Setting,
    Sums,
)
from treekit.hookspecs import hookimpl

# ---------------------------------------------------------------- registration


@hookimpl
def treekit_criteria() -> list[Criterion]:
    """Return the criteria of the literature: classification, then regression."""
    return [
        Criterion("gini", "classification", make_gini, summary="Gini index (Breiman et al. 1984)"),
        Criterion(
            "entropy",
            "classification",
            make_entropy,
            settings=(Setting("base", 2.0, "base of the logarithm", above=1.0),),
            summary="information gain (Quinlan 1986)",
        ),
        Criterion(
            "misclassification",
            "classification",
            make_misclassification,
            summary="misclassification rate (Breiman et al. 1984)",
        ),
        Criterion(
            "twoing",
            "classification",
            make_twoing,
            summary="distance between the class shares of the branches (Breiman et al. 1984)",
        ),
        Criterion(
            "gain_ratio",
            "classification",
            make_gain_ratio,
            settings=(
                Setting("slack", 0.0, "bits by which a gain may fall below the average", minimum=0),
                Setting("mdl", False, "subtract log2(candidate cuts) / weight from numeric gains"),
                Setting(
                    "missing_branch",
                    True,
                    "fractional missing values: count missing rows as a branch in the split "
                    "information",
                ),
                Setting(
                    "many_levels",
                    0.0,
                    "exclude columns with at least this many categories per unit of training "
                    "weight from the average gain (C4.5: 0.3); 0: no bound",
                    minimum=0,
                ),
                Setting("tolerance", 0.0, "treat gains and ratios this close as ties", minimum=0),
                Setting(
                    "level_by",
                    "gain",
                    "nominal_splits=one_vs_rest: choose a column's category by gain or by gain "
                    "ratio (J48 -B)",
                    choices=("gain", "ratio"),
                ),
            ),
            summary="gain ratio among columns with at least average gain (Quinlan 1993)",
        ),
        Criterion(
            "squared_error",
            "regression",
            make_squared_error,
            summary="decrease in squared error (Breiman et al. 1984)",
        ),
        Criterion(
            "friedman",
            "regression",
            make_friedman,
            summary="squared distance between the means of the branches (Friedman 2001)",
        ),
        Criterion(
            "poisson",
            "regression",
            make_poisson,
            summary="decrease in half the Poisson deviance, for counts",
        ),
        Criterion(
            "absolute_error",
            "regression",
            make_absolute_error,
            summary="decrease in absolute error about the median (Breiman et al. 1984)",
        ),
        Criterion(
            "quantile",
            "regression",
            make_quantile_loss,
            settings=(
                Setting(
                    "quantile", 0.5, "quantile level, 0 to 1", minimum=1e-6, maximum=1.0 - 1e-6
                ),
            ),
            summary="decrease in quantile loss (Koenker and Bassett 1978)",
        ),
    ]


# ---------------------------------------------------------------- classification: CART
# Misclassification and twoing (Breiman et al. 1984).

Stats = Any


def make_misclassification() -> CriterionFunctions:
    """Return the misclassification rate, ``1 - max p_k`` (Breiman et al. 1984, page 98).

    It is concave but not strictly: a split that changes no label scores 0,
    even if it makes both branches purer, and the node then stays a leaf.
    """

    def impurity(stats: Stats) -> float:
        return 1.0 - _find_largest(stats) / _sum_weight(stats)

    def score(parent: Stats, children: Stats) -> float:
        right = 0.0
        for b in range(children.shape[0]):
            right += _find_largest(children[b])
        return (right - _find_largest(parent)) / _sum_weight(parent)

    return CriterionFunctions(impurity=impurity, score=score)


def _find_largest(stats: Stats) -> float:
    largest = 0.0
    for k in range(stats.shape[0]):
        largest = max(largest, stats[k])
    return largest


def make_twoing() -> CriterionFunctions:
    """Return twoing, ``p_L p_R / 4 * (sum_k |p(k|L) - p(k|R)|)**2`` (Breiman et al. 1984, p. 104).

    With more branches: ``sum_b p_b * (sum_k |p(k|b) - p(k)|)**2 / 4``, where p(k) is over
    all branches.  For two branches this equals the book's formula, because
    ``p(k|L) - p(k) = p_R * (p(k|L) - p(k|R))``.  Twoing has no impurity: it is defined
    for splits only.
    """

    def score(parent: Stats, children: Stats) -> float:
        weight = 0.0
        for k in range(parent.shape[0]):
            weight += parent[k]
        if children.shape[0] != 2:
            return _compute_twoing(children) / weight
        left = 0.0
        right = 0.0
        for k in range(parent.shape[0]):
            left += children[0, k]
            right += children[1, k]
        if left == 0.0 or right == 0.0:
            return 0.0
        apart = 0.0
        for k in range(parent.shape[0]):
            apart += abs(children[0, k] / left - children[1, k] / right)
        return 0.25 * left / weight * right / (left + right) * apart * apart

    return CriterionFunctions(score=score)


def _compute_twoing(children: Stats) -> float:
    """Compute the twoing criterion of any number of branches, times their total weight."""
    together = np.zeros(children.shape[1])
    known = 0.0
    for b in range(children.shape[0]):
        for k in range(children.shape[1]):
            together[k] += children[b, k]
            known += children[b, k]
    total = 0.0
    for b in range(children.shape[0]):
        own = _sum_weight(children[b])
        if own > 0.0:
            apart = 0.0
            for k in range(children.shape[1]):
                apart += abs(children[b, k] / own - together[k] / known)
            total += own * apart * apart
    return 0.25 * total


# ---------------------------------------------------------------- classification: entropy, Gini
# Statistics are the weight of each class.

_NO_GAIN = 1e-12  # gains up to this are rounding errors
_TIE = 1e-9  # relative; gains equal in exact arithmetic differ in their last bits
_N_LOG_N = np.array([0.0] + [n * math.log(n) for n in range(1, MAX_COUNT + 1)])


def make_gini() -> CriterionFunctions:
    """Return the Gini index, ``1 - sum p_k**2`` (Breiman, Friedman, Olshen and Stone 1984, p. 38).

    The score is the decrease of the index, written so that a cut costs two
    sums of squares and two divisions.
    """

    def impurity(stats: Stats) -> float:
        weight = 0.0
        squares = 0.0
        for k in range(stats.shape[0]):
            weight += stats[k]
            squares += stats[k] * stats[k]
        return 1.0 - squares / (weight * weight)

    def score(parent: Stats, children: Stats) -> float:
        total = 0.0
        squares = 0.0
        for k in range(parent.shape[0]):
            total += parent[k]
            squares += parent[k] * parent[k]
        kept = 0.0
        for b in range(children.shape[0]):
            weight = 0.0
            own = 0.0
            for k in range(parent.shape[0]):
                weight += children[b, k]
                own += children[b, k] * children[b, k]
            if weight > 0.0:
                kept += own / weight
        return (kept - squares / total) / total

    def term(weight: float) -> float:
        return weight * weight

    def term_score(parent: Stats, children: Stats) -> float:
        kept = 0.0
        for b in range(children.shape[0]):
            if children[b, 0] > 0.0:
                kept += children[b, 1] / children[b, 0]
        return float((kept - parent[1] / parent[0]) / parent[0])

    extras = CriterionExtras(term=term, term_score=term_score)
    return CriterionFunctions(impurity=impurity, score=score, extras=extras)


def _compute_scaled_entropy(stats: Stats) -> float:
    """Compute weight times entropy in nats: ``w log w - sum w_k log w_k``."""
    weight = 0.0
    parts = 0.0
    for k in range(stats.shape[0]):
        if stats[k] > 0.0:
            weight += stats[k]
            parts += _multiply_by_log(stats[k])
    return _multiply_by_log(weight) - parts if weight > 0.0 else 0.0


def _multiply_by_log(weight: float) -> float:
    """Compute ``w log w``.

    Small integer weights, the common case, are looked up: a logarithm takes longer.
    """
    whole = np.int64(min(weight, float(MAX_COUNT)))
    if float(whole) == weight:
        return float(_N_LOG_N[np.uint64(whole)])
    return weight * math.log(weight) if weight > 0.0 else 0.0


def _sum_weight(stats: Stats) -> float:
    weight = 0.0
    for k in range(stats.shape[0]):
        weight += stats[k]
    return weight


def _look_up(count: float) -> float:
    """Compute `_multiply_by_log` of an integer of at most `MAX_COUNT`, without a condition."""
    return float(_N_LOG_N[np.uint64(np.int64(count))])


def _make_information_gain(multiply_by_log: Callable[[float], float]) -> Callable[..., float]:
    """Return the information gain in nats (Quinlan 1986)."""

    def compute_information_gain(parent: Stats, children: Stats) -> float:
        total = 0.0
        parts = 0.0
        for k in range(parent.shape[0]):
            total += parent[k]
            parts += multiply_by_log(parent[k])
        after = 0.0
        for b in range(
            children.shape[0]
        ):  # calling `_compute_scaled_entropy` takes twice the time (measured)
            weight = 0.0
            own = 0.0
            for k in range(parent.shape[0]):
                weight += children[b, k]
                own += multiply_by_log(children[b, k])
            after += multiply_by_log(weight) - own
        return (multiply_by_log(total) - parts - after) / total

    return compute_information_gain


_compute_information_gain = _make_information_gain(_multiply_by_log)
_compute_count_gain = _make_information_gain(_look_up)


def make_entropy(base: float = 2.0) -> CriterionFunctions:
    """Return the information gain (Quinlan 1986), in bits by default."""
    unit = 1.0 / math.log(base)

    def impurity(stats: Stats) -> float:
        return unit * _compute_scaled_entropy(stats) / _sum_weight(stats)

    def score(parent: Stats, children: Stats) -> float:
        return unit * _compute_information_gain(parent, children)

    def count_score(parent: Stats, children: Stats) -> float:
        return unit * _compute_count_gain(parent, children)

    extras = CriterionExtras(count_score=count_score)
    return CriterionFunctions(impurity=impurity, score=score, extras=extras)


def make_gain_ratio(
    slack: float = 0.0,
    mdl: bool = False,
    missing_branch: bool = True,
    many_levels: float = 0.0,
    tolerance: float = 0.0,
    level_by: str = "gain",
) -> CriterionFunctions:
    """Return the gain ratio among the columns with at least average gain (Quinlan 1993, p. 23).

    Within a column the split with the largest gain is chosen; between columns the
    one with the largest ratio, among those whose gain reaches the average.  Gains
    are in bits.

    Parameters
    ----------
    slack : float
        Amount by which a column's gain may fall below the average.
    mdl : bool
        Subtract ``log2(candidates) / weight`` from the gain of a numeric column's best
        cut (Quinlan 1996, *Improved use of continuous attributes in C4.5*, p. 81).
    missing_branch : bool
        Fractional missing values: count the rows whose value is missing as one
        more branch of the split information (Quinlan 1993, p. 28).
    many_levels : float
        Exclude a column with at least this many categories per unit of training
        weight from the average, unless all columns are excluded; 0 = no bound.
    tolerance : float
        Gains and ratios that differ by at most this are ties; a gain up to it is none.
    level_by : {"gain", "ratio"}
        Splits of one category against the rest: choose the category with the largest
        gain, or with the largest ratio.

    Notes
    -----
    Settings that, together with those of training, reproduce

    ========= ========= =============== ====================
    setting   Zhou 2016 C4.5, release 8 J48 (Weka 3.9)
    ========= ========= =============== ====================
    slack     0         1e-3            1e-3
    mdl       no        yes             yes (no with ``-J``)
    many_lev. 0         0.3             0.3
    tolerance 0         0               1e-6
    level_by                            ratio (``-B``)
    min_gain  0         -1e-3           0
    ========= ========= =============== ====================

    Release 8 also makes splits without a gain, and collapses them unless a split
    below them gains; hence its `min_gain`.
    """
    least = max(tolerance, _NO_GAIN)

    def impurity(stats: Stats) -> float:
        return _compute_scaled_entropy(stats) / _sum_weight(stats) / math.log(2.0)

    def score(parent: Stats, children: Stats) -> float:
        known = parent.copy()
        for k in range(parent.shape[0]):
            known[k] = 0.0
            for b in range(children.shape[0]):
                known[k] += children[b, k]
        total, present = _sum_weight(parent), _sum_weight(known)
        reference = total if missing_branch else present
        split = _compute_split_information(children, reference, reference - present)
        return (
            _compute_information_gain(known, children) * present / total / split
            if split > 0.0
            else 0.0
        )

    def choose(gains: Stats, scores: Stats, levels: Stats) -> int:
        average = _average_gains(gains, levels, least, many_levels) - slack
        best = -1
        bar = 0.0 if tolerance > 0.0 else -math.inf
        for f in range(gains.shape[0]):
            enough = _has_split(gains[f], levels[f], least) and gains[f] >= average
            if enough and scores[f] > bar:
                best = f
                bar = scores[f] + max(tolerance, _TIE * abs(scores[f]))
        return best

    extras = CriterionExtras(
        choose=choose,
        penalty=_compute_penalty if mdl else None,
        tolerance=tolerance,
        levels_by_score=level_by == "ratio",
    )
    return CriterionFunctions(impurity=impurity, score=score, extras=extras)


def _compute_split_information(children: Stats, whole: float, missing: float) -> float:
    """Compute the entropy, in nats, of the branches; missing rows count as one more."""
    split = 0.0
    for b in range(children.shape[0]):
        share = _sum_weight(children[b]) / whole
        if share > 0.0:
            split -= share * math.log(share)
    if missing > _NO_GAIN * whole:
        split -= missing / whole * math.log(missing / whole)
    return split


def _has_split(gain: float, levels: float, least: float) -> bool:
    """Check by its best gain whether a column can be split.

    A numeric column needs a positive gain; a nominal column, with one branch per category,
    can be split without one.
    """
    return gain > least or (levels > 0.0 and gain >= -least)


def _average_gains(gains: Stats, levels: Stats, least: float, many_levels: float) -> float:
    """Compute the average gain of the columns that have a split; infinite if all are excluded."""
    crowded = many_levels > 0.0
    for f in range(gains.shape[0]):
        crowded = crowded and levels[f] >= many_levels
    count = 0
    total = 0.0
    for f in range(gains.shape[0]):
        counts = crowded or many_levels <= 0.0 or levels[f] < many_levels
        if counts and _has_split(gains[f], levels[f], least):
            count += 1
            total += gains[f]
    return total / count * (1.0 - _TIE) - _NO_GAIN if count > 0 else math.inf


def _compute_penalty(candidates: int, weight: float) -> float:
    """Compute the bits needed to encode which candidate is chosen, divided by the weight."""
    return math.log(candidates) / math.log(2.0) / weight


# ---------------------------------------------------------------- regression: means
# Statistics are ``(weight, weight * y)``.


def make_squared_error() -> CriterionFunctions:
    """Return the decrease in mean squared error (Breiman et al. 1984, section 8.3).

    Computed as the weighted variance of the branch means, which needs no sum of
    squares, is never negative and does not cancel at large means.
    """

    def score(parent: Stats, children: Stats) -> float:
        mean = parent[1] / parent[0]
        between = 0.0
        for b in range(children.shape[0]):
            weight = children[b, 0]
            distance = children[b, 1] / (weight + (weight == 0.0)) - mean  # may be empty
            between += weight * distance * distance
        return float(between / parent[0])

    return CriterionFunctions(score=score)


def _compute_spread(children: Stats, mean: float) -> float:
    """Sum the weight of each branch times the squared distance of its mean from `mean`."""
    between = 0.0
    for b in range(children.shape[0]):
        weight = children[b, 0]
        distance = children[b, 1] / (weight + (weight == 0.0)) - mean  # a branch may be empty
        between += weight * distance * distance
    return between


def make_friedman() -> CriterionFunctions:
    """Return Friedman's improvement (2001, equation 35).

    It is ``w_l w_r / (w_l + w_r) * (mean_l - mean_r)**2``, divided by the weight of the
    node, so that scores of different nodes are comparable, as best-first growth and
    importances require.  With more branches it is the sum over all pairs,
    ``sum_b w_b * (mean_b - mean)**2``.  It then ranks splits as the squared error does;
    the two differ only if some rows of the node are in no branch.
    """

    def score(parent: Stats, children: Stats) -> float:
        weight = 0.0
        total = 0.0
        for b in range(children.shape[0]):
            weight += children[b, 0]
            total += children[b, 1]
        mean = total / weight if weight > 0.0 else 0.0
        return float(_compute_spread(children, mean) / parent[0])

    return CriterionFunctions(score=score)


def make_poisson() -> CriterionFunctions:
    """Return the decrease in half the mean Poisson deviance, ``y log(y / mean) - y + mean``.

    Only ``mean log(mean)`` differs between two splits of a node, so that no sum of
    ``y log y`` is needed.  A branch whose targets are all 0 would predict 0, which has
    an infinite deviance for any positive count: such a split scores less than none.
    """

    def score(parent: Stats, children: Stats) -> float:
        mean = parent[1] / parent[0]
        gained = 0.0
        for b in range(children.shape[0]):
            if children[b, 0] > 0.0:
                own = children[b, 1] / children[b, 0]
                if own <= 0.0:
                    return float(-mean)
                gained += children[b, 1] * math.log(own / mean)
        return float(max(gained / parent[0], 0.0))

    def loss(stats: Stats, judged: Stats) -> float:
        mean = stats[1] / stats[0]
        if mean <= 0.0:
            return math.inf if judged[1] > 0.0 else 0.0
        return float(judged[0] * mean - judged[1] * math.log(mean))

    return CriterionFunctions(score=score, loss=loss, statistics=Sums(centred=False, smallest=0.0))


# ---------------------------------------------------------------- regression: quantiles
# Statistics are ``(weight, quantile, below, above)``.


def make_absolute_error() -> CriterionFunctions:
    """Return the decrease in mean absolute error about the median (Breiman et al. 1984, 8.11)."""
    return _make_loss_decrease(1.0, 1.0, 0.5)


def make_quantile_loss(quantile: float = 0.5) -> CriterionFunctions:
    """Return the decrease in mean quantile loss (Koenker and Bassett 1978).

    A target above the prediction costs `quantile` per unit, a target below it
    ``1 - quantile``; leaves predict the weighted quantile.
    """
    return _make_loss_decrease(1.0 - quantile, quantile, quantile)


def _make_loss_decrease(under: float, over: float, quantile: float) -> CriterionFunctions:
    """Return the decrease in mean loss, computed without a division for each branch."""

    def impurity(stats: Stats) -> float:
        return float((under * stats[2] + over * stats[3]) / stats[0])

    def score(parent: Stats, children: Stats) -> float:
        saved = under * parent[2] + over * parent[3]
        for b in range(children.shape[0]):
            saved -= under * children[b, 2] + over * children[b, 3]
        return float(saved / parent[0])

    return CriterionFunctions(impurity=impurity, score=score, statistics=Ranks(quantile))
