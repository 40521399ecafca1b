"""Counterfactuals: the smallest change of one or two columns that changes a prediction.

The search is exact.  The leaves that a row can reach by such changes
(`find_reachable_leaves`) are boxes; the sums over all trees are constant within each
cell of the grid spanned by their faces, a line of cells for one column and a plane for two.
Sums are updated from cell to cell by the leaves that begin or end there, in the model's
integers.  Changes of fewer columns come first, then smaller ones,
then the lower column and value; a change of two columns
counts only if it is smaller than any of one.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from treekit.data.features import LevelIndex, convert_to_numbers
from treekit.data.schema import Dtype, Schema, level_text
from treekit.data.table import Table, suggest_names
from treekit.errors import ModelError, SettingError
from treekit.explain.decision_path import split_mass
from treekit.explain.explanation import ExplanationCase, Said, to_json_value
from treekit.explain.row import ExplainedRow, describe_prediction, replace_cells
from treekit.explain.text import ExplanationWords, format_table
from treekit.model.fixed_point import multiply_by_mass
from treekit.model.links import convert_sums
from treekit.model.scoring import compute_label_codes
from treekit.model.scoring import sum_leaf_values as scored
from treekit.model.split_tests import (
    NO_BRANCH,
    SplitTest,
    TreeNodes,
    find_branch,
    list_thresholds,
)
from treekit.rules.language import load_phrases
from treekit.rules.wording import quote_name

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = [
    "Box",
    "CandidateChange",
    "Change",
    "ChangeGrid",
    "Changed",
    "Changes",
    "ColumnScale",
    "ColumnStates",
    "DesiredPrediction",
    "PairResult",
    "ReachResult",
    "ReachableLeaf",
    "SearchProblem",
    "explain_counterfactuals",
    "find_counterfactuals",
    "find_pair_change",
    "find_reachable_leaves",
    "find_single_changes",
    "format_changes",
    "format_round_number",
    "make_scales",
    "make_states",
    "parse_wish",
]


# ---------------------------------------------------------------- explainer


def explain_counterfactuals(
    case: ExplanationCase,
    changes: int = 2,
    wish: str | None = None,
    target: str | None = None,
    budget: int = 50_000_000,
) -> Changes | None:
    """Find the nearest counterfactuals of a row: the explainer of `treekit.explain`.

    Parameters
    ----------
    case : ExplanationCase
    changes : {0, 1, 2}
        Maximum number of columns that a counterfactual changes; 0: no search.
    wish : str, optional
        Desired prediction: a label, or a range such as ``>= 10``; default any other label, and
        no search for numbers.
    target : str, optional
        Target of the wish; default the first.
    budget : int
        Maximum number of cells to search for changes of two columns.
    """
    if changes == 0:
        return None
    names = case.model.schema.names
    free = [place for place, name in enumerate(names) if name not in case.fixed]
    return find_counterfactuals(
        case.model, case.row, case.nodes, case.sums, free, changes, (wish, target), case.table,
        budget,
    )  # fmt: skip


@dataclass(frozen=True)
class Changed:
    """A changed column: its name, the row's cell as text (None if missing), and the new text."""

    column: str
    before: str | None
    after: str


@dataclass(frozen=True)
class Change:
    """A counterfactual, verified by another prediction.

    Attributes
    ----------
    cells : tuple of Changed
        One or two.
    size : float
        Size of the change to the nearest sufficient value.
    says : tuple of Said
        Prediction after the change.
    """

    cells: tuple[Changed, ...]
    size: float
    says: tuple[Said, ...]


