"""Targets as additive statistics whose sums are exact in any order.

Weights and ``weight * y`` are put on the grids of `treekit.grow.target_statistics`, so that splits
do not depend on row order, threads or the way sums are taken, and ``parent - left`` is
exactly the right side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.contracts import Layout
from treekit.errors import DataError
from treekit.grow.compile_criterion import Blocks
from treekit.kernels.records import Rows

__all__ = [
    "Target",
    "check_range",
    "class_blocks",
    "class_target",
    "classes_target",
    "common_steps",
    "draws",
    "draws_of",
    "grid_of",
    "gridded_weights",
    "is_heavy",
    "layout_target",
    "median",
    "multiplied",
    "number_target",
    "numbers_target",
    "on_grid",
    "rank_target",
    "reach",
    "step_of",
]


# ---------------------------------------------------------------- target


@dataclass(frozen=True)
class Target:
    """What each training row adds to a node's statistics.

    Attributes
    ----------
    cells : (rows,) uint32
        Cell of each row, for class targets; else empty.
    values : (rows, 1), (rows, S) or (rows, 3) float64
        Weight of each row, its dense statistics (weight first), or
        ``(w, y, w * (y - center))`` of a rank target.
    size : int
        S, cells of a node's statistics.
    center : float or (targets,) float64
        What was subtracted from y in sums that a node's value is taken from.
    noise : float
        Bound on the rounding of a row's dense statistics; 0 for whole weights.
    draw_weights : (rows,) float64 or None
        What a bootstrap draws rows in proportion to; None = alike.
    draw_unit : float
        Weight of one draw, before a row's factor.
    quantile : float or None
        Level of a rank target, whose statistics do not add up.
    blocks : Blocks or None
        How the statistics of several targets lie; None: there is one.
    layout : Layout or None
        Of a task, which says what nodes answer.
    n_answers : int
        V, the length of its answers.
    placed : (rows, S) float64 or None
        Dense statistics of its rows, before weights and factors.
    """

    cells: npt.NDArray[np.uint32]
    values: npt.NDArray[np.float64]
    size: int
    center: float | npt.NDArray[np.float64] = 0.0
    noise: float = 0.0
    draw_weights: npt.NDArray[np.float64] | None = None
    draw_unit: float = 1.0
    quantile: float | None = None
    blocks: Blocks | None = None
    layout: Layout | None = None
    n_answers: int = 0
    placed: npt.NDArray[np.float64] | None = None

    @property
    def dense(self) -> bool:
        """Whether rows carry a vector of statistics rather than a cell."""
        return len(self.cells) == 0

    @property
    def counts_classes(self) -> bool:
        """Whether statistics are weights of classes, not sums of numbers."""
        return not self.dense or (self.blocks is not None and self.blocks.classes)

    @property
    def n_values(self) -> int:
        """Length of what a node says: weights of all classes, or a number for each target."""
        if self.layout is not None:
            return self.n_answers
        if self.blocks is not None:
            return self.blocks.ends[-1]
        return 1 if self.dense else self.size

    def rows(
        self, ids: npt.NDArray[np.integer[Any]], repeats: npt.NDArray[np.float64] | None
    ) -> Rows:
        """Rows of one tree; `repeats` (rows,) multiplies each (bootstrap counts).

        Rows of no weight are left out: they may not shape the tree.  Those of
        a rank target are sorted by y.
        """
        at = ids.astype(np.intp, copy=False)  # once: each look-up by others would convert them
        values = self.values.take(at, axis=0)
        weight = values[:, 0]
        keep = (weight if repeats is None else weight * repeats) > 0
        if not keep.all():
            at, values = at[keep], values[keep]
            repeats = None if repeats is None else repeats[keep]
        if self.quantile is not None:
            order = np.argsort(values[:, 1], kind="stable")
            at, values = at[order], values[order]
            repeats = None if repeats is None else repeats[order]
        if repeats is not None:
            values *= repeats[:, None]
            if self.quantile is not None:
                values[:, 1] = self.values[at, 1]
        return Rows(at.astype(np.uint32), self.cells if self.dense else self.cells.take(at), values)


def class_target(
    y: npt.NDArray[np.int32],
    n_classes: int,
    weights: npt.NDArray[np.float64] | None,
    factors: npt.NDArray[np.float64] | None = None,
    *,
    drawn: bool = False,
) -> Target:
    """Class codes as a cell target.

    Parameters
    ----------
    y : (rows,) int32
    weights : (rows,) float64, or None = 1
    factors : (rows,) float64, or None = 1
        What multiplies the statistics of a row, and does not change how often it is drawn.
    drawn : bool
        Rows will be drawn in proportion to their weight, not weighted by it.
    """
    w, _ = gridded_weights(len(y), weights)
    unit, draw_weights = draws(w, weights, drawn)
    own = unit if factors is None else multiplied(unit, factors, float((w * factors).sum()))
    return Target(
        y.astype(np.uint32), own[:, None], n_classes,
        draw_weights=draw_weights, draw_unit=1.0 if draw_weights is None else float(unit[0]),
    )  # fmt: skip


def number_target(
    y: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64] | None,
    *,
    drawn: bool = False,
    centred: bool = True,
) -> Target:
    """A number as dense statistics ``(w, w * (y - center))``; see `class_target`.

    The center is the weighted median (0 unless `centred`): of all centers it
    leaves the least ``sum(w * |y - center|)``, hence the finest grid, and it is
    the same number for any order of the rows and for repeated rows in place of
    weights.

    Raises
    ------
    DataError
        If squares of the target, or weighted sums of them, leave float64.
    """
    w, whole = gridded_weights(len(y), weights)
    center = median(y, w) if centred else 0.0
    check_range(y[w > 0], center, float(w.sum()))
    # Rows of no weight may lie anywhere.
    distance = np.subtract(y, center, out=np.zeros(len(y)), where=w > 0)
    unit, draw_weights = draws(w, weights, drawn)
    whole = whole and not is_heavy(w) and bool(np.all(unit == np.floor(unit)))
    # One row weighs so much, whether it is a row of weight w or one of w copies.
    one = 1.0 if whole else float(w.sum()) / np.count_nonzero(w)
    one = one if draw_weights is None else float(unit[0])
    apart = np.abs(distance)
    # No `@`: threads that BLAS wakes for it go on spinning, and its order of adding varies.
    step = step_of(reach(float((apart * w).sum()), one * float(apart.max())))
    # With whole weights first y, then the product: w copies of a row must add up
    # to the row of weight w.  With others that would round y as coarsely as w * y.
    wy = unit * on_grid(distance, step) if whole else on_grid(unit * distance, step)
    # Several steps: bootstrap counts multiply the rounding of a row.
    noise = 0.0 if whole else 8 * step
    values = np.column_stack([unit, wy])
    draw_unit = 1.0 if draw_weights is None else float(unit[0])
    return Target(np.empty(0, np.uint32), values, 2, center, noise, draw_weights, draw_unit)


def classes_target(
    y: npt.NDArray[np.int32],
    n_classes: Sequence[int],
    weights: npt.NDArray[np.float64] | None,
    factors: npt.NDArray[np.float64] | None = None,
    *,
    drawn: bool = False,
) -> Target:
    """Class codes (rows, targets) of several targets, one block of class weights each."""
    blocks = Blocks(tuple(accumulate(n_classes, initial=0)), classes=True)
    one = class_target(y[:, 0], n_classes[0], weights, factors, drawn=drawn)
    return replace(
        one,
        cells=np.empty(0, np.uint32),
        values=class_blocks(y, blocks, one.values[:, 0]),
        size=blocks.cells,
        blocks=blocks,
    )


def class_blocks(
    y: npt.NDArray[np.int32], blocks: Blocks, w: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """(rows, S): the weight of each row, and again in the cell of its class of each target."""
    values = np.zeros((len(y), blocks.cells))
    values[:, 0] = w
    for k, first in enumerate(blocks.starts):
        values[np.arange(len(y)), first + y[:, k]] = w
    return values


def numbers_target(
    y: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64] | None,
    *,
    drawn: bool = False,
    centred: bool = True,
) -> Target:
    """Several numbers (rows, targets), each as `number_target` has it."""
    each = [number_target(own, weights, drawn=drawn, centred=centred) for own in y.T]
    sums = [one.values[:, 1:] for one in each]
    blocks = Blocks(tuple(range(len(each) + 1)), classes=False)
    return replace(
        each[0],
        values=np.concatenate([each[0].values[:, :1], *sums], axis=1),
        size=blocks.cells,
        center=np.array([one.center for one in each]),
        noise=max(one.noise for one in each),
        blocks=blocks,
    )


def rank_target(
    y: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64] | None,
    quantile: float,
    *,
    drawn: bool = False,
) -> Target:
    """A number for criteria of its order, `treekit.contracts.Ranks`; see `number_target`."""
    sums = number_target(y, weights, drawn=drawn)
    values = np.column_stack([sums.values[:, 0], y, sums.values[:, 1]])
    return replace(sums, values=values, size=4, center=0.0, quantile=quantile)


# ---------------------------------------------------------------- grid
# Grids of a power of two, on which sums of weights and of numbers are exact.
#
# Every sum over the training rows is a whole number of steps below 2**53, in any
# order and in any parts.

MAX_COPIES = 16
"""Mean whole weight up to which a bootstrap draws copy by copy."""

_EXACT_BITS = 52

_SHARED_BITS = 40
"""Steps of a coarser grid that all rows, each of a column's largest number, would come to."""

