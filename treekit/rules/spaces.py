"""Rules as boxes: what each of them takes of every column, in whole numbers.

The bounds that the rules of a tree name cut a column of numbers into cells; the bounds are
first rounded down to the input type, so that each cell holds a number.  An interval is a
range of cells; a set of levels, missing values among them, is bits.  A test of several
columns is a column of its own: it holds, fails, or is unknown.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Dtype
from treekit.model.fixed_point import floor_to
from treekit.rules.bits import packed
from treekit.rules.rulelist import RuleList

__all__ = ["Boxes", "Space", "space_of"]

Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Boxes:
    """n boxes over columns of intervals and columns of levels.

    Attributes
    ----------
    low, high : (n, intervals) int64
        Cells from `low` to before `high`; none if they are equal.
    missing : (n, intervals) bool
    levels : (n, words) uint64
        Bits of levels and, behind them, of missing values; each column has its own words.
    """

    low: Index
    high: Index
    missing: Mask
    levels: Words

    def __len__(self) -> int:
        return len(self.low)

    def take(self, some: Index | Mask | slice) -> Boxes:
        """Some of the boxes."""
        return Boxes(**{one.name: getattr(self, one.name)[some] for one in fields(self)})


class Space(NamedTuple):
    """The boxes of some rules, and the columns that they ask.

    Attributes
    ----------
    boxes : Boxes
    whole : Boxes
        One box: all rows that the list does not refuse.
    intervals, nominal : (columns,) int64
        Which columns the boxes have: of the schema, and behind them the tests.
    bounds : tuple of (cells,) float64
        For each column of intervals, the largest number of each cell.
    words : (nominal + 1,) int64
        Where the words of each column of levels begin.
    n_levels : (nominal,) int64
        The bit of missing values of each column of levels.
    """

    boxes: Boxes
    whole: Boxes
    intervals: Index
    nominal: Index
    bounds: tuple[npt.NDArray[np.float64], ...]
    words: Index
    n_levels: Index

    def meets(self, boxes: Boxes, box: Boxes) -> Mask:
        """Which boxes share a row with `box`, one or as many; either may be broadcast."""
        numbers = np.maximum(boxes.low, box.low) < np.minimum(boxes.high, box.high)
        found = _all(numbers | (boxes.missing & box.missing))
        return found & self._all_words((boxes.levels & box.levels) != 0)

    def _all_words(self, some: Mask) -> Mask:
        """Whether, in each column of levels, any word is true."""
        if not len(self.nominal):
            return np.ones(some.shape[:-1], dtype=np.bool_)
        return _all(np.logical_or.reduceat(some, self.words[:-1], axis=-1))

    def holds(self, boxes: Boxes, box: Boxes) -> Mask:
        """Which boxes hold all rows of `box`, which is not empty."""
        none = box.low >= box.high
        inside = none | ((boxes.low <= box.low) & (boxes.high >= box.high))
        inside &= boxes.missing | ~box.missing
        return _all(inside) & _all((box.levels & ~boxes.levels) == 0)

    def cut(self, boxes: Boxes, box: Boxes) -> Boxes:
        """What boxes have in common with one that each of them meets."""
        low = np.maximum(boxes.low, box.low)
        return Boxes(
            low,
            np.maximum(np.minimum(boxes.high, box.high), low),
            boxes.missing & box.missing,
            boxes.levels & box.levels,
        )

    def volumes(self, boxes: Boxes) -> list[int]:
        """How many cells each box has; of disjoint boxes these numbers add up."""
        sizes = [*(boxes.high - boxes.low + boxes.missing).T]
        for first, last in itertools.pairwise(self.words.tolist()):
            own = np.ascontiguousarray(boxes.levels[:, first:last]).astype("<u8")
            sizes.append(np.unpackbits(own.view(np.uint8), axis=1).sum(axis=1, dtype=np.int64))
        found = [1] * len(boxes)
        for size in sizes:  # in Python: the products are larger than any machine word
            found = [a * b for a, b in zip(found, size.tolist(), strict=True)]
        return found

    def row(self, box: Boxes) -> dict[int, tuple[float, float] | int | None]:
        """One row of a single box: for each column a cell's bounds, a level, or None = missing."""
        found: dict[int, tuple[float, float] | int | None] = {}
        for k, column in enumerate(self.intervals.tolist()):
            at, bounds = int(box.low[0, k]), self.bounds[k]
            known = box.low[0, k] < box.high[0, k]
            found[column] = (bounds[at - 1] if at else -np.inf, bounds[at]) if known else None
        for k, column in enumerate(self.nominal.tolist()):
            bits = _bits(box.levels[0, self.words[k] : self.words[k + 1]])
            level = int(np.flatnonzero(bits)[0])
            found[column] = level if level < self.n_levels[k] else None
        return found


