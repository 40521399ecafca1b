"""Portable fixed-point arithmetic: integer sums and one correctly rounded final operation.

All artifacts of a model add the same integers, so that the order of summation
cannot change a prediction.  `UNIT_BUDGET` is the budget of a float type: all sums of
votes stay within it and are exact in that type in any order.

Classification
    each of T trees distributes ``U = floor(UNIT_BUDGET / T)`` units over the classes of
    a leaf (`apportion`); the probability is ``sum / (U * T)``, one division in
    double.  The label is the first class with the largest integer sum.
Regression
    leaf values are fixed-point integers ``v`` with step ``2**exponent``
    (`Grid`); the prediction is ``(sum / T) * 2**exponent``: the sum as a double, one
    division, then an exact scaling.  Sums stay within 2**53, or within 2**60 if small leaf
    values would otherwise lose digits.  A float32 graph stores v as two or more float32
    parts (limbs).  Outputs of very different size have a step each.
Sums (boosting)
    leaf values are fixed-point integers with a step so fine that the largest sum
    is 2**53 (`fit_sum_grid`); the number, or the margin of a class, is
    ``sum * 2**exponent``, which `treekit.model.links` converts to a prediction.
Fractional missing values
    a row's mass m is an integer out of `MASS`, ``2**MASS_BITS``.  Of votes v, ``v * m`` is
    added, so that the sums of classes add up: they stay within 2**48.  Of a number v,
    ``floor(v * m / 2**24)`` is added (`multiply_by_mass`), which is v for a complete row:
    v needs no bits for the mass.
Thresholds
    are numbers of the input type (`place_threshold`, `floor_to_dtype`); a target
    language that computes in double tests ``x <= t'`` without rounding x
    (`to_double_threshold`).
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Dtype
from treekit.errors import ModelError
from treekit.model.tree import Split, Tree

# ---------------------------------------------------------------- fixed-point units

UNIT_BUDGET: dict[Dtype, int] = {"float32": 2**24, "float64": 2**53}
SUM_LIMIT = UNIT_BUDGET["float64"]
"""Limit of the `Grid` of additive leaf values, which bounds their sums as well."""
WIDE_SUM_LIMIT = 2**60
"""Limit of sums if leaf values differ too much in size for sums within 2**53.

They are exact in 64-bit integers; a language without these adds two parts.
"""
MAX_TREES = 100_000
"""Most trees of a model: with more, a tree would have fewer than 168 units."""

MASS_BITS = 24
MASS = 2**MASS_BITS
"""The mass of one row whose missing values split it into fractional instances."""

_SCALE_BITS = 30
_BLOCK_ROWS = 1 << 14
"""Rows that are apportioned at once: about a dozen arrays of this length fit in the cache."""

_DIGIT_BITS = 27


def count_tree_units(n_trees: int, dtype: Dtype) -> int:
    """Return U, the sum of the integer class values of a leaf, for a forest of `n_trees` trees."""
    if not 1 <= n_trees <= MAX_TREES:
        raise ModelError(f"a model must have 1 to {MAX_TREES} trees, got {n_trees}")
    return UNIT_BUDGET[dtype] // n_trees


def apportion(weights: npt.ArrayLike, units: int) -> npt.NDArray[np.int64]:
    """Apportion integer `units` to the classes in proportion to `weights`.

    Uses the largest-remainder method; ties go to the lower class.  Weights are first
    scaled and rounded to integers, unless they are integers with a sum below 2**30.

    Parameters
    ----------
    weights : (rows, classes) float64
        Non-negative, finite, a positive sum in each row.
    units : int
        At most 2**53.

    Returns
    -------
    (rows, classes) int64
        Each row sums to `units`.
    """
    w = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    result = np.empty(w.shape, dtype=np.int64)
    for first in range(0, len(w), _BLOCK_ROWS):
        block = w[first : first + _BLOCK_ROWS]
        positive = block > 0
        if not np.all(np.isfinite(block)) or np.any(block < 0) or not np.all(positive.any(axis=1)):
            raise ModelError(
                "class weights of a leaf must be finite, non-negative and not all zero"
            )
        spread = np.multiply(positive, units, out=result[first : first + _BLOCK_ROWS])
        # Pure leaves, the majority in a forest, need no apportionment.
        mixed = np.flatnonzero(np.count_nonzero(positive, axis=1) > 1)
        if len(mixed):
            spread[mixed] = _apportion_mixed(block[mixed], units)
    return result


def _apportion_mixed(w: npt.NDArray[np.float64], units: int) -> npt.NDArray[np.int64]:
    """Apportion `units` in each row by the largest-remainder method."""
    integers = _scale_to_integers(w)
    total = integers.sum(axis=1, keepdims=True)
    # (whole * units) needs up to 83 bits: long division in two digits of 27 bits.
    high, low = divmod(units, 1 << _DIGIT_BITS)
    upper, rest = np.divmod(integers * high, total)
    lower, remainder = np.divmod((rest << _DIGIT_BITS) + integers * low, total)
    share = (upper << _DIGIT_BITS) + lower
    left_over = units - share.sum(axis=1)
    if w.shape[1] == 2:  # faster than sorting along a short axis
        second = remainder[:, 1] > remainder[:, 0]
        share[:, 0] += left_over * ~second
        share[:, 1] += left_over * second
        return share
    order = np.argsort(-remainder, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(w.shape[1]), w.shape), axis=1)
    result: npt.NDArray[np.int64] = share + (rank < left_over[:, None])
    return result


def _scale_to_integers(w: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Scale and round weights to integers with row sums below 2**31."""
    with np.errstate(over="ignore"):
        exact = (w.sum(axis=1) < 2.0**_SCALE_BITS) & np.all(w == np.floor(w), axis=1)
    if exact.all():
        return w.astype(np.int64)
    largest = w.max(axis=1)
    exponent = _SCALE_BITS - 1 - math.ceil(math.log2(max(w.shape[1], 1)))
    shift = np.where(exact, 0, exponent - np.frexp(largest)[1])
    return np.rint(np.ldexp(w, shift[:, None])).astype(np.int64)


