"""Warn, or refuse, if extreme values of a target make fixed-point sums too coarse for the others.

Sums of the target and of leaf values are exact because their terms are whole steps of a grid,
and the largest number determines the step.  One extreme value, such as a fill value of 1e20,
makes it so coarse that all other leaves would be wrong.  This is checked before trees grow.

The error of a leaf is at most the sum of a row's error in training and half a step of the model's
grid (`treekit.model.fixed_point`).  It is accepted up to 1e-9 of each number, or a sixteenth of
1e-9 of the ordinary size, since a leaf near 0 needs no more digits than others.  The ordinary size
is the root mean square of the numbers, or of their distances from the center, up to the first gap
above the median (`_compute_ordinary_size`).  Errors that targets without extreme values have as
well are accepted, too: they grow with the number of rows and, if missing values are fractional,
with the number of trees.  A larger error is a warning; training is refused if ordinary numbers
would keep fewer than two digits.

If all numbers have one sign, such as sizes from 1 to 1e12, small leaves need digits of their own.
More than a twentieth of the numbers with fewer than six digits are a warning, and so is one number
with fewer than two, unless the step of any model would be as coarse.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset
from treekit.errors import DataError, warn
from treekit.grow.target_statistics import TargetStatistics, round_to_step
from treekit.model.fixed_point import MASS, fit_regression_grid, scale_units
from treekit.training.plan import Plan

Numbers = npt.NDArray[np.float64]

_ACCURACY = 1e-9
"""Accepted error, relative to the number itself, or to a sixteenth of ordinary ones."""

_ROW_ERROR = 2.0**-46
"""Accepted error for each row, relative to ordinary numbers: 64 times that of normal targets."""

_FAR = 1024
"""Largest number, relative to ordinary ones, for which the step of any model is fine enough."""

_GAP = 32.0
"""Quotient of neighbouring sizes that separates far numbers from the tail of ordinary ones."""

_WIDE = 2.0**20
"""Largest number, relative to those of one sign, for which the step of any model is accepted."""

_LOST = 1e-2
"""Error above which training is refused, relative to ordinary numbers."""

_FEW = 1e-6
"""Error relative to a number of one sign that may not be exceeded by more than `_FEW_SHARE`."""

_FEW_SHARE = 0.05
"""Share of the numbers other than 0 that may have a larger error without a warning."""

_SHOWN_ROWS = 3


def check_target_precision(dataset: Dataset, plan: Plan, target: TargetStatistics) -> None:
    """Warn of, or refuse, numbers so far from the others that leaves would be wrong.

    Parameters
    ----------
    dataset : Dataset
        All training rows; its input columns are not read.
    plan : Plan
    target : TargetStatistics
        The grids chosen from all rows.

    Raises
    ------
    DataError
        If ordinary leaves would lose all but two digits; names the rows.
    """
    if dataset.schema.task != "regression" or plan.criterion.layout is not None:
        return
    n_trees = plan.settings["trees"] if plan.settings["ensemble"] == "forest" else 1
    mass = MASS if plan.settings["missing"] == "fractional" else 1
    dtype = dataset.schema.dtype
    rows = None if dataset.weights is None else np.flatnonzero(dataset.weights > 0)
    y = dataset.y.astype(np.float64, copy=False).reshape(dataset.n_rows, -1)
    steps, centers = (np.broadcast_to(own, y.shape[1]) for own in (target.step, target.center))
    unit, lightness = 1.0, np.ones(1)
    if target.noise > 0.0 and dataset.weights is not None:  # products with weights are rounded
        if target.draw_weights is not None:
            unit = target.draw_unit
        else:
            own_weights = dataset.weights[rows]
            unit = float(own_weights.mean())
            lightness = unit / own_weights
    for k, output in enumerate(dataset.schema.outputs):
        own = y[:, k] if rows is None else y[rows, k]
        largest = float(np.abs(own).max())
        grid = fit_regression_grid(largest, n_trees, dtype, mass, wide=True)
        half = float(scale_units(0.5, grid.exponent))
        # The numbers of ranks are not summed.
        step = 0.0 if target.quantile is not None else float(steps[k]) / unit
        found = _measure_errors(own, float(centers[k]), step, half, 0.5 / grid.limit, lightness)
        if found is not None:
            _report_far_rows(output.name, own, rows, found)


class _Imprecision(NamedTuple):
    """Numbers of a target that a grid does not keep.

    Attributes
    ----------
    error : float
        Largest error of a number.
    n_wrong : int
        Rows whose numbers are not kept.
    far : (rows,) int64
        Rows whose numbers determine the step.
    refused : bool
    """

    error: float
    n_wrong: int
    far: npt.NDArray[np.intp]
    refused: bool


def _measure_errors(
    y: Numbers, center: float, step: float, half: float, share: float, lightness: Numbers
) -> _Imprecision | None:
    """Return what is not kept of the numbers of one output; None if all are kept.

    Parameters
    ----------
    y : (rows,) float64
    step : float
        That of the grid in training, 0 without one.
    half, share : float
        Half a step of the model's grid, and half a step relative to the largest number.
    lightness : (rows,) or (1,) float64
        The mean weight, relative to the row's: the error in training of a light row is larger.
    """
    distance = y - center
    in_model = half + 2.0**-52 * abs(center)
    in_training = 0.0
    if len(lightness) > 1:  # rounded is the product with the weight
        in_training = step / 2 if distance.any() else 0.0
    elif step > 0.0:
        in_training = float(np.abs(round_to_step(distance, step) - distance).max())
    error = in_model + in_training
    errors = in_model + in_training * lightness
    lost = _are_digits_lost(y, errors, _WIDE * share)
    relative = max(_ACCURACY / 16, len(y) * _ROW_ERROR, _FAR * share)
    samples = (distance, y, y[distance != 0.0])
    if not lost and error <= relative * min(map(_compute_median_size, samples)):
        return None  # without sorting
    # If most numbers are one fill value, it is the center, and the others are the ordinary ones.
    *both, others = map(_compute_ordinary_size, samples)
    ordinary = min(both)
    numbers = np.abs(y)
    wrong = (numbers > 0.0) & (numbers * max(_ACCURACY, _FAR * share) < errors)
    size = min(ordinary, others)
    if not wrong.any() or (error <= relative * size and not lost):
        return None
    spread = np.abs(distance) if ordinary <= others and not lost else numbers
    far = np.flatnonzero(spread >= math.sqrt(float(spread.max())) * math.sqrt(size))
    return _Imprecision(error, int(np.count_nonzero(wrong)), far, error > _LOST * ordinary)


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


def _report_far_rows(
    name: str, y: Numbers, rows: npt.NDArray[np.intp] | None, found: _Imprecision
) -> None:
    """Warn of the rows whose numbers are far from the others, or refuse them."""
    at = found.far if rows is None else rows[found.far]
    some = zip(at[:_SHOWN_ROWS].tolist(), y[found.far[:_SHOWN_ROWS]].tolist(), strict=True)
    shown = ", ".join(f"row {row} is {value:.6g}" for row, value in some)
    more = f" and {len(at) - _SHOWN_ROWS:,} others" if len(at) > _SHOWN_ROWS else ""
    text = (
        f"target {name!r} has extreme values: {shown}{more} (rows count from 0). Because of them, "
        f"predictions can be off by about {found.error:.1e}, "
    )
    remedy = (
        "drop the rows with extreme values if these are errors or stand for missing ones, or "
        "transform the target, for example by a logarithm"
    )
    wrong = f"{found.n_wrong:,} rows"
    if found.refused:
        raise DataError(f"{text}which is too much for ordinary values ({wrong}); {remedy}")
    warn(f"{text}more than 1e-9 of the value in {wrong}; {remedy}")
