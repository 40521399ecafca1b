"""Leaves that a row reaches if one or two of its columns change, with the values required.

A tree is traversed once, with at most two columns free to change.  Each leaf found is a box:
for each column tested on its path, the values with which a row reaches it.  All other
columns are fixed to the row's values, so that only nodes near the row's decision paths of a
forest are visited.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from treekit.data.features import convert_to_numbers
from treekit.data.schema import Dtype, Schema
from treekit.data.table import Table
from treekit.explain.decision_path import NO_BRANCH, SplitTest, TreeNodes, find_branch, split_mass

__all__ = [
    "Box",
    "ColumnScale",
    "ReachResult",
    "ReachableLeaf",
    "find_reachable_leaves",
    "format_round_number",
    "make_scales",
]


# ---------------------------------------------------------------- reach

Interval = tuple[float, float]
Allowed = Interval | frozenset[int] | None
"""Values of a column: ``low < x <= high``, codes of categories, or None = missing as in the row."""
Box = dict[int, Allowed]


_SearchState: TypeAlias = tuple[int, int, int, tuple[int, ...], Box]
"""State of the search: node, index of the question, mass, columns changed, box."""


class ReachableLeaf(NamedTuple):
    """A reachable leaf, and the rows that reach it.

    Attributes
    ----------
    leaf : int
        Node of the leaf.
    mass : int
        Mass that ends there, as a part of `Model.mass`.
    changed : tuple of int
        Columns that must change, ascending: none, one or two.
    box : dict
        Values of the columns tested on the path.
    """

    leaf: int
    mass: int
    changed: tuple[int, ...]
    box: Box


class ReachResult(NamedTuple):
    """Result of `find_reachable_leaves` for one tree.

    Attributes
    ----------
    leaves : list of Found
    joint_columns : set of (int, int)
        Pairs of columns of one weighted sum: if both change, their values do not form a box,
        and leaves that require this are not included.
    steps : int
        Number of nodes visited.
    complete : bool
        False if the limit on steps ended the search.
    """

    leaves: list[ReachableLeaf]
    joint_columns: set[tuple[int, int]]
    steps: int
    complete: bool


class SearchSettings(NamedTuple):
    """Settings of a search.

    Attributes
    ----------
    schema : Schema
    row : (features,) list of float
        Encoded.
    free_columns : frozenset of int
        Columns that may change.
    max_changes : int
        Maximum number of columns to change at once: 1 or 2.
    scale : sequence of Scale
    bound : float
        Leaves that require changes of this size or more are left out.
    """

    schema: Schema
    row: list[float]
    free_columns: frozenset[int]
    max_changes: int
    scale: Sequence[ColumnScale]
    bound: float = math.inf


def find_reachable_leaves(
    nodes: TreeNodes,
    setting: SearchSettings,
    mass: int,
    bounds: npt.NDArray[np.int64] | None,
    most: int,
) -> ReachResult:
    """Find the leaves of a tree that a row reaches if few columns change.

    Parameters
    ----------
    nodes, mass, bounds
        As in `treekit.explain.decision_path.trace_row`.
    setting : Setting
    most : int
        Maximum number of nodes to visit.
    """
    found: list[ReachableLeaf] = []
    together: set[tuple[int, int]] = set()
    start: _SearchState = (0, 0, mass, (), {})
    stack = [start]
    steps = 0
    while stack and steps < most:
        number, place, part, changed, box = stack.pop()
        steps += 1
        node = nodes[number]
        if node is None:
            found.append(ReachableLeaf(number, part, changed, box))
        elif place < len(node.tests):
            question = node.tests[place]
            if len(question.columns) > 1:
                together |= {(a, b) for a in question.columns for b in question.columns if a < b}
            for branch, now, to in _iter_branches(question, changed, box, setting):
                if branch == NO_BRANCH:
                    stack.append((number, place + 1, part, now, to))
                else:
                    stack.append((node.children[branch], 0, part, now, to))
        elif bounds is None:
            stack.append((node.children[node.missing_branch], 0, part, changed, box))
        else:
            shares = split_mass(node, part, bounds)
            stack += [(child, 0, some, changed, box) for child, some in shares if some]
    return ReachResult(found, together, steps, not stack)


def _iter_branches(
    question: SplitTest, changed: tuple[int, ...], box: Box, setting: SearchSettings
) -> Iterator[tuple[int, tuple[int, ...], Box]]:
    """Yield branches (or `NO_BRANCH`), the columns changed for them, and their boxes."""
    moved = [column for column in question.columns if column in changed]
    if len(moved) > 1:
        return  # two columns of one sum: see `ReachResult.joint_columns`
    for column in moved:
        for branch, allowed in _list_sides(question, column, setting):
            both = _intersect_values(box[column], allowed)
            if both is not None and _is_near(changed, to := box | {column: both}, setting):
                yield branch, changed, to
    if moved:
        return
    own = find_branch(question, setting.row)
    kept = dict(box)
    for column in question.columns:
        kept[column] = _restrict_unchanged(question, column, own, box, setting)
    yield own, changed, kept
    if len(changed) < setting.max_changes:
        for column in setting.free_columns.intersection(question.columns):
            now = tuple(sorted((*changed, column)))
            for branch, allowed in _iter_changed_branches(question, column, own, box, setting):
                if _is_near(now, to := box | {column: allowed}, setting):
                    yield branch, now, to


def _is_near(changed: tuple[int, ...], box: Box, setting: SearchSettings) -> bool:
    """Check whether a change into a box may be smaller than the bound."""
    if setting.bound == math.inf:
        return True
    return sum(_bound_size(box[column], column, setting) for column in changed) < setting.bound


def _bound_size(allowed: Allowed, column: int, setting: SearchSettings) -> float:
    """Return a lower bound of the size of a column's change to some values."""
    if not isinstance(allowed, tuple) or not is_known(setting, column):
        return 1.0
    low, high = allowed
    x = setting.row[column]
    return max(low - x, x - high, 0.0) / setting.scale[column].spread


