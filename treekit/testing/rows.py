"""Rows that show whether two things answer alike: around thresholds, missing, unseen."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.model.model import Model
from treekit.model.tree import Split
from treekit.verify.probe_values import around_thresholds, random_rows
from treekit.verify.probes import refused_rows

__all__ = ["probe_rows"]

_MOST = 400
"""Rows tried for one column."""


def probe_rows(model: Model, seed: int = 0) -> tuple[npt.NDArray[np.float64], int]:
    """Rows of numbers and codes, the last of which the policies refuse.

    Parameters
    ----------
    seed : int
        Of what the other columns hold, and of some rows more.

    Returns
    -------
    rows : (rows, features) float64
        The numbers beside each threshold, each level, missing and unseen
        values where the model takes them.
    refused : int
        How many of them, at the end, the model refuses.
    """
    rng = np.random.default_rng(seed)
    pools = [_thresholds(model, f) for f in range(model.schema.n_features)]
    parts = [random_rows(model, pools, 60, rng)]
    for f, pool in enumerate(pools):
        values = _values(model, f, pool)
        part = random_rows(model, pools, len(values), rng)
        part[:, f] = values
        parts.append(part if len(part) <= _MOST else part[rng.permutation(len(part))[:_MOST]])
    rows = np.concatenate(parts)
    refused = refused_rows(model, rows, rng)
    return np.concatenate([rows, refused]), len(refused)


def _thresholds(model: Model, feature: int) -> npt.NDArray[np.float64]:
    """(thresholds,) float64: what a column is compared with, ascending."""
    found = [
        threshold[asked & (features == feature)]
        for tree in model.trees
        for threshold, asked, features in (
            (tree.threshold, tree.kind == Split.THRESHOLD, tree.feature),
            (tree.surrogate_threshold, ~np.isnan(tree.surrogate_threshold), tree.surrogate_feature),
        )
    ]
    return np.unique(np.concatenate(found) + 0.0)


def _values(model: Model, f: int, pool: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """What is tried of one column, each value with three rows around it."""
    column = model.schema.columns[f]
    if column.kind == "nominal":
        return np.repeat(np.arange(float(len(column.levels))), 3)
    values = around_thresholds(pool, model.schema.dtype).ravel()
    return np.repeat(values[~np.isnan(values)], 3)
