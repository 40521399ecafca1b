"""Which of the rules for a class to keep: those that tell it in the fewest bits.

Quinlan 1993, *C4.5*, section 5.2.  All subsets are tried of few rules; of many, subsets
that no single rule more or less makes shorter, from several starts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from treekit.rules.learn.coding import THEORY, any_order, exception_bits
from treekit.rules.learn.ground import Bits, Ground, once

__all__ = ["EXHAUSTIVE", "ClassRules", "chosen"]

Numbers = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

EXHAUSTIVE = 10
"""Up to so many rules every subset is tried, as in C4.5."""

_DOWNHILL = 1000
"""Up to so many rules the search also starts from all of them, and from halves."""

_HALVES = 3
_SMALL = 1e-9


class ClassRules:
    """The rules for one class, and what subsets of them take.

    Parameters
    ----------
    met : (rules, words) uint64
        Rows that meet each rule.
    bits : (rules,) float64
        What the conditions of each rule take.
    ground : Ground
    label : int
        The class.
    """

    def __init__(self, met: Bits, bits: Numbers, ground: Ground, label: int) -> None:
        self.met, self.bits, self.ground = met, bits, ground
        self.own = ground.classes[label]
        self.total, self.of_class = float(ground.totals.sum()), float(ground.totals[label])

    def __len__(self) -> int:
        return len(self.met)

    def length(self, covered: Numbers, right: Numbers, bits: Numbers, n: Index) -> Numbers:
        """(subsets,) float64: description length of subsets of `n` rules of so many `bits`."""
        theory = np.maximum(bits - any_order(n), 0.0)
        exceptions = exception_bits(covered, right, self.total, self.of_class)
        return np.asarray(exceptions + THEORY * theory)

    def weights(self, sets: Bits, within: Bits) -> tuple[Numbers, Numbers]:
        """Weight of `sets` (sets, words) in `within`, and of the class's rows of that."""
        return self.ground.weight(sets, within), self.ground.weight(sets, within & self.own)


def chosen(rules: ClassRules) -> Index:
    """Positions of the subset of least description length that the search finds, ascending."""
    if len(rules) <= EXHAUSTIVE:
        return _best_subset(rules)
    best, least = np.zeros(len(rules), np.bool_), np.inf
    for start in _starts(len(rules)):
        found, length = _improved(rules, start)
        if length < least - _SMALL:
            best, least = found, length
    return np.flatnonzero(best)


def _best_subset(rules: ClassRules) -> Index:
    """The first of the shortest subsets, in the order of binary numbers."""
    n = len(rules)
    covers = np.zeros((2, len(rules.ground.everyone)), dtype=np.uint64)[:1]
    covered, right = np.zeros(1), np.zeros(1)
    # Those with rule r are those without, and r: their covers are made half by half.
    for rule in range(n):
        more = covers | rules.met[rule]
        own = rules.weights(more, rules.ground.everyone)
        covered, right = np.append(covered, own[0]), np.append(right, own[1])
        covers = np.concatenate([covers, more])
    members = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1
    length = rules.length(covered, right, members @ rules.bits, members.sum(axis=1))
    near = np.flatnonzero(length <= length.min() + _SMALL)
    return np.flatnonzero(members[near[0]])


def _starts(n: int) -> Iterator[Mask]:
    """Subsets to start from: none, all, and drawn halves (always the same ones)."""
    yield np.zeros(n, np.bool_)
    if n <= _DOWNHILL:
        yield np.ones(n, np.bool_)
        rng = np.random.default_rng(0)
        for _ in range(_HALVES):
            yield rng.random(n) < 0.5


def _improved(rules: ClassRules, inside: Mask) -> tuple[Mask, float]:
    """Add or drop the rule that shortens most, until none does; the subset and its length.

    A step is linear in the words of all rules.
    """
    inside, least = inside.copy(), np.inf
    while True:
        some, several = once(rules.met[inside], len(rules.ground.everyone))
        now = np.array([*rules.weights(some[None], rules.ground.everyone)])[:, 0]
        covered, right = np.full(len(rules), now[0]), np.full(len(rules), now[1])
        for rows, within, sign in ((inside, some & ~several, -1), (~inside, ~some, 1)):
            some_more = rules.weights(rules.met[rows], within)
            covered[rows] += sign * some_more[0]
            right[rows] += sign * some_more[1]
        n, bits = int(inside.sum()), float(rules.bits[inside].sum())
        if least == np.inf:
            least = float(rules.length(now[:1], now[1:], np.array([bits]), np.array([n]))[0])
        change = np.where(inside, -1, 1)
        length = rules.length(covered, right, bits + change * rules.bits, n + change)
        best = int(length.argmin())
        if not length[best] < least - _SMALL:
            return inside, least
        inside[best] = ~inside[best]
        least = float(length[best])
