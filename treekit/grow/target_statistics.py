"""Targets as additive statistics whose sums are exact in any order.

Weights and ``weight * y`` are rounded to multiples of a power of two, so that splits do not
depend on row order, threads or the order of additions, and ``parent - left`` is exactly the
right side.
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
from treekit.grow.compile_criterion import TargetBlocks
from treekit.kernels.records import Rows

# ---------------------------------------------------------------- target


@dataclass(frozen=True)
class TargetStatistics:
    """The contribution of each training row to a node's statistics, S numbers called cells.

    A row of a cell target, such as a class, adds its weight to one cell.  A row of a dense
    target, such as a number, adds to all S cells.  A rank target is a number for a criterion
    with `treekit.contracts.Ranks`, such as the absolute error: statistics about a quantile.

    Attributes
    ----------
    cells : (rows,) uint32
        Index of the cell of each row, for cell targets; else empty.
    values : (rows, 1), (rows, S) or (rows, 3) float64
        Weight of each row for cell targets; its statistics, weight first, for dense targets;
        ``(w, y, w * (y - center))`` for rank targets.
    size : int
        S, the number of cells of a node's statistics.
    center : float or (targets,) float64
        Constant subtracted from y before summation.
    noise : float
        Bound on the rounding of a row's dense statistics; 0 for integer weights.
    draw_weights : (rows,) float64 or None
        Bootstrap weights of rows, proportional to their probabilities; None if all are equal.
    draw_unit : float
        Weight of a row that is drawn once, before it is multiplied by its class weight.
    quantile : float or None
        Quantile level of a rank target, whose statistics are not additive.
    blocks : TargetBlocks or None
        Layout of the statistics of several targets; None for a single target.
    layout : Layout or None
        Layout of a plugin's task, which computes node values.
    n_answers : int
        V, the number of node values of such a task.
    placed : (rows, S) float64 or None
        Dense statistics of the rows of a plugin's task, before they are multiplied by row and
        class weights.
    step : float or (targets,) float64
        Grid step of numbers, or of class weights that are multiplied by factors.
    total_weight : float or None
        Weight of all training rows if these are only some of them.
    """

    cells: npt.NDArray[np.uint32]
    values: npt.NDArray[np.float64]
    size: int
    center: float | npt.NDArray[np.float64] = 0.0
    noise: float = 0.0
    draw_weights: npt.NDArray[np.float64] | None = None
    draw_unit: float = 1.0
    quantile: float | None = None
    blocks: TargetBlocks | None = None
    layout: Layout | None = None
    n_answers: int = 0
    placed: npt.NDArray[np.float64] | None = None
    step: float | npt.NDArray[np.float64] = 1.0
    total_weight: float | None = None

    @property
    def is_dense(self) -> bool:
        """Whether rows carry a vector of statistics rather than a cell."""
        return len(self.cells) == 0

    @property
    def has_class_weights(self) -> bool:
        """Whether statistics are class weights, not sums of numbers."""
        return not self.is_dense or (self.blocks is not None and self.blocks.classes)

    @property
    def n_values(self) -> int:
        """Number of values of a node: weights of all classes, or a number for each target."""
        if self.layout is not None:
            return self.n_answers
        if self.blocks is not None:
            return self.blocks.ends[-1]
        return 1 if self.is_dense else self.size

    def select_rows(
        self, ids: npt.NDArray[np.integer[Any]], repeats: npt.NDArray[np.float64] | None
    ) -> Rows:
        """Return the rows of one tree; `repeats` (rows,) are bootstrap counts.

        Rows of weight zero are left out, since they must not shape the tree.  Rows of a
        rank target are sorted by y.
        """
        at = ids.astype(np.intp, copy=False)  # converted once, not at each indexing below
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
        return Rows(
            at.astype(np.uint32), self.cells if self.is_dense else self.cells.take(at), values
        )


def make_class_target(
    y: npt.NDArray[np.int32],
    n_classes: int,
    weights: npt.NDArray[np.float64] | None,
    factors: npt.NDArray[np.float64] | None = None,
    *,
    drawn: bool = False,
) -> TargetStatistics:
    """Make a cell target of class codes.

    Parameters
    ----------
    y : (rows,) int32
    weights : (rows,) float64, or None = 1
    factors : (rows,) float64, or None = 1
        Class weights: they multiply a row's statistics, but not its bootstrap probability.
    drawn : bool
        Whether rows will be drawn in proportion to their weight, not weighted by it.
    """
    w, _ = round_weights(len(y), weights)
    unit, draw_weights = compute_draw_weights(w, weights, drawn)
    own, step = unit, 1.0
    if factors is not None:
        step = choose_factor_step(unit, factors, sum_upwards(w * factors))
        own = multiply_weights(unit, factors, step)
    return TargetStatistics(
        y.astype(np.uint32), own[:, None], n_classes, step=step,
        draw_weights=draw_weights, draw_unit=1.0 if draw_weights is None else float(unit[0]),
    )  # fmt: skip


def make_number_target(
    y: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64] | None,
    *,
    drawn: bool = False,
    centred: bool = True,
) -> TargetStatistics:
    """Make a target of dense statistics ``(w, w * (y - center))``; see `make_class_target`.

    The center is the weighted median (0 unless `centred`).  It minimises
    ``sum(w * |y - center|)``, which allows the finest grid, and is the same number for
    any order of the rows and for repeated rows in place of weights.

    Raises
    ------
    DataError
        If squares of the target, or weighted sums of them, are out of range for float64.
    """
    w, whole = round_weights(len(y), weights)
    center = compute_weighted_median(y, w) if centred else 0.0
    check_target_range(y[w > 0], center, float(w.sum()))
    # Rows of weight zero may have any y.
    distance = np.subtract(y, center, out=np.zeros(len(y)), where=w > 0)
    unit, draw_weights = compute_draw_weights(w, weights, drawn)
    whole = whole and not has_heavy_weights(w) and bool(np.all(unit == np.floor(unit)))
    # Weight of a row, the same for a row of weight w as for each of w copies.
    one = 1.0 if whole else float(w.sum()) / np.count_nonzero(w)
    one = one if draw_weights is None else float(unit[0])
    apart = np.abs(distance)
    step = choose_step(bound_sums(sum_upwards(apart * w), one * float(apart.max())))
    # For integer weights round y before the product: w copies of a row must add up to the
    # row of weight w.  For other weights this would round y as coarsely as w * y.
    wy = unit * round_to_step(distance, step) if whole else round_to_step(unit * distance, step)
    # Several steps: bootstrap counts multiply the rounding error of a row.
    noise = 0.0 if whole else 8 * step
    values = np.column_stack([unit, wy])
    draw_unit = 1.0 if draw_weights is None else float(unit[0])
    return TargetStatistics(
        np.empty(0, np.uint32), values, 2, center, noise, draw_weights, draw_unit, step=step
    )


def make_multioutput_class_target(
    y: npt.NDArray[np.int32],
    n_classes: Sequence[int],
    weights: npt.NDArray[np.float64] | None,
    factors: npt.NDArray[np.float64] | None = None,
    *,
    drawn: bool = False,
) -> TargetStatistics:
    """Make a target of class codes (rows, targets), with one block of class weights each."""
    blocks = TargetBlocks(tuple(accumulate(n_classes, initial=0)), classes=True)
    one = make_class_target(y[:, 0], n_classes[0], weights, factors, drawn=drawn)
    return replace(
        one,
        cells=np.empty(0, np.uint32),
        values=fill_class_blocks(y, blocks, one.values[:, 0]),
        size=blocks.n_cells,
        blocks=blocks,
    )


def fill_class_blocks(
    y: npt.NDArray[np.int32], blocks: TargetBlocks, w: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return statistics (rows, S): the weight of each row, also in its class cell per target."""
    values = np.zeros((len(y), blocks.n_cells))
    values[:, 0] = w
    for k, first in enumerate(blocks.first_cells):
        values[np.arange(len(y)), first + y[:, k]] = w
    return values


