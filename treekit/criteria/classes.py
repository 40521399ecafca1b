"""Criteria of classes: statistics are the weight of each class."""

from __future__ import annotations

import math
from typing import Any

from treekit.contracts import CriterionFunctions

__all__ = ["entropy", "gain_ratio", "gini"]

Stats = Any
_NO_GAIN = 1e-12  # a gain of rounding errors
_TIE = 1e-9  # gains equal in exact arithmetic differ in their last bits


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


def _spread(stats: Stats) -> float:
    """Weight times entropy in nats: ``w log w - sum w_k log w_k``."""
    weight = 0.0
    parts = 0.0
    for k in range(stats.shape[0]):
        if stats[k] > 0.0:
            weight += stats[k]
            parts += stats[k] * math.log(stats[k])
    return weight * math.log(weight) - parts if weight > 0.0 else 0.0


def _weight(stats: Stats) -> float:
    weight = 0.0
    for k in range(stats.shape[0]):
        weight += stats[k]
    return weight


def _information(parent: Stats, children: Stats) -> float:
    """Information gain in nats (Quinlan 1986)."""
    after = 0.0
    for b in range(children.shape[0]):
        after += _spread(children[b])
    return (_spread(parent) - after) / _weight(parent)


def entropy(base: float = 2.0) -> CriterionFunctions:
    """Information gain (Quinlan 1986), in bits by default."""
    unit = 1.0 / math.log(base)

    def impurity(stats: Stats) -> float:
        return unit * _spread(stats) / _weight(stats)

    def score(parent: Stats, children: Stats) -> float:
        return unit * _information(parent, children)

    return CriterionFunctions(impurity=impurity, score=score)


def gain_ratio(slack: float = 0.0) -> CriterionFunctions:
    """Gain ratio among the columns of at least average gain (Quinlan 1993, p. 23).

    Within a column the cut of largest gain counts; between columns the largest
    ratio among those whose gain reaches the average less `slack` bits.
    """

    def impurity(stats: Stats) -> float:
        return _spread(stats) / _weight(stats) / math.log(2.0)

    def score(parent: Stats, children: Stats) -> float:
        total = _weight(parent)
        split = 0.0
        for b in range(children.shape[0]):
            weight = _weight(children[b])
            if weight > 0.0:
                split -= weight / total * math.log(weight / total)
        return _information(parent, children) / split if split > 0.0 else 0.0

    def choose(gains: Stats, scores: Stats) -> int:
        count = 0
        total = 0.0
        for f in range(gains.shape[0]):
            if gains[f] > _NO_GAIN:
                count += 1
                total += gains[f]
        best = -1
        for f in range(gains.shape[0]):
            enough = gains[f] > _NO_GAIN and gains[f] >= total / count * (1.0 - _TIE) - slack
            if enough and (best < 0 or scores[f] > scores[best] * (1.0 + _TIE)):
                best = f
        return best

    return CriterionFunctions(impurity=impurity, score=score, choose=choose)