def _restrict_unchanged(
    question: SplitTest, column: int, own: int, box: Box, setting: SearchSettings
) -> Allowed:
    """Return the values of an unchanged column with which a row takes the same branch."""
    if not is_known(setting, column):
        return None
    before = box.get(column, _allow_all(question))
    for branch, allowed in _list_sides(question, column, setting):
        if branch == own:
            return _intersect_values(before, allowed)
    return None  # infinities of other columns cancel: only the row's own value is certain


def _iter_changed_branches(
    question: SplitTest, column: int, own: int, box: Box, setting: SearchSettings
) -> Iterator[tuple[int, Allowed]]:
    """Yield branches for a column that changes here, and the values that lead there."""
    known = is_known(setting, column)
    if not known and column in box:
        return  # tested before on this path, as missing
    before = box.get(column, _allow_all(question))
    for branch, allowed in _list_sides(question, column, setting):
        both = _intersect_values(before, allowed)
        if both is not None and (branch != own or not known):
            yield branch, both


def is_known(setting: SearchSettings, column: int) -> bool:
    """Check whether the row has a category or a finite number to compare a change with."""
    x, levels = setting.row[column], len(setting.schema.columns[column].levels)
    if setting.schema.columns[column].kind == "nominal":
        return 0 <= x < levels
    return math.isfinite(x)


def _allow_all(question: SplitTest) -> Allowed:
    return (-math.inf, math.inf) if question.weights else frozenset(range(len(question.branches)))


def _intersect_values(a: Allowed, b: Allowed) -> Allowed:
    """Intersect two sets of values; None if empty."""
    if isinstance(a, frozenset) and isinstance(b, frozenset):
        return a & b or None
    if isinstance(a, tuple) and isinstance(b, tuple):
        low, high = max(a[0], b[0]), min(a[1], b[1])
        return (low, high) if low < high else None
    return None