def make_multioutput_number_target(
    y: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64] | None,
    *,
    drawn: bool = False,
    centred: bool = True,
) -> TargetStatistics:
    """Make a target of several numbers (rows, targets); see `make_number_target`."""
    each = [make_number_target(own, weights, drawn=drawn, centred=centred) for own in y.T]
    sums = [one.values[:, 1:] for one in each]
    blocks = TargetBlocks(tuple(range(len(each) + 1)), classes=False)
    return replace(
        each[0],
        values=np.concatenate([each[0].values[:, :1], *sums], axis=1),
        size=blocks.n_cells,
        center=np.array([one.center for one in each]),
        step=np.array([one.step for one in each]),
        noise=max(one.noise for one in each),
        blocks=blocks,
    )


def make_rank_target(
    y: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64] | None,
    quantile: float,
    *,
    drawn: bool = False,
) -> TargetStatistics:
    """Make a target for criteria of ranks, `treekit.contracts.Ranks`; see `make_number_target`."""
    sums = make_number_target(y, weights, drawn=drawn)
    values = np.column_stack([sums.values[:, 0], y, sums.values[:, 1]])
    return replace(sums, values=values, size=4, center=0.0, quantile=quantile)


def make_partition_target(
    whole: TargetStatistics,
    y: npt.NDArray[np.int32] | npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64] | None,
    factors: npt.NDArray[np.float64] | None,
) -> TargetStatistics:
    """Return the statistics of some rows, as they are in the target of all rows.

    Parameters
    ----------
    whole : TargetStatistics
        Of all rows, with integer weights; its arrays are not read.
    y, weights, factors
        Of these rows; `weights` None = 1.
    """
    w = np.ones(len(y)) if weights is None else weights
    drawn = whole.draw_weights is not None
    unit = np.full(len(w), whole.draw_unit) if drawn else w
    if whole.has_class_weights:
        codes = np.asarray(y, dtype=np.int32)
        if factors is not None:
            unit = multiply_weights(unit, factors, float(whole.step))
        if whole.blocks is not None:
            cells, values = whole.cells[:0], fill_class_blocks(codes, whole.blocks, unit)
        else:
            cells, values = codes.astype(np.uint32), unit[:, None]
    else:
        counted = (w > 0).reshape(-1, *[1] * (y.ndim - 1))  # rows of weight zero may have any y
        distance = np.subtract(y, whole.center, out=np.zeros(y.shape), where=counted)
        cells = whole.cells[:0]
        values = np.column_stack([unit, (unit * round_to_step(distance, whole.step).T).T])
    return replace(whole, cells=cells, values=values, draw_weights=w if drawn else None)


