"""How many bits rules take, and the exceptions to them: what C4.5rules chooses rules by.

Quinlan 1993, *C4.5*, section 5.2: the better rules for a class are those that a sender
can tell, with the cases that they get wrong, in fewer bits (Rissanen's minimum description
length).  What a condition takes is coded as `treekit.components.pruners` codes splits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from treekit.rules.learn.conditions import Asked

__all__ = ["THEORY", "any_order", "exception_bits", "rule_bits"]

Numbers = npt.NDArray[np.float64]

THEORY = 0.5
"""What a bit of a rule counts against one of an exception: rules say the same in many ways."""


def rule_bits(conditions: Sequence[Asked], n_values: Sequence[int]) -> float:
    """Bits that tell the conditions of a rule, in any order.

    Parameters
    ----------
    conditions : sequence of Asked
    n_values : (features,) sequence of int
        Distinct known values of each column: numbers in the rows, or the vocabulary's size.
    """
    own = [_condition_bits(condition, n_values) for condition in conditions]
    bits = [each for several in own for each in several]
    return max(sum(bits) - math.lgamma(len(bits) + 1.0) / math.log(2.0), 0.0)


def _condition_bits(asked: Asked, n_values: Sequence[int]) -> list[float]:
    """Bits of each test that a condition is made of: an interval is two."""
    values = n_values[asked.column]
    column = math.log2(len(n_values))
    if asked.levels and len(asked.levels) < values:
        one = math.log2(values)
        some = math.log2(2.0**values - 2.0) if 2 < values < 60 else float(values)
        return [column + (one if len(asked.levels) == 1 else min(some, one * len(asked.levels)))]
    bounds = math.isfinite(asked.low) + math.isfinite(asked.high)
    # Which of the values, and on which side of it; one bit for "is known" and "is missing".
    return [column + 1.0 + math.log2(max(values - 1, 1))] * bounds or [column + 1.0]


def any_order(n: npt.NDArray[np.int64]) -> Numbers:
    """(subsets,) float64: bits of the order of `n` rules, which nobody needs to be told."""
    from scipy.special import gammaln

    return np.asarray(gammaln(n + 1.0) / math.log(2.0))


def exception_bits(covered: Numbers, right: Numbers, total: float, of_class: float) -> Numbers:
    """Bits that tell which rows some rules for a class get wrong.

    ``log2 C(covered, wrong among them) + log2 C(others, of the class among them)``
    (Quinlan 1993, page 53); a row of weight w counts as w rows.

    Parameters
    ----------
    covered, right : (n,) float64
        Weight of the rows that the rules cover, and of those of their class among them.
    total, of_class : float
        Weight of all rows, and of the class.
    """
    wrong, others, lost = covered - right, total - covered, of_class - right
    return np.asarray(_choices(covered, wrong) + _choices(others, lost))


def _choices(n: Numbers, k: Numbers) -> Numbers:
    """``log2 C(n, k)`` for any numbers ``0 <= k <= n``."""
    from scipy.special import gammaln

    bits = (gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)) / math.log(2.0)
    return np.asarray(bits)
