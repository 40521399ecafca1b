"""The smallest change of one or two columns of a row that alters what a model decides.

Exact: the leaves that a row can reach by such changes (`treekit.explain.reachable_leaves`) are
boxes, and the sums over all trees are the same within each cell of the grid that their
faces make, for one column a line of cells, for two a plane.  A cell's sums are those of
the cell before and what begins or ends there, all of it in the model's integers.  Fewer
columns come first, then the smaller change (`treekit.explain.reachable_leaves`), then the
lower column and value; a change of two columns counts if it is smaller than any of one.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.features import LevelIndex
from treekit.data.schema import level_text
from treekit.data.table import Table, near_names
from treekit.errors import ModelError, SettingError
from treekit.explain.decision_path import TreeNodes, thresholds_of
from treekit.explain.explanation import Change, Changed, Changes
from treekit.explain.reachable_leaves import (
    Allowed,
    Reach,
    Scale,
    Setting,
    is_known,
    reach,
    round_numeral,
    scales,
)
from treekit.explain.row import Row, said, with_cells
from treekit.model.links import values_of
from treekit.model.scoring import label_codes
from treekit.model.scoring import sums as scored

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = [
    "Cell",
    "Pair",
    "Plane",
    "Problem",
    "States",
    "Wish",
    "change_rows",
    "nearest_pair",
    "nearest_single",
    "states_of",
    "wish_of",
]


# ---------------------------------------------------------------- nearest

Fits = npt.NDArray[np.bool_]


class Cell(NamedTuple):
    """A change: a state for each of one or two columns.

    Attributes
    ----------
    size : float
        How much it counts; see `treekit.explain.reachable_leaves`.
    columns : tuple of int
    intervals : tuple of (float, float)
        Numbers that may be chosen, ``low < x <= high``: those of neighbouring states,
        too, where they answer as wished.
    codes : tuple of int
        Levels; -1 for numbers.
    """

    size: float
    columns: tuple[int, ...]
    intervals: tuple[tuple[float, float], ...]
    codes: tuple[int, ...]


class Problem(NamedTuple):
    """What is searched for, and where.

    Attributes
    ----------
    model : Model
    wish : Wish
    row : (features,) list of float
        Encoded; NaN where there is nothing to compare with.
    scale : sequence of Scale
    free : sequence of int
        Columns that may change.
    """

    model: Model
    wish: Wish
    row: list[float]
    scale: Sequence[Scale]
    free: Sequence[int]

    def states(self, plane: Plane) -> dict[int, States]:
        """The states of each column that may change and is asked for."""
        columns = self.model.schema.columns
        return {
            column: states_of(
                plane.asked[column],
                plane.n_leaves,
                self.row[column],
                self.scale[column],
                len(columns[column].levels) if columns[column].kind == "nominal" else None,
            )
            for column in self.free
            if column in plane.asked
        }


def nearest_single(problem: Problem, found: Sequence[Reach]) -> list[Cell]:
    """The smallest change of each column that can do it alone, smallest first.

    Parameters
    ----------
    problem : Problem
    found : sequence of Reach
        One for each tree.
    """
    plane = Plane(problem.model, found, problem.wish)
    single: list[Cell] = []
    for column, own in problem.states(plane).items():
        met = plane.line(column, own)
        size = np.where(met, own.size, np.inf)
        best = _first_least(size, own)
        if np.isfinite(size[best]):
            single.append(_cell((column,), (own,), (best,), [met], float(size[best])))
    return sorted(single, key=lambda cell: (cell.size, cell.columns))


class Pair(NamedTuple):
    """What was found of changes of two columns.

    Attributes
    ----------
    cell : Cell or None
        The smallest one, if it is below the bound.
    apart : int
        Pairs of columns that were left out, as a weighted sum asks for both.
    complete : bool
        False where the budget ended the search: a smaller one may exist.
    """

    cell: Cell | None
    apart: int
    complete: bool


def nearest_pair(problem: Problem, found: Sequence[Reach], bound: float, budget: int) -> Pair:
    """The smallest change of two columns.

    Parameters
    ----------
    problem : Problem
    found : sequence of Reach
        One for each tree, with the same bound.
    bound : float
        Changes of this size or more are of no use.
    budget : int
        Cells to look at in all planes.
    """
    plane = Plane(problem.model, found, problem.wish)
    states = problem.states(plane)
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
        if columns in plane.together:
            apart += 1
            continue
        both = states[columns[0]], states[columns[1]]
        windows = [_window(both[0].size < size - other), _window(both[1].size < size - one)]
        cells = (windows[0].stop - windows[0].start) * (windows[1].stop - windows[1].start)
        if cells > budget:
            complete = False
            continue
        budget -= cells
        for top, left, met in plane.planes(columns, both, windows):
            least_here = _least_of(both, top, left, met, size)
            if least_here is not None:
                size, *at = least_here
                met_along = _crossing(plane, columns, both, at, bound)
                best = _cell(columns, both, at, met_along, size)
    return Pair(best, apart, complete)


def _window(near: Fits) -> slice:
    at = np.flatnonzero(near)
    return slice(int(at[0]), int(at[-1]) + 1) if len(at) else slice(0, 0)


def _least_of(
    both: tuple[States, States],
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


def _crossing(
    plane: Plane,
    columns: tuple[int, int],
    both: tuple[States, States],
    at: Sequence[int],
    bound: float,
) -> list[Fits]:
    """Where the answer is as wished along each column.

    Along the first with the second at its state, along the second with the first anywhere
    in its run.  Changes of the size of the bound or more are none: their leaves are not known.
    """
    i, j = at
    near = both[0].size[:, None] + both[1].size[None, :] < bound
    whole = [slice(0, len(own.size)) for own in both]
    parts = [met for _, _, met in plane.planes(columns, both, [whole[0], slice(j, j + 1)])]
    along = np.concatenate(parts)[:, 0] & near[:, j]
    low, high = _run(both[0], i, along)
    parts = [met for _, _, met in plane.planes(columns, both, [slice(low, high + 1), whole[1]])]
    rows = np.concatenate(parts) & near[low : high + 1]
    everywhere: Fits = np.logical_and.reduce(rows, axis=0)
    return [along, everywhere]


def _cell(
    columns: tuple[int, ...],
    states: Sequence[States],
    at: Sequence[int],
    met: Sequence[Fits],
    size: float,
) -> Cell:
    intervals, codes = [], []
    for own, place, fits in zip(states, at, met, strict=True):
        low, high = _run(own, place, fits)
        intervals.append((float(own.low[low]), float(own.high[high])))
        codes.append(int(own.code[place]))
    return Cell(size, columns, tuple(intervals), tuple(codes))


def _run(own: States, place: int, fits: Fits) -> tuple[int, int]:
    """The first and the last of the neighbouring states that fit, around a place."""
    low = high = place
    good: Fits = fits & (own.size < np.inf)
    while low > 0 and good[low - 1]:
        low -= 1
    while high + 1 < len(good) and good[high + 1]:
        high += 1
    return low, high


def _first_least(size: npt.NDArray[np.float64], own: States) -> int:
    """The first state of least size; of numbers for a missing one, all alike, the middle."""
    ties = np.flatnonzero(size == size.min())
    return int(ties[0] if own.code[0] >= 0 or len(ties) < 3 else ties[len(ties) // 2])


# ---------------------------------------------------------------- plane
# What a forest answers where one or two columns of a row change: a line, or a plane, of cells.
#
# The sums of a cell are those of the cell before, and what begins or ends there: each leaf
# is added at the corners of its box, and running totals do the rest, in integers.

Index = npt.NDArray[np.int64]

_AT_ONCE = 1 << 22
"""Integers of a part of the plane that is held at once: 32 MB."""


class Plane:
    """The leaves that were found in all trees, and what they add where."""

    def __init__(self, model: Model, found: Sequence[Reach], wish: Wish) -> None:
        self.model, self.wish = model, wish
        self.together = {pair for one in found for pair in one.together}
        rows: list[Index] = []
        mass: list[int] = []
        self.asked: dict[int, list[tuple[int, Allowed]]] = {}
        groups: dict[tuple[int, ...], list[int]] = {}
        for number, one in enumerate(found):
            own = np.searchsorted(model.trees[number].leaves, [leaf.leaf for leaf in one.found])
            rows.append(own + model.leaf_offsets[number])
            for leaf in one.found:
                groups.setdefault(leaf.changed, []).append(len(mass))
                for column, allowed in leaf.box.items():
                    self.asked.setdefault(column, []).append((len(mass), allowed))
                mass.append(leaf.mass)
        self.units = model.units[np.concatenate(rows)] * np.array(mass, np.int64)[:, None]
        self.groups = {key: np.array(leaves) for key, leaves in groups.items()}
        self.n_leaves = len(mass)

    def leaves(self, *columns: int) -> Index:
        """Leaves that need no other column to change, ascending."""
        keys: list[tuple[int, ...]] = [(), *((column,) for column in columns), columns]
        parts = [self.groups[key] for key in dict.fromkeys(keys) if key in self.groups]
        return np.sort(np.concatenate(parts))

    def line(self, column: int, states: States) -> Fits:
        """(states,) bool: where the sums answer as wished."""
        leaves = self.leaves(column)
        runs, of = _expand(states.start, leaves)
        change = np.zeros((len(states.size) + 1, self.units.shape[1]), dtype=np.int64)
        np.add.at(change, states.first[runs], self.units[of])
        np.subtract.at(change, states.last[runs], self.units[of])
        return self.wish.met(self.model, np.cumsum(change, axis=0)[:-1])

    def planes(
        self, columns: tuple[int, int], states: tuple[States, States], windows: list[slice]
    ) -> Iterator[tuple[int, int, Fits]]:
        """Parts of the plane: first states of both columns, and where sums answer as wished."""
        leaves = self.leaves(*columns)
        runs, of, behind = _products(states, leaves)
        ends = [(s.first[r], s.last[r]) for s, r in zip(states, (runs, behind), strict=True)]
        start, stop = windows[1].start, windows[1].stop
        width, values = stop - start, self.units.shape[1]
        height = max(_AT_ONCE // ((width + 1) * values), 1)
        for top in range(windows[0].start, windows[0].stop, height):
            rows = min(height, windows[0].stop - top)
            a, b = (np.clip(end - top, 0, rows) for end in ends[0])
            c, d = (np.clip(end - start, 0, width) for end in ends[1])
            some = np.flatnonzero((a < b) & (c < d))
            change = np.zeros(((rows + 1) * (width + 1), values), dtype=np.int64)
            add = self.units[of[some]]
            for x, y, sign in ((a, c, 1), (b, c, -1), (a, d, -1), (b, d, 1)):
                np.add.at(change, x[some] * (width + 1) + y[some], sign * add)
            sums = change.reshape(rows + 1, width + 1, values)
            sums = sums.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]
            met = self.wish.met(self.model, sums.reshape(-1, values))
            yield top, start, met.reshape(rows, width)


def _expand(start: Index, leaves: Index) -> tuple[Index, Index]:
    """Runs of some leaves, and the leaf of each."""
    counts = start[leaves + 1] - start[leaves]
    of = np.repeat(leaves, counts)
    offset = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    return start[of] + offset, of


def _products(states: tuple[States, States], leaves: Index) -> tuple[Index, Index, Index]:
    """Each run of the first column with each of the second, leaf by leaf; and the leaves."""
    runs, of = _expand(states[0].start, leaves)
    start = states[1].start
    counts = start[of + 1] - start[of]
    pair = np.repeat(np.arange(len(of)), counts)
    offset = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
    return runs[pair], of[pair], start[of[pair]] + offset


# ---------------------------------------------------------------- states
# The values of one column, put together where no leaf that a row can reach tells them apart.

Doubles = npt.NDArray[np.float64]


class States(NamedTuple):
    """What a column can be, n states of it, and which of them each of R leaves allows.

    Attributes
    ----------
    size : (n,) float64
        How much the change from the row to the nearest value of a state counts;
        infinite for the row's own state, and where there is no value.
    low, high : (n,) float64
        Numbers: ``low < x <= high``.
    code : (n,) int64
        Nominal columns: the first level of the state; -1 for no level.
    start : (R + 1,) int64
        Runs of a leaf.
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


