"""Log p-values, which do not underflow for large tables.

The upper tails of chi-squared and F, and the two tests of CHAID on sums of
statistics.
"""

from __future__ import annotations

import math

import numpy as np

from treekit_chaid.compiled import compiled

__all__ = ["log_chi_squared_tail", "log_f_tail", "log_p_value"]


@compiled
def log_sum(a, b):
    """Return ``log(exp(a) + exp(b))``."""
    high, low = max(a, b), min(a, b)
    if low == -np.inf:
        return high
    return high + math.log1p(math.exp(low - high))


@compiled
def log_chi_squared_tail(chi, freedom):
    """Return ``log P(X > chi)`` for a chi-squared variable with integer degrees of freedom.

    The finite sums of Abramowitz and Stegun 1964, 26.4.4 and 26.4.5.
    """
    if chi <= 0.0 or freedom < 1:
        return 0.0
    half = chi / 2.0
    total, step = -np.inf, 0.0
    if freedom % 2 == 1:
        step = 0.5
        root = math.sqrt(half)
        if root < 25.0:
            total = math.log(math.erfc(root))
        else:  # erfc nears the smallest double; Abramowitz and Stegun 7.1.23
            total = -half - math.log(root * math.sqrt(math.pi))
            total += math.log1p(-0.5 / half + 0.75 / half**2)
    while step < freedom / 2.0:
        total = log_sum(total, step * math.log(half) - half - math.lgamma(step + 1.0))
        step += 1.0
    return min(total, 0.0)


@compiled
def _beta_fraction(x, a, b):
    """Evaluate the continued fraction of the incomplete beta function by Lentz's method.

    Abramowitz and Stegun 1964, 26.5.8; for ``x < (a + 1) / (a + b + 2)``.
    """
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 10000):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        before = value
        for term in (even, odd):
            d = 1.0 + term * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + term / c
            c = c if abs(c) > tiny else tiny
            value *= d * c
        if abs(value - before) <= 1e-15 * abs(value):
            break
    return value


@compiled
def log_f_tail(f, between, within):
    """Return ``log P(X > f)`` for an F variable with real degrees of freedom.

    By the incomplete beta function (Abramowitz and Stegun 1964, 26.6.2).
    """
    if f <= 0.0 or between <= 0.0 or within <= 0.0:
        return 0.0
    a, b = within / 2.0, between / 2.0
    x, rest = within / (within + between * f), between * f / (within + between * f)
    if rest == 0.0:
        return 0.0
    front = a * math.log(x) + b * math.log(rest) - math.lgamma(a) - math.lgamma(b)
    front += math.lgamma(a + b)
    if x < (a + 1.0) / (a + b + 2.0):
        return min(front - math.log(a) + math.log(_beta_fraction(x, a, b)), 0.0)
    below = math.exp(front - math.log(b) + math.log(_beta_fraction(rest, b, a)))
    return math.log1p(-below) if below < 1.0 else 0.0


@compiled
def _log_p_of_classes(groups):
    """Compute Pearson's test with expected counts from the margins; skips empty classes."""
    total, classes, rows = 0.0, 0, 0
    for i in range(groups.shape[0]):
        weight = groups[i].sum()
        total += weight
        rows += weight > 0.0
    chi = 0.0
    for k in range(groups.shape[1]):
        of_class = 0.0
        for i in range(groups.shape[0]):
            of_class += groups[i, k]
        if of_class <= 0.0:
            continue
        classes += 1
        for i in range(groups.shape[0]):
            expected = of_class * groups[i].sum() / total
            if expected > 0.0:
                chi += (groups[i, k] - expected) ** 2 / expected
    return log_chi_squared_tail(chi, (rows - 1) * (classes - 1))


@compiled
def _log_p_of_numbers(groups):
    """Compute the F test of equal means from sums (weight, weighted y, weighted y squared)."""
    weight, total, squares, within = 0.0, 0.0, 0.0, 0.0
    for i in range(groups.shape[0]):
        weight += groups[i, 0]
        total += groups[i, 1]
        squares += groups[i, 2]
        within += max(groups[i, 2] - groups[i, 1] ** 2 / groups[i, 0], 0.0)
    between = squares - total**2 / weight - within
    degrees, rest = groups.shape[0] - 1.0, weight - groups.shape[0]
    if rest <= 0.0 or between <= 1e-12 * squares:
        return 0.0
    if within <= 1e-12 * squares:
        return -np.inf
    return log_f_tail((between / degrees) / (within / rest), degrees, rest)


@compiled
def log_p_value(groups, numbers):
    """Return the log p-value of the hypothesis that groups and target are independent.

    Parameters
    ----------
    groups : (groups, S) float64
        Weight of each class; or, if `numbers`, weight, sum of y and of its square.
        A weight counts as that number of rows.
    """
    if numbers:
        return _log_p_of_numbers(groups)
    return _log_p_of_classes(groups)
