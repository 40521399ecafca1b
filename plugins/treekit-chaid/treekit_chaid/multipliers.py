"""Bonferroni multipliers: in how many ways c categories reduce to r groups.

Kass 1980, p. 122-123, section 3; as logarithms, because they leave the range of
doubles at a few hundred categories.
"""

from __future__ import annotations

import math

import numpy as np

from treekit_chaid.compiled import compiled
from treekit_chaid.significance import log_sum

__all__ = ["FREE", "MONOTONIC", "log_multiplier"]

FREE, MONOTONIC = 0, 1
"""Types of predictors: any categories merge, or only neighbours."""


@compiled
def log_binomial(n, k):
    """``log(n choose k)``; -inf outside of 0 .. n."""
    if k < 0 or k > n:
        return -np.inf
    return math.lgamma(n + 1.0) - math.lgamma(k + 1.0) - math.lgamma(n - k + 1.0)


@compiled
def log_stirling(c, r):
    """Logarithm of the ways to part c things into r sets that are not empty.

    By recurrence: the alternating sum of the paper cancels.
    """
    ways = np.full(r + 1, -np.inf)
    ways[0] = 0.0
    for n in range(1, c + 1):
        for k in range(min(n, r), 0, -1):
            ways[k] = log_sum(ways[k - 1], ways[k] + math.log(k))
        ways[0] = -np.inf
    return ways[r]


@compiled
def log_multiplier(c, r, kind, floating):
    """Logarithm of the multiplier of a predictor.

    Parameters
    ----------
    c, r : int
        Categories, and groups that they were merged to; the floating one counts.
    kind : int
        `FREE` or `MONOTONIC`.
    floating : bool
        Whether one category of a monotonic predictor (missing values) has no place
        in the order and may join any group, or none.
    """
    if kind == FREE:
        return log_stirling(c, r)
    if floating:
        joined = math.log(r) + log_binomial(c - 2, r - 1)
        return log_sum(log_binomial(c - 2, r - 2), joined)
    return log_binomial(c - 1, r - 1)