def states_of(
    asked: list[tuple[int, Allowed]],
    n_leaves: int,
    x: float,
    scale: Scale,
    n_levels: int | None,
) -> States:
    """The states of a column.

    Parameters
    ----------
    asked : list of (int, Allowed)
        Leaves, ascending, that ask for the column, and the values that lead there.
    n_leaves : int
        R; the leaves that are not in `asked` allow each state.
    x : float
        The row's value, NaN for none to compare with.
    scale : Scale
    n_levels : int or None
        Of a nominal column.
    """
    if n_levels is not None:
        return _of_levels(asked, n_leaves, x, n_levels)
    ends = [end for _, one in asked if isinstance(one, tuple) for end in one]
    cuts = np.unique(np.array(ends, dtype=np.float64))
    cuts = cuts[np.isfinite(cuts)]
    low, high = np.append(-np.inf, cuts), np.append(cuts, np.inf)
    unknown = int(np.isnan(x))
    if unknown:  # the row's own state stands first
        low, high = np.append(np.nan, low), np.append(np.nan, high)
    own = 0 if unknown else int(np.searchsorted(cuts, x))
    size = scale.sizes(scale.nearest(low, high))
    size[own] = np.inf
    leaves = np.array([leaf for leaf, _ in asked], dtype=np.int64)
    bounds = np.array([one if isinstance(one, tuple) else (np.nan, np.nan) for _, one in asked])
    bounds = bounds.reshape(-1, 2)
    kept = np.isnan(bounds[:, 0])
    first = np.where(kept, own, np.searchsorted(low[unknown:], bounds[:, 0]) + unknown)
    last = np.where(kept, own + 1, np.searchsorted(high[unknown:], bounds[:, 1]) + unknown + 1)
    code = np.full(len(low), -1)
    return States(size, low, high, code, *_with_others(leaves, first, last, n_leaves, len(low)))