# ---------------------------------------------------------------- exact sums
# Weights and numbers are rounded to multiples of a power of two (the step of a grid).
# Every sum over any of the training rows is an integer number of steps below 2**53, and
# therefore exact in any order.

MAX_COPIES = 16
"""Largest mean integer weight for which a bootstrap draws individual copies of rows."""

_EXACT_BITS = 52

_SHARED_BITS = 40
"""A column shares a coarser grid if its largest number, summed over all rows, reaches 2**40
steps of it."""

_MAX_COPY_WEIGHT = 2.0**24
"""Total integer weight up to which weights are always treated as copies of rows."""

_SMALLEST_SQUARES, _LARGEST_SQUARES = 1e-280, 1e300
"""Bounds of sums of squares, guaranteed to criteria."""


def check_target_range(y: npt.NDArray[np.float64], center: float, total: float) -> None:
    """Raise `DataError` if squared errors of rows of this total weight overflow or underflow."""
    weight = max(total, 1.0)
    largest = float(np.abs(y).max())
    if largest > math.sqrt(_LARGEST_SQUARES / weight):
        raise DataError(
            f"the target ranges from {y.min():g} to {y.max():g}, and its squares overflow float64; "
            "divide the target by a constant"
        )
    spread = float(np.abs(y - center).max())
    if 0 < spread < math.sqrt(_SMALLEST_SQUARES / min(total, 1.0)):
        raise DataError(
            f"the target lies within {spread:g} of {center:g}, and squared differences underflow "
            "float64; multiply the target by a constant"
        )


def has_heavy_weights(w: npt.NDArray[np.float64]) -> bool:
    """Check whether integer weights are too large to be treated as copies of rows."""
    return float(w.sum()) > max(_MAX_COPY_WEIGHT, float(MAX_COPIES * np.count_nonzero(w)))