def _list_sides(
    question: SplitTest, column: int, setting: SearchSettings
) -> list[tuple[int, Allowed]]:
    """Return each branch of a question, and the values of one of its columns that lead there.

    Other columns are fixed to the row's values.
    """
    if not question.weights:
        return _list_level_sides(question.branches)
    below, above, at = question.below, question.above, question.threshold
    if question.columns != (column,) or question.weights != (1.0,):
        below, above, at = _find_turning_point(question, column, setting)
    everything = (-math.inf, math.inf)
    if below == above or not math.isfinite(at):
        return [(below if at > 0 else above, everything)]
    return [(below, (-math.inf, at)), (above, (at, math.inf))]


@lru_cache(maxsize=1 << 12)
def _list_level_sides(branches: tuple[int, ...]) -> list[tuple[int, Allowed]]:
    by_branch: dict[int, list[int]] = {}
    for code, branch in enumerate(branches):
        by_branch.setdefault(branch, []).append(code)
    return [(branch, frozenset(codes)) for branch, codes in by_branch.items()]


def _find_turning_point(
    question: SplitTest, column: int, setting: SearchSettings
) -> tuple[int, int, float]:
    """Return the branches of small and of large values in a sum, and the largest small value.

    Products and sums of doubles are monotone in the column, so that bisection over the numbers
    of the input type finds the turning point.
    """
    row = list(setting.row)

    def evaluate(x: float) -> int:
        row[column] = x
        return find_branch(question, row)

    bits: type[np.unsignedinteger[Any]] = np.uint32
    real: type[np.floating[Any]] = np.float32
    if setting.schema.dtype == "float64":
        bits, real = np.uint64, np.float64

    def decode(place: int) -> float:
        return math.copysign(float(bits(abs(place)).view(real)), place)

    high = int(np.finfo(real).max.view(bits))
    low = -high
    first, last = evaluate(decode(low)), evaluate(decode(high))
    if first == last:
        return first, last, math.inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if evaluate(decode(middle)) == first else (low, middle)
    return first, last, decode(low)


# ---------------------------------------------------------------- scales
# Sizes of changes, and round numbers.
#
# A change of a number is measured in spreads of its column; a change of category, or from a
# missing value, has size 1.  The spread is the range of the model's thresholds of the
# column; with only one threshold, the larger of its magnitude and the row's, or 1.  With a
# table it is the median absolute deviation of the column's cells (the weights of the distance
# of Wachter, Mittelstadt and Russell 2018); if that is 0, the mean absolute deviation.

Doubles = npt.NDArray[np.float64]

_ROUNDING_SLACK = 0.01
"""A round number may exceed the nearest one by this fraction of the change; integer columns
allow no excess."""
_MAX_EXACT_INTEGER = 2.0**24
"""Below it, every integer is a float32."""


