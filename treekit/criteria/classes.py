"""Criteria of classes: statistics are the weight of each class."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treekit.contracts import CriterionFunctions

__all__ = ["entropy", "gain_ratio", "gini"]

Stats = Any
_NO_GAIN = 1e-12  # a gain of rounding errors
_TIE = 1e-9  # gains equal in exact arithmetic differ in their last bits
_KNOWN = 4096.0
_TIMES_LOG = np.array([0.0] + [n * math.log(n) for n in range(1, int(_KNOWN) + 1)])


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
            parts += _times_log(stats[k])
    return _times_log(weight) - parts if weight > 0.0 else 0.0


def _times_log(weight: float) -> float:
    """``w log w``; of small whole weights, as most are, from a table: a logarithm takes longer."""
    whole = np.int64(min(weight, _KNOWN))
    if float(whole) == weight:
        return float(_TIMES_LOG[np.uint64(whole)])
    return weight * math.log(weight) if weight > 0.0 else 0.0


def _weight(stats: Stats) -> float:
    weight = 0.0
    for k in range(stats.shape[0]):
        weight += stats[k]
    return weight


def _information(parent: Stats, children: Stats) -> float:
    """Information gain in nats (Quinlan 1986)."""
    total = 0.0
    parts = 0.0
    for k in range(parent.shape[0]):
        total += parent[k]
        parts += _times_log(parent[k])
    after = 0.0
    for b in range(children.shape[0]):  # `_spread` of each row takes twice the time (measured)
        weight = 0.0
        own = 0.0
        for k in range(parent.shape[0]):
            weight += children[b, k]
            own += _times_log(children[b, k])
        after += _times_log(weight) - own
    return (_times_log(total) - parts - after) / total


def entropy(base: float = 2.0) -> CriterionFunctions:
    """Information gain (Quinlan 1986), in bits by default."""
    unit = 1.0 / math.log(base)

    def impurity(stats: Stats) -> float:
        return unit * _spread(stats) / _weight(stats)

    def score(parent: Stats, children: Stats) -> float:
        return unit * _information(parent, children)

    return CriterionFunctions(impurity=impurity, score=score)


def gain_ratio(
    slack: float = 0.0,
    mdl: bool = False,
    missing_branch: bool = True,
    many_levels: float = 0.0,
    tolerance: float = 0.0,
    level_by: str = "gain",
) -> CriterionFunctions:
    """Gain ratio among the columns of at least average gain (Quinlan 1993, p. 23).

    Within a column the split of largest gain counts; between columns the largest
    ratio among those whose gain reaches the average.  Gains are in bits.

    Parameters
    ----------
    slack : float
        How far below the average gain a column may be.
    mdl : bool
        Take ``log2(candidates) / weight`` off the gain of a number's best cut
        (Quinlan 1996, *Improved use of continuous attributes in C4.5*, p. 81).
    missing_branch : bool
        Fractional missing values: the rows whose value is missing count as
        one more branch of the split information (Quinlan 1993, p. 28).
    many_levels : float
        A column with at least so many levels for each unit of training weight
        does not count for the average, unless all columns are such; 0 = no bound.
    tolerance : float
        Gains and ratios within it are ties, and no gain.
    level_by : {"gain", "ratio"}
        Splits of one level from the rest: a nominal column offers the level of
        the largest gain, or of the largest ratio.

    Notes
    -----
    The settings, with those of training, that give

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

    Release 8 makes splits that gain nothing (and collapses them if nothing
    comes of them), hence its `min_gain`.
    """
    least = max(tolerance, _NO_GAIN)

    def impurity(stats: Stats) -> float:
        return _spread(stats) / _weight(stats) / math.log(2.0)

    def score(parent: Stats, children: Stats) -> float:
        known = parent.copy()
        for k in range(parent.shape[0]):
            known[k] = 0.0
            for b in range(children.shape[0]):
                known[k] += children[b, k]
        total, present = _weight(parent), _weight(known)
        whole = total if missing_branch else present
        split = _split_information(children, whole, whole - present)
        return _information(known, children) * present / total / split if split > 0.0 else 0.0

    def choose(gains: Stats, scores: Stats, levels: Stats) -> int:
        average = _average(gains, levels, least, many_levels) - slack
        best = -1
        bar = 0.0 if tolerance > 0.0 else -math.inf
        for f in range(gains.shape[0]):
            enough = _is_offered(gains[f], levels[f], least) and gains[f] >= average
            if enough and scores[f] > bar:
                best = f
                bar = scores[f] + max(tolerance, _TIE * abs(scores[f]))
        return best

    penalty = _candidates_penalty if mdl else None
    return CriterionFunctions(
        impurity=impurity,
        score=score,
        choose=choose,
        penalty=penalty,
        tolerance=tolerance,
        levels_by_score=level_by == "ratio",
    )


def _split_information(children: Stats, whole: float, missing: float) -> float:
    """Entropy, in nats, of the branches, and of the missing rows as one more."""
    split = 0.0
    for b in range(children.shape[0]):
        share = _weight(children[b]) / whole
        if share > 0.0:
            split -= share * math.log(share)
    if missing > _NO_GAIN * whole:
        split -= missing / whole * math.log(missing / whole)
    return split


def _is_offered(gain: float, levels: float, least: float) -> bool:
    """Whether a column has a split: without a gain a number has no cut, a nominal has branches."""
    return gain > least or (levels > 0.0 and gain >= -least)


def _average(gains: Stats, levels: Stats, least: float, many_levels: float) -> float:
    """Average gain of the columns that have a split; infinite if none counts."""
    crowded = many_levels > 0.0
    for f in range(gains.shape[0]):
        crowded = crowded and levels[f] >= many_levels
    count = 0
    total = 0.0
    for f in range(gains.shape[0]):
        counts = crowded or many_levels <= 0.0 or levels[f] < many_levels
        if counts and _is_offered(gains[f], levels[f], least):
            count += 1
            total += gains[f]
    return total / count * (1.0 - _TIE) - _NO_GAIN if count > 0 else math.inf


def _candidates_penalty(candidates: int, weight: float) -> float:
    """Bits that it takes to tell which of the candidates was picked, for each unit of weight."""
    return math.log(candidates) / math.log(2.0) / weight