def compute_weighted_median(y: npt.NDArray[np.float64], w: npt.NDArray[np.float64]) -> float:
    """Return the lower weighted median."""
    if np.all(w == 1.0):
        middle = (len(y) - 1) // 2
        return float(np.partition(y, middle)[middle])
    order = np.argsort(y)
    below = np.cumsum(w[order])
    return float(y[order[np.searchsorted(below, below[-1] / 2)]])


def compute_draw_weights(
    w: npt.NDArray[np.float64], weights: npt.NDArray[np.float64] | None, drawn: bool
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64] | None]:
    """Return the weights of rows in statistics, and those to draw rows by.

    `w` are the weights rounded to the grid; `weights` the original ones or None.
    """
    if weights is None or not drawn:
        return w, None
    total = float(w.sum())
    unit = total / count_draws(w)
    if unit != 1.0:
        unit = float(round_to_step(np.array([unit]), choose_step(total * 2))[0])
    return np.full(len(w), unit), w


def count_draws(weights: npt.NDArray[np.float64]) -> int:
    """Return the number of rows that a bootstrap sample draws.

    For integer weights, it is their sum: a row of weight w is drawn like w rows of the
    table.  For other weights, and for sums that would take long to draw one by one, it is
    the number of rows; each draw then has a larger weight.
    """
    total, rows = float(weights.sum()), int(np.count_nonzero(weights))
    whole = bool(np.all(weights == np.floor(weights)))
    return int(total) if whole and total <= MAX_COPIES * rows else rows


def round_weights(
    n: int, weights: npt.NDArray[np.float64] | None
) -> tuple[npt.NDArray[np.float64], bool]:
    """Return weights rounded to the grid, and whether they are integers."""
    if weights is None:
        return np.ones(n), True
    total = sum_upwards(weights)
    if not 1e-120 < total < 1e120:
        raise DataError(
            f"the weights add up to {total:g}, whose square is out of range for float64; "
            "multiply the weights by a constant"
        )
    if np.all(weights == np.floor(weights)) and total < 2.0**_EXACT_BITS:
        return weights.astype(np.float64), True
    step = choose_step(bound_sums(total, float(weights.max())))
    return np.maximum(round_to_step(weights, step), np.where(weights > 0, step, 0.0)), False


def choose_factor_step(
    unit: npt.NDArray[np.float64], factors: npt.NDArray[np.float64], total: float
) -> float:
    """Return the grid step of weights multiplied by factors, whose sums are about `total`."""
    return choose_step(bound_sums(total, float((unit * factors).max())))


def multiply_weights(
    unit: npt.NDArray[np.float64], factors: npt.NDArray[np.float64], step: float
) -> npt.NDArray[np.float64]:
    """Multiply weights by factors and round them to multiples of `step`; 0 stays 0."""
    product = unit * factors
    return np.maximum(round_to_step(product, step), np.where(product > 0, step, 0.0))


def bound_sums(total: float, largest: float) -> float:
    """Bound the sums of any bootstrap sample, which may draw the largest row many times."""
    return 2.0 * total + 32.0 * largest


def sum_upwards(numbers: npt.NDArray[np.float64]) -> float:
    """Return an upper bound of the sum of non-negative numbers that does not depend on their order.

    Each is rounded up to a multiple of 2**-31 of the largest, so that partial sums of
    any division of the numbers add up to the same integer.
    """
    largest = float(numbers.max(initial=0.0))
    if not 0.0 < largest < math.inf:
        return largest
    unit = math.ldexp(1.0, max(math.frexp(largest)[1] - 31, -1000))
    return float(np.ceil(numbers / unit).astype(np.int64).sum()) * unit


def choose_step(reach: float) -> float:
    """Return the smallest power of two of which `reach` is fewer than 2**52 steps."""
    if reach == 0.0:
        return 1.0
    return math.ldexp(1.0, max(math.frexp(reach)[1] - _EXACT_BITS, -1000))