Exponent = int | tuple[int, ...]
"""Exponent of the fixed-point step of all outputs, or of each, if they differ."""


def scale_units(units: npt.ArrayLike, exponent: Exponent) -> npt.NDArray[np.float64]:
    """Return ``units * 2**exponent`` (..., outputs) float64, exactly."""
    numbers = np.asarray(units, dtype=np.float64)
    return np.asarray(np.ldexp(numbers, np.asarray(exponent, dtype=np.int32)))


def make_exponent(exponents: npt.ArrayLike) -> Exponent:
    """Return the exponents (outputs,) of steps as one number if they are equal."""
    each = np.asarray(exponents).tolist()
    return each[0] if len(set(each)) == 1 else tuple(each)


class Grid(NamedTuple):
    """The fixed-point format of leaf values: an integer v represents ``v * 2**exponent``.

    Attributes
    ----------
    exponent : int or (outputs,) tuple of int
    limit : int
        Largest magnitude of v.
    """

    exponent: Exponent
    limit: int

    def to_grid(self, values: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Round real `values` to the nearest fixed-point integers, ties to even."""
        scaled = np.ldexp(np.asarray(values, dtype=np.float64), -self._exponents)
        return np.clip(np.rint(scaled), -self.bound, self.bound).astype(np.int64)

    @property
    def _exponents(self) -> npt.NDArray[np.int32]:
        return np.asarray(self.exponent, dtype=np.int32)

    @property
    def bound(self) -> npt.NDArray[np.int64]:
        """Largest magnitude of v, at most `limit`, that represents a finite double."""
        most = np.minimum(sys.float_info.max_exp - self._exponents, 62)  # |v| <= 2**60
        largest = np.ldexp(1.0 - 2.0**-53, most)
        return np.minimum(np.floor(largest).astype(np.int64), self.limit)


def list_grid_limits(n_trees: int, dtype: Dtype) -> list[int]:
    """Return the largest allowed integer leaf values, ascending; the first fine enough is used.

    For T trees and an integer leaf value v, ``T * |v|`` stays within 2**53 or 2**60.  With
    float32 the first limit is smaller: with ``v == high * base + low``,
    where base is a power of two and ``|low| <= base / 2``, ``T * |high|`` and ``T * |low|``
    stay within 2**24.
    """
    limits = [count_tree_units(n_trees, "float64"), WIDE_SUM_LIMIT // n_trees]
    if dtype == "float64":
        return limits
    share = count_tree_units(n_trees, dtype)
    return [(share - 1) << share.bit_length(), *limits]


_SHARED_POWERS = 3
"""Outputs whose steps differ by up to this power of two share the coarser one, so that equal
numbers of two outputs, such as two quantiles, stay equal."""


def fit_regression_grid(largest: npt.ArrayLike, limit: int) -> Grid:
    """Return the finest `Grid` of a limit for leaf values up to `largest` in magnitude.

    `largest` is that of all outputs, or (outputs,) float64.
    """
    each = np.atleast_1d(np.asarray(largest, dtype=np.float64))
    if not np.isfinite(each).all():
        raise ModelError("leaf values must be finite")
    return _fit_grid(each, limit)


LEAF_ACCURACY = 1e-9
"""Accepted rounding of a leaf value, relative to the value."""

_NEAR_ZERO = 0.05
"""Share of the leaves of an output that may be rounded more: of both signs, some are near 0."""


def is_fine_enough(grid: Grid, values: npt.NDArray[np.float64]) -> bool:
    """Return whether rounding to a grid changes no leaf value by more than `LEAF_ACCURACY`.

    Values (leaves, outputs) that the grid keeps exactly are fine, too.  Of an output with values of
    both signs, the 5% nearest to 0 do not count.
    """
    halves = np.broadcast_to(scale_units(0.5, grid.exponent), values.shape[1:])
    for own, half in zip(values.T, halves.tolist(), strict=True):
        sizes = np.abs(own[own != 0.0])
        both = own.min(initial=0.0) < 0.0 < own.max(initial=0.0)
        least = int(_NEAR_ZERO * len(sizes)) if both else 0
        if len(sizes) and half > LEAF_ACCURACY * float(np.partition(sizes, least)[least]):
            return bool(np.array_equal(scale_units(grid.to_grid(values), grid.exponent), values))
    return True


def fit_sum_grid(largest: npt.NDArray[np.float64], *, shared: bool = True) -> Grid:
    """Return the finest `Grid` on which no sum over the trees exceeds 2**53.

    Parameters
    ----------
    largest : (trees, values) float64
        Largest magnitude of each tree's leaf values.
    shared : bool
        Whether all values have one step: margins are compared with each other.
    """
    with np.errstate(over="ignore"):
        total = largest.sum(axis=0)
        doubled = total * 2
    if not np.isfinite(doubled).all():
        raise ModelError("sums of leaf values must be finite: the leaf values are too large")
    if shared:
        total = total.max(keepdims=True)
    return _fit_grid(total, SUM_LIMIT, len(largest))  # rounding adds half a step per tree


def _fit_grid(largest: npt.NDArray[np.float64], limit: int, margin: int = 0) -> Grid:
    """Return the finest `Grid` on which `largest` and `margin` steps are within `limit`.

    `largest` are those of all outputs, (outputs,); outputs of 0 alone take any step.
    """
    counted = largest > 0.0
    if not counted.any():
        return Grid(0, limit)
    exponents = np.frexp(largest)[1].astype(np.int64) - (limit - margin).bit_length()
    exponents += np.ldexp(largest, -exponents.astype(np.int32)) + margin > limit
    # Keep all products with the step normal doubles, so that scaling is exact.
    exponents = np.maximum(exponents, -960)
    shared, left = np.full_like(exponents, exponents[counted].max()), counted
    while left.any():
        top = exponents[left].max()
        shared[left & (exponents >= top - _SHARED_POWERS)] = top
        left = left & (exponents < top - _SHARED_POWERS)
    return Grid(make_exponent(shared), limit)


_HIGH_UNIT = 2**8
"""Unit of the high parts of wide sums: they are exact doubles up to 2**61, and low parts
up to the largest number of trees."""


def split_wide_units(units: npt.NDArray[np.int64], unit: int = _HIGH_UNIT) -> npt.NDArray[np.int64]:
    """Split integer leaf values into parts whose sums over the trees are exact in double.

    Parameters
    ----------
    units : (leaves, values) int64
    unit : int

    Returns
    -------
    (leaves, 2 * values) int64
        High parts, the nearest multiples of `unit`, and then low parts.  The double nearest to a
        sum is that of its high parts plus that of its low parts.
    """
    high = (units + unit // 2) // unit * unit
    return np.hstack([high, units - high])


def floor_to_dtype(values: npt.ArrayLike, dtype: Dtype) -> npt.NDArray[np.float64]:
    """Round each of `values` down to a number of type `dtype`, returned as float64."""
    v = np.asarray(values, dtype=np.float64)
    if dtype == "float64":
        return v + 0.0
    with np.errstate(over="ignore"):
        nearest = v.astype(np.float32)
        below = np.nextafter(nearest, np.float32(-np.inf))
    return np.where(nearest.astype(np.float64) > v, below, nearest).astype(np.float64) + 0.0


def place_threshold(
    left: npt.ArrayLike, right: npt.ArrayLike, dtype: Dtype, placement: int = 0
) -> npt.NDArray[np.float64]:
    """Return a threshold t of type `dtype` with ``left <= t < right``.

    `left` and `right` are numbers of that type with ``left < right``.  By `placement`
    (`treekit.kernels.thresholds`) t is a readable number, or else the midpoint, rounded down.
    """
    from treekit.kernels.thresholds import READABLE_FLOAT32, place_readable_thresholds

    a, b = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    middle = floor_to_dtype(_floor_midpoint(a, b), dtype)
    if placement < READABLE_FLOAT32:
        return middle
    readable = place_readable_thresholds(a, b, placement)
    return np.where(np.isnan(readable), middle, readable)


def _floor_midpoint(
    a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the largest double not above the exact midpoint of a < b."""
    # Halve where the sum could overflow; a number too small to halve keeps its sign.
    large = np.maximum(np.abs(a), np.abs(b)) >= 2.0**1000
    a, b = (np.where(large & (x / 2 != 0), x / 2, x) for x in (a, b))
    total = a + b
    # Knuth 1969, section 4.2.2, theorem B: the exact error of the rounded sum.
    part = total - a
    error = (a - (total - part)) + (b - part)
    middle = np.where(large, total, total / 2)
    above = (error < 0) | (~large & (total - middle < middle))
    with np.errstate(over="ignore"):  # -inf only where `np.where` does not select it
        return np.where(above, np.nextafter(middle, -np.inf), middle)


def to_double_threshold(thresholds: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return t' such that ``float32(x) <= t`` equals ``x <= t'`` for all doubles x.

    t' is the largest double that rounds (to nearest, ties to even) to a
    float32 not above t; t is finite.
    """
    t = np.asarray(thresholds, dtype=np.float32) + np.float32(0.0)
    top = t == np.finfo(np.float32).max
    with np.errstate(over="ignore"):
        above = np.nextafter(t, np.float32(np.inf)).astype(np.float64)
    above = np.where(top, 2.0**128, above)
    middle = t.astype(np.float64) / 2 + above / 2
    even = (t.view(np.uint32) & 1) == 0
    return np.where(even, middle, np.nextafter(middle, -np.inf))


# ---------------------------------------------------------------- fractional instances
# Shares of a row's mass where missing values take all branches (Quinlan 1993, ch. 3).


def multiply_by_mass(units: Any, mass: Any, bits: int) -> Any:
    """Return ``floor(units * mass / 2**bits)`` of integers, or int64 arrays, without overflow.

    `bits` is `MASS_BITS` for numbers, 0 for votes; see `treekit.model.model.Model.part_bits`.
    """
    low = units & ((1 << bits) - 1)
    return (units >> bits) * mass + (low * mass >> bits)


def compute_mass_bounds(tree: Tree) -> npt.NDArray[np.int64]:
    """Compute each node's share of its parent's mass for fractional instances.

    A node of bounds (low, high) gets ``(mass * high >> 24) - (mass * low >> 24)``
    of a row of integer `mass`.  The bounds of siblings are adjacent, from 0 to
    2**24, so that the parts add up to the mass, and each is computed alone.
    They are proportional to the training weights of the siblings (equal where
    all weights are 0).

    Returns
    -------
    (n, 2) int64
        (0, 2**24) for the root.  The children of a MISSING node, which never
        creates fractional instances, have bounds as well.
    """
    bounds = np.zeros((tree.n_nodes, 2), dtype=np.int64)
    bounds[0, 1] = MASS
    inner = np.flatnonzero(tree.kind != Split.LEAF)
    for count in np.unique(tree.n_children[inner]).tolist():
        parents = inner[tree.n_children[inner] == count]
        children = tree.first_child[parents][:, None].astype(np.int64) + np.arange(count)
        weights = tree.weight[children]
        weights[~weights.any(axis=1)] = 1.0
        ends = np.cumsum(apportion(weights, MASS), axis=1)
        bounds[children, 1] = ends
        bounds[children[:, 1:], 0] = ends[:, :-1]
    return bounds
