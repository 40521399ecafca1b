"""Refuse targets whose values differ so much in size that leaf values would be wrong.

Sums of the target and of leaf values are exact because their terms are whole steps of a grid,
and the largest number determines the step.  One extreme value, such as a fill value of 1e20,
makes it so coarse that all other leaves would be wrong.  This is checked before trees grow.

Growth needs the sums only to compare splits: training is refused if ordinary numbers would keep
fewer than two digits.  Where its sums are too coarse for values of nodes, these are computed
again (`treekit.training.leaf_values`), except for criteria with a `leaf_value` of their own.

A leaf is rounded to the model's grid (`treekit.model.fixed_point`).  The error is accepted up to
1e-9 of each number, or a sixteenth of 1e-9 of the ordinary size, since a leaf near 0 needs no
more digits than others.  The ordinary size is the root mean square of the numbers, or of their
distances from the center, up to the first gap above the median (`_compute_ordinary_size`).
Errors that targets without extreme values have as well are accepted, too: they grow with the
number of rows.

If all numbers have one sign, such as sizes from 1 to 1e12, small leaves need digits of their own.
Training is then refused as well if

- more than 5% of the numbers keep fewer than six digits, or one keeps fewer than two, unless the
  step of any model would be as coarse;
- once the trees have grown, a leaf value keeps fewer than nine digits.  A leaf value smaller than
  each number, a mean with zeros, is measured against the smallest number.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.errors import DataError
from treekit.grow.target_statistics import NumberTarget, TargetStatistics, round_to_step
from treekit.model.fixed_point import (
    LEAF_ACCURACY,
    fit_regression_grid,
    is_fine_enough,
    list_grid_limits,
    scale_units,
)
from treekit.model.model import Model
from treekit.training.plan import Plan

Numbers = npt.NDArray[np.float64]

_ROW_ERROR = 2.0**-46
"""Accepted error for each row, relative to ordinary numbers: 64 times that of normal targets."""

_FAR = 1024
"""Largest number, relative to ordinary ones, for which the step of any model is fine enough."""

_GAP = 32.0
"""Quotient of neighbouring sizes that separates far numbers from the tail of ordinary ones."""

_WIDE = 2.0**20
"""Largest number, relative to those of one sign, for which the step of any model is accepted."""

_LOST = 1e-2
"""Error of growth above which training is refused, relative to ordinary numbers."""

_FEW = 1e-6
"""Error relative to a number of one sign that may not be exceeded by more than `_FEW_SHARE`."""

_FEW_SHARE = 0.05
"""Share of the numbers other than 0 that may have a larger error."""

_SHOWN_ROWS = 3


def check_target_precision(dataset: Dataset, plan: Plan, target: TargetStatistics) -> bool:
    """Refuse a target with extreme values that would make leaf values inaccurate.

    Parameters
    ----------
    dataset : Dataset
        All training rows; its input columns are not read.
    plan : Plan
    target : TargetStatistics
        The grids chosen from all rows.

    Returns
    -------
    bool
        Whether values of nodes must be computed by `treekit.training.leaf_values`.

    Raises
    ------
    DataError
        Names the rows.
    """
    if not isinstance(target, NumberTarget):
        return False
    n_trees = plan.settings["trees"] if plan.settings["ensemble"] == "forest" else 1
    divides = plan.settings["missing"] == "fractional"
    limit = list_grid_limits(n_trees, dataset.schema.dtype)[-1]
    # The numbers of ranks are not summed.
    means = target.is_additive and plan.criterion.functions.leaf_value is None
    rows = None if dataset.weights is None else np.flatnonzero(dataset.weights > 0)
    y = dataset.y.astype(np.float64, copy=False).reshape(dataset.n_rows, -1)
    steps, centers = (np.broadcast_to(own, y.shape[1]) for own in (target.step, target.center))
    unit, lightness, again = 1.0, np.ones(1), False
    if target.noise > 0.0 and dataset.weights is not None:  # products with weights are rounded
        if target.draw_weights is not None:
            unit = target.draw_unit
        else:
            own_weights = dataset.weights[rows]
            unit = float(own_weights.mean())
            lightness = unit / own_weights
    for k, output in enumerate(dataset.schema.outputs):
        own = y[:, k] if rows is None else y[rows, k]
        grid = fit_regression_grid(float(np.abs(own).max()), limit)
        step = float(steps[k]) / unit
        numbers = _Numbers(own, float(centers[k]), step, lightness, grid.exponent, grid.limit)
        in_growth = numbers.measure_growth_error()
        # Growth rounds each part of a row down: of many parts in a leaf the errors add up.
        coarse = means and (divides or numbers.is_too_coarse(in_growth, dataset.weights, rows))
        again = again or coarse
        found = numbers.find_wrong_rows(in_growth, counted=not coarse)
        if found is not None:
            _refuse_far_rows(output.name, own, rows, *found)
    return again


def keeps_all_digits(dataset: Dataset) -> bool:
    """Check whether `check_leaf_precision` accepts any model of one tree of a dataset."""
    if dataset.schema.task != "regression":
        return True
    sizes = np.abs(dataset.y[dataset.y != 0.0])
    limit = list_grid_limits(1, dataset.schema.dtype)[-1]
    step = scale_units(0.5, fit_regression_grid(float(sizes.max(initial=0.0)), limit).exponent)
    return bool(sizes.min(initial=np.inf) * LEAF_ACCURACY >= step)


def check_leaf_precision(dataset: Dataset, model: Model) -> None:
    """Refuse the target if a leaf value does not keep nine digits.

    With target values of both signs, the 5% of leaf values nearest to 0 do not count.

    Raises
    ------
    DataError
        Names the rows of the largest numbers.
    """
    if model.schema.task != "regression":
        return
    values = np.concatenate([tree.value[tree.leaves] for tree in model.trees])
    if is_fine_enough(model.grid, values):
        return
    y = dataset.y.astype(np.float64, copy=False).reshape(dataset.n_rows, -1)
    halves = np.broadcast_to(scale_units(0.5, model.exponent), y.shape[1])
    rows = np.arange(len(y)) if dataset.weights is None else np.flatnonzero(dataset.weights > 0)
    for k, output in enumerate(dataset.schema.outputs):
        own, sizes, error = y[rows, k], np.abs(y[rows, k]), float(halves[k])
        wrong = (own != 0.0) & (sizes * LEAF_ACCURACY < error)
        if wrong.any():
            leaves = np.maximum(np.abs(values[:, k]), sizes[own != 0.0].min())
            lost, both = leaves * LEAF_ACCURACY < error, own.min() < 0.0 < own.max()
            if np.count_nonzero(lost) > (_FEW_SHARE * len(lost) if both else 0):
                largest = 2.0 * LEAF_ACCURACY * model.grid.limit * float(leaves.min())
                far = np.flatnonzero(sizes >= min(largest, float(sizes.max())))
                _refuse_far_rows(output.name, own, rows, error, int(wrong.sum()), far)


class _Numbers(NamedTuple):
    """The numbers of one output, and their grids.

    Attributes
    ----------
    y : (rows,) float64
    center : float
    step : float
        That of the grid of growth, 0 without one.
    lightness : (rows,) or (1,) float64
        The mean weight, relative to the row's: the error in growth of a light row is larger.
    exponent, limit : int
        Those of the model's grid.
    """

    y: Numbers
    center: float
    step: float
    lightness: Numbers
    exponent: Any
    limit: int

    def measure_growth_error(self) -> float:
        """Return the largest error of a number in the sums of growth."""
        distance = self.y - self.center
        error = 2.0**-52 * abs(self.center)
        if len(self.lightness) > 1:  # rounded is the product with the weight
            return error + (self.step / 2 if distance.any() else 0.0)
        if self.step > 0.0:
            error += float(np.abs(round_to_step(distance, self.step) - distance).max())
        return error

    def is_too_coarse(
        self, in_growth: float, weights: Numbers | None, rows: npt.NDArray[np.intp] | None
    ) -> bool:
        """Return whether the error of growth is too large for values of nodes.

        Of numbers of both signs, a twentieth may be rounded more: some values are near 0.
        """
        sizes = np.abs(self.y)
        known = sizes > 0.0
        bound = in_growth * float(self.lightness.max()) / LEAF_ACCURACY
        if not known.any() or bound <= sizes[known].min():
            return False
        if not self.y.min() < 0.0 < self.y.max():
            return True
        w = np.ones(len(sizes)) if weights is None else weights[rows]
        return bool(w[known & (sizes < bound)].sum() > _FEW_SHARE * w[known].sum())

    def find_wrong_rows(
        self, in_growth: float, *, counted: bool
    ) -> tuple[float, int, npt.NDArray[np.intp]] | None:
        """Return the largest error, the number of wrong rows, and the rows far from the others.

        The result is None if all numbers are kept.  `counted`: whether leaf values have the
        errors of growth.
        """
        y, half, share = self.y, float(scale_units(0.5, self.exponent)), 0.5 / self.limit
        distance = y - self.center
        error = half + (in_growth if counted else 0.0)
        errors = half + (in_growth * self.lightness if counted else np.zeros(1))
        lost = _are_digits_lost(y, errors, _WIDE * share)
        relative = max(LEAF_ACCURACY / 16, len(y) * _ROW_ERROR, _FAR * share)
        samples = (distance, y, y[distance != 0.0])
        least = min(map(_compute_median_size, samples))
        if not lost and error <= relative * least and in_growth <= _LOST * least:
            return None  # without sorting
        # If most numbers are one fill value, it is the center, and the others are ordinary.
        *both, others = map(_compute_ordinary_size, samples)
        ordinary = min(both)
        numbers = np.abs(y)
        size = min(ordinary, others)
        if in_growth > _LOST * size:
            error, errors = half + in_growth, half + in_growth * self.lightness
        elif error <= relative * size and not lost:
            return None
        wrong = (numbers > 0.0) & (numbers * max(LEAF_ACCURACY, _FAR * share) < errors)
        if not wrong.any():
            return None
        spread = np.abs(distance) if ordinary <= others and not lost else numbers
        far = np.flatnonzero(spread >= math.sqrt(float(spread.max())) * math.sqrt(size))
        return error, int(np.count_nonzero(wrong)), far


def _are_digits_lost(y: Numbers, errors: Numbers, accepted: float) -> bool:
    """Return whether too many numbers have errors (rows,) that are large relative to themselves.

    Numbers of both signs have leaves near 0 as well, and need only be larger than their error.

    Parameters
    ----------
    accepted : float
        Relative error that is always accepted for numbers of one sign.
    """
    numbers, counted = np.abs(y), max(int(np.count_nonzero(y)), 1)
    one_sign = not y.min() < 0.0 < y.max()
    few = max(_FEW, accepted) if one_sign else 1.0
    n_few = np.count_nonzero((numbers > 0.0) & (numbers * few < errors))
    if n_few <= _FEW_SHARE * counted and not (one_sign and n_few):
        return False
    lost = (numbers > 0.0) & (numbers * max(_LOST, accepted) < errors)
    return bool(lost.any()) or bool(n_few > _FEW_SHARE * counted)


def _compute_median_size(numbers: Numbers) -> float:
    """Return the lower median of the magnitudes other than 0; infinity if all are 0."""
    sizes = np.abs(numbers[numbers != 0.0])
    if not len(sizes):
        return math.inf
    middle = (len(sizes) - 1) // 2
    return float(np.partition(sizes, middle)[middle])


def _compute_ordinary_size(numbers: Numbers) -> float:
    """Return the root mean square of the magnitudes up to a gap above their median.

    Zeros do not count; the size is at least the median, and infinity if all numbers are 0.
    """
    sizes = np.sort(np.abs(numbers[numbers != 0.0]))
    if not len(sizes):
        return math.inf
    upper = sizes[(len(sizes) - 1) // 2 :]
    gaps = np.flatnonzero(upper[1:] / _GAP > upper[:-1])
    top = float(upper[gaps[0]] if len(gaps) else upper[-1])
    kept = sizes[sizes <= top] / top
    return max(float(upper[0]), top * math.sqrt(float(np.mean(kept * kept))))


def _refuse_far_rows(
    name: str,
    y: Numbers,
    rows: npt.NDArray[np.intp] | None,
    error: float,
    n_wrong: int,
    far: npt.NDArray[np.intp],
) -> NoReturn:
    """Refuse the rows whose numbers are far from the others."""
    at = far if rows is None else rows[far]
    some = zip(at[:_SHOWN_ROWS].tolist(), y[far[:_SHOWN_ROWS]].tolist(), strict=True)
    shown = ", ".join(f"row {row} is {value:.6g}" for row, value in some)
    more = f" and {len(at) - _SHOWN_ROWS:,} others" if len(at) > _SHOWN_ROWS else ""
    raise DataError(
        f"target {name!r} has extreme values: {shown}{more} (rows count from 0). Because of them, "
        f"predictions could be off by about {error:.1e}, more than 1e-9 of the value in "
        f"{n_wrong:,} rows; drop the rows with extreme values if these are errors or stand for "
        "missing values, or transform the target, for example by a logarithm"
    )
