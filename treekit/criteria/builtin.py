"""The criteria that come with treekit, provided through the same hook as everyone's."""

from __future__ import annotations

from treekit.contracts import Criterion, Setting
from treekit.criteria.cart import misclassification, twoing
from treekit.criteria.classes import entropy, gain_ratio, gini
from treekit.criteria.numbers import friedman, poisson, squared_error
from treekit.criteria.ranks import absolute_error, quantile_loss
from treekit.hookspecs import hookimpl

__all__ = ["treekit_criteria"]


@hookimpl
def treekit_criteria() -> list[Criterion]:
    """The criteria of the literature: of classes, then of a number."""
    return [
        Criterion("gini", "classification", gini, summary="Gini index (Breiman et al. 1984)"),
        Criterion(
            "entropy",
            "classification",
            entropy,
            settings=(Setting("base", 2.0, "base of the logarithm", above=1.0),),
            summary="information gain (Quinlan 1986)",
        ),
        Criterion(
            "misclassification",
            "classification",
            misclassification,
            summary="share outside the largest class (Breiman et al. 1984)",
        ),
        Criterion(
            "twoing",
            "classification",
            twoing,
            summary="distance of the sides' class shares (Breiman et al. 1984)",
        ),
        Criterion(
            "gain_ratio",
            "classification",
            gain_ratio,
            settings=(
                Setting(
                    "slack", 0.0, "bits that a column's gain may be below the average", minimum=0
                ),
                Setting("mdl", False, "take log2(candidate cuts) / weight off a number's gain"),
                Setting(
                    "missing_branch",
                    True,
                    "fractional missing values: missing rows are a branch of the split information",
                ),
                Setting(
                    "many_levels",
                    0.0,
                    "columns of so many levels for each unit of training weight do not count for "
                    "the average gain (C4.5: 0.3); 0: no bound",
                    minimum=0,
                ),
                Setting(
                    "tolerance", 0.0, "gains and ratios within it are ties, or none", minimum=0
                ),
                Setting(
                    "level_by",
                    "gain",
                    "nominal_splits=one_vs_rest: a column offers the level of the largest gain or "
                    "ratio (J48 -B)",
                    choices=("gain", "ratio"),
                ),
            ),
            summary="gain ratio among columns of at least average gain (Quinlan 1993)",
        ),
        Criterion(
            "squared_error",
            "regression",
            squared_error,
            summary="decrease of the squared error (Breiman et al. 1984)",
        ),
        Criterion(
            "friedman",
            "regression",
            friedman,
            summary="squared distance of the sides' means (Friedman 2001)",
        ),
        Criterion(
            "poisson",
            "regression",
            poisson,
            summary="decrease of half the Poisson deviance of counts",
        ),
        Criterion(
            "absolute_error",
            "regression",
            absolute_error,
            summary="decrease of the distance from the median (Breiman et al. 1984)",
        ),
        Criterion(
            "quantile",
            "regression",
            quantile_loss,
            settings=(
                Setting(
                    "quantile", 0.5, "level, between 0 and 1", minimum=1e-6, maximum=1.0 - 1e-6
                ),
            ),
            summary="decrease of a quantile's loss (Koenker and Bassett 1978)",
        ),
    ]