@dataclass(frozen=True)
class Changes:
    """Nearest counterfactuals for a desired prediction.

    Attributes
    ----------
    target : str
    wish : str
        A label or a range of numbers; empty: any other label.
    met : bool
        Whether the unchanged row already has the desired prediction.
    most : int
        Maximum number of columns to change at once.
    single : tuple of Change
        Changes of one column each, smallest first.
    pair : Change, optional
        Change of two columns, if smaller than any of one.
    apart : int
        Number of pairs left out because both columns are in one weighted sum.
    complete : bool
        False if the budget ended the search early.
    """

    target: str
    wish: str
    met: bool
    most: int
    single: tuple[Change, ...] = ()
    pair: Change | None = None
    apart: int = 0
    complete: bool = True

    def plain(self) -> Any:
        """Return the changes as values for JSON."""
        return to_json_value(self)

    def lines(self, words: ExplanationWords) -> Iterator[tuple[str, bool]]:
        """Yield the lines of the text, and whether each is a heading."""
        return format_changes(self, words)


_MAX_SINGLE_CHANGES = 3
"""Maximum number of single-column changes listed."""


def format_changes(changes: Changes, words: ExplanationWords) -> Iterator[tuple[str, bool]]:
    """Yield the lines of counterfactuals, and whether each is a heading."""
    if changes.wish:
        fields = {"target": quote_name(changes.target), "wish": words.format_wish(changes.wish)}
        yield _get_phrase(words, "change_to", **fields), True
    else:
        yield _get_phrase(words, "change"), True
    if changes.met:
        yield f"  {_get_phrase(words, 'met')}", False
        return
    listed = [("", change) for change in changes.single[:1]]
    listed += [
        (_get_phrase(words, "or"), change) for change in changes.single[1:_MAX_SINGLE_CHANGES]
    ]
    if changes.pair is not None:
        key = "both" if changes.single else "both_only"
        listed.append((_get_phrase(words, key), changes.pair))
    yield from format_table(
        [
            (_format_change(change, words, before), _format_new_prediction(change, words))
            for before, change in listed
        ],
        gap=3,
    )
    if not listed and changes.complete and not changes.apart:
        count = _get_phrase(words, "one" if changes.most == 1 else "two")
        yield f"  {_get_phrase(words, 'none', count=count)}", False
    if changes.apart:
        yield f"  {_get_phrase(words, 'apart', count=str(changes.apart))}", False
    if not changes.complete:
        yield f"  {_get_phrase(words, 'incomplete')}", False


def _format_change(change: Change, words: ExplanationWords, before: str) -> str:
    cells = (
        _get_phrase(
            words,
            "set",
            column=quote_name(cell.column),
            before=words.format_cell(cell.column, cell.before),
            after=words.format_cell(cell.column, cell.after),
        )
        for cell in change.cells
    )
    return f"{before}{': ' if len(change.cells) > 1 else ' ' if before else ''}" + words.get_phrase(
        "and"
    ).join(cells)


def _get_phrase(words: ExplanationWords, key: str, **fields: str) -> str:
    phrases = load_phrases(words.language, "treekit_counterfactuals")
    return phrases.say(f"counterfactual_{key}", **fields)


def _format_new_prediction(change: Change, words: ExplanationWords) -> str:
    return _get_phrase(
        words,
        "then",
        answer=words.get_phrase("and").join(map(words.format_prediction, change.says)),
    )


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
    leaves : list of ReachableLeaf
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
    scale : sequence of ColumnScale
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
    """Find the leaves of a tree that a row reaches if at most `max_changes` columns change.

    Parameters
    ----------
    nodes, mass, bounds
        As in `treekit.explain.decision_path.trace_row`.
    setting : SearchSettings
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
    """Check whether a change of the columns `changed` into `box` can be below ``setting.bound``."""
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
    """Yield the branches that a changed value of the column can take, each with its values."""
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
        The row's value; NaN if it is missing.
    spread : float
        Size of one unit.
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
        """Return the value nearest to the row's in each interval ``low < v <= high``, NaN if none.

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
    """Return each column's scale, which measures changes of numbers; unused if nominal."""
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


# ---------------------------------------------------------------- search

Fits = npt.NDArray[np.bool_]


class CandidateChange(NamedTuple):
    """A change: a state for each of one or two columns.

    Attributes
    ----------
    size : float
        Size of the change; see the module.
    columns : tuple of int
    intervals : tuple of (float, float)
        Admissible numbers, ``low < x <= high``, including neighbouring states with the desired
        prediction.
    codes : tuple of int
        Categories; -1 for numbers.
    """

    size: float
    columns: tuple[int, ...]
    intervals: tuple[tuple[float, float], ...]
    codes: tuple[int, ...]


