"""Random rows drawn around the thresholds of a model."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Dtype
from treekit.model.fixed_point import double_threshold
from treekit.model.model import Model

__all__ = ["UNSEEN_CODES", "random_rows"]

Array = npt.NDArray[np.float64]

UNSEEN_CODES = (-1.0, 0.0, 1.0, 2.0**20)
"""Codes that no vocabulary holds, counted from its size, but the first as it is."""

_SPECIAL = np.array(
    [
        *(0.0, -0.0, np.inf, -np.inf, 1.0, -1.0, 1e300, -1e300, 5e-324, -5e-324),
        *(2.0**-149, 2.0**-150, -(2.0**-150), 1e-40, 3.4028235e38, 2.0**128, 1e-7),
        float(np.nextafter(2.0**128 - 2.0**103, 0.0)),  # the last double below infinity as float32
    ]
)


def random_rows(model: Model, pools: list[Array], n_rows: int, rng: np.random.Generator) -> Array:
    """Draw rows that the model's policies accept.

    Parameters
    ----------
    model : Model
    pools : list of (thresholds,) float64
        For each column its thresholds, ascending.
    n_rows : int
    rng : numpy.random.Generator

    Returns
    -------
    (n_rows, features) float64
    """
    rows = np.empty((n_rows, model.schema.n_features))
    for f, column in enumerate(model.schema.columns):
        rows[:, f] = (
            _levels(model, column, n_rows, rng)
            if column.kind == "nominal"
            else _numbers(pools[f], model.schema.dtype, n_rows, rng)
        )
        if model.missing != "error":
            rows[rng.random(n_rows) < 0.1, f] = np.nan
    return rows


def _levels(model: Model, column: Column, n_rows: int, rng: np.random.Generator) -> Array:
    n_levels = len(column.levels)
    codes = np.floor(rng.random(n_rows) * n_levels)
    if model.unknown == "missing" and model.missing != "error":
        unseen = np.array([code if code < 0 else n_levels + code for code in UNSEEN_CODES])
        strange = (rng.random(n_rows) < 0.1) | (n_levels == 0)
        codes[strange] = rng.choice(unseen, int(strange.sum()))
    elif n_levels == 0:  # code 0 is none of its own
        codes[:] = np.nan
    return codes


def _numbers(pool: Array, dtype: Dtype, n_rows: int, rng: np.random.Generator) -> Array:
    """Thresholds and their neighbours, points between and beyond them, special numbers."""
    base = pool if len(pool) else np.array([0.0])
    with np.errstate(over="ignore", invalid="ignore"):
        span = max(float(base[-1] / 2 - base[0] / 2), 1.0)
        near = rng.choice(base, n_rows)
        single = near.astype(np.float32)
        edge = double_threshold(near) if dtype == "float32" else near
        draws = [
            near,
            edge,
            np.nextafter(edge, np.inf),
            np.nextafter(near, rng.choice([-np.inf, np.inf], n_rows)),
            np.nextafter(single, np.float32(np.inf)).astype(np.float64),
            np.nextafter(single, np.float32(-np.inf)).astype(np.float64),
            near / 2 + rng.choice(base, n_rows) / 2,
            near + rng.normal(size=n_rows) * span,
            np.rint(near + rng.normal(size=n_rows) * 3),
            rng.choice(_SPECIAL, n_rows),
        ]
    drawn: Array = np.choose(rng.integers(len(draws), size=n_rows), draws)
    return np.where(np.isnan(drawn), 0.0, drawn)
