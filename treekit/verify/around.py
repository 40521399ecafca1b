"""Numbers next to thresholds, on which a wrong comparison would show."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Dtype
from treekit.model.fixed_point import double_threshold

__all__ = ["AROUND", "around_thresholds", "next_above"]

Array = npt.NDArray[np.float64]

AROUND = 11
"""Columns of `around_thresholds`."""


def next_above(values: Array, dtype: Dtype) -> Array:
    """The next number of type `dtype` above each of `values`, as float64."""
    with np.errstate(over="ignore", under="ignore"):  # infinity follows the largest number
        above: Array = np.nextafter(values.astype(dtype), np.inf, dtype=dtype).astype(np.float64)
    return above


def around_thresholds(thresholds: Array, dtype: Dtype) -> Array:
    """(thresholds, 11) float64: the numbers on which a wrong comparison would show.

    The threshold and the next number of the input type; the two doubles
    between which rounding to the input type changes sides; one ulp down and
    up in double and in single precision; infinities; negative zero.
    """
    t = thresholds + 0.0
    after = next_above(t, dtype)
    edge = double_threshold(t) if dtype == "float32" else t
    with np.errstate(over="ignore", under="ignore"):
        single = t.astype(np.float32)
        zero = np.where((t == 0) | (after == 0), -0.0, np.nan)
        columns = [
            *(t, after, edge, np.nextafter(edge, np.inf)),
            *(np.nextafter(t, -np.inf), np.nextafter(t, np.inf)),
            np.nextafter(single, np.float32(-np.inf)).astype(np.float64),
            np.nextafter(single, np.float32(np.inf)).astype(np.float64),
            *(np.full_like(t, -np.inf), np.full_like(t, np.inf), zero),
        ]
    return _without_repeats(np.stack(columns, axis=1))


def _without_repeats(values: Array) -> Array:
    """NaN in place of what stands further left already; zeros differ by their sign."""
    bits = values.view(np.int64)
    for column in range(2, values.shape[1]):
        repeated = (bits[:, :column] == bits[:, column, None]).any(axis=1)
        values[repeated, column] = np.nan
    return values
