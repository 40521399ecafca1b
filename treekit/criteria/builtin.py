"""The criteria that come with treekit, provided through the same hook as everyone's."""

from __future__ import annotations

from treekit.contracts import Criterion, Setting
from treekit.criteria.cart import misclassification, twoing
from treekit.criteria.classes import entropy, gain_ratio, gini
from treekit.criteria.numbers import friedman, poisson, squared_error
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
            settings=(Setting("base", 2.0, "base of the logarithm", minimum=1.0000001),),
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
                Setting("slack", 0.0, "how far below the average gain a column may be", minimum=0),
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
    ]