def _of_levels(asked: list[tuple[int, Allowed]], n_leaves: int, x: float, n_levels: int) -> States:
    unknown = np.isnan(x)
    sets = {one for _, one in asked if isinstance(one, frozenset)}
    member = np.zeros((n_levels, len(sets) + 1), dtype=np.bool_)
    for place, one in enumerate(sets):
        member[sorted(one), place] = True
    if not unknown:
        member[int(x), -1] = True  # the row's own level is a state of its own
    _, code, group = np.unique(member, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(code, kind="stable")  # states in the order of their first levels
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    code, group = code[order].astype(np.int64), rank[group.ravel()]
    own = len(code) if unknown else int(group[int(x)])
    if unknown:
        code = np.append(code, -1)
    size = np.ones(len(code))
    size[own] = np.inf
    fits = member[code[code >= 0], :-1].T
    runs = {one: _runs(np.flatnonzero(some)) for one, some in zip(sets, fits, strict=True)}
    stays = [(own, own + 1)]
    told = [
        (leaf, *run)
        for leaf, allowed in asked
        for run in (runs[allowed] if isinstance(allowed, frozenset) else stays)
    ]
    leaves, first, last = np.array(told, dtype=np.int64).reshape(-1, 3).T
    nothing = np.full(len(code), np.nan)
    others = _with_others(leaves, first, last, n_leaves, len(code))
    return States(size, nothing, nothing, code, *others)


def _runs(states: Index) -> list[tuple[int, int]]:
    """Neighbouring states, put together."""
    breaks = np.flatnonzero(np.diff(states) != 1) + 1
    return [(int(part[0]), int(part[-1]) + 1) for part in np.split(states, breaks)]


def _with_others(
    leaves: Index, first: Index, last: Index, n_leaves: int, n_states: int
) -> tuple[Index, Index, Index]:
    """The runs of all leaves, those that do not ask included."""
    others = np.setdiff1d(np.arange(n_leaves), leaves)
    leaves = np.concatenate([leaves, others])
    first = np.concatenate([first, np.zeros(len(others), np.int64)])
    last = np.concatenate([last, np.full(len(others), n_states)])
    order = np.argsort(leaves, kind="stable")
    start = np.searchsorted(leaves[order], np.arange(n_leaves + 1))
    return start, first[order], last[order]


# ---------------------------------------------------------------- change
# The nearest changes of a row as texts that somebody can give, each of them predicted again.

_STEPS = 2_000_000
"""Nodes that the search may look at in all trees: some seconds."""

Nodes = Sequence[tuple[TreeNodes, Any]]


def change_rows(
    model: Model,
    row: Row,
    nodes: Nodes,
    sums: npt.NDArray[np.int64],
    free: Sequence[int],
    most: int,
    wished: tuple[str | None, str | None],
    table: Table | None,
    budget: int,
) -> Changes | None:
    """The nearest changes that a wish asks for; None without a wish for a number.

    Parameters
    ----------
    model : Model
    row : Row
    nodes : sequence of (TreeNodes, (nodes, 2) int64 or None)
        Of each tree, and what parts of a row its nodes get.
    sums : (values,) int64
        Of the row.
    free : sequence of int
        Columns that may change.
    most : int
        1 or 2 columns at once.
    wished : (str or None, str or None)
        The wish and its target; see `treekit.explain.counterfactuals.wish_of`.
    table : Table, optional
    budget : int
    """
    wish = wish_of(model, *wished, sums)
    if wish is None:
        return None
    target = model.schema.outputs[wish.target].name
    if bool(wish.met(model, sums[None])[0]):
        return Changes(target, wish.text, True, most)
    schema = model.schema
    scale = scales(schema, row.codes, thresholds_of(model.trees, schema), table)
    setting = Setting(schema, row.codes, frozenset(free), 1, scale)
    compared = [x if is_known(setting, c) else math.nan for c, x in enumerate(row.codes)]
    problem = Problem(model, wish, compared, scale, free)
    found = _reached(model, nodes, setting)
    if found is None:
        return Changes(target, wish.text, False, most, complete=False)
    single = nearest_single(problem, found)
    told = Changes(
        target, wish.text, False, most, tuple(_change(model, row, c, problem) for c in single)
    )
    if most == 1:
        return told
    bound = single[0].size if single else math.inf
    found = _reached(model, nodes, setting._replace(changes=2, bound=bound))
    if found is None:
        return replace(told, complete=False)
    pair = nearest_pair(problem, found, bound, budget)
    change = None if pair.cell is None else _change(model, row, pair.cell, problem)
    return replace(told, pair=change, apart=pair.apart, complete=pair.complete)


def _reached(model: Model, nodes: Nodes, setting: Setting) -> list[Reach] | None:
    """What each tree reaches; None if that is too much."""
    found, left = [], _STEPS
    for own, bounds in nodes:
        found.append(reach(own, setting, model.mass, bounds, left))
        left -= found[-1].steps
        if not found[-1].complete:
            return None
    return found


def _change(model: Model, row: Row, cell: Cell, problem: Problem) -> Change:
    scale = problem.scale
    texts = {}
    for column, interval, code in zip(cell.columns, cell.intervals, cell.codes, strict=True):
        if code >= 0:
            texts[column] = model.schema.columns[column].levels[code]
        else:
            low, high = interval
            at = float(scale[column].nearest(np.array([low]), np.array([high]))[0])
            texts[column] = round_numeral(scale[column], low, high, at)
    sums = scored(model, with_cells(row, model, texts))
    if not bool(problem.wish.met(model, sums)[0]):
        raise ModelError(
            f"a change to {texts!r} does not alter the answer as it should: a fault of treekit, "
            "please report it with the model and the row"
        )
    changed = tuple(
        Changed(model.schema.names[column], row.cells[column].text, text)
        for column, text in texts.items()
    )
    return Change(changed, cell.size, said(model, sums[0]))


# ---------------------------------------------------------------- wish
# What a changed row is to be answered: another label, a certain one, or a range of numbers.

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_RANGE = re.compile(r"\s*(>=|<=|>|<)\s*(\S+)\s*")


class Wish(NamedTuple):
    """A wish for one target.

    Attributes
    ----------
    target : int
        Which of the model's targets.
    text : str
        ``>= 10``, a label as text, or empty: any other label.
    label : int
        Class that is wished for, or that is not; -1 for numbers.
    compare : callable, optional
        Of the numbers predicted and `bound`.
    bound : float
    """

    target: int
    text: str
    label: int = -1
    compare: Callable[[Any, Any], Any] | None = None
    bound: float = 0.0

    def met(self, model: Model, sums: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """(rows,) bool: which integer sums (rows, values) answer as wished."""
        if self.compare is not None:
            numbers = values_of(model, sums)[:, self.target]
            found: npt.NDArray[np.bool_] = self.compare(numbers, self.bound)
            return found
        codes = label_codes(model, sums)[:, self.target]
        same: npt.NDArray[np.bool_] = codes == self.label
        return same if self.text else ~same


def wish_of(
    model: Model, said: str | None, target: str | None, sums: npt.NDArray[np.int64]
) -> Wish | None:
    """The wish that a text means; without one any other label, for numbers None.

    Parameters
    ----------
    model : Model
    said : str, optional
        A label, or ``>=``, ``<=``, ``>`` or ``<`` and a number.
    target : str, optional
        Default: the first.
    sums : (values,) int64
        Of the row as it is.

    Raises
    ------
    SettingError
        For an unknown target or label, and for what is no range.
    """
    outputs = model.schema.outputs
    names = [output.name for output in outputs]
    if target is not None and target not in names:
        raise SettingError(f"the model has no target {target!r}; {near_names(target, names)}")
    k = 0 if target is None else names.index(target)
    if model.schema.task == "regression":
        return None if said is None else _range(said, k)
    if said is None:
        return Wish(k, "", int(label_codes(model, sums[None])[0, k]))
    texts = [str(level_text(label)) for label in outputs[k].classes]
    code = LevelIndex(texts).code(said)
    if code < 0:
        raise SettingError(f"{said!r} is no class of {names[k]!r}; {near_names(said, texts)}")
    return Wish(k, texts[code], code)


def _range(said: str, target: int) -> Wish:
    match = _RANGE.fullmatch(said)
    try:
        bound = float(match[2]) if match else np.nan
    except ValueError:
        bound = np.nan
    if match is None or not np.isfinite(bound):
        raise SettingError(
            f"{said!r} is no range of numbers; write a comparison, such as '>= 10' or '< 2.5'"
        )
    return Wish(
        target, f"{match[1]} {repr(bound).removesuffix('.0')}", -1, _COMPARISONS[match[1]], bound
    )
