"""Changes of single numbers of a row, after which a test says what it should.

A sum of rounded additions is monotone in each of its numbers, so that the two
neighbouring numbers between which it passes its threshold are found exactly,
by bisection over the numbers of the input type.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treekit.kernels.compile import kernel
from treekit.kernels.routes import ask, total_of

__all__ = ["Bits", "hide", "hold", "make_bits", "rounded", "shows_fault", "to_threshold"]

_NEIGHBOURS = 16
"""So many neighbours of one number are tried while another one is fitted to each."""


class Bits(NamedTuple):
    """Memory to take numbers of the input type apart in; see `make_bits`."""

    narrow: Any
    infinity: Any
    word32: Any
    float32: Any
    word64: Any
    float64: Any


def make_bits(narrow: bool) -> Bits:
    """One whole number of each size and the same memory as a number; infinity as a whole number."""
    # One type for both sizes: the loops compile once.
    word32, word64 = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int64)
    infinity = np.int64(0xFF << 23 if narrow else 0x7FF << 52)
    return Bits(narrow, infinity, word32, word32.view(np.float32), word64, word64.view(np.float64))


@kernel
def _number(key: int, bits: Any) -> float:
    """The number of the input type at a place in their order; 0 stands at place 0.

    `bits` is one whole number, and the same memory as a floating-point one:
    int32 and float32 if `narrow`, else in 64 bits.
    """
    if bits.narrow:
        bits.word32[0] = abs(key)
        size = np.float64(bits.float32[0])
    else:
        bits.word64[0] = abs(key)
        size = bits.float64[0]
    return size if key >= 0 else -size


@kernel
def rounded(x: float, bits: Any) -> float:
    """The nearest number of the input type."""
    return np.float64(np.float32(x)) if bits.narrow else x


@kernel
def _bisect(routes: Any, test: int, at: int, row: Any, bits: Any) -> tuple[int, int]:
    """Places of the neighbours of term `at` between which the test turns.

    First the one at or below the threshold; equal if nothing turns.
    """
    feature, rising = routes.terms[at].feature, routes.terms[at].weight > 0
    low, high = -bits.infinity, bits.infinity
    threshold = routes.tests[test].threshold
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
    feature = routes.terms[first + term].feature
    other = first + (term + 1 + int(rng.random() * (count - 1))) % count
    if sharp and rng.random() < 0.5:
        row[routes.terms[other].feature] = 0.0  # small numbers have the finest steps
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
    best_at, best_other = row[routes.terms[at].feature], row[routes.terms[other].feature]
    threshold = routes.tests[test].threshold
    nearest = abs(total_of(routes, test, row) - threshold)
    for step in range(_NEIGHBOURS):
        row[routes.terms[at].feature] = _number(key + step - _NEIGHBOURS // 2, bits)
        found = _bisect(routes, test, other, row, bits)
        if found[0] == found[1]:
            continue
        row[routes.terms[other].feature] = _number(found[1 if above else 0], bits)
        gap = abs(total_of(routes, test, row) - threshold)
        if gap < nearest:
            nearest = gap
            best_at, best_other = row[routes.terms[at].feature], row[routes.terms[other].feature]
    row[routes.terms[at].feature], row[routes.terms[other].feature] = best_at, best_other


@kernel
def shows_fault(routes: Any, test: int, term: int, towards: float, single: bool, row: Any) -> bool:
    """Whether the row takes the other side if one number of a sum is off by its last bit.

    The number is the weight of a term, a float32 if `single`, else a double;
    or, for ``term < 0``, the threshold, a double.  `towards` is infinite.
    """
    threshold = routes.tests[test].threshold
    right = total_of(routes, test, row) <= threshold
    if term < 0:
        threshold = np.nextafter(threshold, towards)
    first = routes.term_start[test]
    total = 0.0
    for at in range(first, routes.term_start[test + 1]):
        weight = routes.terms[at].weight
        if at == first + term:
            if single:
                weight = np.float64(np.nextafter(np.float32(weight), np.float32(towards)))
            else:
                weight = np.nextafter(weight, towards)
        total += weight * row[routes.terms[at].feature]
    return (total <= threshold) != right


@kernel
def hold(routes: Any, test: int, row: Any, missing: bool, rng: Any, bits: Any) -> None:
    """Make a condition of a rule say nothing, if it says that its rule is not met.

    The number beside its threshold, so that the other bound of an interval is kept.
    """
    if ask(routes, test, row) < 0:
        return
    asked = routes.tests[test]
    feature = asked.level_feature
    if feature >= 0:
        first = routes.level_start[test]
        count = routes.level_start[test + 1] - first
        start = int(rng.random() * count) if count > 0 else 0
        for step in range(count):
            code = (start + step) % count
            if routes.level_branch[first + code] < 0:
                row[feature] = code
                return
    else:
        feature = routes.terms[routes.term_start[test]].feature
        if asked.below < 0:
            row[feature] = asked.threshold
            return
        if asked.above < 0:
            if bits.narrow:
                up = np.nextafter(np.float32(asked.threshold), np.float32(np.inf))
                row[feature] = np.float64(up)
            else:
                row[feature] = np.nextafter(asked.threshold, np.inf)
            return
    if missing and asked.lost < 0:
        row[feature] = np.nan


@kernel
def hide(routes: Any, test: int, row: Any, missing: bool, rng: Any) -> None:
    """Make a test unknown: by a missing value, a level without a branch, infinities that cancel."""
    feature = routes.tests[test].level_feature
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
        row[routes.terms[at].feature] = np.nan
    elif count > 1:
        other = first + (at - first + 1) % count
        row[routes.terms[at].feature] = np.inf * np.sign(routes.terms[at].weight)
        row[routes.terms[other].feature] = -np.inf * np.sign(routes.terms[other].weight)
