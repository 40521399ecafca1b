"""Targets as additive statistics whose sums are exact in any order.

Weights and ``weight * y`` are put on the grids of `treekit.grow.grid`, so that splits
do not depend on row order, threads or the way sums are taken, and ``parent - left`` is
exactly the right side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.contracts import Layout
from treekit.grow.blocks import Blocks
from treekit.grow.grid import (
    check_range,
    draws,
    gridded_weights,
    is_heavy,
    median,
    multiplied,
    on_grid,
    reach,
    step_of,
)
from treekit.kernels.records import Rows

__all__ = [
    "Target",
    "class_blocks",
    "class_target",
    "classes_target",
    "number_target",
    "numbers_target",
    "rank_target",
]


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