class SearchProblem(NamedTuple):
    """A counterfactual search problem.

    Attributes
    ----------
    model : Model
    wish : DesiredPrediction
    row : (features,) list of float
        Encoded; NaN where there is no value to compare with.
    scale : sequence of ColumnScale
    free_columns : sequence of int
        Columns that may change.
    """

    model: Model
    wish: DesiredPrediction
    row: list[float]
    scale: Sequence[ColumnScale]
    free_columns: Sequence[int]

    def make_states(self, plane: ChangeGrid) -> dict[int, ColumnStates]:
        """Return the states of each column that may change and is tested."""
        columns = self.model.schema.columns
        return {
            column: make_states(
                plane.allowed_by_column[column],
                plane.n_leaves,
                self.row[column],
                self.scale[column],
                len(columns[column].levels) if columns[column].kind == "nominal" else None,
            )
            for column in self.free_columns
            if column in plane.allowed_by_column
        }


def find_single_changes(
    problem: SearchProblem, found: Sequence[ReachResult]
) -> list[CandidateChange]:
    """Return the smallest sufficient change of each single column, smallest first.

    Parameters
    ----------
    problem : Problem
    found : sequence of Reach
        One for each tree.
    """
    plane = ChangeGrid(problem.model, found, problem.wish)
    single: list[CandidateChange] = []
    for column, own in problem.make_states(plane).items():
        met = plane.search_line(column, own)
        size = np.where(met, own.size, np.inf)
        best = _choose_least(size, own)
        if np.isfinite(size[best]):
            single.append(_make_candidate((column,), (own,), (best,), [met], float(size[best])))
    return sorted(single, key=lambda cell: (cell.size, cell.columns))


class PairResult(NamedTuple):
    """Result of the search for changes of two columns.

    Attributes
    ----------
    cell : Cell or None
        The smallest change, if it is below the bound.
    n_skipped : int
        Number of pairs left out because both columns are in one weighted sum.
    complete : bool
        False if the budget ended the search: a smaller change may exist.
    """

    cell: CandidateChange | None
    n_skipped: int
    complete: bool


def find_pair_change(
    problem: SearchProblem, found: Sequence[ReachResult], bound: float, budget: int
) -> PairResult:
    """Find the smallest change of two columns.

    Parameters
    ----------
    problem : Problem
    found : sequence of Reach
        One for each tree, with the same bound.
    bound : float
        Only changes below this size are searched.
    budget : int
        Maximum number of cells in all planes.
    """
    plane = ChangeGrid(problem.model, found, problem.wish)
    states = problem.make_states(plane)
    least = {column: float(own.size.min()) for column, own in states.items()}
    pairs = sorted(
        itertools.combinations(sorted(states), 2), key=lambda p: (least[p[0]] + least[p[1]], p)
    )
    best, size = None, bound
    apart, complete = 0, True
    for columns in pairs:
        one, other = (least[column] for column in columns)
        if not one + other < size:
            break
        if columns in plane.joint_columns:
            apart += 1
            continue
        both = states[columns[0]], states[columns[1]]
        windows = [
            _find_window(both[0].size < size - other),
            _find_window(both[1].size < size - one),
        ]
        cells = (windows[0].stop - windows[0].start) * (windows[1].stop - windows[1].start)
        if cells > budget:
            complete = False
            continue
        budget -= cells
        for top, left, met in plane.search_plane(columns, both, windows):
            least_here = _find_least(both, top, left, met, size)
            if least_here is not None:
                size, *at = least_here
                met_along = _find_extents(plane, columns, both, at, bound)
                best = _make_candidate(columns, both, at, met_along, size)
    return PairResult(best, apart, complete)


def _find_window(near: Fits) -> slice:
    at = np.flatnonzero(near)
    return slice(int(at[0]), int(at[-1]) + 1) if len(at) else slice(0, 0)


