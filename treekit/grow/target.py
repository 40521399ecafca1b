"""Targets as additive statistics whose sums are exact in any order.

Weights and ``weight * y`` are put on grids of a power of two, fine enough that
every sum over the training rows is a whole number of steps below 2**53.
Splits then do not depend on row order, threads or the way sums are taken, and
``parent - left`` is exactly the right side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treekit.kernels.node import Rows

__all__ = ["Target", "class_target", "number_target"]

_EXACT_BITS = 52


@dataclass(frozen=True)
class Target:
    """What each training row adds to a node's statistics.

    Attributes
    ----------
    cells : (rows,) uint32
        Cell of each row, for class targets; else empty.
    values : (rows, 1) or (rows, S) float64
        Weight of each row, or its dense statistics (weight first).
    size : int
        S, cells of a node's statistics.
    center : float
        Regression: what was subtracted from y.
    noise : float
        Largest rounding of a row's dense statistics; 0 for whole weights.
    """

    cells: npt.NDArray[np.uint32]
    values: npt.NDArray[np.float64]
    size: int
    center: float = 0.0
    noise: float = 0.0

    @property
    def dense(self) -> bool:
        """Whether rows carry a vector of statistics rather than a cell."""
        return len(self.cells) == 0

    def rows(self, ids: npt.NDArray[np.uint32], repeats: npt.NDArray[np.float64] | None) -> Rows:
        """Rows of one tree; `repeats` (rows,) multiplies each (bootstrap counts).

        Rows of no weight are left out: they may not shape the tree.
        """
        weight = self.values[ids, 0]
        times = np.ones(len(ids)) if repeats is None else repeats
        keep = (weight * times) > 0
        ids, times = ids[keep], times[keep]
        return Rows(
            ids.astype(np.uint32),
            self.cells[ids] if not self.dense else self.cells,
            np.ascontiguousarray(self.values[ids] * times[:, None]),
        )


def class_target(y: npt.NDArray[np.int32], n_classes: int, weights: npt.NDArray[np.float64] | None) -> Target:
    """Class codes as a cell target; weights (rows,) default to 1."""
    w = _gridded_weights(len(y), weights)
    return Target(y.astype(np.uint32), w[:, None], n_classes)


def number_target(y: npt.NDArray[np.float64], weights: npt.NDArray[np.float64] | None) -> Target:
    """A number as dense statistics ``(w, w * (y - center))``."""
    w = _gridded_weights(len(y), weights)
    total = float(w.sum())
    center = float((w / total) @ y)
    reach = float(np.abs(y - center) @ w) * 2 + abs(center)
    step = _step(max(reach, float(np.abs(y).max())))
    center = _on_grid(np.array([center]), step)[0]
    wy = _on_grid(w * (y - center), step)
    return Target(np.empty(0, np.uint32), np.column_stack([w, wy]), 2, float(center))


def _gridded_weights(n: int, weights: npt.NDArray[np.float64] | None) -> npt.NDArray[np.float64]:
    if weights is None:
        return np.ones(n)
    if np.all(weights == np.floor(weights)) and weights.sum() < 2.0**_EXACT_BITS:
        return weights.astype(np.float64)
    # Twice the sum: bootstrap may draw heavy rows more often than light ones.
    step = _step(float(weights.sum()) * 2)
    return np.maximum(_on_grid(weights, step), np.where(weights > 0, step, 0.0))


def _step(reach: float) -> float:
    """The finest power of two of which `reach` is fewer than 2**52 steps."""
    if reach == 0.0:
        return 1.0
    return math.ldexp(1.0, max(math.frexp(reach)[1] - _EXACT_BITS, -1000))


def _on_grid(values: npt.NDArray[np.float64], step: float) -> npt.NDArray[np.float64]:
    """Nearest multiples of `step`, ties to even."""
    return np.asarray(np.rint(values / step) * step)
