"""Criteria of a number: statistics are ``(weight, weight * y)``, y centred."""

from __future__ import annotations

from typing import Any

from treekit.contracts import CriterionFunctions

__all__ = ["squared_error"]

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