_HEAVY = 2.0**24
"""Total whole weight from which weights may be heavier than copies of rows."""

_SMALLEST, _LARGEST = 1e-280, 1e300
"""Bounds of the sums of squares that criteria may rely on."""


def check_range(y: npt.NDArray[np.float64], center: float, total: float) -> None:
    """Raise `DataError` where squared errors of rows of this total weight overflow or vanish."""
    weight = max(total, 1.0)
    largest = float(np.abs(y).max())
    if largest > math.sqrt(_LARGEST / weight):
        raise DataError(
            f"the target reaches from {y.min():g} to {y.max():g}: squares of it overflow; "
            "divide the target by a constant"
        )
    spread = float(np.abs(y - center).max())
    if 0 < spread < math.sqrt(_SMALLEST / min(total, 1.0)):
        raise DataError(
            f"the target lies within {spread:g} of {center:g}: squares of that vanish; "
            "multiply the target by a constant"
        )


def is_heavy(w: npt.NDArray[np.float64]) -> bool:
    """Whether whole weights are so heavy that grids for as many copies would be coarse."""
    return float(w.sum()) > max(_HEAVY, float(MAX_COPIES * np.count_nonzero(w)))


def median(y: npt.NDArray[np.float64], w: npt.NDArray[np.float64]) -> float:
    """The lower weighted median."""
    if np.all(w == 1.0):
        middle = (len(y) - 1) // 2
        return float(np.partition(y, middle)[middle])
    order = np.argsort(y)
    below = np.cumsum(w[order])
    return float(y[order[np.searchsorted(below, below[-1] / 2)]])


