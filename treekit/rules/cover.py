"""Exact search for rows that no rule of a list matches, or that several match.

Rules are boxes over the columns, and over the outcomes of tests on several columns.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Dtype
from treekit.model.fixed_point import floor_to_dtype
from treekit.rules.evaluate import pack_bits, unpack_bits
from treekit.rules.rule_list import RuleList

Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Cell = float | str | None

MAX_STEPS = 6_000


def find_unmatched_row(
    rules: RuleList, tree: int, steps: int = MAX_STEPS
) -> tuple[bool | None, dict[str, Cell] | None]:
    """Search for a row that no rule of a tree matches.

    Returns
    -------
    gap : bool or None
        Whether there is such a row; None if the search was not completed, or if rules test
        several columns at once, whose outcomes are not independent.
    row : dict of str to (float, str or None), or None
        Such a row, by the columns that rules test; None = missing.  Other columns are free.
    """
    space = build_space(rules, np.flatnonzero(rules.tree == tree))
    if not is_exact(rules, space):
        return None, None
    alive = space.find_meeting(space.boxes, space.boxes)
    pairs = find_meeting_pairs(space, alive)
    gap, witness = find_gap(space, alive, pairs, StepBudget(steps // 2))
    return gap, None if witness is None else name_cells(rules, space, witness)


def is_exact(rules: RuleList, space: BoxSpace) -> bool:
    """Return whether no rule tests several columns at once."""
    return not bool((space.intervals >= rules.schema.n_features).any())


def name_cells(rules: RuleList, space: BoxSpace, box: Boxes) -> dict[str, Cell]:
    """Return a row of a box by column names; columns that only tests use are left out."""
    schema, found = rules.schema, {}
    for column, cell in sorted(space.sample_row(box).items()):
        if column >= schema.n_features:
            continue
        value: Cell = None
        if isinstance(cell, tuple):
            value = _choose_number(*cell, schema.dtype)
        elif cell is not None:
            value = schema.columns[column].levels[cell]
        found[schema.columns[column].name] = value
    return found


def _choose_number(low: float, high: float, dtype: str) -> float:
    """Return a short number of the input type with ``low < x <= high``."""
    if high != np.inf:
        return float(high)
    if low == -np.inf:
        return 0.0
    plain = float(np.floor(low) + 1.0)
    if np.dtype(dtype).type(plain) == plain and plain > low:
        return plain
    with np.errstate(over="ignore"):  # after the largest finite number comes infinity
        return float(np.nextafter(np.dtype(dtype).type(low), np.dtype(dtype).type(np.inf)))


# ---------------------------------------------------------------- relations between boxes

_CELLS_PER_BLOCK = 1 << 22
"""Cells of boxes that are compared at a time."""


def find_meeting_pairs(space: BoxSpace, alive: Mask) -> Index:
    """Return (pairs, 2) int64: overlapping boxes, the earlier one first, in order."""
    n, found = len(space.boxes), []
    width = sum(space.boxes.levels.shape[1:]) + 4 * len(space.intervals) + 1
    step = max(_CELLS_PER_BLOCK // (width * max(n, 1)), 1)
    for first in range(0, n, step):
        some = np.arange(first, min(first + step, n))
        behind = space.boxes.take(slice(first, None))
        one = space.boxes.take((some, None))
        meet = space.find_meeting(behind, one) & alive[some][:, None] & alive[None, first:]
        rows, others = np.nonzero(np.triu(meet, 1))
        found.append(np.stack([rows + first, others + first], axis=1))
    return np.concatenate(found)


def find_covering_prefix(space: BoxSpace, alive: Mask, pairs: Index) -> int | None:
    """Return the length of a disjoint prefix of boxes that covers the space; None if it does not.

    The prefix ends before the first box that meets an earlier one; its cells are counted.
    """
    alone = int(pairs[:, 1].min(initial=len(alive)))
    head = np.flatnonzero(alive[:alone])
    full = sum(space.count_cells(space.boxes.take(head))) == space.count_cells(space.domain)[0]
    return alone if full else None


def find_gap(
    space: BoxSpace, alive: Mask, pairs: Index, budget: StepBudget
) -> tuple[bool | None, Boxes | None]:
    """Return whether some row matches no box (None if undecided), and a box of such rows."""
    if find_covering_prefix(space, alive, pairs) is not None:
        return False, None
    try:
        left = find_uncovered_part(space, space.domain, space.boxes.take(alive), budget)
    except TimeoutError:
        # Disjoint boxes of which `find_covering_prefix` counted too few cells leave a gap.
        return (None if len(pairs) else True), None
    return left is not None, left


# ---------------------------------------------------------------- spaces
# Rules as boxes of integers.
#
# The bounds of all rules cut a numeric column into cells; bounds are first rounded down to
# the input type, so that each cell contains a number.  An interval is a range of cells; a
# set of categories, missing values included, is a bit set.  A test of several columns is a
# separate column: it holds, fails, or is unknown.

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Boxes:
    """n boxes over interval columns and nominal columns.

    Attributes
    ----------
    low, high : (n, intervals) int64
        Cells from `low` to before `high`; none if they are equal.
    missing : (n, intervals) bool
    levels : (n, words) uint64
        Bits of categories and, behind them, of missing values; each column has its own words.
    """

    low: Index
    high: Index
    missing: Mask
    levels: Words

    def __len__(self) -> int:
        return len(self.low)

    def take(self, some: Any) -> Boxes:
        """Return some of the boxes."""
        return Boxes(**{one.name: getattr(self, one.name)[some] for one in fields(self)})


class BoxSpace(NamedTuple):
    """The boxes of some rules, and the columns that the rules test.

    Attributes
    ----------
    boxes : Boxes
    domain : Boxes
        One box: all rows that the missing and unknown policies accept.
    intervals, nominal : (columns,) int64
        Columns of the boxes: of the schema, and behind them the tests.
    bounds : tuple of (cells,) float64
        For each interval column, the largest number of each cell.
    word_offsets : (nominal + 1,) int64
        First word of each nominal column.
    n_levels : (nominal,) int64
        The bit of missing values of each nominal column.
    """

    boxes: Boxes
    domain: Boxes
    intervals: Index
    nominal: Index
    bounds: tuple[npt.NDArray[np.float64], ...]
    word_offsets: Index
    n_levels: Index

    def find_meeting(self, boxes: Boxes, box: Boxes) -> Mask:
        """Return which boxes share a row with `box`; one of the two may be broadcast."""
        numbers = np.maximum(boxes.low, box.low) < np.minimum(boxes.high, box.high)
        found: Mask = np.all(numbers | (boxes.missing & box.missing), axis=-1)
        if len(self.nominal):  # some word of each column
            common = (boxes.levels & box.levels) != 0
            own = np.logical_or.reduceat(common, self.word_offsets[:-1], axis=-1)
            found = found & np.all(own, axis=-1)
        return found

    def find_containing(self, boxes: Boxes, box: Boxes) -> Mask:
        """Return which boxes contain all rows of `box`, which is not empty."""
        none = box.low >= box.high
        inside = none | ((boxes.low <= box.low) & (boxes.high >= box.high))
        inside &= boxes.missing | ~box.missing
        outside = box.levels & ~boxes.levels
        return np.asarray(inside.all(axis=-1) & ~outside.any(axis=-1))

    def intersect_boxes(self, boxes: Boxes, box: Boxes) -> Boxes:
        """Return the intersection of each box with `box`, which each of them meets."""
        low = np.maximum(boxes.low, box.low)
        return Boxes(
            low,
            np.maximum(np.minimum(boxes.high, box.high), low),
            boxes.missing & box.missing,
            boxes.levels & box.levels,
        )

    def count_cells(self, boxes: Boxes) -> list[int]:
        """Return the number of cells of each box; the numbers of disjoint boxes add up."""
        sizes = [*(boxes.high - boxes.low + boxes.missing).T]
        for first, last in itertools.pairwise(self.word_offsets.tolist()):
            own = np.bitwise_count(boxes.levels[:, first:last])
            sizes.append(own.sum(axis=1, dtype=np.int64))
        found = [1] * len(boxes)
        for size in sizes:  # Python integers: the products exceed 64 bits
            found = [a * b for a, b in zip(found, size.tolist(), strict=True)]
        return found

    def sample_row(self, box: Boxes) -> dict[int, tuple[float, float] | int | None]:
        """Return a row of a box: for each column an interval, a category, or None if missing."""
        found: dict[int, tuple[float, float] | int | None] = {}
        for k, column in enumerate(self.intervals.tolist()):
            at, bounds = int(box.low[0, k]), self.bounds[k]
            known = box.low[0, k] < box.high[0, k]
            found[column] = (bounds[at - 1] if at else -np.inf, bounds[at]) if known else None
        for k, column in enumerate(self.nominal.tolist()):
            own = slice(self.word_offsets[k], self.word_offsets[k + 1])
            level = int(unpack_bits(box.levels[:, own]).argmax())
            found[column] = level if level < self.n_levels[k] else None
        return found


def build_space(rules: RuleList, some: Index) -> BoxSpace:
    """Return the boxes of `some` rules, which are ascending, over the columns that they test."""
    table, schema = rules.conditions, rules.schema
    sizes = np.diff(rules.end, prepend=0)[some]
    owner = np.repeat(np.arange(len(some)), sizes)
    at = np.arange(len(owner)) + np.repeat(rules.end[some] - np.cumsum(sizes), sizes)
    column = table.column[at].astype(np.int64)
    columns = np.unique(column)
    nominal = np.append(schema.nominal, np.zeros(len(rules.tests), dtype=np.bool_))[columns]
    refused = np.append(
        np.full(schema.n_features, rules.missing == "error"),
        np.zeros(len(rules.tests), dtype=np.bool_),  # unknown also if infinities cancel
    )
    n, intervals, others = len(some), columns[~nominal], columns[nominal]
    low, high = np.zeros((2, n + 1, len(intervals)), dtype=np.int64)
    missing = np.ones((n + 1, len(intervals)), dtype=np.bool_)
    bounds = []
    for k, number in enumerate(intervals.tolist()):
        mine = np.flatnonzero(column == number)
        dtype = schema.dtype if number < schema.n_features else "float64"
        own, first, last = _compute_cell_ranges(rules, at[mine], dtype)
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
            fits, _ = table.list_codes(int(at[condition]))
            accepted = np.zeros(own_bits.shape[1], dtype=np.bool_)
            accepted[fits] = True
            accepted[-1] = table.missing[at[condition]]
            own_bits[owner[condition]] &= accepted
        own_bits[:, -1] &= not refused[number]
        levels[:, words[k] : words[k + 1]] = pack_bits(own_bits)
    every = Boxes(low, high, missing, levels)
    return BoxSpace(
        every.take(slice(n)), every.take(slice(n, n + 1)), intervals, others, tuple(bounds),
        words, n_levels,
    )  # fmt: skip


def _compute_cell_ranges(
    rules: RuleList, at: Index, dtype: Dtype
) -> tuple[npt.NDArray[np.float64], Index, Index]:
    """Return the largest number of each cell, and the first and end cell of each condition."""
    table = rules.conditions
    low, high = floor_to_dtype(table.low[at], dtype), floor_to_dtype(table.high[at], dtype)
    open_below, known = table.low[at] == -np.inf, table.known[at]
    bounds = np.unique(np.concatenate([low[~open_below & known], high[known], [np.inf]]))
    first = np.where(open_below, 0, np.searchsorted(bounds, low) + 1)
    last = np.searchsorted(bounds, high) + 1
    return bounds, np.where(known, first, 0), np.where(known, np.maximum(first, last), 0)


# ---------------------------------------------------------------- covering
# Decide exactly whether boxes cover another box, with a witness if they do not.
#
# The box is cut in two along a face of some box, and each half is compared with the boxes
# that meet it, until one of them contains it or none meets it: the search of Davis,
# Logemann and Loveland (1962) over intervals and sets instead of truth values.  The cut
# that leaves the fewest boxes on both sides comes first, so the boxes of a tree take about
# as many steps as the tree has nodes.

_MAX_SETS = 8
"""Sets of categories that are tried for a cut of one column."""


@dataclass
class StepBudget:
    """Remaining steps of a search; a step examines one box."""

    steps: int


Cut = tuple[float, Boxes, Boxes]


def find_uncovered_part(
    space: BoxSpace, box: Boxes, boxes: Boxes, budget: StepBudget
) -> Boxes | None:
    """Return a part of the non-empty `box` that meets none of `boxes`; None if there is none.

    Raises
    ------
    TimeoutError
        If the step budget ends before that is decided.
    """
    waiting = [(box, boxes.take(space.find_meeting(boxes, box)))]
    while waiting:
        part, some = waiting.pop()
        if not len(some):
            return part
        if space.find_containing(some, part).any():
            continue
        if budget.steps <= 0:
            raise TimeoutError
        budget.steps -= 1
        halves = _split_box(space, part, some)
        waiting.extend((half, some.take(space.find_meeting(some, half))) for half in halves)
    return None


def _split_box(space: BoxSpace, box: Boxes, boxes: Boxes) -> tuple[Boxes, Boxes]:
    """Return the best cut of a box that some boxes meet and none of them contains."""
    columns = range(len(space.intervals))
    cuts = [cut(box, boxes, k) for k in columns for cut in (_cut_at_bound, _cut_at_missing)]
    cuts += [_cut_at_levels(space, box, boxes, k) for k in range(len(space.nominal))]
    # A box that meets, but does not contain, has a face inside: there is a cut.
    return min((cut for cut in cuts if cut is not None), key=lambda cut: cut[0])[1:]


def _compute_cut_cost(left: npt.ArrayLike, right: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the number of boxes left on both sides of a cut; ties favour the more even cut."""
    a, b = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    return a + b + 0.25 * np.abs(a - b)


