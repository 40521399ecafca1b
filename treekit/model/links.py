"""Link functions: convert the sums of an ensemble to predictions, bit for bit in all artifacts.

A link function converts margins to predictions: the exponential, the logistic
function (both from Nelder and Wedderburn 1972) and softmax (Bridle 1990).
Mathematical libraries round such functions differently, so they are composed here
of IEEE double operations in one fixed order, which an artifact in any language
repeats to the last bit.  Operations must not be fused, reordered or computed in
wider registers.

``exp(x)``, within 2 units in the last place
    ``n`` is the integer nearest to ``x / ln 2``, and ``r = x - n ln 2``, where
    ln 2 is two doubles, the first short enough for an exact product (Cody and
    Waite 1980, chapter 6); the Taylor polynomial of degree 13 in r, by Horner's
    scheme, times ``2**n``.  x is clipped to ``+-LIMIT``.
``sigmoid(m)``
    ``1 / (1 + e)``, or ``e / (1 + e)`` for m < 0, where ``e = exp(-|m|)``.
``softmax(m)``
    ``t / (t_0 + t_1 + ...)``, where ``t_k = exp(m_k - max m)``, added in class order.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from treekit.model.fixed_point import scale_units

if TYPE_CHECKING:
    from treekit.model.model import Model
    from treekit.rules import RuleList

Combine = Literal["mean", "sum"]
"""How the values of the trees are combined: ``mean``, or ``sum`` (boosting)."""

Link = Literal["identity", "exp", "sigmoid", "softmax"]

EXP_LIMIT = 700.0
LOG2_E = 1.4426950408889634
LN2_HIGH = 0.6931471803691238
"""ln 2 to 32 bits: its product with an integer below 2**20 is exact."""
LN2_LOW = 1.9082149292705877e-10
EXP_COEFFICIENTS = tuple(1 / math.factorial(power) for power in range(13, -1, -1))
"""Coefficients of the powers 13 to 0: the doubles nearest to 1 / 13!, ..., 1 / 2!, 1 and 1."""

Doubles = npt.NDArray[np.float64]


def convert_sums(source: Model | RuleList, sums: npt.NDArray[np.int64]) -> Doubles:
    """Convert integer sums to probabilities or numbers.

    Parameters
    ----------
    source : Model or RuleList
        What defines the meaning of the sums.
    sums : (rows, values) int64

    Returns
    -------
    (rows, values) float64
        Class probabilities, or predicted numbers; one output after the other.
    """
    if source.schema.task == "classification" and not source.margins:
        shares: Doubles = sums / source.unit_total
        return shares
    numbers = scale_units(sums / source.divisor, source.exponent)
    return apply_link(source.link, numbers, source.schema.blocks)


def apply_link(link: Link, margins: Doubles, blocks: tuple[int, ...]) -> Doubles:
    """Apply a link function to margins (rows, values); softmax applies to each block."""
    if link == "softmax":
        parts = [softmax(margins[:, a:b]) for a, b in itertools.pairwise(blocks)]
        return np.concatenate(parts, axis=1)
    if link == "sigmoid":
        return sigmoid(margins)
    return exp(margins) if link == "exp" else margins


def exp(x: Doubles) -> Doubles:
    """Compute the exponential of an array of finite numbers."""
    x = np.minimum(np.maximum(x, -EXP_LIMIT), EXP_LIMIT)
    n = np.floor(x * LOG2_E + 0.5)
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    p = np.full(x.shape, EXP_COEFFICIENTS[0])
    for coefficient in EXP_COEFFICIENTS[1:]:
        p = p * r + coefficient
    result: Doubles = np.ldexp(p, n.astype(np.int32))
    return result


def sigmoid(m: Doubles) -> Doubles:
    """Compute the logistic function of an array of finite numbers."""
    e = exp(-np.abs(m))
    return np.where(m >= 0, 1.0, e) / (1.0 + e)


def softmax(m: Doubles) -> Doubles:
    """Compute the softmax of margins (rows, classes) along the classes."""
    t = exp(m - m.max(axis=1, keepdims=True))
    total = t[:, 0].copy()
    for k in range(1, t.shape[1]):  # not np.sum: its pairwise summation has another order
        total = total + t[:, k]
    return t / total[:, None]
