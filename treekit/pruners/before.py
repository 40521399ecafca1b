"""Pruners that stop growth: a split must prove itself before it is made."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treekit.contracts import PrunerFunctions

__all__ = ["chi_squared", "holdout"]

Stats = Any


def holdout(holdout: float) -> PrunerFunctions:
    """Split only if that answers more of the hold-out rows right (Zhou 2016, section 4.3.1).

    The node and its branches answer with their largest class of training
    weight, ties to the first class; a branch without training rows as the node
    does.  A split that leaves the accuracy as it is is not made.

    Parameters
    ----------
    holdout : float
        Share of the training rows that are set aside.
    """

    def before(parent: Stats, children: Stats, held_parent: Stats, held_children: Stats) -> bool:
        said = np.argmax(parent)
        right = 0.0
        for b in range(children.shape[0]):
            label = np.argmax(children[b]) if children[b].sum() > 0.0 else said
            right += held_children[b, label]
        return bool(right > held_parent[said])

    return PrunerFunctions(before=before, holdout=holdout)


def chi_squared(alpha: float) -> PrunerFunctions:
    """Split only if class and branch are dependent (Quinlan 1986, section 4).

    Pearson's test of independence without a correction: the split is made if
    the p-value is not above `alpha`.  It counts a row of weight w as w rows,
    and rows that no branch holds not at all.

    Parameters
    ----------
    alpha : float
        Level of significance.
    """

    def before(  # the statistics of the contract, of which one is all it needs
        parent: Stats,  # noqa: ARG001
        children: Stats,
        held_parent: Stats,  # noqa: ARG001
        held_children: Stats,  # noqa: ARG001
    ) -> bool:
        branches, classes = children.shape
        total = children.sum()
        of_class = children.sum(axis=0)
        rows, columns = 0, 0
        for k in range(classes):
            columns += 1 if of_class[k] > 0.0 else 0
        chi = 0.0
        for b in range(branches):
            weight = children[b].sum()
            if weight > 0.0:
                rows += 1
                for k in range(classes):
                    if of_class[k] > 0.0:
                        expected = weight * of_class[k] / total
                        chi += (children[b, k] - expected) ** 2 / expected
        if rows < 2 or columns < 2:
            return bool(alpha >= 1.0)
        return bool(_upper_tail(0.5 * (rows - 1) * (columns - 1), 0.5 * chi) <= alpha)

    return PrunerFunctions(before=before, holdout=None)


def _upper_tail(a: float, x: float) -> float:
    """The regularised upper incomplete gamma function Q(a, x), a > 0, x >= 0.

    P(chi-squared with f degrees of freedom > c) is ``Q(f / 2, c / 2)``.  Below
    a + 1 one minus the series of P (Abramowitz and Stegun 1964, 6.5.29), above
    the continued fraction (6.5.31), evaluated forwards (Lentz 1976).
    """
    if x <= 0.0:
        return 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1.0:
        term = 1.0 / a
        series, n = term, a
        while term > 1e-17 * series:
            n += 1.0
            term *= x / n
            series += term
        return max(1.0 - front * series, 0.0)
    # 1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / (x + 5 - a - ...)))
    b = x + 1.0 - a
    ahead, behind = 1e300, 1.0 / b
    fraction = behind
    for i in range(1, 10_000):
        step = -i * (i - a)
        b += 2.0
        behind = 1.0 / (b + step * behind)
        ahead = b + step / ahead
        change = behind * ahead
        fraction *= change
        if abs(change - 1.0) < 1e-16:
            break
    return front * fraction
