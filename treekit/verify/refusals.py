"""Rows that a model's policies refuse, and which every artifact must refuse too."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treekit.model.model import Model
from treekit.verify.spread import UNSEEN_CODES

__all__ = ["refused_rows"]

Array = npt.NDArray[np.float64]

_MOST_COLUMNS = 1000


def refused_rows(model: Model, accepted: Array, rng: np.random.Generator) -> Array:
    """Spoil accepted rows, one cell each: missing, or an unseen category.

    Returns
    -------
    (rows, features) float64
        Without rows if the policies accept everything.
    """
    spoilt: list[tuple[int, float]] = []
    for f, column in enumerate(model.schema.columns[:_MOST_COLUMNS]):
        if model.missing == "error":
            spoilt.append((f, np.nan))
        if column.kind == "nominal" and "error" in (model.missing, model.unknown):
            sizes = [0, *([len(column.levels)] * (len(UNSEEN_CODES) - 1))]
            spoilt += [(f, n + code) for n, code in zip(sizes, UNSEEN_CODES, strict=True)]
    rows = (
        accepted[rng.integers(len(accepted), size=len(spoilt))]
        if len(accepted)
        else (np.zeros((len(spoilt), model.schema.n_features)))
    )
    for row, (f, value) in zip(rows, spoilt, strict=True):
        row[f] = value
    return rows
