"""The smallest change of one or two columns of a row that alters what a model decides.

Exact: the leaves that a row can reach by such changes (`treekit.rules.explain.reach`) are
boxes, and the sums over all trees are the same within each cell of the grid that their
faces make, for one column a line of cells, for two a plane.  A cell's sums are those of
the cell before and what begins or ends there, all of it in the model's integers.  Fewer
columns come first, then the smaller change (`treekit.rules.explain.scales`), then the
lower column and value; a change of two columns counts if it is smaller than any of one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.rules.explain.plane import Plane
from treekit.rules.explain.reach import Reach
from treekit.rules.explain.scales import Scale
from treekit.rules.explain.states import States, states_of
from treekit.rules.explain.wish import Wish

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = ["Cell", "Pair", "Problem", "nearest_pair", "nearest_single"]

Fits = npt.NDArray[np.bool_]


class Cell(NamedTuple):
    """A change: a state for each of one or two columns.

    Attributes
    ----------
    size : float
        How much it counts; see `treekit.rules.explain.scales`.
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
