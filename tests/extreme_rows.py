"""Edge-case rows for any model, and the model's predictions for them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from treekit.model.model import Model
from treekit.model.tree import Split, Tree
from treekit.verify.answers import Answers, answers_from_sums

__all__ = ["extreme_rows", "refused", "wanted"]

Rows = npt.NDArray[np.float64]


def extreme_rows(model: Model, most: int = 250, seed: int = 0) -> Rows:
    """Return edge-case rows of numbers and category codes as (rows, features) float64.

    Numbers are at, one ulp from and far from thresholds, infinite, missing, subnormal and
    negative zero; codes are inside and outside the vocabulary, and fractional; some rows have
    missing values only.  There are about three times `most` rows.
    """
    rng = np.random.default_rng(seed)
    asked = _thresholds(model)
    choices = [_choices(model, f, asked[f], most, rng) for f in range(model.schema.n_features)]
    longest = max(map(len, choices))
    along = np.stack([np.resize(values, longest) for values in choices], axis=1)
    mixed = np.stack([rng.choice(values, most) for values in choices], axis=1)
    finite = np.where(np.abs(mixed) < 1e300, mixed, 1.0)  # rows with few missing or infinite cells
    alike = np.array([np.nan, np.inf, -np.inf, -0.0, 1.0])
    return np.concatenate([np.tile(alike[:, None], model.schema.n_features), along, mixed, finite])


def refused(model: Model, rows: Rows) -> npt.NDArray[np.bool_]:
    """Return a (rows,) bool mask of rows that the model's policies reject."""
    missing = np.isnan(rows)
    levels, nominal = model.schema.n_levels, model.schema.nominal
    code = (rows >= 0) & (rows < levels) & (rows == np.floor(rows))
    strange = nominal & ~missing & ~code
    wrong = np.zeros(rows.shape, dtype=np.bool_)
    if model.missing == "error":
        wrong |= missing | strange
    if model.unknown == "error":
        wrong |= strange
    return wrong.any(axis=1)


def wanted(model: Model, rows: Rows) -> Answers:
    """Return the model's predictions, `treekit.verify.answers.REFUSED` for rejected rows."""
    from treekit.model.scoring import sum_leaf_values

    answered = ~refused(model, rows)
    return answers_from_sums(model, sum_leaf_values(model, rows[answered]), answered)


def _thresholds(model: Model) -> list[Rows]:
    """Return the distinct thresholds of each column, including surrogates and oblique splits."""
    trees = {id(tree): tree for tree in model.trees}.values()
    found: list[list[Rows]] = [[np.array([0.0])] for _ in model.schema.columns]
    for tree in trees:
        for feature, at in _asked(tree):
            for f in np.unique(feature).tolist():
                found[f].append(at[feature == f])
    return [np.unique(np.concatenate(own)) for own in found]


def _asked(tree: Tree) -> Iterator[tuple[npt.NDArray[np.int32], Rows]]:
    at = tree.kind == Split.THRESHOLD
    yield tree.feature[at], tree.threshold[at]
    numeric = ~np.isnan(tree.surrogate_threshold)
    yield tree.surrogate_feature[numeric], tree.surrogate_threshold[numeric]
    counts = np.diff(tree.term_offsets)
    with np.errstate(over="ignore"):
        yield tree.term_feature, np.repeat(tree.threshold, counts) / tree.term_weight


def _choices(model: Model, feature: int, at: Rows, most: int, rng: np.random.Generator) -> Rows:
    column = model.schema.columns[feature]
    if column.kind == "nominal":
        n = len(column.levels)
        strange = [np.nan, -0.0, -1.0, 0.5, n - 0.5, float(n), 1e300, np.inf, -np.inf, 2.0**31]
        return np.array([*strange, *map(float, range(n))])
    few = at if len(at) <= most // 10 else rng.permutation(at)[: most // 10]
    special = [np.nan, np.inf, -np.inf, -0.0, 5e-324, -5e-324, 1e-46, 1e-39, 3.5e38, 1e308]
    return np.concatenate([special, *map(_near, {at[0], at[-1], *few.tolist()}), few + 1.5])


def _near(t: float) -> Rows:
    """Return `t`, the adjacent float32 numbers, midpoints, and the doubles adjacent to all."""
    with np.errstate(over="ignore", under="ignore"):
        up = float(np.nextafter(np.float32(t), np.float32(np.inf)))
        down = float(np.nextafter(np.float32(t), np.float32(-np.inf)))
    points = [float(t), up, down, t / 2 + up / 2, t / 2 + down / 2]
    ends = (math.inf, -math.inf)
    return np.array([*points, *(math.nextafter(p, end) for p in points for end in ends)])
