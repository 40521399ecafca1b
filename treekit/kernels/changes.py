"""Changes of single numbers of a row, after which a test says what it should.

A sum of rounded additions is monotone in each of its numbers, so that the two
neighbouring numbers between which it passes its threshold are found exactly,
by bisection over the numbers of the input type.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from treekit.kernels.compile import kernel
from treekit.kernels.routes import total_of

__all__ = ["hide", "shows_fault", "to_threshold"]

_NEIGHBOURS = 16
"""So many neighbours of one number are tried while another one is fitted to each."""


@kernel
def _number(key: int, bits: Any) -> float:
    """The number of the input type at a place in their order; 0 stands at place 0.

    `bits` is one whole number and the same memory as a floating-point one.
    """
    bits[0][0] = abs(key)
    return bits[1][0] if key >= 0 else -bits[1][0]


@kernel
def _bisect(routes: Any, test: int, at: int, row: Any, bits: Any) -> tuple[int, int]:
    """Places of the neighbours of term `at` between which the test turns.

    First the one at or below the threshold; equal if nothing turns.
    """
    feature, rising = routes.term_feature[at], routes.term_weight[at] > 0
    bits[1][0] = np.inf
    low, high = -np.int64(bits[0][0]), np.int64(bits[0][0])
    threshold = routes.threshold[test]
    for key in (low, high):
        row[feature] = _number(key, bits)
        if ((total_of(routes, test, row) <= threshold) == rising) != (key == low):
            return low, low
    while low + 1 < high:
        middle = (low >> 1) + (high >> 1) + (low & high & 1)  # their sum may overflow
        row[feature] = _number(middle, bits)
        if (total_of(routes, test, row) <= threshold) == rising:
            low = middle
        else:
            high = middle
    return (low, high) if rising else (high, low)


@kernel
def to_threshold(
    routes: Any, test: int, above: bool, sharp: bool, term: int, row: Any, rng: Any, bits: Any
) -> bool:
    """Bring the sum of a linear test as near to its threshold as it gets, on one side.

    One number, `term` or, below 0, any, is moved.  If `sharp`, a second one is
    fitted to each neighbour of the first, so that the sum may hit the
    threshold to the last bit.
    """
    first = routes.term_start[test]
    count = routes.term_start[test + 1] - first
    if term < 0:
        term = int(rng.random() * count)
    feature = routes.term_feature[first + term]
    other = first + (term + 1 + int(rng.random() * (count - 1))) % count
    if sharp and rng.random() < 0.6:
        row[routes.term_feature[other]] = 0.0  # small numbers have the finest steps
    found = _bisect(routes, test, first + term, row, bits)
    if found[0] == found[1]:
        return False
    row[feature] = _number(found[1 if above else 0], bits)
    if sharp:
        _fit(routes, test, above, first + term, found[0], other, row, bits)
    return True


@kernel
def _fit(
    routes: Any, test: int, above: bool, at: int, key: int, other: int, row: Any, bits: Any
) -> None:
    """The neighbour of term `at`, at place `key`, with which term `other` hits best."""
    best_at, best_other = row[routes.term_feature[at]], row[routes.term_feature[other]]
    threshold = routes.threshold[test]
    nearest = abs(total_of(routes, test, row) - threshold)
    for step in range(_NEIGHBOURS):
        row[routes.term_feature[at]] = _number(key + step - _NEIGHBOURS // 2, bits)
        found = _bisect(routes, test, other, row, bits)
        if found[0] == found[1]:
            continue
        row[routes.term_feature[other]] = _number(found[1 if above else 0], bits)
        gap = abs(total_of(routes, test, row) - threshold)
        if gap < nearest:
            nearest = gap
            best_at, best_other = row[routes.term_feature[at]], row[routes.term_feature[other]]
    row[routes.term_feature[at]], row[routes.term_feature[other]] = best_at, best_other


@kernel
def shows_fault(routes: Any, test: int, above: bool, term: int, row: Any) -> bool:
    """Whether the row takes the other side if one number of the test is off by its last bit.

    The number is the weight of a term, or, for ``term < 0``, the threshold.
    """
    threshold = routes.threshold[test]
    if term < 0:
        threshold = np.nextafter(threshold, np.inf if above else -np.inf)
    first = routes.term_start[test]
    total = 0.0
    for at in range(first, routes.term_start[test + 1]):
        weight, x = routes.term_weight[at], row[routes.term_feature[at]]
        if at == first + term:
            towards = np.inf if (x > 0) != above else -np.inf
            weight = np.float64(np.nextafter(np.float32(weight), np.float32(towards)))
        total += weight * x
    return total <= threshold if above else total > threshold


@kernel
def hide(routes: Any, test: int, row: Any, missing: bool, rng: Any) -> None:
    """Make a test unknown: by a missing value, a level without a branch, infinities that cancel."""
    feature = routes.level_feature[test]
    if feature >= 0:
        first = routes.level_start[test]
        count = routes.level_start[test + 1] - first
        start = int(rng.random() * count) if count > 0 else 0
        if missing and rng.random() < 0.6:
            row[feature] = np.nan
            return
        for step in range(count):
            code = (start + step) % count
            if routes.level_branch[first + code] < 0:
                row[feature] = code
                return
        if missing:
            row[feature] = np.nan
        return
    first = routes.term_start[test]
    count = routes.term_start[test + 1] - first
    at = first + int(rng.random() * count)
    if missing and (count == 1 or rng.random() < 0.7):
        row[routes.term_feature[at]] = np.nan
    elif count > 1:
        other = first + (at - first + 1) % count
        row[routes.term_feature[at]] = np.inf * np.sign(routes.term_weight[at])
        row[routes.term_feature[other]] = -np.inf * np.sign(routes.term_weight[other])