def draws(
    w: npt.NDArray[np.float64], weights: npt.NDArray[np.float64] | None, drawn: bool
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64] | None]:
    """Weight of each row's statistics, and what to draw it in proportion to.

    `w` are the gridded weights; `weights` those given, None where there are none.
    """
    if weights is None or not drawn:
        return w, None
    total = float(w.sum())
    unit = total / draws_of(w)
    if unit != 1.0:
        unit = float(on_grid(np.array([unit]), step_of(total * 2))[0])
    return np.full(len(w), unit), w


def draws_of(weights: npt.NDArray[np.float64]) -> int:
    """How many rows a bootstrap sample draws.

    As many as there are copies, where weights are whole numbers: a row of
    weight w is drawn as w rows of the table are.  As many as there are rows
    where weights are no counts, or count so many that drawing one by one
    would take long; each draw then weighs more.
    """
    total, rows = float(weights.sum()), int(np.count_nonzero(weights))
    whole = bool(np.all(weights == np.floor(weights)))
    return int(total) if whole and total <= MAX_COPIES * rows else rows


def gridded_weights(
    n: int, weights: npt.NDArray[np.float64] | None
) -> tuple[npt.NDArray[np.float64], bool]:
    """Weights on a grid, and whether they are whole numbers."""
    if weights is None:
        return np.ones(n), True
    total = float(weights.sum())
    if not 1e-120 < total < 1e120:
        raise DataError(
            f"the weights add up to {total:g}: squares of that leave float64; "
            "multiply the weights by a constant"
        )
    if np.all(weights == np.floor(weights)) and total < 2.0**_EXACT_BITS:
        return weights.astype(np.float64), True
    step = step_of(reach(total, float(weights.max())))
    return np.maximum(on_grid(weights, step), np.where(weights > 0, step, 0.0)), False


def multiplied(
    unit: npt.NDArray[np.float64], factors: npt.NDArray[np.float64], total: float
) -> npt.NDArray[np.float64]:
    """Weights times factors, whose expected sum over a sample is `total`, on a grid; 0 stays 0."""
    product = unit * factors
    step = step_of(reach(total, float(product.max())))
    return np.maximum(on_grid(product, step), np.where(product > 0, step, 0.0))


def reach(total: float, largest: float) -> float:
    """A bound of sums of any bootstrap sample: one far row may be drawn many times."""
    return 2.0 * total + 32.0 * largest


def step_of(reach: float) -> float:
    """The finest power of two of which `reach` is fewer than 2**52 steps."""
    if reach == 0.0:
        return 1.0
    return math.ldexp(1.0, max(math.frexp(reach)[1] - _EXACT_BITS, -1000))


