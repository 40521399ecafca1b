"""Values of probe rows: random rows and numbers around the thresholds of a model."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.data.features import LevelIndex
from treekit.data.schema import Column, Dtype, Schema
from treekit.model.fixed_point import to_double_threshold
from treekit.model.model import Model

# ---------------------------------------------------------------- random rows

Array = npt.NDArray[np.float64]

UNSEEN_CODES = (-1.0, 0.0, 1.0, 2.0**20)
"""Codes outside any vocabulary; all but the first are offsets from its size."""

SPECIAL_NUMBERS = np.array(
    [
        *(0.0, -0.0, np.inf, -np.inf, 1.0, -1.0, 1e300, -1e300, 5e-324, -5e-324),
        *(2.0**-149, 2.0**-150, -(2.0**-150), 1e-40, 3.4028235e38, 2.0**128, 1e-7),
        float(np.nextafter(2.0**128 - 2.0**103, 0.0)),  # the last double below infinity as float32
    ]
)


def draw_random_rows(
    model: Model, pools: list[Array], n_rows: int, rng: np.random.Generator
) -> Array:
    """Draw random rows for which the model has a prediction.

    Parameters
    ----------
    model : Model
    pools : list of (thresholds,) float64
        Thresholds of each column, ascending.
    n_rows : int
    rng : numpy.random.Generator

    Returns
    -------
    (n_rows, features) float64
    """
    rows = np.empty((n_rows, model.schema.n_features))
    for f, column in enumerate(model.schema.columns):
        rows[:, f] = (
            _draw_codes(model, column, n_rows, rng)
            if column.kind == "nominal"
            else _draw_numbers(pools[f], model.schema.dtype, n_rows, rng)
        )
        if model.missing != "error":
            rows[rng.random(n_rows) < 0.1, f] = np.nan
    return rows


def _draw_codes(model: Model, column: Column, n_rows: int, rng: np.random.Generator) -> Array:
    n_levels = len(column.levels)
    codes = np.floor(rng.random(n_rows) * n_levels)
    if model.unknown == "missing" and model.missing != "error":
        unseen = np.array([code if code < 0 else n_levels + code for code in UNSEEN_CODES])
        is_unseen = (rng.random(n_rows) < 0.1) | (n_levels == 0)
        codes[is_unseen] = rng.choice(unseen, int(is_unseen.sum()))
    elif n_levels == 0:  # without categories, code 0 is unseen
        codes[:] = np.nan
    return codes


def _draw_numbers(pool: Array, dtype: Dtype, n_rows: int, rng: np.random.Generator) -> Array:
    """Draw thresholds and their neighbours, points between and beyond them, and special numbers."""
    base = pool if len(pool) else np.array([0.0])
    with np.errstate(over="ignore", invalid="ignore"):
        span = max(float(base[-1] / 2 - base[0] / 2), 1.0)
        near = rng.choice(base, n_rows)
        single = near.astype(np.float32)
        edge = to_double_threshold(near) if dtype == "float32" else near
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
            rng.choice(SPECIAL_NUMBERS, n_rows),
        ]
    drawn: Array = np.choose(rng.integers(len(draws), size=n_rows), draws)
    return np.where(np.isnan(drawn), 0.0, drawn)


# ---------------------------------------------------------------- numbers around thresholds

N_AROUND = 11
"""Number of columns of `list_values_around`."""


def find_next_above(values: Array, dtype: Dtype) -> Array:
    """Return the next number of type `dtype` above each of `values`, as float64."""
    with np.errstate(over="ignore", under="ignore"):  # infinity follows the largest number
        above: Array = np.nextafter(values.astype(dtype), np.inf, dtype=dtype).astype(np.float64)
    return above


def list_values_around(thresholds: Array, dtype: Dtype) -> Array:
    """Return the numbers around each threshold that expose a wrong comparison.

    The threshold and the next number of the input type; the two doubles
    between which rounding to the input type changes sides; one ulp down and
    up in double and in single precision; infinities; negative zero.

    Returns
    -------
    (thresholds, 11) float64
        NaN for repeated numbers.
    """
    t = thresholds + 0.0
    after = find_next_above(t, dtype)
    edge = to_double_threshold(t) if dtype == "float32" else t
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
    return _blank_repeats(np.stack(columns, axis=1))


def _blank_repeats(values: Array) -> Array:
    """Replace repeats of a number further left by NaN; zeros differ by their sign."""
    bits = values.view(np.int64)
    for column in range(2, values.shape[1]):
        repeated = (bits[:, :column] == bits[:, column, None]).any(axis=1)
        values[repeated, column] = np.nan
    return values


# ---------------------------------------------------------------- cells of rows


def make_unseen_text(column: Column) -> str:
    """Return a text outside the vocabulary of a nominal column, similar to a category."""
    text = (column.levels[0] if column.levels else "") + "~"
    while text in column.levels:
        text += "~"
    return text


def list_category_texts(schema: Schema) -> list[tuple[int, str, int]]:
    """List columns, texts and codes: categories in all notations, and an unseen text of each."""
    texts: list[tuple[int, str, int]] = []
    for f, column in enumerate(schema.columns):
        texts += [
            (f, *known) for known in LevelIndex(column.levels, schema.missing_marks).codes.items()
        ]
        texts.append((f, make_unseen_text(column) if column.kind == "nominal" else "x", -1))
    return texts


def find_levels(column: Column, codes: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the positions of the categories of codes; others, and NaN, follow the last one."""
    n = len(column.levels)
    known = (codes >= 0) & (codes < n) & (codes == np.floor(codes))
    return np.where(known, codes, n).astype(np.int64)


def decode_cells(schema: Schema, row: npt.NDArray[np.float64]) -> list[float | str | None]:
    """Convert a row (features,) of numbers and codes to cells; None = missing."""
    cells: list[float | str | None] = []
    for column, x in zip(schema.columns, row.tolist(), strict=True):
        if x != x:
            cells.append(None)
        elif column.kind == "numeric":
            cells.append(x)
        else:
            known = 0 <= x < len(column.levels) and x == int(x)
            cells.append(column.levels[int(x)] if known else make_unseen_text(column))
    return cells
