"""The log-rank statistic as a split criterion.

The test is that of Mantel (1966) and Peto and Peto (1972). Ciampi, Thiffault, Nakache
and Asselain (1986), Segal (1988), and LeBlanc and Crowley (1993) grew trees by it;
Ishwaran, Kogalur, Blackstone and Lauer (2008) grew forests.
"""

from __future__ import annotations

import numpy as np

from treekit import CriterionFunctions, Layout
from treekit_survival.deviance import one_step

__all__ = ["event_rate", "k_samples", "log_rank", "two_samples"]


def log_rank(layout: Layout) -> CriterionFunctions:
    """Return the criterion: chi-squared of the log-rank test between branches, per weight."""
    unit, lived = layout.extra

    def score(parent, children):
        if children.shape[0] == 2:
            return two_samples(parent, children, unit)
        return k_samples(parent, children, unit)

    def loss(stats, judged):
        # Runs as Python, once per node.
        events, through = stats[1::2].sum(), stats @ lived
        own = np.array([judged.sum(), judged[1::2].sum(), judged @ lived, judged @ logarithm])
        return one_step(events, through, own)

    logarithm = np.log(np.where(lived > 0.0, lived, 1.0))
    logarithm[::2] = 0.0
    return CriterionFunctions(score=score, order=event_rate, loss=loss)


def two_samples(parent, children, unit):
    """Compute the log-rank chi-squared of two branches per weight: ``U**2 / V / weight``.

    With n rows at risk at a time, n1 of them in the first branch, d events and d1 in
    the first: U sums ``d1 - d * n1 / n``, and V the variances
    ``d * (n1 / n) * (1 - n1 / n) * (n - d) / (n - 1)`` of the hypergeometric
    distribution (Mantel 1966). If weights do not count rows, the mean weight of a row
    takes the place of 1, and the last factor is at most 1.

    Parameters
    ----------
    parent : (S,) float64
        See `treekit_survival.timeline`.
    children : (2, S) float64
    unit : float
        Weight of one row.
    """
    apart, variance, n, n1 = 0.0, 0.0, 0.0, 0.0
    for k in range(parent.shape[0] // 2):
        gone, event = np.uint64(2 * k), np.uint64(2 * k + 1)
        d = parent[event]
        n += parent[gone] + d
        n1 += children[0, gone] + children[0, event]
        if d > 0.0:
            share = n1 / n
            rest = n - d
            apart += children[0, event] - d * share
            if rest > 0.0:
                variance += d * share * (1.0 - share) * (rest / max(n - unit, rest))
    if variance <= 0.0:
        return 0.0
    return apart * apart / variance / (n + parent[parent.shape[0] - 1])


def k_samples(parent, children, unit):
    """Compute the log-rank chi-squared of several branches per weight: ``U' V^- U / weight``.

    U is as in `two_samples`; V has the covariances
    ``d * (n_b / n) * ([b = c] - n_c / n) * (n - d) / (n - 1)`` of branches b and c
    (Kalbfleisch and Prentice 1980, chapter 1).
    """
    branches = children.shape[0]
    apart = np.zeros(branches)
    variance = np.zeros((branches, branches))
    ahead = np.zeros(branches)
    n = 0.0
    for k in range(parent.shape[0] // 2):
        d = parent[2 * k + 1]
        n += parent[2 * k] + d
        for b in range(branches):
            ahead[b] += children[b, 2 * k] + children[b, 2 * k + 1]
        if d > 0.0:
            rest = n - d
            spread = d * (rest / max(n - unit, rest)) if rest > 0.0 else 0.0
            for b in range(branches):
                share = ahead[b] / n
                apart[b] += children[b, 2 * k + 1] - d * share
                variance[b, b] += spread * share
                for c in range(branches):
                    variance[b, c] -= spread * share * (ahead[c] / n)
    value = _quadratic(apart, variance)
    return value / (n + parent[parent.shape[0] - 1]) if value > 0.0 else 0.0


def _quadratic(u, v):
    """Compute ``u' v^- u`` for a covariance matrix by elimination; overwrites u and v.

    Skips branches that depend linearly on earlier ones: the last one, and those
    without rows at risk.
    """
    n = u.shape[0]
    own = np.zeros(n)
    for i in range(n):
        own[i] = v[i, i]
    value = 0.0
    for i in range(n):
        if v[i, i] <= 1e-9 * own[i] or own[i] <= 0.0:
            continue
        value += u[i] * u[i] / v[i, i]
        for j in range(i + 1, n):
            factor = v[i, j] / v[i, i]
            u[j] -= factor * u[i]
            for k in range(j, n):
                v[j, k] -= factor * v[i, k]
    return value


def event_rate(stats):
    """Return the sort key of a category: its events per bin that its rows lived through.

    Bins hold equal shares of all events, so if hazards of categories are proportional, a
    larger hazard means more events in fewer bins.
    """
    events, through = 0.0, 0.0
    for k in range(stats.shape[0]):
        through += stats[k] * (stats.shape[0] // 2 - k // 2)
        if k % 2 == 1:
            events += stats[k]
    return events / through if through > 0.0 else 0.0
