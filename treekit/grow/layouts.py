"""Rows of a plugin's task as additive statistics: in cells, or dense ones on common grids."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from treekit.contracts import Layout
from treekit.grow.grid import (
    check_range,
    common_steps,
    draws,
    gridded_weights,
    is_heavy,
    multiplied,
    on_grid,
    reach,
    step_of,
)
from treekit.grow.target import Target, class_target

__all__ = ["layout_target"]


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
    (`treekit.grow.grid.common_steps`): what a plugin counts in two columns adds up alike.

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
