"""Criteria of classes: statistics are the weight of each class."""

from __future__ import annotations

import math
from typing import Any

from treekit.contracts import CriterionFunctions

__all__ = ["entropy", "gain_ratio", "gini"]

Stats = Any


def gini() -> CriterionFunctions:
    """Gini index, ``1 - sum p_k**2`` (Breiman, Friedman, Olshen and Stone 1984, p. 38).

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

    return CriterionFunctions(impurity=impurity, score=score)


def entropy(base: float = 2.0) -> CriterionFunctions:
    """Information gain (Quinlan 1986), in bits by default."""
    unit = 1.0 / math.log(base)

    def impurity(stats: Stats) -> float:
        weight = 0.0
        spread = 0.0
        for k in range(stats.shape[0]):
            if stats[k] > 0.0:
                weight += stats[k]
                spread += stats[k] * math.log(stats[k])
        return unit * (math.log(weight) - spread / weight)

    def score(parent: Stats, children: Stats) -> float:
        total = 0.0
        before = 0.0
        for k in range(parent.shape[0]):
            if parent[k] > 0.0:
                total += parent[k]
                before -= parent[k] * math.log(parent[k])
        before += total * math.log(total)
        after = 0.0
        for b in range(children.shape[0]):
            weight = 0.0
            for k in range(parent.shape[0]):
                if children[b, k] > 0.0:
                    weight += children[b, k]
                    after -= children[b, k] * math.log(children[b, k])
            if weight > 0.0:
                after += weight * math.log(weight)
        return unit * (before - after) / total

    return CriterionFunctions(impurity=impurity, score=score)


def gain_ratio(slack: float = 0.0) -> CriterionFunctions:
    """Gain ratio among the columns of at least average gain (Quinlan 1993, p. 23).

    Within a column the cut of largest gain counts; between columns the largest
    ratio among those whose gain reaches the average less `slack`.
    """
    information = entropy()
    gain = information.score
    assert gain is not None
    import numba

    gain = numba.njit(error_model="numpy")(gain)

    def score(parent: Stats, children: Stats) -> float:
        total = 0.0
        for k in range(parent.shape[0]):
            total += parent[k]
        split = 0.0
        for b in range(children.shape[0]):
            weight = 0.0
            for k in range(parent.shape[0]):
                weight += children[b, k]
            if weight > 0.0:
                split -= weight / total * math.log2(weight / total)
        return gain(parent, children) / split if split > 0.0 else 0.0

    def choose(gains: Stats, scores: Stats) -> int:
        count = 0
        total = 0.0
        for f in range(gains.shape[0]):
            if gains[f] > 1e-12:
                count += 1
                total += gains[f]
        best = -1
        for f in range(gains.shape[0]):
            if gains[f] > 1e-12 and gains[f] >= total / count * (1.0 - 1e-9) - slack:
                if best < 0 or scores[f] > scores[best] * (1.0 + 1e-9):
                    best = f
        return best

    return CriterionFunctions(impurity=information.impurity, score=score, choose=choose)
