"""The other class criteria of CART: misclassification and twoing (Breiman et al. 1984)."""

from __future__ import annotations

from typing import Any

import numpy as np

from treekit.contracts import CriterionFunctions

__all__ = ["misclassification", "twoing"]

Stats = Any


def misclassification() -> CriterionFunctions:
    """Share of the weight outside the largest class, ``1 - max p_k`` (page 98).

    It is concave but not strictly: a split that changes no label scores 0,
    even if it makes both sides purer, and then the node stays a leaf.
    """

    def impurity(stats: Stats) -> float:
        weight = 0.0
        largest = 0.0
        for k in range(stats.shape[0]):
            weight += stats[k]
            largest = max(largest, stats[k])
        return 1.0 - largest / weight

    def score(parent: Stats, children: Stats) -> float:
        weight = 0.0
        largest = 0.0
        for k in range(parent.shape[0]):
            weight += parent[k]
            largest = max(largest, parent[k])
        right = 0.0
        for b in range(children.shape[0]):
            own = 0.0
            for k in range(parent.shape[0]):
                own = max(own, children[b, k])
            right += own
        return (right - largest) / weight

    return CriterionFunctions(impurity=impurity, score=score)


def twoing() -> CriterionFunctions:
    """Twoing, ``p_L p_R / 4 * (sum_k |p(k|L) - p(k|R)|)**2`` (Breiman et al. 1984, page 104).

    For more branches it is ``sum_b p_b * (sum_k |p(k|b) - p(k)|)**2 / 4`` with
    p(k) of all branches together, of which the book's formula is the case of
    two, since there ``p(k|L) - p(k) = p_R * (p(k|L) - p(k|R))``.
    Twoing judges splits, not nodes: it has no impurity.
    """

    def score(parent: Stats, children: Stats) -> float:
        weight = 0.0
        for k in range(parent.shape[0]):
            weight += parent[k]
        if children.shape[0] != 2:
            return _apart(children) / weight
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


def _apart(children: Stats) -> float:
    """Twoing of any number of branches, times their weight."""
    together = np.zeros(children.shape[1])
    known = 0.0
    for b in range(children.shape[0]):
        for k in range(children.shape[1]):
            together[k] += children[b, k]
            known += children[b, k]
    total = 0.0
    for b in range(children.shape[0]):
        own = 0.0
        for k in range(children.shape[1]):
            own += children[b, k]
        if own > 0.0:
            apart = 0.0
            for k in range(children.shape[1]):
                apart += abs(children[b, k] / own - together[k] / known)
            total += own * apart * apart
    return 0.25 * total
