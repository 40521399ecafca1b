"""Criteria of a number's order: statistics are ``(weight, quantile, below, above)``."""

from __future__ import annotations

from typing import Any

from treekit.contracts import CriterionFunctions, Ranks

__all__ = ["absolute_error", "quantile_loss"]

Stats = Any


def absolute_error() -> CriterionFunctions:
    """Mean distance from the median (Breiman et al. 1984, section 8.11)."""

    def impurity(stats: Stats) -> float:
        return float((stats[2] + stats[3]) / stats[0])

    return CriterionFunctions(impurity=impurity, score=_decrease(1.0, 1.0), statistics=Ranks(0.5))


def quantile_loss(quantile: float = 0.5) -> CriterionFunctions:
    """Mean loss of a quantile (Koenker and Bassett 1978).

    A number above the answer costs `quantile` a unit, one below it
    ``1 - quantile``; leaves answer the weighted quantile.
    """
    under, over = 1.0 - quantile, quantile

    def impurity(stats: Stats) -> float:
        return float((under * stats[2] + over * stats[3]) / stats[0])

    return CriterionFunctions(
        impurity=impurity, score=_decrease(under, over), statistics=Ranks(quantile)
    )


def _decrease(under: float, over: float) -> Any:
    """The decrease of the mean loss, without a division for each branch."""

    def score(parent: Stats, children: Stats) -> float:
        saved = under * parent[2] + over * parent[3]
        for b in range(children.shape[0]):
            saved -= under * children[b, 2] + over * children[b, 3]
        return float(saved / parent[0])

    return score