def _find_least(
    both: tuple[ColumnStates, ColumnStates],
    top: int,
    left: int,
    met: Fits,
    bound: float,
) -> tuple[float, int, int] | None:
    rows, width = met.shape
    size = both[0].size[top : top + rows, None] + both[1].size[None, left : left + width]
    size = np.where(met, size, np.inf)
    at = int(size.argmin())
    if not size.flat[at] < bound:
        return None
    return float(size.flat[at]), top + at // width, left + at % width


def _find_extents(
    plane: ChangeGrid,
    columns: tuple[int, int],
    both: tuple[ColumnStates, ColumnStates],
    at: Sequence[int],
    bound: float,
) -> list[Fits]:
    """Return, for each state of either column, whether it gives the desired prediction.

    Each state of the first column is combined with the chosen state of the second; each state
    of the second with all states in the run of the first around its chosen state.  Changes of
    size `bound` or more are excluded, because their leaves were not searched.
    """
    i, j = at
    near = both[0].size[:, None] + both[1].size[None, :] < bound
    whole = [slice(0, len(own.size)) for own in both]
    parts = [met for _, _, met in plane.search_plane(columns, both, [whole[0], slice(j, j + 1)])]
    along = np.concatenate(parts)[:, 0] & near[:, j]
    low, high = _find_run(both[0], i, along)
    parts = [
        met for _, _, met in plane.search_plane(columns, both, [slice(low, high + 1), whole[1]])
    ]
    rows = np.concatenate(parts) & near[low : high + 1]
    everywhere: Fits = np.logical_and.reduce(rows, axis=0)
    return [along, everywhere]


def _make_candidate(
    columns: tuple[int, ...],
    states: Sequence[ColumnStates],
    at: Sequence[int],
    met: Sequence[Fits],
    size: float,
) -> CandidateChange:
    intervals, codes = [], []
    for own, place, fits in zip(states, at, met, strict=True):
        low, high = _find_run(own, place, fits)
        intervals.append((float(own.low[low]), float(own.high[high])))
        codes.append(int(own.code[place]))
    return CandidateChange(size, columns, tuple(intervals), tuple(codes))


def _find_run(own: ColumnStates, place: int, fits: Fits) -> tuple[int, int]:
    """Return the first and last of the neighbouring states that fit, around a place."""
    low = high = place
    good: Fits = fits & (own.size < np.inf)
    while low > 0 and good[low - 1]:
        low -= 1
    while high + 1 < len(good) and good[high + 1]:
        high += 1
    return low, high


