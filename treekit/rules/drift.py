"""Whether figures of rules differ by more than chance makes of them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from treekit.rules.measure import Measures
from treekit.rules.rulelist import RuleList

__all__ = ["compared_means", "compared_shares", "stability"]

Numbers = npt.NDArray[np.float64]

_Z = 1.959963984540054  # of 95%, both sides
_ONE_SIDED = 1.6448536269514722  # of 95%, one side


def compared_shares(
    expected: Measures, live: Measures
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Difference, interval and p-value of confidences."""
    was, now = expected.confidence, live.confidence
    n, m = expected.weight[:, None], live.weight[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        pooled = (was * n + now * m) / (n + m)
        error = np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
        middle = (now + _Z**2 / (2 * m)) / (1 + _Z**2 / m)
        half = _Z / (1 + _Z**2 / m) * np.sqrt(now * (1 - now) / m + _Z**2 / (4 * m**2))
    low, high = np.clip(middle - half, 0.0, 1.0), np.clip(middle + half, 0.0, 1.0)
    return now - was, low, high, _two_sided(now - was, error)


def compared_means(expected: Measures, live: Measures) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Difference, interval and p-value of means; the training rows had the live spread."""
    was, now = expected.mean, live.mean
    n, m = expected.weight[:, None], live.weight[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        # One row has no spread: nothing is known of it then.
        variance = np.where(m > 1, live.spread**2 * m / (m - 1), np.nan)
        half = _Z * np.sqrt(variance / m)
        error = np.sqrt(variance * (1 / n + 1 / m))
    return now - was, now - half, now + half, _two_sided(now - was, error)


def _two_sided(difference: Numbers, error: Numbers) -> Numbers:
    """p-values of the normal distribution; 1 where nothing differs and nothing varies."""
    with np.errstate(invalid="ignore", divide="ignore"):
        z = np.abs(difference) / error
    z = np.where(difference == 0, 0.0, z)
    flat = [math.erfc(value / math.sqrt(2)) for value in z.ravel().tolist()]
    return np.array(flat).reshape(z.shape)


def stability(
    rules: RuleList, expected: Measures, live: Measures
) -> tuple[Numbers, Numbers, Numbers]:
    """Each rule's part of the stability index, the index of each tree, and what chance makes."""
    tree, trees = rules.tree, rules.n_trees
    counts = np.bincount(tree, minlength=trees).astype(np.float64)
    shares, totals = [], []
    for weight in (expected.weight, live.weight):
        total = np.bincount(tree, weight, trees).astype(np.float64)
        # Half a row more for each rule: no share is 0, whose logarithm is infinite.
        shares.append((weight + 0.5) / (total + 0.5 * counts)[tree])
        totals.append(np.where(total > 0, total, np.nan))
    was, now = shares
    move = (now - was) * np.log(now / was) + 0.0 * (totals[0] + totals[1])[tree]
    free = np.maximum(counts - 1, 1e-9)
    # Quantile of chi squared by Wilson and Hilferty (1931).
    spread = 2 / (9 * free)
    quantile = free * np.maximum(1 - spread + _ONE_SIDED * np.sqrt(spread), 0.0) ** 3
    chance = np.where(counts > 1, quantile, 0.0) * (1 / totals[0] + 1 / totals[1])
    return move, np.bincount(tree, move, trees).astype(np.float64), chance