def _cut_at_bound(box: Boxes, boxes: Boxes, k: int) -> Cut | None:
    """Return the best cut between two cells of column k, missing values on either side."""
    first, last = int(box.low[0, k]), int(box.high[0, k])
    low, high = boxes.low[:, k], np.maximum(boxes.low[:, k], boxes.high[:, k])
    faces = np.concatenate([low, high])
    at = np.unique(faces[(faces > first) & (faces < last)])
    if not len(at):
        return None
    absent = boxes.missing[:, k] & box.missing[0, k]
    n_absent = np.count_nonzero(absent)
    left, right = _count_sides(low, high, at)
    only_left, only_right = _count_sides(low[~absent], high[~absent], at)
    sides = ((only_left + n_absent, right), (left, only_right + n_absent))
    costs = np.stack([_compute_cut_cost(*counts) for counts in sides])
    upwards, best = divmod(int(costs.argmin()), len(at))
    lower, upper = box.high.copy(), box.low.copy()
    lower[0, k] = upper[0, k] = at[best]
    known = box.missing.copy()
    known[0, k] = False
    if upwards:
        halves = replace(box, high=lower, missing=known), replace(box, low=upper)
    else:
        halves = replace(box, high=lower), replace(box, low=upper, missing=known)
    return float(costs[upwards, best]), *halves


