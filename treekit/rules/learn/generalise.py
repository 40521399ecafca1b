"""From a path to a rule: conditions are dropped while that makes the rule no less sure.

Quinlan 1993, *C4.5*, section 5.1 (first in Quinlan 1987, *Generating production rules from
decision trees*, with another test of a condition's worth).
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.rules.learn.ground import Bits, Ground

__all__ = ["dropped", "error_rates", "once", "rate_bound"]

Numbers = npt.NDArray[np.float64]


def rate_bound(confidence: float) -> Any:
    """The upper limit of `error_rates` (a `treekit.kernels.raising.Bound`)."""
    from treekit.kernels.raising import Bound

    z = NormalDist().inv_cdf(1.0 - min(confidence, 0.5))
    # Whatever rows a rule meets, it says its own class: the first of two, right and wrong.
    return Bound(confidence, z, False, np.array([[0.0, 0.0], [1.0, 1.0]]))


def error_rates(right: Numbers, covered: Numbers, bound: Any) -> Numbers:
    """(n,) float64: pessimistic error rates of rules; 1 of those that no row meets.

    The upper limit of the binomial by which `treekit.pruners.error_based` judges leaves.

    Parameters
    ----------
    right, covered : (n,) float64
        Weight of the rows of a rule's class that meet it, and of all that do.
    """
    from treekit.kernels.raising import pessimistic_errors

    _, limit = pessimistic_errors(np.stack([right, covered - right], axis=1), bound)
    some = covered > 0
    rates = np.ones(len(covered))
    np.divide(limit, covered, out=rates, where=some)
    return rates


def dropped(met: Bits, own: Bits, ground: Ground, bound: Any) -> tuple[list[int], float]:
    """The conditions of a rule that are left, and its pessimistic error rate.

    Time and again the condition goes without which the rate is lowest, the first of equal
    ones, as long as the rate does not rise.

    Parameters
    ----------
    met : (conditions, words) uint64
        Rows that meet each condition.
    own : (words,) uint64
        Rows of the rule's class.
    ground : Ground
    bound
        See `rate_bound`.

    Returns
    -------
    kept : list of int
        Ascending positions in `met`.
    rate : float

    Notes
    -----
    Each of up to d rounds counts the rows that fail one condition alone: O(d² rows / 64).
    """
    kept = list(range(len(met)))
    while True:
        fails = ~met[kept] & ground.everyone
        alone, several = once(fails, len(ground.everyone))
        alone &= ~several
        # Last the rows that fail nothing; before them what each condition alone keeps out.
        sets = np.concatenate([fails & alone, (ground.everyone & ~(alone | several))[None]])
        covered, right = ground.weight(sets, ground.everyone), ground.weight(sets, own)
        covered[:-1] += covered[-1]
        right[:-1] += right[-1]
        rates = error_rates(right, covered, bound)
        if not kept or rates[:-1].min() > rates[-1]:
            return kept, float(rates[-1])
        del kept[int(rates[:-1].argmin())]


def once(sets: Bits, n_words: int) -> tuple[Bits, Bits]:
    """(words,) uint64: members of one of the sets or more, and of two or more."""
    some = np.zeros(n_words, dtype=np.uint64)
    several = np.zeros(n_words, dtype=np.uint64)
    for each in sets:
        several |= some & each
        some |= each
    return some, several