class ColumnScale(NamedTuple):
    """Unit in which changes of a numeric column are measured.

    Attributes
    ----------
    x : float
        The row's value; NaN if there is none to compare with.
    spread : float
    is_integer : bool
        Whether the column is assumed to hold integers: its thresholds are integers or halfway
        between two, and the row's value is an integer.
    dtype : {"float32", "float64"}
    """

    x: float
    spread: float
    is_integer: bool
    dtype: Dtype

    def find_nearest(self, low: Doubles, high: Doubles) -> Doubles:
        """Return, for each interval ``low < v <= high``, the value nearest to the row's; NaN: none.

        If the row has no value: the middle of a bounded interval, else its finite bound.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            first = np.nextafter(low.astype(self.dtype), np.inf, dtype=self.dtype)
            lowest = np.floor(low) + 1.0 if self.is_integer else first.astype(np.float64)
            highest = np.floor(high) if self.is_integer else high
            if math.isnan(self.x):
                middle = np.where(np.isinf(lowest), highest, np.where(
                    np.isinf(highest), lowest, lowest / 2 + highest / 2))  # fmt: skip
                middle = np.where(np.isfinite(middle), middle, 0.0)
                rounded = np.floor(middle) if self.is_integer else middle.astype(self.dtype)
                value = np.clip(rounded.astype(np.float64), lowest, highest)
            else:
                value = np.clip(self.x, lowest, highest)
        fits = (low < value) & (value <= high) & np.isfinite(value)
        return np.where(fits, value, np.nan)

    def compute_sizes(self, values: Doubles) -> Doubles:
        """Return the size of a change to each of the values; infinite for NaN."""
        if math.isnan(self.x):
            return np.where(np.isnan(values), np.inf, 1.0)
        with np.errstate(over="ignore"):
            size = np.abs(values - self.x) / self.spread
        return np.where(np.isnan(values), np.inf, size)


def make_scales(
    schema: Schema, row: list[float], thresholds: list[Doubles], table: Table | None
) -> list[ColumnScale]:
    """Return the scale of each column; it is meaningless for nominal ones."""
    found = []
    for column, given, at in zip(schema.columns, row, thresholds, strict=True):
        x = given if math.isfinite(given) else math.nan
        whole = _has_integer_thresholds(at) and (math.isnan(x) or x == math.floor(x))
        spread = (
            _compute_median_deviation(table, column.name)
            if table and column.kind == "numeric"
            else 0.0
        )
        spread = spread or _compute_threshold_spread(at, x)
        found.append(ColumnScale(x, spread, whole, schema.dtype))
    return found


def _has_integer_thresholds(at: Doubles) -> bool:
    """Check whether all thresholds are integers, or halfway between two."""
    if not len(at) or not bool(np.all(np.abs(at) < _MAX_EXACT_INTEGER)):
        return False
    return bool(np.all(2 * at == np.rint(2 * at)))


def _compute_threshold_spread(at: Doubles, x: float) -> float:
    if len(at) > 1:
        return float(at[-1] / 2 - at[0] / 2) * 2 or 1.0
    sizes = [abs(float(t)) for t in at] + ([] if math.isnan(x) else [abs(x)])
    return max(sizes, default=0.0) or 1.0


def _compute_median_deviation(table: Table, name: str) -> float:
    """Return the median absolute deviation of a column; 0 if it has no spread or is absent."""
    if name not in table.names:
        return 0.0
    cells = convert_to_numbers(table, name).astype(np.float64)
    known = cells[np.isfinite(cells)]
    if not len(known):
        return 0.0
    apart = np.abs(known - np.median(known))
    return float(np.median(apart) or apart.mean())


def format_round_number(scale: ColumnScale, low: float, high: float, nearest: float) -> str:
    """Return the text of a round number v, ``low < v <= high``, close to the nearest one.

    Integer columns get an integer.  The text reads back, in the input type, to a number in the
    interval.
    """
    with localcontext() as context:
        context.prec = 800  # every double is an exact decimal with fewer digits
        at = Decimal(nearest)
        unknown = math.isnan(scale.x)
        down = not unknown and nearest < scale.x
        part = Decimal(0 if scale.is_integer else _ROUNDING_SLACK)
        room = Decimal(math.inf) if unknown else abs(at - Decimal(scale.x)) * part
        top = max(at.adjusted() if at else 0, 0) + 1
        for power in range(top, -1 if scale.is_integer else -340, -1):
            rounding = ROUND_FLOOR if down else ROUND_CEILING
            value = at.quantize(Decimal(1).scaleb(power), rounding) + 0  # -0 becomes 0
            inside = low < _round_to_dtype(value, scale.dtype) <= high
            if inside and (abs(value - at) <= room or (scale.is_integer and power == 0)):
                plain = power >= -6 and top < 16
                return f"{value:f}" if plain else f"{value.normalize():e}".replace("e+", "e")
        return repr(nearest)


def _round_to_dtype(value: Decimal, dtype: Dtype) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(float(value))) if dtype == "float32" else float(value)
