"""Criteria of a number: statistics are ``(weight, weight * y)``."""

from __future__ import annotations

import math
from typing import Any

from treekit.contracts import CriterionFunctions, Sums

__all__ = ["friedman", "poisson", "squared_error"]

Stats = Any


def squared_error() -> CriterionFunctions:
    """Decrease of the mean squared error (Breiman et al. 1984, section 8.3).

    Written as the weighted variance of the branch means, which needs no sum of
    squares, is never negative and does not cancel at large means.
    """

    def score(parent: Stats, children: Stats) -> float:
        mean = parent[1] / parent[0]
        between = 0.0
        for b in range(children.shape[0]):
            if children[b, 0] > 0.0:
                distance = children[b, 1] / children[b, 0] - mean
                between += children[b, 0] * distance * distance
        return float(between / parent[0])

    return CriterionFunctions(score=score)


def friedman() -> CriterionFunctions:
    """Friedman's improvement, ``w_l w_r / (w_l + w_r) * (mean_l - mean_r)**2`` (2001, eq. 35).

    Divided by the weight of the node, so that scores of different nodes
    compare, as best-first growth and importances do.  With more branches, the
    sum over all pairs, which is ``sum_b w_b * (mean_b - mean)**2``.  It then
    orders splits as the squared error does; only branches that leave out rows
    of the node tell the two apart.
    """

    def score(parent: Stats, children: Stats) -> float:
        weight = 0.0
        total = 0.0
        for b in range(children.shape[0]):
            weight += children[b, 0]
            total += children[b, 1]
        between = 0.0
        for b in range(children.shape[0]):
            if children[b, 0] > 0.0:
                distance = children[b, 1] / children[b, 0] - total / weight
                between += children[b, 0] * distance * distance
        return float(between / parent[0])

    return CriterionFunctions(score=score)


def poisson() -> CriterionFunctions:
    """Decrease of half the mean Poisson deviance, ``y log(y / mean) - y + mean``.

    Of the deviance only ``mean log(mean)`` differs between two ways to split a
    node, so that no sum of ``y log y`` is needed.  A branch whose target is 0
    throughout would predict that nothing can ever be counted there: such a
    split scores 0.
    """

    def score(parent: Stats, children: Stats) -> float:
        mean = parent[1] / parent[0]
        gained = 0.0
        for b in range(children.shape[0]):
            if children[b, 0] > 0.0:
                own = children[b, 1] / children[b, 0]
                if own <= 0.0:
                    return 0.0
                gained += children[b, 1] * math.log(own / mean)
        return float(gained / parent[0])

    def loss(stats: Stats, judged: Stats) -> float:
        mean = stats[1] / stats[0]
        if mean <= 0.0:
            return math.inf if judged[1] > 0.0 else 0.0
        return float(judged[0] * mean - judged[1] * math.log(mean))

    return CriterionFunctions(score=score, loss=loss, statistics=Sums(centred=False, smallest=0.0))