def common_steps(
    steps: npt.NDArray[np.float64], largest: npt.NDArray[np.float64], total: float
) -> npt.NDArray[np.float64]:
    """One grid for columns whose sums are compared with each other: the coarsest of theirs.

    Numbers that are equal in two columns are then rounded alike, wherever they are rounded,
    so that equal columns have equal sums and those of parts never exceed the whole.  Columns
    of so much smaller numbers that the grid would blur them share the next finer one.

    Parameters
    ----------
    steps : (columns,) float64
        The grid that each column needs.
    largest : (columns,) float64
        Largest absolute number of each column, for a row of weight 1.  Weights and
        indicators have 1, and so the same grid.
    total : float
        Weight of all rows.

    Returns
    -------
    (columns,) float64
    """
    shared, left = steps.copy(), np.ones(len(steps), np.bool_)
    while left.any():
        step = steps[left].max()
        fine = largest * total >= math.ldexp(step, _SHARED_BITS)
        members = left & (fine | (steps == step))
        shared[members] = step
        left &= ~members
    return shared


def grid_of(values: npt.NDArray[np.float64], *, common: bool = False) -> npt.NDArray[np.float64]:
    """(columns,) float64: steps of the grid on which rows are cut into parts.

    Powers of two, so fine that all sums of parts of `values` (rows, columns) are exact;
    `common`: as `common_steps` has them, the first column being weights above 0.
    """
    steps = np.array([step_of(2.0 * float(np.abs(column).sum())) for column in values.T])
    if not common or not len(values):
        return steps
    largest = np.array([float(np.abs(column / values[:, 0]).max()) for column in values.T])
    return common_steps(steps, largest, float(values[:, 0].sum()))


def on_grid(
    values: npt.NDArray[np.float64], step: float | npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Nearest multiples of `step`, ties to even."""
    return np.asarray(np.rint(values / step) * step)


# ---------------------------------------------------------------- layouts
# Rows of a plugin's task as additive statistics: in cells, or dense ones on common grids.


def layout_target(
    placed: npt.NDArray[np.int64] | npt.NDArray[np.float64],
    layout: Layout,
    n_answers: int,
    weights: npt.NDArray[np.float64] | None,
    factors: npt.NDArray[np.float64] | None = None,
    *,
    drawn: bool = False,
) -> Target:
    """Rows of a task, as its layout places them: cells (rows,) or statistics (rows, S).

    Statistics are put on one grid where they are of like size, weights included
    (`treekit.grow.target_statistics.common_steps`): what a plugin counts in two columns adds up
    alike.

    Parameters
    ----------
    placed : (rows,) int64 or (rows, S) float64
    n_answers : int
        V.
    weights, factors, drawn
        See `class_target`.

    Raises
    ------
    DataError
        If squares of the statistics leave float64.
    """
    if placed.ndim == 1:
        cells = placed.astype(np.int32)
        counting = class_target(cells, layout.size, weights, factors, drawn=drawn)
        return replace(counting, layout=layout, n_answers=n_answers)
    w, whole = gridded_weights(len(placed), weights)
    unit, draw_weights = draws(w, weights, drawn)
    draw_unit = 1.0 if draw_weights is None else float(unit[0])
    expected, own = w, unit
    if factors is not None:
        expected = w * factors
        own = multiplied(unit, factors, float(expected.sum()))
    # As in `number_target`: copies of a row add up to one row of whole weight.
    whole = factors is None and whole and not is_heavy(w) and bool(np.all(unit == np.floor(unit)))
    counted = np.where(own[:, None] > 0, placed, 0.0)  # rows of no weight may lie anywhere
    one = 1.0 if whole else float(own.max())
    if not whole and draw_weights is None and factors is None:
        one = float(w.sum()) / np.count_nonzero(w)
    steps = _dense_steps(counted, expected, one)
    if whole:
        values = own[:, None] * on_grid(counted, steps)
    else:
        own = np.maximum(on_grid(own, steps[0]), np.where(own > 0, steps[0], 0.0))
        values = on_grid(own[:, None] * counted, steps)
    return Target(
        np.empty(0, np.uint32), values, layout.size,
        noise=0.0 if whole else 8 * float(steps.max()),
        draw_weights=draw_weights, draw_unit=draw_unit, layout=layout, n_answers=n_answers,
        placed=placed.astype(np.float64, copy=False),
    )  # fmt: skip


def _dense_steps(
    counted: npt.NDArray[np.float64], w: npt.NDArray[np.float64], one: float
) -> npt.NDArray[np.float64]:
    """(S,) float64: steps for the statistics (rows, S) of rows of weight w, each some `one`."""
    total, largest, needed = float(w.sum()), np.abs(counted).max(axis=0), []
    for column, most in zip(counted.T, largest.tolist(), strict=True):
        check_range(column, 0.0, total)
        needed.append(step_of(reach(float((np.abs(column) * w).sum()), one * most)))
    return common_steps(np.array(needed), largest, total)
