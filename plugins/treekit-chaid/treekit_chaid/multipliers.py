"""Bonferroni multipliers: the number of ways to merge c categories into r groups.

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
"""Types of predictors: any categories may merge, or only neighbours."""


@compiled
def log_binomial(n, k):
    """Return ``log(n choose k)``; -inf for k outside of 0 .. n."""
    if k < 0 or k > n:
        return -np.inf
    return math.lgamma(n + 1.0) - math.lgamma(k + 1.0) - math.lgamma(n - k + 1.0)


@compiled
def log_stirling(c, r):
    """Return the logarithm of the number of partitions of c items into r non-empty sets.

    By recurrence, because the paper's alternating sum suffers from cancellation.
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
    """Return the logarithm of a predictor's multiplier.

    Parameters
    ----------
    c, r : int
        Number of categories, the floating one included, and of merged groups.
    kind : int
        `ANY_LENGTH` or `MONOTONIC`.
    floating : bool
        Whether one category of a monotonic predictor (missing values) has no place
        in the order and may join any group or stay alone.
    """
    if kind == FREE:
        return log_stirling(c, r)
    if floating:
        joined = math.log(r) + log_binomial(c - 2, r - 1)
        return log_sum(log_binomial(c - 2, r - 2), joined)
    return log_binomial(c - 1, r - 1)