def _choose_least(size: npt.NDArray[np.float64], own: ColumnStates) -> int:
    """Return the first state of least size.

    If a missing number is to be set, all states tie; the middle one is returned.
    """
    ties = np.flatnonzero(size == size.min())
    return int(ties[0] if own.code[0] >= 0 or len(ties) < 3 else ties[len(ties) // 2])


# ---------------------------------------------------------------- plane
# Predictions of a forest over a line, or a plane, of changed values.
#
# Each leaf is added at the corners of its box; cumulative sums give the sums of all cells,
# in integers.

Index = npt.NDArray[np.int64]

_MAX_INTEGERS = 1 << 22
"""Number of integers of the part of a plane in memory at once: 32 MB."""


class ChangeGrid:
    """Leaves found in all trees, and the units that they add in each cell."""

    def __init__(self, model: Model, found: Sequence[ReachResult], wish: DesiredPrediction) -> None:
        self.model, self.wish = model, wish
        self.joint_columns = {pair for one in found for pair in one.joint_columns}
        rows: list[Index] = []
        mass: list[int] = []
        self.allowed_by_column: dict[int, list[tuple[int, Allowed]]] = {}
        groups: dict[tuple[int, ...], list[int]] = {}
        for number, one in enumerate(found):
            own = np.searchsorted(model.trees[number].leaves, [leaf.leaf for leaf in one.leaves])
            rows.append(own + model.leaf_offsets[number])
            for leaf in one.leaves:
                groups.setdefault(leaf.changed, []).append(len(mass))
                for column, allowed in leaf.box.items():
                    self.allowed_by_column.setdefault(column, []).append((len(mass), allowed))
                mass.append(leaf.mass)
        units = model.units[np.concatenate(rows)]
        self.units = multiply_by_mass(units, np.array(mass)[:, None], model.part_bits)
        self.leaves_by_changed = {key: np.array(leaves) for key, leaves in groups.items()}
        self.n_leaves = len(mass)

    def list_leaves(self, *columns: int) -> Index:
        """Return the leaves that need no other column to change, ascending."""
        keys: list[tuple[int, ...]] = [(), *((column,) for column in columns), columns]
        parts = [
            self.leaves_by_changed[key]
            for key in dict.fromkeys(keys)
            if key in self.leaves_by_changed
        ]
        return np.sort(np.concatenate(parts))

    def search_line(self, column: int, states: ColumnStates) -> Fits:
        """Return (states,) bool: where the prediction is as desired."""
        leaves = self.list_leaves(column)
        runs, of = _expand_runs(states.start, leaves)
        change = np.zeros((len(states.size) + 1, self.units.shape[1]), dtype=np.int64)
        np.add.at(change, states.first[runs], self.units[of])
        np.subtract.at(change, states.last[runs], self.units[of])
        return self.wish.is_met(self.model, np.cumsum(change, axis=0)[:-1])

    def search_plane(
        self,
        columns: tuple[int, int],
        states: tuple[ColumnStates, ColumnStates],
        windows: list[slice],
    ) -> Iterator[tuple[int, int, Fits]]:
        """Yield parts of the plane: the first state of both columns, and where the wish is met."""
        leaves = self.list_leaves(*columns)
        runs, of, behind = _pair_runs(states, leaves)
        ends = [(s.first[r], s.last[r]) for s, r in zip(states, (runs, behind), strict=True)]
        start, stop = windows[1].start, windows[1].stop
        width, values = stop - start, self.units.shape[1]
        height = max(_MAX_INTEGERS // ((width + 1) * values), 1)
        for top in range(windows[0].start, windows[0].stop, height):
            rows = min(height, windows[0].stop - top)
            a, b = (np.clip(end - top, 0, rows) for end in ends[0])
            c, d = (np.clip(end - start, 0, width) for end in ends[1])
            overlapping = np.flatnonzero((a < b) & (c < d))
            change = np.zeros(((rows + 1) * (width + 1), values), dtype=np.int64)
            add = self.units[of[overlapping]]
            for x, y, sign in ((a, c, 1), (b, c, -1), (a, d, -1), (b, d, 1)):
                np.add.at(change, x[overlapping] * (width + 1) + y[overlapping], sign * add)
            sums = change.reshape(rows + 1, width + 1, values)
            sums = sums.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]
            met = self.wish.is_met(self.model, sums.reshape(-1, values))
            yield top, start, met.reshape(rows, width)


def _expand_runs(start: Index, leaves: Index) -> tuple[Index, Index]:
    """Return the runs of some leaves, and the leaf of each run."""
    counts = start[leaves + 1] - start[leaves]
    of = np.repeat(leaves, counts)
    offset = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    return start[of] + offset, of


def _pair_runs(
    states: tuple[ColumnStates, ColumnStates], leaves: Index
) -> tuple[Index, Index, Index]:
    """Pair the runs of the first column with those of the second, leaf by leaf.

    Returns the runs of both columns and, in the middle, their leaves.
    """
    runs, of = _expand_runs(states[0].start, leaves)
    start = states[1].start
    counts = start[of + 1] - start[of]
    pair = np.repeat(np.arange(len(of)), counts)
    offset = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
    return runs[pair], of[pair], start[of[pair]] + offset


# ---------------------------------------------------------------- states
# The values of one column, grouped where no reachable leaf distinguishes them.


class ColumnStates(NamedTuple):
    """States of a column, n in number, and those that each of R leaves allows.

    Attributes
    ----------
    size : (n,) float64
        Size of the change from the row to the nearest value of a state; infinite for the
        row's own state, and for states without a value.
    low, high : (n,) float64
        Numbers: ``low < x <= high``.
    code : (n,) int64
        Nominal columns: the first category of the state; -1 for none.
    start : (R + 1,) int64
        Offsets of the runs of each leaf.
    first, last : (runs,) int64
        A run allows the states ``first`` to ``last - 1``.
    """

    size: Doubles
    low: Doubles
    high: Doubles
    code: Index
    start: Index
    first: Index
    last: Index


def make_states(
    allowed_by_leaf: list[tuple[int, Allowed]],
    n_leaves: int,
    x: float,
    scale: ColumnScale,
    n_levels: int | None,
) -> ColumnStates:
    """Return the states of a column.

    Parameters
    ----------
    allowed_by_leaf : list of (int, Allowed)
        Leaves, ascending, that restrict the column, and the values that lead there.
    n_leaves : int
        R; leaves not in `allowed_by_leaf` allow every state.
    x : float
        The row's value, NaN if there is none to compare with.
    scale : ColumnScale
    n_levels : int or None
        Number of categories of a nominal column.
    """
    if n_levels is not None:
        return _make_level_states(allowed_by_leaf, n_leaves, x, n_levels)
    ends = [end for _, one in allowed_by_leaf if isinstance(one, tuple) for end in one]
    cuts = np.unique(np.array(ends, dtype=np.float64))
    cuts = cuts[np.isfinite(cuts)]
    low, high = np.append(-np.inf, cuts), np.append(cuts, np.inf)
    unknown = int(np.isnan(x))
    if unknown:  # the row's own state comes first
        low, high = np.append(np.nan, low), np.append(np.nan, high)
    own = 0 if unknown else int(np.searchsorted(cuts, x))
    size = scale.compute_sizes(scale.find_nearest(low, high))
    size[own] = np.inf
    leaves = np.array([leaf for leaf, _ in allowed_by_leaf], dtype=np.int64)
    bounds = np.array(
        [one if isinstance(one, tuple) else (np.nan, np.nan) for _, one in allowed_by_leaf]
    )
    bounds = bounds.reshape(-1, 2)
    unchanged = np.isnan(bounds[:, 0])
    first = np.where(unchanged, own, np.searchsorted(low[unknown:], bounds[:, 0]) + unknown)
    last = np.where(unchanged, own + 1, np.searchsorted(high[unknown:], bounds[:, 1]) + unknown + 1)
    code = np.full(len(low), -1)
    return ColumnStates(
        size, low, high, code, *_add_unrestricted(leaves, first, last, n_leaves, len(low))
    )


def _make_level_states(
    allowed_by_leaf: list[tuple[int, Allowed]], n_leaves: int, x: float, n_levels: int
) -> ColumnStates:
    unknown = np.isnan(x)
    sets = {one for _, one in allowed_by_leaf if isinstance(one, frozenset)}
    member = np.zeros((n_levels, len(sets) + 1), dtype=np.bool_)
    for place, one in enumerate(sets):
        member[sorted(one), place] = True
    if not unknown:
        member[int(x), -1] = True  # the row's own category is a separate state
    _, code, group = np.unique(member, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(code, kind="stable")  # states in the order of their first categories
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    code, group = code[order].astype(np.int64), rank[group.ravel()]
    own = len(code) if unknown else int(group[int(x)])
    if unknown:
        code = np.append(code, -1)
    size = np.ones(len(code))
    size[own] = np.inf
    fits = member[code[code >= 0], :-1].T
    runs = {one: _group_runs(np.flatnonzero(some)) for one, some in zip(sets, fits, strict=True)}
    stays = [(own, own + 1)]
    leaf_runs = [
        (leaf, *run)
        for leaf, allowed in allowed_by_leaf
        for run in (runs[allowed] if isinstance(allowed, frozenset) else stays)
    ]
    leaves, first, last = np.array(leaf_runs, dtype=np.int64).reshape(-1, 3).T
    nothing = np.full(len(code), np.nan)
    others = _add_unrestricted(leaves, first, last, n_leaves, len(code))
    return ColumnStates(size, nothing, nothing, code, *others)


def _group_runs(states: Index) -> list[tuple[int, int]]:
    """Group adjacent states into runs."""
    breaks = np.flatnonzero(np.diff(states) != 1) + 1
    return [(int(part[0]), int(part[-1]) + 1) for part in np.split(states, breaks)]


def _add_unrestricted(
    leaves: Index, first: Index, last: Index, n_leaves: int, n_states: int
) -> tuple[Index, Index, Index]:
    """Return the runs of all leaves, including those that do not restrict the column."""
    others = np.setdiff1d(np.arange(n_leaves), leaves)
    leaves = np.concatenate([leaves, others])
    first = np.concatenate([first, np.zeros(len(others), np.int64)])
    last = np.concatenate([last, np.full(len(others), n_states)])
    order = np.argsort(leaves, kind="stable")
    start = np.searchsorted(leaves[order], np.arange(n_leaves + 1))
    return start, first[order], last[order]


# ---------------------------------------------------------------- change
# The nearest changes as cell texts, each verified by another prediction.

_MAX_STEPS = 2_000_000
"""Maximum number of nodes to visit in all trees: some seconds."""

Nodes = Sequence[tuple[TreeNodes, Any]]


def find_counterfactuals(
    model: Model,
    row: ExplainedRow,
    nodes: Nodes,
    sums: npt.NDArray[np.int64],
    free: Sequence[int],
    most: int,
    wished: tuple[str | None, str | None],
    table: Table | None,
    budget: int,
) -> Changes | None:
    """Find the counterfactuals for a wish; None for numbers without a wish.

    Parameters
    ----------
    model : Model
    row : Row
    nodes : sequence of (TreeNodes, (nodes, 2) int64 or None)
        Nodes of each tree, and the mass bounds of fractional instances.
    sums : (values,) int64
        Integer sums of the row.
    free : sequence of int
        Columns that may change.
    most : int
        Maximum number of columns to change: 1 or 2.
    wished : (str or None, str or None)
        The wish and its target; see `parse_wish`.
    table : Table, optional
    budget : int
    """
    wish = parse_wish(model, *wished, sums)
    if wish is None:
        return None
    target = model.schema.outputs[wish.target].name
    if bool(wish.is_met(model, sums[None])[0]):
        return Changes(target, wish.text, True, most)
    schema = model.schema
    scale = make_scales(schema, row.codes, list_thresholds(model.trees, schema), table)
    setting = SearchSettings(schema, row.codes, frozenset(free), 1, scale)
    compared = [x if is_known(setting, c) else math.nan for c, x in enumerate(row.codes)]
    problem = SearchProblem(model, wish, compared, scale, free)
    found = _find_leaves(model, nodes, setting)
    if found is None:
        return Changes(target, wish.text, False, most, complete=False)
    single = find_single_changes(problem, found)
    changes = Changes(
        target,
        wish.text,
        False,
        most,
        tuple(_describe_change(model, row, c, problem) for c in single),
    )
    if most == 1:
        return changes
    bound = single[0].size if single else math.inf
    found = _find_leaves(model, nodes, setting._replace(max_changes=2, bound=bound))
    if found is None:
        return replace(changes, complete=False)
    pair = find_pair_change(problem, found, bound, budget)
    change = None if pair.cell is None else _describe_change(model, row, pair.cell, problem)
    return replace(changes, pair=change, apart=pair.n_skipped, complete=pair.complete)


def _find_leaves(model: Model, nodes: Nodes, setting: SearchSettings) -> list[ReachResult] | None:
    """Return the leaves that each tree reaches; None if the step limit is exceeded."""
    found, left = [], _MAX_STEPS
    for own, bounds in nodes:
        found.append(find_reachable_leaves(own, setting, model.mass, bounds, left))
        left -= found[-1].steps
        if not found[-1].complete:
            return None
    return found


def _describe_change(
    model: Model, row: ExplainedRow, cell: CandidateChange, problem: SearchProblem
) -> Change:
    scale = problem.scale
    texts = {}
    for column, interval, code in zip(cell.columns, cell.intervals, cell.codes, strict=True):
        if code >= 0:
            texts[column] = model.schema.columns[column].levels[code]
        else:
            low, high = interval
            at = float(scale[column].find_nearest(np.array([low]), np.array([high]))[0])
            texts[column] = format_round_number(scale[column], low, high, at)
    sums = scored(model, replace_cells(row, model, texts))
    if not bool(problem.wish.is_met(model, sums)[0]):
        raise ModelError(
            f"a change to {texts!r} does not give the desired prediction: a bug in treekit; "
            "please report it with the model and the row"
        )
    changed = tuple(
        Changed(model.schema.names[column], row.cells[column].text, text)
        for column, text in texts.items()
    )
    return Change(changed, cell.size, describe_prediction(model, sums[0]))


# ---------------------------------------------------------------- wish
# The desired prediction: any other label, a given one, or a range of numbers.

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_RANGE_PATTERN = re.compile(r"\s*(>=|<=|>|<)\s*(\S+)\s*")


class DesiredPrediction(NamedTuple):
    """A desired prediction for one target.

    Attributes
    ----------
    target : int
        Which of the model's targets.
    text : str
        ``>= 10``, a label as text, or empty: any other label.
    label : int
        Desired class, or the class to leave; -1 for numbers.
    compare : callable, optional
        Comparison of the predicted numbers with `bound`.
    bound : float
    """

    target: int
    text: str
    label: int = -1
    compare: Callable[[Any, Any], Any] | None = None
    bound: float = 0.0

    def is_met(self, model: Model, sums: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return (rows,) bool: which integer sums (rows, values) give the desired prediction."""
        if self.compare is not None:
            numbers = convert_sums(model, sums)[:, self.target]
            found: npt.NDArray[np.bool_] = self.compare(numbers, self.bound)
            return found
        codes = compute_label_codes(model, sums)[:, self.target]
        same: npt.NDArray[np.bool_] = codes == self.label
        return same if self.text else ~same


def parse_wish(
    model: Model, text: str | None, target: str | None, sums: npt.NDArray[np.int64]
) -> DesiredPrediction | None:
    """Parse a wish; without text any other label, and for numbers None.

    Parameters
    ----------
    model : Model
    text : str, optional
        A label, or ``>=``, ``<=``, ``>`` or ``<`` and a number.
    target : str, optional
        Default: the first.
    sums : (values,) int64
        Integer sums of the unchanged row.

    Raises
    ------
    SettingError
        For an unknown target or label, and for an invalid range.
    """
    outputs = model.schema.outputs
    names = [output.name for output in outputs]
    if target is not None and target not in names:
        raise SettingError(f"the model has no target {target!r}; {suggest_names(target, names)}")
    k = 0 if target is None else names.index(target)
    if model.schema.task == "regression":
        return None if text is None else _parse_range(text, k)
    if text is None:
        return DesiredPrediction(k, "", int(compute_label_codes(model, sums[None])[0, k]))
    texts = [str(level_text(label)) for label in outputs[k].classes]
    code = LevelIndex(texts).code(text)
    if code < 0:
        raise SettingError(f"{text!r} is not a class of {names[k]!r}; {suggest_names(text, texts)}")
    return DesiredPrediction(k, texts[code], code)


def _parse_range(text: str, target: int) -> DesiredPrediction:
    match = _RANGE_PATTERN.fullmatch(text)
    try:
        bound = float(match[2]) if match else np.nan
    except ValueError:
        bound = np.nan
    if match is None or not np.isfinite(bound):
        raise SettingError(
            f"{text!r} is not a numeric range; write a comparison, such as '>= 10' or '< 2.5'"
        )
    return DesiredPrediction(
        target, f"{match[1]} {repr(bound).removesuffix('.0')}", -1, _COMPARISONS[match[1]], bound
    )