def _count_sides(low: Index, high: Index, at: Index) -> tuple[Index, Index]:
    """Count the intervals that begin before, and those that end after each position."""
    left = np.searchsorted(np.sort(low), at)
    right = len(high) - np.searchsorted(np.sort(high), at, "right")
    return left, right


def _cut_at_missing(box: Boxes, boxes: Boxes, k: int) -> Cut | None:
    """Return the cut that separates missing values of column k."""
    if not box.missing[0, k] or box.low[0, k] >= box.high[0, k]:
        return None
    low, high = box.low[0, k], box.high[0, k]
    known = np.maximum(boxes.low[:, k], low) < np.minimum(boxes.high[:, k], high)
    if (known & boxes.missing[:, k]).all():
        return None
    low, missing = box.low.copy(), box.missing.copy()
    low[0, k] = box.high[0, k]
    missing[0, k] = False
    cost = _compute_cut_cost(np.count_nonzero(boxes.missing[:, k]), np.count_nonzero(known))
    return float(cost), replace(box, low=low), replace(box, missing=missing)


def _cut_at_levels(space: BoxSpace, box: Boxes, boxes: Boxes, k: int) -> Cut | None:
    """Return the best cut of column k: the categories of one of `boxes`, and all others."""
    own = slice(*space.word_offsets[k : k + 2].tolist())
    whole = box.levels[0, own]
    sets = boxes.levels[:, own] & whole
    partial = np.unique(sets[(sets != whole).any(axis=1)], axis=0)
    if not len(partial):
        return None
    some = partial[:: -(-len(partial) // _MAX_SETS)]
    inside, outside = (
        [np.count_nonzero((sets & side).any(axis=1)) for side in sides] for sides in (some, ~some)
    )
    costs = _compute_cut_cost(inside, outside)
    best = int(costs.argmin())
    taken, others = box.levels.copy(), box.levels.copy()
    taken[0, own], others[0, own] = some[best], whole & ~some[best]
    return float(costs[best]), replace(box, levels=taken), replace(box, levels=others)