def choose_common_steps(
    steps: npt.NDArray[np.float64], largest: npt.NDArray[np.float64], total: float
) -> npt.NDArray[np.float64]:
    """Choose a common grid, the coarsest needed, for columns whose sums are compared.

    Equal numbers in two columns are then rounded alike, so that equal columns have equal
    sums and sums of parts never exceed the total.  Columns of much smaller numbers, which
    the grid would round too coarsely, share the next finer one.

    Parameters
    ----------
    steps : (columns,) float64
        Grid step that each column needs.
    largest : (columns,) float64
        Largest absolute number of each column, for a row of weight 1.  It is 1 for weights
        and indicators, which therefore share a grid.
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


def choose_part_steps(
    values: npt.NDArray[np.float64], *, common: bool = False
) -> npt.NDArray[np.float64]:
    """Return grid steps (columns,) float64 for fractional instances of rows.

    The steps are powers of two, small enough that all sums of parts of `values` (rows,
    columns) are exact.  `common` applies `choose_common_steps`; the first column must then be
    positive weights.
    """
    steps = np.array([choose_step(2.0 * sum_upwards(np.abs(column))) for column in values.T])
    if not common or not len(values):
        return steps
    largest = np.array([float(np.abs(column / values[:, 0]).max()) for column in values.T])
    return choose_common_steps(steps, largest, float(values[:, 0].sum()))


def round_to_step(
    values: npt.NDArray[np.float64], step: float | npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Round to the nearest multiples of `step`, ties to even."""
    return np.asarray(np.rint(values / step) * step)


# ---------------------------------------------------------------- layouts of tasks


def make_layout_target(
    placed: npt.NDArray[np.int64] | npt.NDArray[np.float64],
    layout: Layout,
    n_answers: int,
    weights: npt.NDArray[np.float64] | None,
    factors: npt.NDArray[np.float64] | None = None,
    *,
    drawn: bool = False,
) -> TargetStatistics:
    """Make the target of a plugin's task from cells (rows,) or statistics (rows, S).

    Statistics of similar size, including weights, share a grid (`choose_common_steps`), so that
    equal quantities in two columns have equal sums.

    Parameters
    ----------
    placed : (rows,) int64 or (rows, S) float64
    n_answers : int
        V.
    weights, factors, drawn
        See `make_class_target`.

    Raises
    ------
    DataError
        If squares of the statistics leave float64.
    """
    if placed.ndim == 1:
        cells = placed.astype(np.int32)
        counting = make_class_target(cells, layout.size, weights, factors, drawn=drawn)
        return replace(counting, layout=layout, n_answers=n_answers)
    w, whole = round_weights(len(placed), weights)
    unit, draw_weights = compute_draw_weights(w, weights, drawn)
    draw_unit = 1.0 if draw_weights is None else float(unit[0])
    expected, own = w, unit
    if factors is not None:
        expected = w * factors
        own = multiply_weights(
            unit, factors, choose_factor_step(unit, factors, sum_upwards(expected))
        )
    # As in `make_number_target`: copies of a row add up to one row of integer weight.
    whole = (
        factors is None
        and whole
        and not has_heavy_weights(w)
        and bool(np.all(unit == np.floor(unit)))
    )
    counted = np.where(own[:, None] > 0, placed, 0.0)  # rows of weight zero may have any values
    one = 1.0 if whole else float(own.max())
    if not whole and draw_weights is None and factors is None:
        one = float(w.sum()) / np.count_nonzero(w)
    steps = _choose_dense_steps(counted, expected, one)
    if whole:
        values = own[:, None] * round_to_step(counted, steps)
    else:
        own = np.maximum(round_to_step(own, steps[0]), np.where(own > 0, steps[0], 0.0))
        values = round_to_step(own[:, None] * counted, steps)
    return TargetStatistics(
        np.empty(0, np.uint32), values, layout.size,
        noise=0.0 if whole else 8 * float(steps.max()),
        draw_weights=draw_weights, draw_unit=draw_unit, layout=layout, n_answers=n_answers,
        placed=placed.astype(np.float64, copy=False),
    )  # fmt: skip


def _choose_dense_steps(
    counted: npt.NDArray[np.float64], w: npt.NDArray[np.float64], one: float
) -> npt.NDArray[np.float64]:
    """Return grid steps (S,) for statistics (rows, S) of rows of weight w, of mean `one`."""
    total, largest, needed = float(w.sum()), np.abs(counted).max(axis=0), []
    for column, most in zip(counted.T, largest.tolist(), strict=True):
        check_target_range(column, 0.0, total)
        needed.append(choose_step(bound_sums(sum_upwards(np.abs(column) * w), one * most)))
    return choose_common_steps(np.array(needed), largest, total)
