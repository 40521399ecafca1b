"""The rules of all classes in one list: which class comes first, what is said by default.

Quinlan 1993, *C4.5*, section 5.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treekit.rules.learn.ground import Bits, Ground, unpacked

__all__ = ["answered", "by_false_positives", "shortened"]

Numbers = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]


def by_false_positives(met: Bits, label: Index, ground: Ground) -> Index:
    """The order of rules by their classes: the class of fewest false positives first.

    False positives are counted on the rows that no class before covers; of classes of as
    many the one of fewer rules comes first, then the first of the schema.

    Parameters
    ----------
    met : (rules, words) uint64
        Rows that meet each rule.
    label : (rules,) int64
        Their classes.

    Returns
    -------
    (rules,) int64
        Positions; rules of a class in their order.
    """
    covers = {c: np.bitwise_or.reduce(met[label == c], axis=0) for c in np.unique(label).tolist()}
    left, order = ground.everyone, np.empty(0, dtype=np.int64)
    while covers:
        wrong = {
            c: float(ground.weight(cover[None], left & ~ground.classes[c])[0])
            for c, cover in covers.items()
        }
        first = min(covers, key=lambda c: (wrong[c], np.count_nonzero(label == c), c))
        left = left & ~covers.pop(first)
        order = np.append(order, np.flatnonzero(label == first))
    return order


@dataclass(eq=False)
class _Matches:
    """The first and the second rule that each row meets; the number of rules if there is none."""

    met: npt.NDArray[np.bool_]
    first: Index
    second: Index

    @classmethod
    def of(cls, met: npt.NDArray[np.bool_]) -> _Matches:
        none = np.full(met.shape[1], len(met), dtype=np.int64)
        made = cls(met, none, none.copy())
        made.find(np.arange(met.shape[1]))
        return made

    def find(self, rows: Index) -> None:
        """Anew for some rows."""
        met = self.met[:, rows]
        first = np.full(len(rows), len(met), dtype=np.int64)
        second = first.copy()
        for rule in range(len(met) - 1, -1, -1):
            own = met[rule]
            second[own] = first[own]
            first[own] = rule
        self.first[rows], self.second[rows] = first, second

    def drop(self, rule: int) -> None:
        """Take a rule out; the others keep their numbers."""
        rows = np.flatnonzero((self.first == rule) | (self.second == rule))
        self.met[rule] = False
        self.find(rows)


def shortened(met: Bits, label: Index, ground: Ground, most: int | None = None) -> Index:
    """The rules of an ordered list that it errs no more without others, ascending.

    By default the class is said of most weight among the rows that no rule meets, of equal
    ones the first of the schema, as everywhere.  Rules are dropped one by one, that one first
    without which the list errs least, of equal ones the last, as long as the errors do not
    rise.  Then, if there are more than `most`, those go that cost least.

    Rules also go that answer no row, or more (or as many, of a class that is first in the
    schema) rows of another class than of their own, so that what a rule says is what its
    rows say; hence no list errs more than any class said of all rows.  And some rows are
    always left to the default, since it could say what the last rule does.

    Parameters
    ----------
    met : (rules, words) uint64
        Rows that meet each rule, in the order of the list.
    label : (rules,) int64
    most : int, optional

    Notes
    -----
    Quinlan drops rules without which the list errs less; those that make no difference go
    here, too.  Linear in the rows for each rule dropped, and in the rules for each row that
    this moves.
    """
    matches = _Matches.of(unpacked(met, ground.n_rows))
    kept = np.ones(len(met), dtype=np.bool_)
    while kept.any():
        now, without = _errors(matches, label, ground)
        without[~kept] = np.inf
        least = float(without.min())
        odd = kept & ~_sincere(matches, label, ground)
        too_many = most is not None and int(kept.sum()) > most
        if least <= now or (too_many and not odd.any()):
            worst = int(np.flatnonzero(without <= least)[-1])
        elif odd.any():
            worst = int(np.flatnonzero(odd)[-1])
        else:
            break
        kept[worst] = False
        matches.drop(worst)
    return np.flatnonzero(kept)


def answered(met: Bits, ground: Ground) -> Numbers:
    """(rules + 1, classes) float64: weights of the rows that each rule is the first to meet.

    The last row is what no rule meets.
    """
    return _weights(_Matches.of(unpacked(met, ground.n_rows)), ground)


def _weights(matches: _Matches, ground: Ground) -> Numbers:
    k = len(ground.totals)
    cells = matches.first * k + ground.y
    sums = np.bincount(cells, ground.w, (len(matches.met) + 1) * k)
    return sums.reshape(-1, k).astype(np.float64)


def _sincere(matches: _Matches, label: Index, ground: Ground) -> npt.NDArray[np.bool_]:
    """(rules,) bool: which rules answer rows, and mostly of their own class."""
    own = _weights(matches, ground)[:-1]
    return np.asarray(own.any(axis=1) & (own.argmax(axis=1) == label))


def _errors(matches: _Matches, label: Index, ground: Ground) -> tuple[float, Numbers]:
    """Errors of the list, and of the list without each rule."""
    n, k = len(label), len(ground.totals)
    weights = _weights(matches, ground)
    wrong = weights[:-1].sum(axis=1) - weights[np.arange(n), label]
    uncovered = weights[-1]
    now = float(wrong.sum() + uncovered.sum() - uncovered.max())
    # The rows of a rule that goes fall to the second rule they meet, or to the default.
    covered = np.flatnonzero(matches.first < n)
    first, second = matches.first[covered], matches.second[covered]
    w, y = ground.w[covered], ground.y[covered]
    falls = second == n
    answer = np.append(label, -1)[second]
    passed = np.bincount(first, w * (~falls & (answer != y)), n)
    left = np.bincount(first[falls] * k + y[falls], w[falls], n * k).reshape(n, k) + uncovered
    without = wrong.sum() - wrong + passed + left.sum(axis=1) - left.max(axis=1)
    return now, np.asarray(without)
