"""Rows of a table as sets of bits: what rules are judged on, many rows at a time.

A set of rows is a row of 64-bit words, a bit for each row of the table.  That rules meet
rows together, or alone, is then a word operation for 64 of them, and how much weight a
set has is a count of its bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.errors import DataError
from treekit.grow.target_statistics import gridded_weights
from treekit.rules.evaluate import packed

__all__ = ["Bits", "Ground", "ground_of", "once", "unpacked"]

Bits = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.float64]

_BLOCK = 1 << 17
"""Words that are worked on at once: they and what is made of them stay in the cache."""


@dataclass(frozen=True, eq=False)
class Ground:
    """The rows that rules are judged on.

    Attributes
    ----------
    y : (rows,) int32
        Class of each row.
    w : (rows,) float64
        Weights on a grid, so that their sums are exact in any order.
    counted : bool
        Every row weighs 1.
    everyone : (words,) uint64
        All rows.
    classes : (classes, words) uint64
        The rows of each class.
    totals : (classes,) float64
        Their weights.
    """

    y: npt.NDArray[np.int32]
    w: Numbers
    counted: bool
    everyone: Bits
    classes: Bits
    totals: Numbers

    @property
    def n_rows(self) -> int:
        """Number of rows, those without weight included."""
        return len(self.y)

    def weight(self, sets: Bits, within: Bits) -> Numbers:
        """(sets,) float64: weight of what each of `sets` (sets, words) has in common with `within`.

        Linear in the words; a third of that again for each set bit, if rows have weights.
        """
        found = np.empty(len(sets))
        block = max(_BLOCK // max(sets.shape[1], 1), 1)
        for first in range(0, len(sets), block):
            both = sets[first : first + block] & within
            found[first : first + block] = self._weight(both)
        return found

    def _weight(self, sets: Bits) -> Numbers:
        if self.counted:
            return np.asarray(np.bitwise_count(sets).sum(axis=1, dtype=np.int64), np.float64)
        from treekit.kernels.rule_bitsets import weigh

        sums = np.empty(len(sets))
        weigh(sets, self.w, sums)
        return sums


def ground_of(rows: Dataset) -> Ground:
    """The rows of a dataset of one target, a class."""
    w, _ = gridded_weights(rows.n_rows, rows.weights)
    y = np.ascontiguousarray(rows.y, dtype=np.int32)
    n_classes = len(rows.schema.classes)
    totals = np.bincount(y, w, n_classes).astype(np.float64)
    if not totals.sum() > 0:
        raise DataError("no row has a weight; give at least one to judge rules by")
    return Ground(
        y=y,
        w=w,
        counted=bool((w == 1.0).all()),
        everyone=packed(np.ones((1, len(y)), dtype=np.bool_))[0],
        classes=packed(y == np.arange(n_classes)[:, None]),
        totals=totals,
    )


def unpacked(sets: Bits, n_rows: int) -> npt.NDArray[np.bool_]:
    """(sets, rows) bool: the other way round."""
    octets = np.ascontiguousarray(sets.astype("<u8", copy=False)).view(np.uint8)
    return np.unpackbits(octets, axis=1, count=n_rows, bitorder="little").view(np.bool_)


def once(sets: Bits, n_words: int) -> tuple[Bits, Bits]:
    """(words,) uint64: members of one of the sets or more, and of two or more."""
    some = np.zeros(n_words, dtype=np.uint64)
    several = np.zeros(n_words, dtype=np.uint64)
    for each in sets:
        several |= some & each
        some |= each
    return some, several