def space_of(rules: RuleList, some: Index) -> Space:
    """The boxes of `some` rules, which are ascending, over the columns that they ask."""
    table, schema = rules.conditions, rules.schema
    sizes = np.diff(rules.end, prepend=0)[some]
    owner = np.repeat(np.arange(len(some)), sizes)
    at = np.arange(len(owner)) + np.repeat(rules.end[some] - np.cumsum(sizes), sizes)
    column = table.column[at].astype(np.int64)
    columns = np.unique(column)
    nominal = np.append(schema.nominal, np.zeros(len(rules.tests), dtype=np.bool_))[columns]
    refused = np.append(
        np.full(schema.n_features, rules.missing == "error"),
        np.zeros(len(rules.tests), dtype=np.bool_),  # infinities may cancel where nothing is
    )
    n, intervals, others = len(some), columns[~nominal], columns[nominal]
    low, high = np.zeros((2, n + 1, len(intervals)), dtype=np.int64)
    missing = np.ones((n + 1, len(intervals)), dtype=np.bool_)
    bounds = []
    for k, number in enumerate(intervals.tolist()):
        mine = np.flatnonzero(column == number)
        dtype = schema.dtype if number < schema.n_features else "float64"
        own, first, last = _ranges(rules, at[mine], dtype)
        high[:, k] = len(own)
        np.maximum.at(low[:, k], owner[mine], first)
        np.minimum.at(high[:, k], owner[mine], last)
        np.logical_and.at(missing[:, k], owner[mine], table.missing[at[mine]])
        bounds.append(own)
    missing &= ~refused[intervals]
    n_levels = np.array([len(schema.columns[c].levels) for c in others], dtype=np.int64)
    words = np.cumsum(np.append(0, n_levels // 64 + 1))
    levels = np.zeros((n + 1, int(words[-1])), dtype=np.uint64)
    for k, number in enumerate(others.tolist()):
        own_bits = np.ones((n + 1, int(n_levels[k]) + 1), dtype=np.bool_)
        for condition in np.flatnonzero(column == number).tolist():
            fits, _ = table.codes(int(at[condition]))
            accepted = np.zeros(own_bits.shape[1], dtype=np.bool_)
            accepted[fits] = True
            accepted[-1] = table.missing[at[condition]]
            own_bits[owner[condition]] &= accepted
        own_bits[:, -1] &= not refused[number]
        levels[:, words[k] : words[k + 1]] = packed(own_bits)
    every = Boxes(low, high, missing, levels)
    return Space(
        every.take(slice(n)), every.take(slice(n, n + 1)), intervals, others, tuple(bounds),
        words, n_levels,
    )  # fmt: skip


def _ranges(
    rules: RuleList, at: Index, dtype: Dtype
) -> tuple[npt.NDArray[np.float64], Index, Index]:
    """The largest number of each cell, and the first and the last cell but one of conditions."""
    table = rules.conditions
    low, high = floor_to(table.low[at], dtype), floor_to(table.high[at], dtype)
    open_below, known = table.low[at] == -np.inf, table.known[at]
    bounds = np.unique(np.concatenate([low[~open_below & known], high[known], [np.inf]]))
    first = np.where(open_below, 0, np.searchsorted(bounds, low) + 1)
    last = np.searchsorted(bounds, high) + 1
    return bounds, np.where(known, first, 0), np.where(known, np.maximum(first, last), 0)


def _all(some: Mask) -> Mask:
    """Whether all along the last axis are true."""
    found: Mask = np.logical_and.reduce(some, axis=-1)
    return found


def _bits(words: Words) -> Mask:
    return np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little").astype(np.bool_)
