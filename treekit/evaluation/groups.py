"""Scores of groups of rows, each beside those of all other rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Estimate(NamedTuple):
    """A number with its 95% interval; the interval is None for weighted and for single rows."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class GroupScores:
    """The scores of a group of rows.

    Attributes
    ----------
    group : str
    rows : int or float
        Rows of the group, or their weight.
    score : Estimate
        Accuracy, or mean absolute error.
    score_difference : Estimate or None
        Minus that of all other rows; None if there are none.
    rate : Estimate or None
        Share predicted as the second of two classes, or the mean prediction; None for more
        classes.
    rate_difference : Estimate or None
        Minus that of all other rows.
    observed : float or None
        Share of the second of two classes, or the mean, of the target.
    """

    group: str
    rows: float
    score: Estimate
    score_difference: Estimate | None
    rate: Estimate | None
    rate_difference: Estimate | None
    observed: float | None


def score_groups(
    codes: npt.NDArray[np.int64],
    names: list[str],
    y: npt.NDArray[Any],
    predicted: npt.NDArray[Any],
    weights: Floats | None,
    n_classes: int,
) -> list[GroupScores]:
    """Score the rows of each group.

    Parameters
    ----------
    codes : (rows,) int64
        Place of each row's group in `names`; groups without rows are left out.
    y, predicted : (rows,) arrays
        Codes of classes, or numbers.
    weights : (rows,) float64, or None
    n_classes : int
        0 for a regression.
    """
    if n_classes:
        scores = (predicted == y).astype(np.float64)
        rates = (predicted == 1).astype(np.float64) if n_classes == 2 else None
        targets = (y == 1).astype(np.float64)
    else:
        scores, rates, targets = np.abs(predicted - y), predicted.astype(np.float64), y
    are_shares = n_classes > 0
    found = []
    for code, name in enumerate(names):
        mine = codes == code
        if not mine.any():
            continue
        w = None if weights is None else weights[mine]
        score, score_difference = _compare_means(scores, mine, weights, are_shares)
        rate, rate_difference = None, None
        if rates is not None:
            rate, rate_difference = _compare_means(rates, mine, weights, are_shares)
        found.append(
            GroupScores(
                group=name,
                rows=int(mine.sum()) if w is None else float(w.sum()),
                score=score,
                score_difference=score_difference,
                rate=rate,
                rate_difference=rate_difference,
                observed=None if rates is None else float(np.average(targets[mine], weights=w)),
            )
        )
    return found


def _compare_means(
    values: Floats, mine: npt.NDArray[np.bool_], weights: Floats | None, are_shares: bool
) -> tuple[Estimate, Estimate | None]:
    """Return the mean of some rows, and its difference from that of all other rows."""
    if weights is not None:
        own = float(np.average(values[mine], weights=weights[mine]))
        if mine.all():
            return Estimate(own, None, None), None
        rest = float(np.average(values[~mine], weights=weights[~mine]))
        return Estimate(own, None, None), Estimate(own - rest, None, None)
    estimate = _estimate_share if are_shares else _estimate_mean
    first = estimate(values[mine])
    return first, None if mine.all() else _subtract(first, estimate(values[~mine]))


def _estimate_share(hits: Floats) -> Estimate:
    """Return a share with Wilson's interval."""
    from scipy.stats import binomtest

    interval = binomtest(int(hits.sum()), len(hits)).proportion_ci(0.95, method="wilson")
    return Estimate(float(hits.mean()), float(interval.low), float(interval.high))


def _estimate_mean(values: Floats) -> Estimate:
    """Return a mean with Student's interval."""
    from scipy.stats import t

    mean, n = float(values.mean()), len(values)
    if n < 2:
        return Estimate(mean, None, None)
    half = float(t.ppf(0.975, n - 1)) * float(values.std(ddof=1)) / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half)


def _subtract(first: Estimate, second: Estimate) -> Estimate:
    """Return the difference of two independent estimates.

    The interval is made of theirs: for shares it is the tenth method of Newcombe 1998, *Interval
    estimation for the difference between independent proportions*.
    """
    difference = first.value - second.value
    if first.low is None or second.low is None or first.high is None or second.high is None:
        return Estimate(difference, None, None)
    below = math.hypot(first.value - first.low, second.high - second.value)
    above = math.hypot(first.high - first.value, second.value - second.low)
    return Estimate(difference, difference - below, difference + above)
