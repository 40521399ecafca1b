"""Grids of a power of two, on which sums of weights and of numbers are exact.

Every sum over the training rows is a whole number of steps below 2**53, in any
order and in any parts.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from treekit.errors import DataError

__all__ = [
    "check_range",
    "common_steps",
    "draws",
    "draws_of",
    "grid_of",
    "gridded_weights",
    "is_heavy",
    "median",
    "multiplied",
    "on_grid",
    "reach",
    "step_of",
]

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
